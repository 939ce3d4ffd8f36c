//! This node's tunnel addresses: in the address book and in its record, as long as a pool wants them.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ipam::Tunnel;
use model::IpVersion;
use tracing::info;

use super::known::Known;
use super::mtu;
use crate::cni::Services;

/// Somebody may have given back the address by mistake; nothing announces that.
const LOOK_EVERY: Duration = Duration::from_secs(300);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(500);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// Never ends.
pub(super) async fn keep(services: &Services, known: &Known, mtu_file: &Path) {
    let mut delay = RETRY_DELAY_MIN;
    loop {
        let wait = match ensure(services, known, mtu_file).await {
            true => {
                delay = RETRY_DELAY_MIN;
                LOOK_EVERY
            }
            false => {
                delay = (delay * 2).min(RETRY_DELAY_MAX);
                delay
            }
        };
        tokio::select! {
            () = known.tunnels.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Whether all is as it should be.
async fn ensure(services: &Services, known: &Known, mtu_file: &Path) -> bool {
    let agent = services.agent().expect("only the agent has tunnels");
    // Before it is known what stays routed, nobody knows whether a tunnel is still wanted. Whoever waits here is told.
    let is_known = {
        let state = known.lock();
        state.is_complete() && state.has_adopted
    };
    let Some(book) = agent.book.get().filter(|_| is_known) else { return true };
    let mut is_fine = true;
    for tunnel in [Tunnel::Vxlan, Tunnel::VxlanV6, Tunnel::Ipip] {
        let (wanted, has) = wanted_and_there(known, tunnel);
        if !wanted && has.is_none() {
            continue;
        }
        if has.is_none() {
            // Packets take the tunnel once its address is known: pods that are made from then on must fit through it.
            mtu::note_now(known, mtu_file).await;
        }
        match book.ensure_tunnel_address(&agent.node, tunnel).await {
            Ok(address) if address == has => {}
            Ok(Some(address)) => info!("this node's tunnel ({}) has {address}", tunnel.type_word()),
            Ok(None) => info!("this node has no {} any more", tunnel.type_word()),
            Err(error) => {
                is_fine = false;
                services.say_once(format!("this node has no {}: {error}", tunnel.type_word()));
            }
        }
    }
    is_fine
}

/// Whether a pool wants it, and what the node's record says.
fn wanted_and_there(known: &Known, tunnel: Tunnel) -> (bool, Option<IpAddr>) {
    let state = known.lock();
    let own = state.between.own_node();
    match tunnel {
        // Without it in the kernel an address would be of no use.
        Tunnel::Ipip if state.between.wants_ipip() && !state.between.uplinks().has_ipip => (false, None),
        Tunnel::Ipip => (state.between.wants_ipip(), own.and_then(|node| node.ipip_tunnel)),
        _ => {
            let version = tunnel.version();
            let has = own.and_then(|node| node.of(version).tunnel);
            // A pool that is disabled gives no addresses; those that it gave are still reached through the tunnel.
            let keeps = state.between.wants_vxlan(version) && !state.between.offers_vxlan(version);
            // Whoever reads a new address in the record may send at once: the device comes first.
            let waits = has.is_none() && !state.has_device[usize::from(version == IpVersion::V6)];
            (state.between.wants_vxlan(version) && !keeps && !waits, has.filter(|_| !keeps))
        }
    }
}
