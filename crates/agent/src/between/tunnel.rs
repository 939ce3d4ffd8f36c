//! This node's tunnel addresses: in the IPAM records and in its Node record, as long as a pool requires them.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ipam::Tunnel;
use model::IpVersion;
use tracing::info;

use super::cache::Cache;
use super::mtu;
use crate::services::Agent;

/// An operator may have released the address by mistake; nothing announces that.
const CHECK_EVERY: Duration = Duration::from_secs(300);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(500);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// Never ends.
pub(super) async fn keep(agent: &Agent, cache: &Cache, mtu_file: &Path) {
    let mut delay = RETRY_DELAY_MIN;
    loop {
        let wait = match ensure(agent, cache, mtu_file).await {
            true => {
                delay = RETRY_DELAY_MIN;
                CHECK_EVERY
            }
            false => {
                delay = (delay * 2).min(RETRY_DELAY_MAX);
                delay
            }
        };
        tokio::select! {
            () = cache.tunnels.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Whether all addresses are as desired.
async fn ensure(agent: &Agent, cache: &Cache, mtu_file: &Path) -> bool {
    // Existing routes may still need a tunnel, so nothing is decided before they are adopted. `cache.tunnels` is notified then.
    let is_ready = {
        let state = cache.lock();
        state.is_complete() && state.has_adopted
    };
    let Some(book) = agent.book.get().filter(|_| is_ready) else { return true };
    let mut is_fine = true;
    for tunnel in [Tunnel::Vxlan, Tunnel::VxlanV6, Tunnel::Ipip] {
        let (wanted, has) = desired_and_recorded(cache, tunnel);
        if !wanted && has.is_none() {
            continue;
        }
        if has.is_none() {
            // Other nodes use the tunnel once its address is recorded, so new pods need its MTU from then on.
            mtu::update(cache, mtu_file).await;
        }
        match book.ensure_tunnel_address(&agent.node, tunnel).await {
            Ok(address) if address == has => {}
            Ok(Some(address)) => info!(tunnel = tunnel.type_word(), %address, "allocated a tunnel address"),
            Ok(None) => info!(tunnel = tunnel.type_word(), "released a tunnel address"),
            Err(error) => {
                is_fine = false;
                agent.warn_once(format!(
                    "cannot allocate or release this node's {}: {error}",
                    tunnel.type_word()
                ));
            }
        }
    }
    is_fine
}

/// Whether a pool requires the tunnel, and the address in the node's record.
fn desired_and_recorded(cache: &Cache, tunnel: Tunnel) -> (bool, Option<IpAddr>) {
    let state = cache.lock();
    let own = state.between.own_node();
    match tunnel {
        // Without the device in the kernel an address would be useless.
        Tunnel::Ipip if state.between.wants_ipip() && !state.between.uplinks().has_ipip => (false, None),
        Tunnel::Ipip => (state.between.wants_ipip(), own.and_then(|node| node.ipip_tunnel)),
        _ => {
            let version = tunnel.version();
            let has = own.and_then(|node| node.of(version).tunnel);
            // A disabled pool allocates no addresses, but those allocated are still reached through the tunnel.
            let keeps = state.between.wants_vxlan(version) && !state.between.offers_vxlan(version);
            // Other nodes may send as soon as they read a new address, so the device comes first.
            let waits = has.is_none() && !state.has_device[usize::from(version == IpVersion::V6)];
            (state.between.wants_vxlan(version) && !keeps && !waits, has.filter(|_| !keeps))
        }
    }
}
