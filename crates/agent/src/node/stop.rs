//! Signals that stop the agent, and a limit on how long that takes.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

/// How long the process may take to end. A little less than the 3 s that the docs promise.
const STOP_MAX: Duration = Duration::from_millis(2_500);
/// A log that blocks must not keep the process running either.
const LAST_LOG_MAX: Duration = Duration::from_millis(100);

/// SIGTERM and SIGINT.
pub(super) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// On the calling thread's runtime.
    pub(super) fn new() -> io::Result<Stop> {
        Ok(Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// From now on the process ends soon after a signal, whatever hangs: another program, the store, the kernel, a disk. This has a thread and a
/// runtime of its own, because the others may be what hangs. The next start completes what was interrupted, as after a crash.
pub(super) fn in_time() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stop = {
        let _entered = runtime.enter();
        Stop::new()?
    };
    let wait = move || {
        runtime.block_on(async {
            stop.received().await;
            tokio::time::sleep(STOP_MAX).await;
        });
        let _ = std::thread::Builder::new().spawn(|| {
            warn!("stopped before all work ended; the next start completes it");
        });
        std::thread::sleep(LAST_LOG_MAX);
        std::process::exit(0);
    };
    std::thread::Builder::new().name("stop".to_owned()).spawn(wait).map(|_| ())
}

pub(super) async fn requested(stop: &mut Stop) {
    stop.received().await;
    info!("received a signal to stop");
}
