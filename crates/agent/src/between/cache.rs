//! The records of the cluster that decide about routes, cached.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use model::ipam::Block;
use model::{Cidr, IpVersion, Key, KeyRange, Kind, Resource};
use plan::address::Doubt;
use plan::between::{
    AllowedSource, Between, BetweenSettings, BlockView, NodeView, PodGuard, PoolView, Protected,
};
use store::{Record, Store, StoreError};
use tokio::sync::Notify;
use tracing::warn;

use crate::felix::FelixEnvironment;
use crate::follow::{Update, decode, follow};

/// The name of the settings that hold for all nodes.
const DEFAULT: &str = "default";

/// The parts of the store that are followed, each by a list and a watch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Nodes,
    Pools,
    BlocksV4,
    BlocksV6,
    /// In place of the two, where a store keeps them together.
    Blocks,
    Felix,
    Bgp,
}

impl Part {
    const ALL: [Part; 7] =
        [Part::Nodes, Part::Pools, Part::BlocksV4, Part::BlocksV6, Part::Blocks, Part::Felix, Part::Bgp];

    /// Whether this part of a store is followed.
    fn is_followed(self, store: &dyn Store) -> bool {
        let is_kubernetes = !store.capabilities().endpoints_are_records;
        match self {
            Part::BlocksV4 | Part::BlocksV6 => !is_kubernetes,
            Part::Blocks => is_kubernetes,
            Part::Nodes | Part::Pools | Part::Felix | Part::Bgp => true,
        }
    }

    fn range(self) -> KeyRange {
        match self {
            Part::Nodes => KeyRange::NodesInBrief,
            Part::Pools => KeyRange::Kind(Kind::IpPool),
            Part::BlocksV4 => KeyRange::Blocks(IpVersion::V4),
            Part::BlocksV6 => KeyRange::Blocks(IpVersion::V6),
            Part::Blocks => KeyRange::AllBlocks,
            Part::Felix => KeyRange::Kind(Kind::FelixConfiguration),
            Part::Bgp => KeyRange::Kind(Kind::BgpConfiguration),
        }
    }

