//! Several operators at once.

use testkit::etcd::EtcdCluster;

use crate::harness::{Desk, one_of_many_pools_wins};

#[test]
fn two_overlapping_pools_cannot_both_be_created() {
    one_of_many_pools_wins(&Desk::on_sqlite(), testkit::count(3, 30));
}

#[test]
fn two_overlapping_pools_cannot_both_be_created_on_etcd() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("two_overlapping_pools_cannot_both_be_created_on_etcd", &reason);
    }
    let cluster = EtcdCluster::single().unwrap();
    one_of_many_pools_wins(&Desk::on_etcd(&cluster), testkit::count(3, 30));
}

#[test]
fn labels_set_at_the_same_time_are_all_kept() {
    let desk = Desk::on_sqlite();
    desk.apply("{apiVersion: projectcalico.org/v3, kind: Node, metadata: {name: n}, spec: {}}");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let desk = &desk;
            scope.spawn(move || {
                desk.plumb(&["label", "node", "n", &format!("l{number}=x")]).succeeded().to_owned()
            });
        }
    });
    let labels = desk.plumb(&["get", "node", "n", "-o", "jsonpath={.metadata.labels}"]);
    assert_eq!(labels.succeeded(), "{\"l0\":\"x\",\"l1\":\"x\",\"l2\":\"x\",\"l3\":\"x\"}\n");
}
