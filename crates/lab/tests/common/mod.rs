//! A node with a store and a pool, and looks at what is recorded and programmed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use lab::{CniCall, CniOutcome, Lab, Node, Pod, Programs};
use model::ipam::{Block, Handle};
use model::{Key, KeyRange, Kind, Resource, Sandbox};
use serde_json::{Value, json};
use store::{OpenMode, SqliteStore, Store};

pub(crate) struct Bench {
    // Before the lab, so that namespaces go before the folder.
    pub(crate) node: Node,
    lab: Lab,
}

/// What a DEL must answer: success, and nothing on stdout.
pub(crate) trait DelOutcome {
    fn result_of_del(&self);
}

impl DelOutcome for CniOutcome {
    #[track_caller]
    fn result_of_del(&self) {
        assert!(self.success, "DEL failed: {}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
    }
}

impl Bench {
    /// A node on a store with one pool. `None`, with the reason reported, where a lab cannot run.
    pub(crate) fn new(test: &str) -> Option<Bench> {
        let bench = Bench::empty(test)?;
        bench.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/24"}));
        Some(bench)
    }

    /// A node without a store.
    pub(crate) fn empty(test: &str) -> Option<Bench> {
        if let Some(reason) = lab::missing() {
            testkit::skip(test, &reason);
            return None;
        }
        let lab = Lab::new(Programs::of_test().unwrap()).unwrap();
        let node = lab.node("node-a").unwrap();
        Some(Bench { node, lab })
    }

    pub(crate) fn programs(&self) -> &Programs {
        self.lab.programs()
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Pod {
        self.lab.pod(namespace, name).unwrap()
    }

    pub(crate) fn call(&self, verb: &str, pod: &Pod) -> CniCall {
        CniCall::new(&self.lab, &self.node, verb, pod)
    }

    pub(crate) fn add(&self, pod: &Pod) -> CniOutcome {
        self.call("ADD", pod).run(&self.node).unwrap()
    }

    pub(crate) fn del(&self, pod: &Pod) -> CniOutcome {
        self.call("DEL", pod).run(&self.node).unwrap()
    }

    fn with_store<T>(&self, act: impl AsyncFnOnce(&dyn Store) -> T) -> T {
        let store = SqliteStore::open(self.lab.store_path(), OpenMode::CreateIfMissing).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(act(&store))
    }

    /// Makes a record, or replaces it.
    pub(crate) fn put(&self, kind: Kind, name: &str, spec: Value) {
        let mut resource = Resource::new(kind, name);
        resource.body.insert("spec".to_owned(), spec);
        resource.fill_defaults();
        let (key, value) = (resource.key(), resource.encode());
        self.with_store(async |store| match store.get(&key).await.unwrap() {
            Some(known) => store.update(key.clone(), value, known.revision).await.unwrap(),
            None => store.create(key.clone(), value).await.unwrap(),
        });
    }

    /// What `plumb datastore migrate lock` and `unlock` set.
    pub(crate) fn set_ready(&self, is_ready: bool) {
        self.put(Kind::ClusterInformation, "default", json!({"datastoreReady": is_ready}));
    }

    /// Every record, as text.
    pub(crate) fn records(&self) -> BTreeMap<Key, String> {
        let (records, _) = self.with_store(async |store| store.list_all(KeyRange::Everything).await.unwrap());
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        records.iter().map(|record| (record.key.clone(), text(&record.value))).collect()
    }

    pub(crate) fn remove_record(&self, key: &Key) {
        self.with_store(async |store| {
            let record = store.get(key).await.unwrap().expect("the record is there");
            store.delete(record.key, record.revision).await.unwrap();
        });
    }

    pub(crate) fn endpoint_of(&self, pod: &Pod) -> String {
        let id = model::names::EndpointName::of_pod(self.node.name(), &pod.name, &pod.interface);
        let key = Key::namespaced(Kind::WorkloadEndpoint, &pod.namespace, id.compute().unwrap());
        self.records().remove(&key).expect("the pod has an endpoint record")
    }

    /// How many addresses a handle holds, by its own record.
    pub(crate) fn handle_count(&self, id: &str) -> i64 {
        let records = self.records();
        let Some(record) = records.get(&Key::Handle(id.to_owned())) else { return 0 };
        Handle::decode(id, record.as_bytes()).unwrap().block.values().sum()
    }

    /// Blocks, handles, endpoints, links and routes speak of exactly these pods.
    #[track_caller]
    pub(crate) fn assert_books_match_pods(&self, pods: &[(&Pod, IpAddr)]) {
        let handle = |pod: &Pod| format!("{}.{}", Lab::NETWORK, pod.container_id);
        let expected: BTreeMap<String, IpAddr> =
            pods.iter().map(|(pod, address)| (handle(pod), *address)).collect();
        assert_eq!(self.allocations(), expected, "allocations");
        let records = self.records();
        let handles =
            records.keys().filter_map(|key| if let Key::Handle(id) = key { Some(id) } else { None });
        assert!(handles.clone().eq(expected.keys()), "handles: {:?}", handles.collect::<Vec<_>>());
        assert!(expected.keys().all(|id| self.handle_count(id) == 1), "counts of handles");
        let is_endpoint = |key: &Key| matches!(key, Key::Resource { kind: Kind::WorkloadEndpoint, .. });
        let endpoints: Vec<&String> =
            records.iter().filter(|(key, _)| is_endpoint(key)).map(|(_, value)| value).collect();
        assert_eq!(endpoints.len(), pods.len(), "{endpoints:?}");
        for (pod, address) in pods {
            let endpoint = self.endpoint_of(pod);
            assert!(
                endpoint.contains(&pod.container_id) && endpoint.contains(&address.to_string()),
                "{endpoint}"
            );
        }
        self.assert_kernel_matches(pods);
    }

    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        self.assert_books_match_pods(&[]);
    }

