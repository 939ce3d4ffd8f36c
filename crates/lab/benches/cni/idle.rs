//! What an agent costs while its pods live and nothing happens.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use lab::{Lab, Pod};
use testkit::effort::{Effort, resident_bytes};

use crate::contender::Contender;
use crate::rounds::{Burst, await_removal, pods};

/// What the burst before left to do is not meant.
const SETTLE: Duration = Duration::from_secs(15);
const SPAN: Duration = Duration::from_secs(30);

/// Pods that stay for a while.
#[derive(Debug)]
pub(crate) struct Crowd<'a> {
    contender: &'a Contender,
    pods: Vec<Pod>,
}

impl Crowd<'_> {
    pub(crate) fn gather<'a>(lab: &Lab, contender: &'a Contender, count: usize) -> Result<Crowd<'a>> {
        let pods = pods(lab, count)?;
        contender.visit(|| Burst::of("ADD", &contender.plugin, &pods).map(drop))??;
        Ok(Crowd { contender, pods })
    }

    pub(crate) fn disperse(self) -> Result<()> {
        self.contender.visit(|| {
            Burst::of("DEL", &self.contender.plugin, &self.pods)?;
            await_removal()
        })?
    }
}

#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) pods: usize,
    pub(crate) resident_mib: f64,
    pub(crate) cpu_percent: f64,
    pub(crate) wakeups_per_second: f64,
}

impl Idle {
    pub(crate) fn measure(crowd: &Crowd<'_>) -> Result<Idle> {
        let agent = crowd.contender.agent.as_ref().context("a contender with an agent")?.id();
        sleep(SETTLE);
        let resident_mib = resident_bytes(agent)? as f64 / f64::from(1 << 20);
        let (started, before) = (Instant::now(), Effort::of(agent)?);
        sleep(SPAN);
        let (after, span) = (Effort::of(agent)?, started.elapsed().as_secs_f64());
        Ok(Idle {
            pods: crowd.pods.len(),
            resident_mib,
            cpu_percent: (after.cpu_ms - before.cpu_ms) / span / 10.0,
            wakeups_per_second: (after.wakeups - before.wakeups) / span,
        })
    }
}
