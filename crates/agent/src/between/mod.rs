//! Keeps the routes and tunnels to other nodes in line with the records.
//!
//! ```text
//!   store: nodes, pools, blocks, settings ─▶ Cache (plan::Between) ─▶ what changed ─┐
//!                                                                                   ├─▶ steps ─▶ kernel thread
//!   kernel ─▶ observed at the start, regularly, and after other programs' changes ──┘
//!   pools, this node's record ─▶ tunnel addresses, from IPAM
//!   this node's devices, other nodes' addresses ─▶ this node's address
//!   this node's endpoint records ─▶ further networks that pods may send from
//!   this node's devices, pools ─▶ the MTU of pods, in a file
//! ```
//!
//! Nothing happens before all records have been listed once. While the store is unreachable, the cached records stay in use. A changed record
//! costs only what depends on it. Stopping leaves everything in place, and the next start takes it over.

mod address;
mod cache;
mod keep;
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

use crate::services::Agent;
pub(crate) use cache::{Cache, read_protected};
use keep::Keeper;

const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Decisions about blocks with invalid records; `None` until all records are cached.
pub(crate) type HeldBlocks = Option<Rulings>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rulings {
    /// Blocks that stay routed although no pool contains them any more, and their encapsulation.
    pub(crate) held: Vec<(Cidr, Encapsulation)>,
    /// Blocks that are not routed.
    pub(crate) refused: BTreeSet<Cidr>,
}

/// Never ends.
pub(crate) async fn run(
    agent: &Arc<Agent>,
    store: &Arc<dyn Store>,
    mtu_file: &Path,
    held: &watch::Sender<HeldBlocks>,
) {
    let cache = Arc::clone(agent.routes.get_or_init(|| Arc::new(Cache::new(&agent.node))));
    let keeping = async {
        loop {
            // Listening starts before the first observation, so that nothing is missed in between.
            let outcome = match listen(agent).await {
                Ok(monitor) => Keeper::new(agent, &cache, monitor, held).run().await,
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                warn!(%error, "cannot reconcile the routes to other nodes; retrying");
                agent
                    .health
                    .set_routes_missing(vec![format!("cannot reconcile the routes to other nodes: {error}")]);
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
    };
    let sources = async {
        loop {
            agent.endpoints.sources_changed.notified().await;
            cache.set_more_sources(agent.endpoints.more_sources());
        }
    };
    let address = address::keep(agent, &cache, store);
    let mtu = mtu::keep(&cache, mtu_file);
    let tunnels = tunnel::keep(agent, &cache, mtu_file);
    tokio::join!(cache.follow(&**store), tunnels, sources, address, mtu, keeping);
}

/// Listens to the changes of other programs: those of the agent's own kernel thread are skipped.
async fn listen(agent: &Agent) -> Result<Monitor<BetweenNotice>, HostError> {
    let own = agent.kernel()?.run(|host| host.port()).await??;
    Monitor::open_between(own)
}
