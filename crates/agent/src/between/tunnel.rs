//! This node's tunnel addresses: in the address book and in its record, as long as a pool wants them.

use std::time::Duration;

use ipam::Tunnel;
use model::IpVersion;
use tracing::info;

use super::known::Known;
use crate::cni::Services;

/// Somebody may have given back the address by mistake; nothing announces that.
const LOOK_EVERY: Duration = Duration::from_secs(300);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(500);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// Never ends.
pub(super) async fn keep(services: &Services, known: &Known) {
    let mut delay = RETRY_DELAY_MIN;
    loop {
        let wait = match ensure(services, known).await {
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
async fn ensure(services: &Services, known: &Known) -> bool {
    let agent = services.agent().expect("only the agent has tunnels");
    let Some(book) = agent.book.get().filter(|_| known.lock().is_complete()) else { return true };
    let mut is_fine = true;
    for (tunnel, version) in [(Tunnel::Vxlan, IpVersion::V4), (Tunnel::VxlanV6, IpVersion::V6)] {
        let (wanted, has) = {
            let state = known.lock();
            let has = state.between.own_node().and_then(|node| node.of(version).tunnel);
            (state.between.wants_vxlan(version), has)
        };
        if !wanted && has.is_none() {
            continue;
        }
        match book.ensure_tunnel_address(&agent.node, tunnel).await {
            Ok(address) if address == has => {}
            Ok(Some(address)) => info!("this node's VXLAN tunnel has the address {address}"),
            Ok(None) => info!("this node has no VXLAN tunnel address of {version:?} any more"),
            Err(error) => {
                is_fine = false;
                services.say_once(format!("this node's VXLAN tunnel has no address: {error}"));
            }
        }
    }
    is_fine
}
