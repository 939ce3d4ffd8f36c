//! Keeps the routes and tunnels to other nodes as the records say.
//!
//! ```text
//!   store: nodes, pools, blocks, settings ─▶ Known (plan::Between) ─▶ what changed ─┐
//!                                                                                   ├─▶ steps ─▶ kernel's thread
//!   kernel ─▶ observed, at the start, now and then, and when a stranger touched it ─┘
//!   pools, this node's record ─▶ tunnel addresses, from the address book
//!   this node's devices, other nodes' addresses ─▶ this node's address
//!   this node's endpoint records ─▶ what pods may send from besides their addresses
//!   this node's devices, pools ─▶ the MTU of pods, in a file
//! ```
//!
//! Nothing is done before all records have been listed once. While the store is away, what is known stays. A record that changes
//! costs what depends on it. Stopping leaves everything as it is, and a start finds it so.

mod address;
mod keep;
mod known;
mod mtu;
mod nat;
mod steps;
mod tunnel;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use host::{HostError, Monitor};
use model::Cidr;
use plan::between::{BetweenNotice, Encapsulation};
use store::Store;
use tokio::sync::watch;
use tracing::warn;

use crate::cni::Services;
use keep::Keeper;
use known::Known;

const RETRY_DELAY: Duration = Duration::from_secs(1);

/// What was decided about blocks whose records are not in order; `None` until that is known.
pub(crate) type HeldBlocks = Option<Rulings>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rulings {
    /// Blocks that stay routed although no pool holds them any more, and how their packets travel.
    pub(crate) held: Vec<(Cidr, Encapsulation)>,
    /// Blocks that are routed to nobody.
    pub(crate) refused: BTreeSet<Cidr>,
}

/// Never ends.
pub(crate) async fn run(
    services: &Arc<Services>,
    store: &Arc<dyn Store>,
    mtu_file: &Path,
    held: &watch::Sender<HeldBlocks>,
) {
    let agent = services.agent().expect("only the agent keeps routes");
    let known = Arc::new(Known::new(&agent.node));
    let keeping = async {
        loop {
            // Listening starts before the first look, so that nothing is missed in between.
            let outcome = match listen(services).await {
                Ok(monitor) => Keeper::new(services, &known, monitor, held).run().await,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                warn!("the routes to other nodes cannot be kept: {error}; trying again");
                services.health().set_routes_missing(vec![format!("routes to other nodes: {error}")]);
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    };
    let sources = async {
        loop {
            agent.endpoints.sources_changed.notified().await;
            known.set_more_sources(agent.endpoints.more_sources());
        }
    };
    let address = address::keep(services, &known, store);
    let mtu = mtu::keep(&known, mtu_file);
    let tunnels = tunnel::keep(services, &known, mtu_file);
    tokio::join!(known.follow(&**store), tunnels, sources, address, mtu, keeping);
}

/// To what others do: what is done on the agent's own thread for kernel work is no news.
async fn listen(services: &Services) -> Result<Monitor<BetweenNotice>, HostError> {
    let own = services.kernel()?.run(|host| host.port()).await??;
    Monitor::open_between(own)
}
