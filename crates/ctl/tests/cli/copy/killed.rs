//! Copies whose process is killed.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;

use model::kube::Layout;
use model::{Key, Kind};
use serde_json::Value;
use store::{Change, Store};
use testkit::etcd::EtcdCluster;
use testkit::process::{Process, wait_until};

use super::cluster::{Cluster, town};
use super::{copy, is_ready, records};
use crate::harness::{Desk, PLUMB};
use crate::ipam::town::{Town, handle_key, handle_value};

/// More handles than one commit holds.
fn grow(town: &Town, handles: usize) {
    let handles: Vec<Change> = (0..handles)
        .map(|n| Change::create(handle_key(&format!("other.{n}")), handle_value("10.65.0.0/29", 0)))
        .collect();
    handles.chunks(100).for_each(|some| town.desk.write(some.to_vec()));
}

fn handles(records: &BTreeMap<Key, Value>) -> usize {
    records.keys().filter(|key| key.kind() == Kind::IpamHandle).count()
}

/// Kills the copy whenever it has come an eighth further, until it is done.
fn kill_and_continue(test: &str, town: &Town, to: &str, there: &Arc<dyn Store>) {
    let expected = handles(&records(&town.desk.open().unwrap()));
    let (mut before, mut kills) = (0, 0);
    loop {
        let mut command = town.desk.command(PLUMB);
        command.args(["datastore", "copy", "--from", "sqlite:plumb.db", "--to", to]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::spawn(command).unwrap();
        let is_further = || handles(&records(there)) > before + expected / 8;
        wait_until("the copy to come further", || process.exit_status().is_some() || is_further()).unwrap();
        process.kill();
        let found = records(there);
        if is_ready(&found) {
            break;
        }
        kills += 1;
        before = handles(&found);
        let pools = found.keys().filter(|key| key.kind() == Kind::IpPool).count();
        assert!(pools == 0 || before == expected, "pools come last");
        if before == expected {
            // Little is left to do, and no kill may hit it.
            copy(&town.desk, "sqlite:plumb.db", to, &[]).succeeded();
            break;
        }
    }
    let found = records(there);
    assert!(is_ready(&found));
    assert_eq!(handles(&found), expected);
    // How often it is caught half way is a matter of speed. What stops at a chosen write is tested inside the program.
    testkit::note(test, &format!("{kills} kills until {expected} handles were there"));
}

#[test]
fn a_killed_copy_to_etcd_is_locked_and_continues() {
    let test = "a_killed_copy_to_etcd_is_locked_and_continues";
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip(test, &reason);
    }
    let town = town();
    grow(&town, testkit::count(2_000, 20_000));
    let etcd = EtcdCluster::single().unwrap();
    let there = Desk::on_etcd(&etcd);
    kill_and_continue(test, &town, &format!("etcdv3:{}", etcd.endpoint(0)), &there.open().unwrap());
    let records = |desk: &Desk| desk.dump().len();
    assert_eq!(records(&there), records(&town.desk));
}

#[test]
fn a_killed_copy_to_kubernetes_is_locked_and_continues() {
    let test = "a_killed_copy_to_kubernetes_is_locked_and_continues";
    let Some(cluster) = Cluster::start(test, Layout::V1) else { return };
    let town = town();
    grow(&town, testkit::count(500, 5_000));
    kill_and_continue(test, &town, &cluster.name(), &cluster.store());
}
