//! Pieces of kernel work, each small enough that calls do not wait long for the kernel thread.

use std::sync::Arc;

use host::survey::Survey;
use host::{Host, HostError};
use model::IpVersion;
use plan::between::{
    BETWEEN_PROTOCOL, BetweenDevices, IPIP_DEVICE, Step, VXLAN_DEVICES, Via, VxlanDevice, between_differences,
};
use plan::{ROUTE_PROTOCOL, Route};

use super::cache::Cache;
use crate::failpoint::{self, Point};

/// What a full observation found to do.
#[derive(Debug, Default)]
pub(super) struct Observation {
    pub(super) devices: BetweenDevices,
    pub(super) steps: Vec<Step>,
    /// Tunnel devices that were missing or different, and were made.
    pub(super) made: Vec<&'static str>,
    /// Devices that could not be made, in words.
    pub(super) failed: Vec<String>,
    /// The desired nftables rules have changed.
    pub(super) nat: bool,
}

const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];
/// The kernel's number.
const BIRD_PROTOCOL: u8 = 12;

/// Finds the devices, makes the tunnel devices and compares the rest.
pub(super) fn observe(host: &mut Host, cache: &Arc<Cache>) -> Result<Observation, HostError> {
    let mut observation = Observation::default();
    adopt(cache)?;
    let ipip = find_uplinks(host, cache, &mut observation)?;
    let desired = desired_tunnels(cache);
    observation.devices = BetweenDevices { ipip, ..uplink_devices(cache) };
    failpoint::hit(Point::BetweenBeforeTunnel);
    for (slot, desired) in desired.iter().enumerate() {
        let Some(desired) = desired else { continue };
        match host.ensure_vxlan(desired) {
            Ok((index, is_new)) => {
                observation.devices.vxlan[slot] = Some(index);
                observation.made.extend(is_new.then(|| desired.name()));
            }
            Err(error) => observation.failed.push(format!("cannot set up {}: {error}", desired.name())),
        }
    }
    failpoint::hit(Point::BetweenAfterTunnel);
    record_devices(cache, &observation.devices);
    let observed = host.observe_between(&observation.devices)?;
    observation.steps = between_differences(&cache.lock().between, &observed);
    Ok(observation)
}

/// Takes over the routes of an earlier agent, once. Blocks that would not be routed now stay routed if they are.
fn adopt(cache: &Cache) -> Result<(), HostError> {
    let (is_done, has_outlaws) = {
        let state = cache.lock();
        (state.has_adopted, state.between.has_outlaws())
    };
    if is_done {
        return Ok(());
    }
    let survey = if has_outlaws { Survey::here()? } else { Survey::default() };
    let has_device = |name: &str| survey.links.iter().any(|link| link.name == name);
    let mut state = cache.lock();
    state.between.adopt(&routes_found(&survey), VXLAN_DEVICES.map(has_device));
    state.has_adopted = true;
    drop(state);
    cache.tunnels.notify_one();
    Ok(())
}

/// Our routes to pods and to other nodes, and those of BIRD, with what their devices are for.
fn routes_found(survey: &Survey) -> Vec<(Route, Option<Via>)> {
    let via = |index: u32| {
        Some(match survey.device(index)? {
            name if VXLAN_DEVICES.contains(&name) => Via::Vxlan,
            IPIP_DEVICE => Via::Ipip,
            _ => Via::Uplink,
        })
    };
    let ours = survey
        .routes
        .iter()
        .filter(|route| [BETWEEN_PROTOCOL, ROUTE_PROTOCOL, BIRD_PROTOCOL].contains(&route.protocol));
    ours.map(|route| (*route, route.device.and_then(via))).collect()
}

/// A tunnel's address is recorded only when there is a device to receive what other nodes send.
fn record_devices(cache: &Cache, devices: &BetweenDevices) {
    let has_device = devices.vxlan.map(|index| index.is_some());
    let mut state = cache.lock();
    if state.has_device != has_device {
        state.has_device = has_device;
        drop(state);
        cache.tunnels.notify_one();
    }
}

/// Finds the node's network interfaces, and the index of the IPIP device if a pool requires it and the kernel supports it.
fn find_uplinks(
    host: &mut Host,
    cache: &Cache,
    observation: &mut Observation,
) -> Result<Option<u32>, HostError> {
    let own = cache.lock().between.own_node().cloned().unwrap_or_default();
    let [v4, v6] = [own.v4, own.v6].map(|presence| presence.address.map(|network| network.addr()));
    let mut uplinks = host.find_uplinks(v4, v6)?;
    let mut ipip = None;
    if let Some(wanted) = cache.lock().between.ipip(&uplinks) {
        match host.ensure_ipip(&wanted) {
            Ok(index) => ipip = index,
            Err(error) => observation.failed.push(format!("cannot set up the IPIP device: {error}")),
        }
    }
    uplinks.has_ipip = ipip.is_some();
    let mut state = cache.lock();
    if *state.between.uplinks() != uplinks {
        state.between.set_uplinks(uplinks);
        // The tunnel address depends on whether the kernel supports IPIP.
        cache.tunnels.notify_one();
    }
    // The observation itself shows all other effects.
    observation.nat = state.between.settle().nat;
    Ok(ipip)
}

fn desired_tunnels(cache: &Cache) -> [Option<VxlanDevice>; 2] {
    let state = cache.lock();
    VERSIONS.map(|version| state.between.vxlan(version).cloned())
}

fn uplink_devices(cache: &Cache) -> BetweenDevices {
    let state = cache.lock();
    let uplinks = VERSIONS.map(|version| state.between.uplinks().of(version).map(|uplink| uplink.index));
    BetweenDevices { uplinks, ..BetweenDevices::default() }
}

/// Takes tunnels that no pool requires any more out of service, or removes them: last, when none of our routes uses them. Whether one is still to
/// be removed.
pub(super) fn retire_tunnels(host: &mut Host, cache: &Cache, removes: bool) -> Result<bool, HostError> {
    let desired = desired_tunnels(cache);
    let mut is_left = false;
    for (version, desired) in VERSIONS.into_iter().zip(desired) {
        if desired.is_some() {
            continue;
        }
        if !removes {
            is_left |= host.retire_vxlan(version)?;
        } else if host.remove_vxlan(version)? {
            tracing::info!(?version, "removed the VXLAN device, which no pool requires any more");
        }
    }
    Ok(is_left)
}