    fn allocations(&self) -> BTreeMap<String, IpAddr> {
        let mut found = BTreeMap::new();
        for (key, value) in self.records() {
            let Key::Block(cidr) = &key else { continue };
            let block = Block::decode(cidr, value.as_bytes()).unwrap();
            assert_eq!(block.contradictions(), [] as [String; 0]);
            for ordinal in 0..block.capacity() {
                let Some(attribute) = block.attribute(ordinal) else { continue };
                let earlier =
                    found.insert(attribute.handle().unwrap().to_owned(), block.address(ordinal).unwrap());
                assert_eq!(earlier, None, "two addresses of one handle");
            }
        }
        found
    }

    #[track_caller]
    fn assert_kernel_matches(&self, pods: &[(&Pod, IpAddr)]) {
        let links =
            self.node.namespace().visit(|| host::Host::here().unwrap().owned_links().unwrap()).unwrap();
        let mut owners: Vec<&str> = links.iter().map(|link| link.owner.container_id()).collect();
        owners.sort_unstable();
        let mut wanted: Vec<&str> = pods.iter().map(|(pod, _)| pod.container_id.as_str()).collect();
        wanted.sort_unstable();
        assert_eq!(owners, wanted, "links");
        let all_links = self.node.namespace().ip(&["-br", "link"]).unwrap();
        assert_eq!(
            all_links.lines().filter(|line| line.starts_with("cali")).count(),
            pods.len(),
            "{all_links}"
        );
        let routes = self.node.namespace().ip(&["route", "show", "proto", "112"]).unwrap();
        let mut routed: Vec<IpAddr> =
            routes.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        routed.sort_unstable();
        let mut addresses: Vec<IpAddr> = pods.iter().map(|(_, address)| *address).collect();
        addresses.sort_unstable();
        assert_eq!(routed, addresses, "routes");
    }
}

/// Every address of the default-sized block that an address lies in.
pub(crate) fn block_addresses(address: Ipv4Addr) -> Vec<String> {
    let base = u32::from(address) & !63;
    (base..base + 64).map(|number| Ipv4Addr::from(number).to_string()).collect()
}

pub(crate) fn sandbox_of(pod: &Pod) -> Sandbox {
    Sandbox::new(Lab::NETWORK, &pod.container_id, &pod.interface).unwrap()
}
