//! etcdctl as an independent peer: what one writes the other reads, byte by byte.

use model::{AffinityOwner, Key, KeyRange, Kind};
use store::{Event, Store};
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};
use testkit::process::run;

use crate::{connect, next};

/// Keys of every shape, with the texts that Calico gives them.
fn keys() -> Vec<(Key, &'static str)> {
    let cidr = |text: &str| text.parse().unwrap();
    vec![
        (
            Key::cluster(Kind::IpPool, "default-ipv4-ippool"),
            "/calico/resources/v3/projectcalico.org/ippools/default-ipv4-ippool",
        ),
        (
            Key::namespaced(Kind::WorkloadEndpoint, "default", "ip--10--0--0--5-k8s-web--0-eth0"),
            "/calico/resources/v3/projectcalico.org/workloadendpoints/default/ip--10--0--0--5-k8s-web--0-eth0",
        ),
        (Key::Block(cidr("10.244.7.64/26")), "/calico/ipam/v2/assignment/ipv4/block/10.244.7.64-26"),
        (
            Key::Affinity { owner: AffinityOwner::Host("node-a".into()), block: cidr("fd00::40/122") },
            "/calico/ipam/v2/host/node-a/ipv6/block/fd00::40-122",
        ),
        (Key::Handle("k8s-pod-network.0f3a".into()), "/calico/ipam/v2/handle/k8s-pod-network.0f3a"),
        (Key::IpamConfig, "/calico/ipam/v2/config"),
    ]
}

const VALUE: &str = r#"{"sequenceNumber":1787380400123456795,"text":"<>&\u00e9é\n","empty":{}}"#;

fn etcdctl_get(cluster: &EtcdCluster, key: &str) -> String {
    let output = run(cluster.etcdctl().args(["get", key, "--print-value-only"])).unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn etcdctl_reads_what_we_write_and_the_other_way_round() {
    let test = "etcdctl_reads_what_we_write_and_the_other_way_round";
    let Some(cluster) = start_or_skip(test, Setup::members(1)) else { return };
    let store = connect(&cluster).await;
    let store: &dyn Store = &store;
    for (key, text) in keys() {
        let revision = store.create(key.clone(), VALUE.into()).await.unwrap();
        // etcdctl adds the line end.
        assert_eq!(etcdctl_get(&cluster, text), format!("{VALUE}\n"), "{text}");
        let fields = run(cluster.etcdctl().args(["get", text, "--write-out", "fields"])).unwrap();
        let fields = String::from_utf8(fields.stdout).unwrap();
        assert!(fields.contains(&format!("\"ModRevision\" : {revision}\n")), "{fields}");

        let theirs = format!("{VALUE} ");
        run(cluster.etcdctl().args(["put", text, &theirs])).unwrap();
        let read = store.get(&key).await.unwrap().unwrap();
        assert_eq!(read.value, theirs);
        assert_ne!(read.revision, revision);
    }
    let (listed, _) = store.list_all(KeyRange::Everything).await.unwrap();
    assert_eq!(listed.len(), keys().len());
}

#[tokio::test]
async fn we_see_what_etcdctl_does() {
    let Some(cluster) = start_or_skip("we_see_what_etcdctl_does", Setup::members(1)) else { return };
    let store = connect(&cluster).await;
    let store: &dyn Store = &store;
    let (_, revision) = store.list_all(KeyRange::Everything).await.unwrap();
    let mut watch = store.watch(KeyRange::Everything, revision).await.unwrap();
    for (key, text) in keys() {
        run(cluster.etcdctl().args(["put", text, "1"])).unwrap();
        run(cluster.etcdctl().args(["put", "/calico/felix/v2/no-region/host/a/status", "1"])).unwrap();
        run(cluster.etcdctl().args(["del", text])).unwrap();
        let Some(Event::Put(record)) = next(&mut watch).await else { panic!("{text} was put") };
        assert_eq!((record.key, record.value.as_ref()), (key.clone(), b"1".as_slice()));
        let Some(Event::Deleted { key: deleted, .. }) = next(&mut watch).await else {
            panic!("{text} was deleted")
        };
        assert_eq!(deleted, key);
    }
}
