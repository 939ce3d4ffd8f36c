//! SQLite to etcd to Kubernetes and back.

use std::collections::BTreeMap;

use model::ipam::CONFIG_NAME;
use model::kube::Layout;
use model::{Key, Kind};
use serde_json::{Value, json};
use store::Change;
use testkit::etcd::EtcdCluster;

use super::cluster::{Cluster, PODS, endpoint, town};
use super::{copy, information, is_ready, records};
use crate::harness::{Desk, PLUMB, finish};

#[test]
fn sqlite_and_etcd_hold_the_same_bytes() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("sqlite_and_etcd_hold_the_same_bytes", &reason);
    }
    let town = town();
    let unknown = r#"{"later":18446744073709551615,"metadata":{"name":"new"},"spec":{"later":{"a":[null]},"peerIP":"172.30.0.9"}}"#;
    town.desk.write(vec![Change::create(Key::cluster(Kind::BgpPeer, "new"), unknown)]);
    let etcd = EtcdCluster::single().unwrap();
    let there = Desk::on_etcd(&etcd);
    let name = format!("etcdv3:{}", etcd.endpoint(0));
    let ran = copy(&town.desk, "sqlite:plumb.db", &name, &[]);
    assert!(ran.succeeded().contains("which is ready. SQLite file plumb.db stays locked."), "{ran:?}");
    let without_revision = |line: &String| line.split_once(" @").unwrap().0.to_owned();
    let texts = |desk: &Desk| -> Vec<String> { desk.dump().iter().map(without_revision).collect() };
    assert_eq!(texts(&town.desk), texts(&there));
    let values = |desk: &Desk| -> Vec<String> {
        let dump = desk.dump();
        let rest = dump.iter().filter(|line| !line.starts_with("ClusterInformation"));
        rest.map(|line| line.split_once(" {").unwrap().1.to_owned()).collect()
    };
    assert_eq!(values(&town.desk), values(&there));
    assert!(is_ready(&records(&there.open().unwrap())));

    // Once more: there is nothing to do, and nothing is written.
    let before = there.dump();
    let again = copy(&town.desk, "sqlite:plumb.db", &name, &["-o", "json"]);
    let summary: Value = serde_json::from_str(again.succeeded()).unwrap();
    assert_eq!((&summary["state"], &summary["total"]["written"]), (&json!("finished"), &json!(0)));
    assert_eq!(summary["total"]["alreadyThere"], before.len());
    assert_eq!(there.dump(), before);

    // And back, onto another file. The destination was made ready, so it has to be locked first.
    copy(&town.desk, &name, "sqlite:back.db", &[]).refused(1, &["is not locked", "migrate lock"]);
    assert!(!town.desk.folder.path().join("back.db").exists(), "a refused copy makes no file");
    there.plumb(&["datastore", "migrate", "lock"]).succeeded();
    copy(&town.desk, &name, "sqlite:back.db", &["--keep-locked"]).succeeded();
    let back = Desk {
        place: crate::harness::Place::Sqlite(town.desk.folder.path().join("back.db")),
        ..Desk::on_sqlite()
    };
    assert_eq!(records(&back.open().unwrap()), records(&town.desk.open().unwrap()));
}

#[test]
fn a_round_trip_through_custom_resources_of_v1_keeps_what_can_be_kept() {
    round_trip("a_round_trip_through_custom_resources_of_v1_keeps_what_can_be_kept", Layout::V1);
}

#[test]
fn a_round_trip_through_custom_resources_of_v3_keeps_what_can_be_kept() {
    round_trip("a_round_trip_through_custom_resources_of_v3_keeps_what_can_be_kept", Layout::V3);
}

fn round_trip(test: &str, layout: Layout) {
    let Some(cluster) = Cluster::start(test, layout) else { return };
    let town = town();
    let etcd = EtcdCluster::single().unwrap();
    let in_etcd = format!("etcdv3:{}", etcd.endpoint(0));
    copy(&town.desk, "sqlite:plumb.db", &in_etcd, &["--keep-locked"]).succeeded();
    let ran = copy(&town.desk, &in_etcd, &cluster.name(), &["-o", "json"]);
    let summary: Value = serde_json::from_str(ran.succeeded()).unwrap();
    assert_eq!((&summary["state"], &summary["ready"]), (&json!("finished"), &json!(true)), "{summary}");
    let left: Vec<&str> =
        summary["notCarried"].as_array().unwrap().iter().map(|item| item["code"].as_str().unwrap()).collect();
    assert_eq!(left, ["read-by-nobody", "shown-by-object"], "{summary}");
    check_objects(&cluster);

    // A second copy finds everything in place.
    let again = copy(&town.desk, &in_etcd, &cluster.name(), &["-o", "json"]);
    let summary: Value = serde_json::from_str(again.succeeded()).unwrap();
    assert_eq!(
        (&summary["total"]["written"], &summary["total"]["replaced"]),
        (&json!(0), &json!(0)),
        "{summary}"
    );

    // And back.
    let lock = ["datastore", "migrate", "lock"];
    finish(on_kubernetes(&town.desk, &cluster).args(lock)).succeeded();
    copy(&town.desk, &cluster.name(), "sqlite:back.db", &[]).succeeded();
    let back = Desk {
        place: crate::harness::Place::Sqlite(town.desk.folder.path().join("back.db")),
        ..Desk::on_sqlite()
    };
    let (here, there) = (records(&town.desk.open().unwrap()), records(&back.open().unwrap()));
    compare(&here, &there, layout);
    let check = ["ipam", "check", "--settle=0"];
    assert_eq!(back.plumb(&check).code, town.desk.plumb(&check).code);
}

