//! The pieces of kernel work, each done on the kernel's thread in one go, and small enough that calls need not wait for long.

use std::sync::Arc;

use host::survey::Survey;
use host::{Host, HostError};
use model::IpVersion;
use plan::ROUTE_PROTOCOL;
use plan::between::{
    BETWEEN_PROTOCOL, BetweenDevices, FoundRoute, Hop, IPIP_DEVICE, Step, VXLAN_DEVICES, Via, VxlanDevice,
    between_differences,
};

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
/// The kernel's numbers.
const BIRD_PROTOCOL: u8 = 12;
const BLACKHOLE: u8 = 6;

/// Finds the devices, makes the tunnels' and compares the rest.
pub(super) fn look(host: &mut Host, known: &Arc<Known>) -> Result<Looked, HostError> {
    let mut looked = Looked::default();
    adopt(known)?;
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
    note_devices(known, &looked.devices);
    let observed = host.observe_between(&looked.devices)?;
    looked.steps = between_differences(&known.lock().between, &observed);
    Ok(looked)
}

/// Takes over what an agent before this one has routed, once. Blocks that nobody would route anew stay routed if they are.
fn adopt(known: &Known) -> Result<(), HostError> {
    let (is_done, has_outlaws) = {
        let state = known.lock();
        (state.has_adopted, state.between.has_outlaws())
    };
    if is_done {
        return Ok(());
    }
    let survey = if has_outlaws { Survey::here()? } else { Survey::default() };
    let has_device = |name: &str| survey.links.iter().any(|link| link.name == name);
    let mut state = known.lock();
    state.between.adopt(&routes_found(&survey), VXLAN_DEVICES.map(has_device));
    state.has_adopted = true;
    drop(state);
    known.tunnels.notify_one();
    Ok(())
}

/// Routes of ours to pods and to other nodes, and those of BIRD.
fn routes_found(survey: &Survey) -> Vec<FoundRoute> {
    let via = |index: u32| {
        let name = survey.links.iter().find(|link| link.index == index)?.name.as_str();
        Some(match name {
            name if VXLAN_DEVICES.contains(&name) => Via::Vxlan,
            IPIP_DEVICE => Via::Ipip,
            _ => Via::Uplink,
        })
    };
    let ours = survey
        .routes
        .iter()
        .filter(|route| [BETWEEN_PROTOCOL, ROUTE_PROTOCOL, BIRD_PROTOCOL].contains(&route.protocol));
    ours.map(|route| {
        let hop = match (route.kind, route.index) {
            (BLACKHOLE, _) => Hop::Blackhole,
            (_, Some(index)) => Hop::Device { index, via: via(index), gateway: route.gateway },
            (_, None) => Hop::Odd,
        };
        FoundRoute { destination: route.destination, metric: route.metric.unwrap_or_default(), hop }
    })
    .collect()
}

/// Others are told of a tunnel's address only when there is a device to receive what they send.
fn note_devices(known: &Known, devices: &BetweenDevices) {
    let has_device = devices.vxlan.map(|index| index.is_some());
    let mut state = known.lock();
    if state.has_device != has_device {
        state.has_device = has_device;
        drop(state);
        known.tunnels.notify_one();
    }
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
