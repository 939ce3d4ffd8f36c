//! The pieces of kernel work, each done on the kernel's thread in one go, and small enough that calls need not wait for long.

use std::sync::Arc;

use host::{Host, HostError};
use model::IpVersion;
use plan::between::{BetweenDevices, Step, VxlanDevice, between_differences};

use super::known::Known;
use crate::failpoint::{self, Point};

/// What a look at everything found to do.
#[derive(Debug, Default)]
pub(super) struct Looked {
    pub(super) devices: BetweenDevices,
    pub(super) steps: Vec<Step>,
    /// Tunnels' devices that were not there, or not as wanted.
    pub(super) made: Vec<&'static str>,
    /// Devices that could not be made, in words.
    pub(super) failed: Vec<String>,
    /// Other rules of nftables are wanted than before.
    pub(super) nat: bool,
}

const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

/// Finds the devices, makes the tunnels' and compares the rest.
pub(super) fn look(host: &mut Host, known: &Arc<Known>) -> Result<Looked, HostError> {
    let mut looked = Looked::default();
    let ipip = find_uplinks(host, known, &mut looked)?;
    let wanted = wanted_tunnels(known);
    looked.devices = BetweenDevices { ipip, ..known_devices(known) };
    failpoint::hit(Point::BetweenBeforeTunnel);
    for (slot, wanted) in wanted.iter().enumerate() {
        let Some(wanted) = wanted else { continue };
        match host.ensure_vxlan(wanted) {
            Ok((index, is_new)) => {
                looked.devices.vxlan[slot] = Some(index);
                looked.made.extend(is_new.then(|| wanted.name()));
            }
            Err(error) => looked.failed.push(format!("{} cannot be set up: {error}", wanted.name())),
        }
    }
    failpoint::hit(Point::BetweenAfterTunnel);
    let observed = host.observe_between(&looked.devices)?;
    looked.steps = between_differences(&known.lock().between, &observed);
    Ok(looked)
}

/// Finds the node's cards, and gives the index of the device for IPIP if a pool wants it and the kernel has it.
fn find_uplinks(host: &mut Host, known: &Known, looked: &mut Looked) -> Result<Option<u32>, HostError> {
    let own = known.lock().between.own_node().cloned().unwrap_or_default();
    let [v4, v6] = [own.v4, own.v6].map(|presence| presence.address.map(|network| network.addr()));
    let mut uplinks = host.find_uplinks(v4, v6)?;
    let mut ipip = None;
    if let Some(wanted) = known.lock().between.ipip(&uplinks) {
        match host.ensure_ipip(&wanted) {
            Ok(index) => ipip = index,
            Err(error) => looked.failed.push(format!("the device for IPIP cannot be set up: {error}")),
        }
    }
    uplinks.has_ipip = ipip.is_some();
    let mut state = known.lock();
    if *state.between.uplinks() != uplinks {
        state.between.set_uplinks(uplinks);
        // Whether the kernel has IPIP decides about its address.
        known.tunnels.notify_one();
    }
    // Whatever else comes of it, a look at everything shows.
    looked.nat = state.between.settle().nat;
    Ok(ipip)
}

fn wanted_tunnels(known: &Known) -> [Option<VxlanDevice>; 2] {
    let state = known.lock();
    VERSIONS.map(|version| state.between.vxlan(version).cloned())
}

fn known_devices(known: &Known) -> BetweenDevices {
    let state = known.lock();
    let uplinks = VERSIONS.map(|version| state.between.uplinks().of(version).map(|uplink| uplink.index));
    BetweenDevices { uplinks, ..BetweenDevices::default() }
}

/// Takes tunnels that nobody wants any more out of service, or removes them: last, when nothing of ours leads through them. Whether
/// there is one that is still to be removed.
pub(super) fn retire_tunnels(host: &mut Host, known: &Known, removes: bool) -> Result<bool, HostError> {
    let wanted = wanted_tunnels(known);
    let mut is_left = false;
    for (version, wanted) in VERSIONS.into_iter().zip(wanted) {
        if wanted.is_some() {
            continue;
        }
        if !removes {
            is_left |= host.retire_vxlan(version)?;
        } else if host.remove_vxlan(version)? {
            tracing::info!("removed the VXLAN device for {version:?}: no pool wants it any more");
        }
    }
    Ok(is_left)
}
