//! The same plugin on a real etcd: the network configuration alone decides which store.

use lab::{CniCall, CniOutcome, Lab, Pod, Programs};
use serde_json::json;
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};

#[test]
fn pods_come_and_go_on_etcd() {
    let test = "pods_come_and_go_on_etcd";
    if let Some(reason) = lab::missing() {
        testkit::skip(test, &reason);
        return;
    }
    let lab = Lab::new(Programs::of_test().unwrap()).unwrap();
    let node = lab.node("node-a").unwrap();
    // Etcd runs on the node's own loopback, where the plugin can reach it.
    let run = || {
        let Some(etcd) = start_or_skip(test, Setup::default()) else { return };
        put_pool(&etcd);
        let pods: Vec<Pod> =
            (0..4).map(|number| lab.pod("shop", &format!("web-{number}")).unwrap()).collect();
        let call = |verb: &str, pod: &Pod| {
            let mut call = CniCall::new(&lab, &node, verb, pod)
                .with_netconf("datastore_type", "etcdv3")
                .with_netconf("etcd_endpoints", etcd.endpoint(0));
            call.netconf.as_object_mut().unwrap().remove("sqlite_path");
            call
        };
        let running: Vec<_> = pods.iter().map(|pod| call("ADD", pod).spawn(&node).unwrap()).collect();
        let outcomes = running.into_iter().map(|child| CniOutcome::from(child.wait_with_output().unwrap()));
        let mut addresses: Vec<_> = outcomes.map(|outcome| outcome.address().unwrap()).collect();
        assert!(pods[0].netns().can_ping(&addresses[3].to_string()).unwrap());
        assert_eq!(keys(&etcd, "workloadendpoints").len(), pods.len());
        assert_eq!(keys(&etcd, "/handle/").len(), pods.len());
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), pods.len());
        for pod in &pods {
            let outcome = call("DEL", pod).run(&node).unwrap();
            assert!(outcome.success, "{}{}", outcome.stdout, outcome.stderr);
        }
        let left = [keys(&etcd, "workloadendpoints"), keys(&etcd, "/handle/")].concat();
        assert_eq!(left, [] as [String; 0]);
        assert!(!lab.store_path().exists(), "the SQLite store was touched");
    };
    node.namespace().visit(run).unwrap();
}

fn put_pool(etcd: &EtcdCluster) {
    let pool = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": "pods"},
        "spec": {"cidr": "10.244.0.0/16"},
    });
    let key = "/calico/resources/v3/projectcalico.org/ippools/pods";
    let status = etcd.etcdctl().args(["put", key, &pool.to_string()]).output().unwrap().status;
    assert!(status.success());
}

/// The keys that hold this word.
fn keys(etcd: &EtcdCluster, word: &str) -> Vec<String> {
    let output = etcd.etcdctl().args(["get", "/calico/", "--prefix", "--keys-only"]).output().unwrap();
    assert!(output.status.success());
    let keys = String::from_utf8(output.stdout).unwrap();
    keys.lines().filter(|key| key.contains(word)).map(str::to_owned).collect()
}