    fn what(self) -> &'static str {
        match self {
            Part::Nodes => "nodes",
            Part::Pools => "pools",
            Part::BlocksV4 | Part::BlocksV6 | Part::Blocks => "blocks",
            Part::Felix => "Felix settings",
            Part::Bgp => "BGP settings",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Cache {
    state: Mutex<State>,
    /// The records have changed.
    pub(super) changed: Notify,
    /// Pools, this node's own record or its tunnel devices have changed.
    pub(super) tunnels: Notify,
    /// What the MTU of pods depends on has changed.
    pub(super) mtu: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) between: Between,
    node: String,
    felix: Option<Resource>,
    felix_of_node: Option<Resource>,
    bgp: Option<Resource>,
    environment: FelixEnvironment,
    more_sources: BTreeSet<AllowedSource>,
    /// The address of the Kubernetes API inside a cluster: the one service that needs no record.
    kubernetes: Option<IpNet>,
    /// Doubts about this node's own address.
    pub(super) doubts: Vec<Doubt>,
    /// The routes of an earlier agent have been taken over.
    pub(super) has_adopted: bool,
    /// By IP version: the VXLAN device exists, so that its address may be recorded.
    pub(super) has_device: [bool; 2],
    /// Blocks in which this node has something: its own, and those that it borrowed addresses from.
    blocks_of_node: BTreeSet<Cidr>,
    /// Parts that have to be listed before anything is decided.
    incomplete: BTreeSet<Part>,
}

impl Cache {
    pub(super) fn new(node: &str) -> Cache {
        let mut state = State {
            between: Between::new(node),
            node: node.to_owned(),
            felix: None,
            felix_of_node: None,
            bgp: None,
            environment: FelixEnvironment::read(),
            more_sources: BTreeSet::new(),
            kubernetes: kubernetes_service(),
            doubts: Vec::new(),
            has_adopted: false,
            has_device: [false, false],
            blocks_of_node: BTreeSet::new(),
            incomplete: Part::ALL.into(),
        };
        let settings = state.settings();
        state.between.set_settings(settings);
        Cache { state: Mutex::new(state), changed: Notify::new(), tunnels: Notify::new(), mtu: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Further networks that pods of this node may send from, by their records. The settings decide whether they count.
    pub(super) fn set_more_sources(&self, sources: BTreeSet<AllowedSource>) {
        let mut state = self.lock();
        state.more_sources = sources;
        if state.allow_sources() {
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Never ends.
    pub(super) async fn follow(&self, store: &dyn Store) {
        self.lock().incomplete.retain(|part| part.is_followed(store));
        let [a, b, c, d, e, f, g] = Part::ALL.map(|part| self.follow_part(store, part));
        tokio::join!(a, b, c, d, e, f, g);
    }

    /// Whether everything has been listed.
    pub(crate) fn is_complete(&self) -> bool {
        self.lock().is_complete()
    }

    /// The rules that restrict this node's pods; `None` until all settings have been listed.
    pub(crate) fn pod_guard(&self) -> Option<PodGuard> {
        let state = self.lock();
        state.is_complete().then(|| PodGuard::new(state.between.settings()))
    }

    /// The blocks in which this node has something; `None` until all have been listed.
    pub(crate) fn blocks_of_node(&self) -> Option<BTreeSet<Cidr>> {
        let state = self.lock();
        state.is_complete().then(|| state.blocks_of_node.clone())
    }

    async fn follow_part(&self, store: &dyn Store, part: Part) {
        if !part.is_followed(store) {
            return;
        }
        let mut listed: BTreeSet<Key> = BTreeSet::new();
        let on_update = |update| {
            match update {
                Update::ListBegins => listed.clear(),
                Update::Listed(record) => {
                    self.lock().put(&record);
                    listed.insert(record.key);
                    return;
                }
                Update::ListEnds => self.lock().complete(part, &std::mem::take(&mut listed)),
                Update::Put(record) => self.lock().put(&record),
                Update::Deleted(key) => self.lock().set(&key, None),
                // The cached records stay in use.
                Update::OutOfSync => return,
            }
            self.changed.notify_one();
            if matches!(part, Part::Nodes | Part::Pools) {
                self.tunnels.notify_one();
            }
            if matches!(part, Part::Pools | Part::Felix) {
                self.mtu.notify_one();
            }
        };
        follow(store, part.range(), part.what(), on_update).await;
    }
}

/// What no pod may hide, read now: for a call without an agent.
pub(crate) async fn read_protected(store: &dyn Store, node: &str) -> Result<Protected, StoreError> {
    let cache = Cache::new(node);
    for part in [Part::Nodes, Part::Pools, Part::Felix, Part::Bgp] {
        let (records, _) = store.list_all(part.range()).await?;
        records.iter().for_each(|record| cache.lock().put(record));
    }
    Ok(cache.lock().between.protected())
}

fn kubernetes_service() -> Option<IpNet> {
    let host = std::env::var("KUBERNETES_SERVICE_HOST").ok()?;
    host.parse::<IpAddr>().ok().map(IpNet::from)
}

impl State {
    /// Whether everything has been listed. Before that it is unknown which routes are superfluous.
    pub(super) fn is_complete(&self) -> bool {
        self.incomplete.is_empty()
    }

    fn put(&mut self, record: &Record) {
        self.set(&record.key, Some(record));
    }

    /// A record, or that it was deleted.
    fn set(&mut self, key: &Key, record: Option<&Record>) {
        match key {
            Key::Block(cidr) => self.set_block(*cidr, record),
            Key::Resource { kind, name, .. } => {
                let resource = match record.map(|record| decode(record, *kind)) {
                    // The last readable version stays in use.
                    Some(None) => return,
                    Some(resource) => resource,
                    None => None,
                };
                self.set_resource(*kind, name, resource);
            }
            _ => {}
        }
    }

    fn set_block(&mut self, cidr: Cidr, record: Option<&Record>) {
        let view = match record.map(|record| Block::decode(&cidr, &record.value)) {
            Some(Ok(block)) => BlockView::read(&block),
            Some(Err(error)) => return warn!(%error, "cannot read a block; its routes stay"),
            None => None,
        };
        let is_of_node = view.as_ref().is_some_and(|view| view.nodes().any(|node| node == self.node));
        if is_of_node {
            self.blocks_of_node.insert(cidr);
        } else {
            self.blocks_of_node.remove(&cidr);
        }
        self.between.set_block(cidr, view);
    }

    fn set_resource(&mut self, kind: Kind, name: &str, resource: Option<Resource>) {
        match kind {
            Kind::Node => self.between.set_node(name, resource.as_ref().map(NodeView::read)),
            Kind::IpPool => self.between.set_pool(name, resource.as_ref().and_then(PoolView::read)),
            Kind::FelixConfiguration if name == DEFAULT => self.felix = resource,
            Kind::FelixConfiguration if name.strip_prefix("node.") == Some(self.node.as_str()) => {
                self.felix_of_node = resource;
            }
            Kind::BgpConfiguration if name == DEFAULT => self.bgp = resource,
            _ => return,
        }
        if matches!(kind, Kind::FelixConfiguration | Kind::BgpConfiguration) {
            let settings = self.settings();
            if settings != *self.between.settings() {
                self.between.set_settings(settings);
                self.allow_sources();
            }
        }
    }

    /// Whether the allowed sources have changed.
    fn allow_sources(&mut self) -> bool {
        let is_on = self.between.settings().lets_pods_spoof;
        self.between.set_allowed_sources(if is_on { self.more_sources.clone() } else { BTreeSet::new() })
    }

    fn settings(&self) -> BetweenSettings {
        let (felix, of_node) = (self.felix.as_ref(), self.felix_of_node.as_ref());
        let mut settings = self.environment.settings(felix, of_node, self.bgp.as_ref());
        settings.services.extend(self.kubernetes);
        settings
    }

    /// A list is complete: records that are not in it were deleted.
    fn complete(&mut self, part: Part, listed: &BTreeSet<Key>) {
        let of_kind = |kind: Kind, name: &str| Key::cluster(kind, name);
        let cached: Vec<Key> = match part {
            Part::Nodes => self.between.nodes().map(|(name, _)| of_kind(Kind::Node, name)).collect(),
            Part::Pools => self.between.pool_names().map(|name| of_kind(Kind::IpPool, name)).collect(),
            Part::BlocksV4 => self.blocks(Some(IpVersion::V4)),
            Part::BlocksV6 => self.blocks(Some(IpVersion::V6)),
            Part::Blocks => self.blocks(None),
            Part::Felix => vec![
                of_kind(Kind::FelixConfiguration, DEFAULT),
                of_kind(Kind::FelixConfiguration, &format!("node.{}", self.node)),
            ],
            Part::Bgp => vec![of_kind(Kind::BgpConfiguration, DEFAULT)],
        };
        cached.iter().filter(|key| !listed.contains(key)).for_each(|key| self.set(key, None));
        self.incomplete.remove(&part);
    }

    /// Of one IP version, or all.
    fn blocks(&self, version: Option<IpVersion>) -> Vec<Key> {
        let is_meant = |cidr: &&Cidr| version.is_none_or(|version| cidr.version() == version);
        let of_version = self.between.block_cidrs().filter(is_meant);
        of_version.map(|cidr| Key::Block(*cidr)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::AffinityOwner;
    use serde_json::{Value, json};
    use store::MemoryStore;

    use super::*;

    async fn put(store: &dyn Store, kind: Kind, name: &str, spec: Value) -> Key {
        let mut resource = Resource::new(kind, name);
        resource.body.insert("spec".to_owned(), spec);
        store.create(resource.key(), resource.encode()).await.unwrap();
        resource.key()
    }

    async fn put_block(store: &dyn Store, cidr: &str, owner: &str) -> Key {
        let block = Block::new(cidr.parse().unwrap(), Some(&AffinityOwner::Host(owner.to_owned())), 1);
        store.create(block.key(), block.encode()).await.unwrap();
        block.key()
    }

    async fn until(cache: &Cache, condition: impl Fn(&mut State) -> bool) {
        while !condition(&mut cache.lock()) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_call_without_an_agent_reads_what_no_pod_may_hide() {
        let store = MemoryStore::new();
        put(&store, Kind::IpPool, "pods", json!({"cidr": "10.0.0.0/16"})).await;
        put(&store, Kind::Node, "other", json!({"bgp": {"ipv4Address": "192.0.2.2/24"}})).await;
        let services = json!({"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]});
        put(&store, Kind::BgpConfiguration, "default", services).await;
        let protected = read_protected(&store, "own").await.unwrap();
        let hidden = |text: &str| protected.hidden_by(text.parse().unwrap()).is_some();
        assert!(hidden("192.0.2.2") && hidden("10.96.0.10") && !hidden("10.0.0.7"));
    }

    #[tokio::test]
    async fn the_records_are_followed() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        put(&*store, Kind::IpPool, "pods", json!({"cidr": "10.0.0.0/16"})).await;
        put(&*store, Kind::FelixConfiguration, "node.a", json!({"vxlanVNI": 7})).await;
        put(&*store, Kind::FelixConfiguration, "node.b", json!({"vxlanVNI": 8})).await;
        let b = put(&*store, Kind::Node, "b", json!({"bgp": {"ipv4Address": "192.0.2.2/24"}})).await;
        let block = put_block(&*store, "10.0.1.0/26", "b").await;
        let cache = Arc::new(Cache::new("a"));
        let following = tokio::spawn({
            let (store, cache) = (store.clone(), cache.clone());
            async move { cache.follow(&*store).await }
        });
        until(&cache, |state| state.is_complete()).await;
        assert_eq!(cache.lock().between.settings().vxlan_vni, 7);
        assert_eq!(cache.lock().between.nodes().count(), 1);
        assert_eq!(cache.lock().between.block_cidrs().count(), 1);
        assert_eq!(cache.blocks_of_node(), Some(BTreeSet::new()));
        put_block(&*store, "10.0.2.0/26", "c").await;
        until(&cache, |state| state.between.block_cidrs().count() == 2).await;
        let own = put_block(&*store, "10.0.3.0/26", "a").await;
        until(&cache, |state| !state.blocks_of_node.is_empty()).await;
        let record = store.get(&own).await.unwrap().unwrap();
        store.delete(own, record.revision).await.unwrap();
        until(&cache, |state| state.blocks_of_node.is_empty()).await;
        for key in [b, block] {
            let record = store.get(&key).await.unwrap().unwrap();
            store.delete(key, record.revision).await.unwrap();
        }
        until(&cache, |state| state.between.nodes().count() + state.between.block_cidrs().count() == 1).await;
        following.abort();
    }

    #[test]
    fn a_new_list_shows_what_was_deleted() {
        let cache = Cache::new("a");
        let mut state = cache.lock();
        for name in ["b", "c"] {
            state.between.set_node(name, Some(NodeView::default()));
        }
        state.complete(Part::Nodes, &[Key::cluster(Kind::Node, "c")].into());
        assert_eq!(state.between.nodes().map(|(name, _)| name).collect::<Vec<_>>(), ["c"]);
        assert!(!state.is_complete());
    }
}
