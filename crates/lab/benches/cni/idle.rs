//! What an agent costs while its pods live and nothing happens.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use lab::Lab;
use testkit::effort::{Effort, resident_bytes};

use crate::contender::Contender;
use crate::rounds::{Burst, await_removal, pods};

/// What the burst before left to do is not meant.
const SETTLE: Duration = Duration::from_secs(15);
const SPAN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) pods: usize,
    pub(crate) resident_mib: f64,
    pub(crate) cpu_percent: f64,
}

impl Idle {
    pub(crate) fn measure(lab: &Lab, contender: &Contender, count: usize) -> Result<Idle> {
        let agent = contender.agent.as_ref().context("a contender with an agent")?.id();
        let pods = pods(lab, count)?;
        contender.visit(|| Burst::of("ADD", &contender.plugin, &pods).map(drop))??;
        sleep(SETTLE);
        let resident_mib = resident_bytes(agent)? as f64 / f64::from(1 << 20);
        let (started, before) = (Instant::now(), Effort::of(agent)?);
        sleep(SPAN);
        let worked_ms = Effort::of(agent)?.cpu_ms - before.cpu_ms;
        let cpu_percent = worked_ms / started.elapsed().as_secs_f64() / 10.0;
        contender.visit(|| {
            Burst::of("DEL", &contender.plugin, &pods)?;
            await_removal()
        })??;
        Ok(Idle { pods: count, resident_mib, cpu_percent })
    }
}
