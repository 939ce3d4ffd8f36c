//! The records that decide about BGP on this node, cached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::ipam::{Affinity, AffinityState};
use model::{AffinityOwner, Cidr, IpVersion, Key, KeyRange, Kind, Resource};
use plan::between::{Encapsulation, PoolView, Writer};
use plan::bgp::{BgpFilter, BgpNode, BgpPeer, BgpPool, BgpSettings, BgpView};
use serde_json::Value;
use store::{Record, Store};
use tokio::sync::Notify;
use tracing::warn;

use crate::felix::FelixEnvironment;
use crate::follow::{Update, decode, follow};

const DEFAULT: &str = "default";
const OF_NODE: &str = "node.";
/// How long a deleted pool still counts.
const FADES_AFTER: Duration = Duration::from_secs(10);

/// Everything that is followed besides this node's blocks.
const KINDS: [(Kind, &str); 6] = [
    (Kind::Node, "nodes"),
    (Kind::IpPool, "pools"),
    (Kind::FelixConfiguration, "Felix settings"),
    (Kind::BgpConfiguration, "BGP settings"),
    (Kind::BgpPeer, "BGP peers"),
    (Kind::BgpFilter, "BGP filters"),
];

fn range_of(kind: Kind) -> KeyRange {
    if kind == Kind::Node { KeyRange::NodesInBrief } else { KeyRange::Kind(kind) }
}

#[derive(Debug)]
pub(super) struct Cache {
    node: String,
    state: Mutex<State>,
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    view: BgpView,
    pools: BTreeMap<String, (PoolView, bool)>,
    /// Earlier versions of pools, for a moment: `between` decides whether their blocks stay routed.
    fading: Vec<(Instant, (PoolView, bool))>,
    /// The same for blocks of this node: their addresses in use are announced one by one before the block is withdrawn.
    fading_blocks: Vec<(Instant, Cidr)>,
    felix: BTreeMap<String, Resource>,
    bgp: BTreeMap<String, Resource>,
    environment: FelixEnvironment,
    blocks: BTreeSet<Cidr>,
    /// The parts that have been listed.
    complete: BTreeSet<String>,
}

impl Cache {
    pub(super) fn new(node: &str) -> Cache {
        let view = BgpView { node: node.to_owned(), ..BgpView::default() };
        let state = State { view, environment: FelixEnvironment::read(), ..State::default() };
        Cache { node: node.to_owned(), state: Mutex::new(state), changed: Notify::new() }
    }

    /// Never ends.
    pub(super) async fn follow(&self, store: &dyn Store) {
        let [a, b, c, d, e, f] = KINDS.map(|(kind, what)| self.follow_range(store, range_of(kind), what));
        let [v4, v6] = [IpVersion::V4, IpVersion::V6].map(|version| {
            let owner = AffinityOwner::Host(self.node.clone());
            self.follow_range(store, KeyRange::AffinitiesOf(owner, version), "blocks of this node")
        });
        tokio::join!(a, b, c, d, e, f, v4, v6);
    }

    async fn follow_range(&self, store: &dyn Store, range: KeyRange, what: &str) {
        let name = format!("{range:?}");
        let mut listed: BTreeSet<Key> = BTreeSet::new();
        let mut cached: BTreeSet<Key> = BTreeSet::new();
        let on_update = |update| {
            let mut state = self.lock();
            match update {
                Update::ListBegins => return listed.clear(),
                Update::Listed(record) => {
                    state.set(&record.key, Some(&record), &self.node);
                    listed.insert(record.key);
                    return;
                }
                Update::ListEnds => {
                    // Records that are not in a new list were deleted.
                    cached.difference(&listed).for_each(|key| state.set(key, None, &self.node));
                    cached = std::mem::take(&mut listed);
                    state.complete.insert(name.clone());
                }
                Update::Put(record) => {
                    state.set(&record.key, Some(&record), &self.node);
                    cached.insert(record.key);
                }
                Update::Deleted(key) => {
                    state.set(&key, None, &self.node);
                    cached.remove(&key);
                }
                // The cached records stay in use.
                Update::OutOfSync => return,
            }
            self.changed.notify_one();
        };
        follow(store, range, what, on_update).await;
    }

    /// All of it, once everything has been listed. Blocks that stay routed without a pool count as pools of their own.
    pub(super) fn view(&self, held: &[(Cidr, Encapsulation)]) -> Option<BgpView> {
        let state = self.lock();
        (state.complete.len() == KINDS.len() + 2).then(|| state.whole(&self.node, held))
    }

