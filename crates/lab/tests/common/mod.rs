//! A node with a store and a pool, and looks at what is recorded and programmed.

pub(crate) mod books;
pub(crate) mod hostile;
pub(crate) mod kubernetes;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;

use books::Books;
use kubernetes::Cluster;
use lab::{CniCall, CniOutcome, Lab, Node, Pod, Programs};
use model::ipam::Handle;
use model::{Key, Kind, Sandbox};
use serde_json::{Value, json};

pub(crate) struct Bench {
    // Before the lab, so that namespaces go before the folder.
    pub(crate) node: Node,
    /// Where records are, if not in SQLite.
    cluster: OnceLock<Cluster>,
    pub(crate) lab: Lab,
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
        Some(Bench { node, lab, cluster: OnceLock::new() })
    }

    /// Tells a story on SQLite.
    pub(crate) fn on_sqlite(test: &str, story: fn(&Bench)) {
        if let Some(bench) = Bench::new(test) {
            story(&bench);
        }
    }

    /// Tells a story on a Kubernetes API server, which is on the node's loopback: only there can its records be read.
    pub(crate) fn on_kubernetes(test: &str, story: fn(&Bench)) {
        let Some(bench) = Bench::empty(test) else { return };
        let run = || {
            let Some(cluster) = Cluster::start_bare(test) else { return };
            kubernetes::install(&cluster.api());
            cluster.register_node(bench.node.name());
            bench.cluster.set(cluster).expect("set once");
            bench.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/24"}));
            story(&bench);
        };
        bench.node.namespace().visit(run).unwrap();
    }

    /// The API server with the records, if that is where they are.
    pub(crate) fn cluster(&self) -> Option<&Cluster> {
        self.cluster.get()
    }

    pub(crate) fn programs(&self) -> &Programs {
        self.lab.programs()
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Pod {
        let pod = self.lab.pod(namespace, name).unwrap();
        if let Some(cluster) = self.cluster() {
            cluster.ensure(self.node.name(), &pod);
        }
        pod
    }

    pub(crate) fn call(&self, verb: &str, pod: &Pod) -> CniCall {
        let call = CniCall::new(&self.lab, &self.node, verb, pod);
        let Some(cluster) = self.cluster() else { return call };
        let mut call = call
            .with("CNI_ARGS", &cluster.arguments(pod))
            .with_netconf("datastore_type", "kubernetes")
            .with_netconf("kubernetes", json!({"kubeconfig": cluster.kubeconfig_of_agent()}));
        call.netconf.as_object_mut().unwrap().remove("sqlite_path");
        call
    }

    pub(crate) fn add(&self, pod: &Pod) -> CniOutcome {
        self.call("ADD", pod).run(&self.node).unwrap()
    }

    pub(crate) fn del(&self, pod: &Pod) -> CniOutcome {
        self.call("DEL", pod).run(&self.node).unwrap()
    }

    pub(crate) fn books(&self) -> Books {
        match self.cluster() {
            Some(cluster) => Books::on_kubernetes(&cluster.kubeconfig),
            None => Books::at(self.lab.store_path()),
        }
    }

    /// Makes a record, or replaces it.
    pub(crate) fn put(&self, kind: Kind, name: &str, spec: Value) {
        self.books().put(kind, name, spec);
    }

    /// What `plumb datastore migrate lock` and `unlock` set.
    pub(crate) fn set_ready(&self, is_ready: bool) {
        self.put(Kind::ClusterInformation, "default", json!({"datastoreReady": is_ready}));
    }

    /// Every record, as text.
    pub(crate) fn records(&self) -> BTreeMap<Key, String> {
        self.books().records()
    }

    pub(crate) fn remove_record(&self, key: &Key) {
        self.books().with_store(async |store| {
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
        let Some(record) = records.get(&Key::Handle(id.into())) else { return 0 };
        Handle::decode(&id.into(), record.as_bytes()).unwrap().block.values().sum()
    }

    /// Each of these calls fails with its code, and none leaves a trace.
    #[track_caller]
    pub(crate) fn assert_refused<'a>(&self, calls: impl IntoIterator<Item = (&'a CniCall, u64)>) {
        let before = self.records();
        for (call, code) in calls {
            let (found, message) = call.run(&self.node).unwrap().error().unwrap();
            assert_eq!(found, code, "{:?} {}: {message}", call.environment, call.netconf);
        }
        assert_eq!(self.records(), before);
        self.assert_nothing_left();
    }

    /// Blocks, handles, endpoints, links and routes speak of exactly these pods.
    #[track_caller]
    pub(crate) fn assert_books_match_pods(&self, pods: &[(&Pod, IpAddr)]) {
        let handle = |pod: &Pod| format!("{}.{}", Lab::NETWORK, pod.container_id);
        let expected: BTreeMap<String, IpAddr> =
            pods.iter().map(|(pod, address)| (handle(pod), *address)).collect();
        assert_eq!(self.books().allocations(), expected, "allocations");
        let handles = self.books().handles();
        assert!(handles.iter().eq(expected.keys()), "handles: {handles:?}");
        assert!(expected.keys().all(|id| self.handle_count(id) == 1), "counts of handles");
        let endpoints = self.books().endpoints();
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
