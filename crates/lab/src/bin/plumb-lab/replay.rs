//! `plumb lab replay`: an outage of the past, in a lab of its own.

use lab::cluster::{Cluster, Mode};
use lab::replay;

use super::own;
use crate::cli::{Incident, Replay};
use crate::failure::Failure;

type Play<'a> = &'a dyn Fn(&Cluster, &dyn Fn(&str)) -> anyhow::Result<()>;

pub(super) fn run(command: &Replay) -> Result<(), Failure> {
    let leaks = command.leaks.unwrap_or(600);
    let leaked = |cluster: &Cluster, tell: &dyn Fn(&str)| replay::leaked_endpoints(cluster, leaks, tell);
    let (nodes, mode, play): (usize, Mode, Play<'_>) = match command.incident {
        Incident::StaleDelete => (1, Mode::Direct, &replay::stale_delete),
        Incident::LeakedEndpoints => (10, Mode::Direct, &leaked),
        Incident::WrongNic => (3, Mode::Bgp, &replay::wrong_nic),
        Incident::IpamDrift => (3, Mode::Direct, &replay::ipam_drift),
        Incident::SharedAddress => (1, Mode::Direct, &replay::shared_address),
    };
    let cluster = own(command.nodes.unwrap_or(nodes), command.store, mode, &command.making)?;
    play(&cluster, &|line| println!("{line}"))?;
    cluster.down()?;
    Ok(())
}
