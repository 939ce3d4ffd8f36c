//! `plumb lab replay`: an outage of the past, in a lab of its own.

use lab::cluster::Mode;

use super::own;
use crate::cli::{Incident, Replay};
use crate::failure::Failure;

pub(super) fn run(command: &Replay) -> Result<(), Failure> {
    let story = |line: &str| println!("{line}");
    match command.incident {
        Incident::StaleDelete => {
            let cluster = own(command.nodes.unwrap_or(1), command.store, Mode::Direct, &command.making)?;
            lab::replay::stale_delete(&cluster, &story)?;
            cluster.down()?;
        }
        Incident::LeakedEndpoints => {
            let cluster = own(command.nodes.unwrap_or(10), command.store, Mode::Direct, &command.making)?;
            lab::replay::leaked_endpoints(&cluster, command.leaks.unwrap_or(600), &story)?;
            cluster.down()?;
        }
        Incident::WrongNic => {
            let cluster = own(command.nodes.unwrap_or(3), command.store, Mode::Bgp, &command.making)?;
            lab::replay::wrong_nic(&cluster, &story)?;
            cluster.down()?;
        }
        Incident::IpamDrift => {
            let cluster = own(command.nodes.unwrap_or(2), command.store, Mode::Direct, &command.making)?;
            lab::replay::ipam_drift(&cluster, &story)?;
            cluster.down()?;
        }
        Incident::SharedAddress => {
            let cluster = own(command.nodes.unwrap_or(1), command.store, Mode::Direct, &command.making)?;
            lab::replay::shared_address(&cluster, &story)?;
            cluster.down()?;
        }
    }
    Ok(())
}
