//! What a watcher costs while nothing happens, beside a process that only sleeps.

use std::time::{Duration, Instant};

use testkit::effort::Effort;
use testkit::figures::{Figure, Peer};
use testkit::process::{Process, command};

use crate::target::Target;
use crate::watchers::Watcher;

/// What starting takes is not meant. By now the runtime has sent home the threads that it needed for that.
const SETTLE: Duration = Duration::from_secs(12);

/// Longer than the slow look of the watcher, twice.
const SPAN: Duration = Duration::from_secs(12);

pub(crate) fn figures(sqlite: &Target) -> anyhow::Result<Vec<Figure>> {
    let watcher = Watcher::start(sqlite)?;
    let mut sleep = command("sleep");
    sleep.arg("3600");
    let sleeper = Process::spawn(sleep)?;
    std::thread::sleep(SETTLE);

    let ids = [watcher.process.id(), sleeper.id()];
    let started = Instant::now();
    let before = [Effort::of(ids[0])?, Effort::of(ids[1])?];
    std::thread::sleep(SPAN);
    let after = [Effort::of(ids[0])?, Effort::of(ids[1])?];
    let seconds = started.elapsed().as_secs_f64();

    let cpu = |index: usize| (after[index].cpu_ms - before[index].cpu_ms) / seconds;
    let wakeups = |index: usize| (after[index].wakeups - before[index].wakeups) / seconds;
    let figure = |name: &str, unit: &'static str, own: f64, peer: f64| {
        let ratio = (peer > 0.0).then(|| own / peer);
        Figure::new(name, own, unit).with_peer(Peer { name: "sleeping process", value: peer, ratio })
    };
    Ok(vec![
        figure("sqlite: idle watcher, CPU", "ms/s", cpu(0), cpu(1)),
        figure("sqlite: idle watcher, wakeups", "per second", wakeups(0), wakeups(1)),
    ])
}