fn on_kubernetes(desk: &Desk, cluster: &Cluster) -> std::process::Command {
    let mut command = desk.command(PLUMB);
    command.env("DATASTORE_TYPE", "kubernetes").env("KUBECONFIG", &cluster.kubeconfig);
    command
}

/// What stands in the cluster after the copy to it.
fn check_objects(cluster: &Cluster) {
    let api = cluster.api();
    let node = api.read("/api/v1/nodes/node-b").unwrap();
    let annotations = &node["metadata"]["annotations"];
    assert_eq!(annotations["projectcalico.org/IPv4VXLANTunnelAddr"], "10.65.0.8", "{node}");
    assert_eq!(annotations["projectcalico.org/IPv6VXLANTunnelAddr"], "fd65::", "{node}");
    assert_eq!(node["metadata"]["labels"], json!({"kubernetes.io/hostname": "node-b"}));
    for (_, pod, address) in PODS {
        let pod = api.read(&format!("/api/v1/namespaces/shop/pods/{pod}")).unwrap();
        let annotations = &pod["metadata"]["annotations"];
        let name = pod["metadata"]["name"].as_str().unwrap();
        assert_eq!(annotations["cni.projectcalico.org/containerID"], format!("c-{name}"));
        assert_eq!(annotations["cni.projectcalico.org/podIP"], format!("{address}/32"));
    }
    let own = cluster.object(Kind::ClusterInformation, "default");
    assert_eq!(own["spec"]["datastoreReady"], true);
    assert!(!own.to_string().contains("unfinished-copy"), "{own}");
    let settings = cluster.object(Kind::IpamConfiguration, CONFIG_NAME);
    assert_eq!(settings["spec"]["strictAffinity"], true, "what is in force on etcd");
    assert_eq!((cluster.count(Kind::IpamBlock), cluster.count(Kind::IpamHandle)), (3, 5));
    let old = if cluster.layout == Layout::V1 { "default.old" } else { "old" };
    cluster.object(Kind::GlobalNetworkPolicy, old);
}

fn compare(here: &BTreeMap<Key, Value>, there: &BTreeMap<Key, Value>, layout: Layout) {
    for (key, value) in here {
        let kind = key.kind();
        match key {
            Key::Resource { kind: Kind::IpamConfiguration, .. } => {
                assert!(!there.contains_key(key), "{key}: nothing reads it");
                continue;
            }
            Key::Resource { kind: Kind::GlobalNetworkPolicy, name, .. }
                if name == "default.old" && layout == Layout::V3 =>
            {
                assert!(there.contains_key(&Key::cluster(kind, "old")));
                continue;
            }
            _ => {}
        }
        let found = there.get(key).unwrap_or_else(|| panic!("{key} is missing"));
        match key {
            Key::Resource { kind: Kind::Node, .. } => {
                for field in ["ipv4VXLANTunnelAddr", "ipv6VXLANTunnelAddr"] {
                    assert_eq!(found["spec"][field], value["spec"][field], "{key}");
                }
            }
            Key::Resource { kind: Kind::WorkloadEndpoint, .. } => {
                for field in ["containerID", "ipNetworks", "mac", "node", "pod"] {
                    assert_eq!(found["spec"][field], value["spec"][field], "{key}");
                }
            }
            Key::Resource { kind: Kind::Profile, .. } => {}
            Key::Resource { .. } if *key == information() => {
                assert_eq!(found["spec"]["clusterGUID"], value["spec"]["clusterGUID"]);
            }
            Key::Resource { .. } => {
                assert_eq!(found["spec"], value["spec"], "{key}");
                assert_eq!(found["metadata"]["labels"], value["metadata"]["labels"], "{key}");
            }
            _ => assert_eq!(found, value, "{key}"),
        }
    }
    assert!(is_ready(there));
    assert!(there.contains_key(&endpoint("node-a", "web-0")));
}
