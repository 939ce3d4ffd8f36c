//! Pods that come and go, one at a time or all at once.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use lab::{Lab, Pod};
use testkit::figures::Run;
use testkit::process::wait_until;

use crate::plugin::Plugin;

/// What was measured with pods of one kind.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pub(crate) adds: Vec<Run>,
    pub(crate) dels: Vec<Run>,
    /// Pods per second, from the first exec to the last exit.
    pub(crate) add_rates: Vec<f64>,
    pub(crate) del_rates: Vec<f64>,
    /// Pods per second, from the first exec of a DEL until the kernel has removed the last link. Only of bursts.
    pub(crate) removal_rates: Vec<f64>,
    /// ADD and DEL of the run under way.
    singles: Vec<(Duration, Duration)>,
}

impl Rounds {
    /// One more, of those that come one after another.
    pub(crate) fn single(&mut self, lab: &Lab, plugin: &Plugin, name: &str) -> Result<()> {
        let pod = lab.pod("bench", name)?;
        let times = (plugin.call("ADD", &pod)?, plugin.call("DEL", &pod)?);
        // As runtimes do; the kernel removes the link along with the namespace.
        drop(pod);
        await_removal()?;
        self.singles.push(times);
        Ok(())
    }

    /// Makes a run of those that came one after another.
    pub(crate) fn end_run(&mut self) {
        let (adds, dels) = std::mem::take(&mut self.singles).into_iter().unzip();
        self.add(Burst::one_by_one(adds), Burst::one_by_one(dels));
    }

    /// All at once.
    pub(crate) fn burst(&mut self, lab: &Lab, plugin: &Plugin, count: usize) -> Result<()> {
        let pods = pods(lab, count)?;
        let adds = Burst::of("ADD", plugin, &pods)?;
        let started = Instant::now();
        let dels = Burst::of("DEL", plugin, &pods)?;
        await_removal()?;
        self.removal_rates.push(count as f64 / started.elapsed().as_secs_f64());
        self.add(adds, dels);
        Ok(())
    }

    fn add(&mut self, adds: Burst, dels: Burst) {
        self.add_rates.push(adds.rate);
        self.del_rates.push(dels.rate);
        self.adds.push(Run::new(adds.times));
        self.dels.push(Run::new(dels.times));
    }
}

pub(crate) fn pods(lab: &Lab, count: usize) -> Result<Vec<Pod>> {
    (0..count).map(|number| lab.pod("bench", &format!("burst-{number}"))).collect()
}

pub(crate) struct Burst {
    times: Vec<Duration>,
    rate: f64,
}

impl Burst {
    pub(crate) fn of(verb: &str, plugin: &Plugin, pods: &[Pod]) -> Result<Burst> {
        let start = Barrier::new(pods.len() + 1);
        let call = |pod: &Pod| {
            start.wait();
            plugin.call(verb, pod)
        };
        let call = &call;
        thread::scope(|scope| {
            let threads: Vec<_> = pods.iter().map(|pod| scope.spawn(move || call(pod))).collect();
            start.wait();
            let started = Instant::now();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Duration>>| {
                thread.join().map_err(|_| anyhow!("a caller broke"))?
            };
            let times: Vec<Duration> = threads.into_iter().map(join).collect::<Result<_>>()?;
            Ok(Burst { rate: times.len() as f64 / started.elapsed().as_secs_f64(), times })
        })
    }

    fn one_by_one(times: Vec<Duration>) -> Burst {
        let rate = times.len() as f64 / times.iter().sum::<Duration>().as_secs_f64();
        Burst { times, rate }
    }
}

/// Whoever removes links behind the answer must not do so at the next one's expense.
pub(crate) fn await_removal() -> Result<()> {
    wait_until("links to be removed", || {
        let devices = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        let names = devices.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
        names.filter(|name| !matches!(*name, "lo" | "cni0")).count() == 0
    })
}