    /// Blocks that this node released a moment ago.
    pub(super) fn fading_blocks(&self) -> Vec<Cidr> {
        let state = self.lock();
        let fading = state.fading_blocks.iter().filter(|(since, _)| since.elapsed() < FADES_AFTER);
        fading.map(|(_, block)| *block).filter(|block| !is_single(block)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set(&mut self, key: &Key, record: Option<&Record>, node: &str) {
        match key {
            Key::Affinity { owner: AffinityOwner::Host(owner), block } if owner == node => {
                let affinity = record.map(|record| {
                    Affinity::decode(&AffinityOwner::Host(owner.clone()), block, &record.value)
                });
                match affinity {
                    Some(Ok(affinity)) if affinity.state == AffinityState::Confirmed && !affinity.deleted => {
                        self.blocks.insert(*block);
                    }
                    Some(Err(error)) => {
                        warn!(%error, "cannot read a block affinity; its announcement stays as it is")
                    }
                    _ => {
                        if self.blocks.remove(block) {
                            self.fading_blocks.retain(|(since, _)| since.elapsed() < FADES_AFTER);
                            self.fading_blocks.push((Instant::now(), *block));
                        }
                    }
                }
            }
            Key::Resource { kind, name, .. } => match record.map(|record| decode(record, *kind)) {
                // The last readable version stays in use.
                Some(None) => {}
                Some(Some(resource)) => self.set_resource(*kind, name, Some(&resource)),
                None => self.set_resource(*kind, name, None),
            },
            _ => {}
        }
    }

    fn set_resource(&mut self, kind: Kind, name: &str, resource: Option<&Resource>) {
        match kind {
            Kind::Node => put(&mut self.view.nodes, name, resource.map(BgpNode::read)),
            Kind::BgpPeer => put(&mut self.view.peers, name, resource.map(BgpPeer::read)),
            Kind::BgpFilter => put(&mut self.view.filters, name, resource.map(BgpFilter::read)),
            Kind::IpPool => {
                self.fading.retain(|(since, _)| since.elapsed() < FADES_AFTER);
                self.fading.extend(self.pools.get(name).map(|pool| (Instant::now(), pool.clone())));
                let is_exported = |pool: &Resource| pool.spec("disableBGPExport") != Some(&Value::Bool(true));
                let read = |pool: &Resource| Some((PoolView::read(pool)?, is_exported(pool)));
                put(&mut self.pools, name, resource.and_then(read));
            }
            Kind::FelixConfiguration => put(&mut self.felix, name, resource.cloned()),
            Kind::BgpConfiguration => put(&mut self.bgp, name, resource.cloned()),
            _ => {}
        }
    }

    fn whole(&self, node: &str, held: &[(Cidr, Encapsulation)]) -> BgpView {
        let own = self.felix.get(&format!("{OF_NODE}{node}"));
        let between = self.environment.settings(self.felix.get(DEFAULT), own, self.bgp.get(DEFAULT));
        let writes_direct = between.writer() == Writer::Bird;
        let of_pool = |cidr, encapsulation, is_exported| BgpPool {
            cidr,
            is_exported,
            is_birds: writes_direct && encapsulation == Encapsulation::None,
        };
        let is_current = |cidr: Cidr| self.pools.values().any(|(pool, _)| pool.cidr == cidr);
        let fading = self.fading.iter().filter(|(since, _)| since.elapsed() < FADES_AFTER);
        let fading = fading.map(|(_, pool)| pool).filter(|(pool, _)| !is_current(pool.cidr));
        let pools = self.pools.values().chain(fading);
        let pools = pools.map(|(pool, is_exported)| (pool.cidr, pool.encapsulation, *is_exported));
        let pools = pools.chain(held.iter().map(|(cidr, encapsulation)| (*cidr, *encapsulation, true)));
        let of_nodes =
            self.bgp.iter().filter_map(|(name, record)| Some((name.strip_prefix(OF_NODE)?, record)));
        BgpView {
            settings: BgpSettings::read(self.bgp.get(DEFAULT), of_nodes),
            pools: pools
                .map(|(cidr, encapsulation, is_exported)| of_pool(cidr, encapsulation, is_exported))
                .collect(),
            blocks: self.blocks.iter().copied().filter(|block| !is_single(block)).collect(),
            ..self.view.clone()
        }
    }
}

fn put<T>(map: &mut BTreeMap<String, T>, name: &str, value: Option<T>) {
    match value {
        Some(value) => map.insert(name.to_owned(), value),
        None => map.remove(name),
    };
}

fn is_single(block: &Cidr) -> bool {
    block.prefix_len() == if block.version() == IpVersion::V4 { 32 } else { 128 }
}
