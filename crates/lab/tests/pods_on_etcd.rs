//! The same plugin on a real etcd: the network configuration alone decides which store.

#[expect(dead_code, reason = "shared with other tests of pods, which look at more of it")]
#[path = "common/books.rs"]
mod books;

use books::Books;
use lab::{CniCall, CniOutcome, Lab, Pod, Programs};
use model::Kind;
use serde_json::json;
use testkit::etcd::{Setup, start_or_skip};

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
        let books = Books::on_etcd(etcd.endpoint(0));
        books.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/16"}));
        // The first agent makes it, or an operator.
        books.put(Kind::ClusterInformation, "default", json!({"datastoreReady": true}));
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
        assert_eq!((books.endpoints().len(), books.handles().len()), (pods.len(), pods.len()));
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), pods.len());
        for pod in &pods {
            let outcome = call("DEL", pod).run(&node).unwrap();
            assert!(outcome.success, "{}{}", outcome.stdout, outcome.stderr);
        }
        assert_eq!([books.endpoints(), books.handles()].concat(), [] as [String; 0]);
        assert!(!lab.store_path().exists(), "the SQLite store was touched");
    };
    node.namespace().visit(run).unwrap();
}
