//! Being asked to stop, and the certainty that it happens.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

/// How long the process may take to end once it was asked to. A little less than what is promised.
const STOP_MAX: Duration = Duration::from_millis(2_500);
/// A log that takes nothing any more must not keep the process either.
const LAST_WORDS_MAX: Duration = Duration::from_millis(100);

/// Signals that ask the agent to stop.
pub(super) struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Of the calling thread's runtime.
    pub(super) fn new() -> io::Result<Stop> {
        Ok(Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(super) async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// From now on the process ends soon after it was asked to, whatever hangs: another program, the store, the kernel, a disk.
/// It has a thread and a runtime of its own, because the other ones may be what hangs. What is left halfway is found at the
/// next start, as after a crash.
pub(super) fn in_time() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut stop = {
        let _in_it = runtime.enter();
        Stop::new()?
    };
    let wait = move || {
        runtime.block_on(async {
            stop.asked().await;
            tokio::time::sleep(STOP_MAX).await;
        });
        let _ = std::thread::Builder::new().spawn(|| {
            warn!("not everything ended in time; what is left halfway is found at the next start");
        });
        std::thread::sleep(LAST_WORDS_MAX);
        std::process::exit(0);
    };
    std::thread::Builder::new().name("stop".to_owned()).spawn(wait).map(|_| ())
}

/// Tells the log.
pub(super) async fn asked(stop: &mut Stop) {
    stop.asked().await;
    info!("asked to stop");
}
