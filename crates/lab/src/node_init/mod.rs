//! The first process of a node: makes the node's own view of the machine, starts what runs on a node, and takes
//! everything with it when it goes. To kill it is to cut the node's power; to start it again is to boot.
//!
//! It runs as process 1 of its own process namespace, in its own mount and UTS namespaces, in the network
//! namespace that the lab has made for the node. `plumb lab` starts it.

mod mounts;
mod services;

use anyhow::{Context as _, Result, ensure};

use crate::cluster::{Description, LabName, Place};
use crate::control;
pub(crate) use mounts::{SOCKETS, prepare as prepare_node};
pub(crate) use services::{InitRequest, ServiceStatus, StopSignal};

/// Runs the node. Returns only if it could not be started.
pub fn run(lab: &LabName, node: &str) -> Result<()> {
    ensure!(std::process::id() == 1, "this is run by `plumb lab up`, as the first process of a node");
    let place = Place::of(lab);
    let description = Description::load(place.folder())?;
    let node = description.node(node)?.clone();
    std::fs::write("/proc/sys/kernel/hostname", &node.name).context("cannot set the node's name")?;
    mounts::make(&place.node(&node.name))?;
    // Bound before anything runs, so that whoever waits for the node finds somebody to ask.
    let listener = control::listen(&place.init_socket(&node.name))?;
    let services = services::Services::start(&description, &node, &place)?;
    control::serve(&listener, move |request| services.handle(request))
}
