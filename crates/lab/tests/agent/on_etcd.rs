//! A node whose agent keeps its records on a real etcd.

use model::Kind;
use serde_json::json;
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};

use crate::common::Bench;
use crate::common::books::Books;
use crate::running::Agent;

/// Etcd runs on the node's own loopback, where the agent can reach it, and so must whoever looks at its records.
pub(crate) struct OnEtcd<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) etcd: EtcdCluster,
    pub(crate) books: Books,
}

/// Runs a test on the node, with one pool of IPv4 addresses.
pub(crate) fn on_etcd(test: &str, act: impl FnOnce(OnEtcd<'_>) + Send) {
    let Some(bench) = Bench::empty(test) else { return };
    let run = || {
        let Some(etcd) = start_or_skip(test, Setup::default()) else { return };
        let books = Books::on_etcd(etcd.endpoint(0));
        books.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/16"}));
        act(OnEtcd { bench: &bench, etcd, books });
    };
    bench.node.namespace().visit(run).unwrap();
}

impl OnEtcd<'_> {
    /// Starts the agent and does not wait.
    pub(crate) fn start_agent(&self) -> Agent {
        let endpoint = self.etcd.endpoint(0);
        self.bench.start_agent(&[("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", &endpoint)])
    }

    /// Starts the agent and waits until it is ready.
    pub(crate) fn agent(&self) -> Agent {
        let agent = self.start_agent();
        self.bench.wait_until_ready(&agent);
        agent
    }
}
