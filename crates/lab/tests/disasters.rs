//! A store that was put back from a backup, lost its address book, or lost everything: repairs make the records those of the pods
//! that run, and no pod notices. And a machine that is gone for good.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use lab::Programs;
use lab::cluster::{OwnCluster, Plan, StoreKind};
use lab::kubelet::{KubeletRequest, NewPod, PodKey};
use model::{Key, KeyRange, Kind};
use serde_json::Value;
use store::Change;

type Records = BTreeMap<Key, Vec<u8>>;

fn up(test: &str, store: StoreKind) -> Option<OwnCluster> {
    let etcd = || testkit::etcd::missing().filter(|_| store == StoreKind::Etcdv3);
    if let Some(reason) = lab::missing().or_else(etcd) {
        testkit::skip(test, &reason);
        return None;
    }
    let plan = Plan {
        nodes: 2,
        store,
        ipv6: true,
        grace: Duration::from_secs(600),
        ..Plan::new(&Programs::of_test().unwrap())
    };
    Some(OwnCluster::up(plan, &|_| {}).unwrap())
}

fn keys(names: &[&str]) -> Vec<PodKey> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn add(lab: &OwnCluster, node: &str, names: &[&str]) {
    let pods = keys(names).iter().map(NewPod::new).collect();
    lab.kubelet(node, &KubeletRequest::Add { pods, waits: true }).unwrap();
}

fn del(lab: &OwnCluster, node: &str, names: &[&str]) {
    lab.kubelet(node, &KubeletRequest::Delete { pods: keys(names), waits: true }).unwrap();
}

/// What a pod network writes while pods come and go.
fn is_of_pods(key: &Key) -> bool {
    match key {
        Key::Resource { kind, .. } => *kind == Kind::WorkloadEndpoint,
        Key::IpamConfig => false,
        _ => true,
    }
}

fn records(lab: &OwnCluster) -> Records {
    lab.with_store(async |store| {
        let (records, _) = store.list_all(KeyRange::Everything).await?;
        let kept = records.into_iter().filter(|record| is_of_pods(&record.key));
        Ok(kept.map(|record| (record.key, record.value.to_vec())).collect())
    })
    .unwrap()
}

/// Makes the records those of `wanted`, and none besides.
fn put_back(lab: &OwnCluster, wanted: &Records) {
    lab.with_store(async |store| {
        let (found, _) = store.list_all(KeyRange::Everything).await?;
        let now: BTreeMap<_, _> = found.into_iter().map(|record| (record.key, record.revision)).collect();
        let keys: BTreeSet<&Key> = now.keys().filter(|key| is_of_pods(key)).chain(wanted.keys()).collect();
        for key in keys {
            let change = match (now.get(key).cloned(), wanted.get(key).cloned()) {
                (Some(revision), Some(then)) => Change::update(key.clone(), then, revision),
                (Some(revision), None) => Change::delete(key.clone(), revision),
                (None, Some(then)) => Change::create(key.clone(), then),
                (None, None) => continue,
            };
            store.commit(vec![change]).await?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(&records(lab), wanted);
}

fn sandboxes(lab: &OwnCluster) -> BTreeSet<String> {
    let pods = ["node1", "node2"].map(|node| lab.pods(node).unwrap());
    pods.into_iter().flatten().map(|pod| pod.container_id).collect()
}

/// What the doctor finds, by code and subject.
fn found(lab: &OwnCluster) -> Vec<String> {
    let words = ["plumb", "doctor", "-o", "json", "--settle", "1", "--grace", "1"];
    let output = lab.output_on("node1", &words).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(|finding| format!("{} {}", finding["code"], finding["subject"])).collect()
}

/// What the doctor finds, once it is as it should be.
#[track_caller]
fn wait_until_found(lab: &OwnCluster, is_so: impl Fn(&[String]) -> bool) {
    let waited = lab::wait_for("the doctor to find what is wrong", || {
        let found = found(lab);
        anyhow::ensure!(is_so(&found), "{found:?}");
        Ok(())
    });
    waited.unwrap();
}

#[track_caller]
fn apply(lab: &OwnCluster) -> Value {
    let words = ["plumb", "repair", "--apply", "-o", "json", "--settle", "1", "--grace", "1"];
    let output = lab.output_on("node1", &words).unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Everything that is planned is done, and nothing is left to anybody. What was written a moment ago is not judged yet, so it
/// may take more than one.
#[track_caller]
fn repair(lab: &OwnCluster) {
    let mut done = 0;
    let repaired = lab::wait_for("a repair that leaves nothing", || {
        let told = apply(lab);
        assert_eq!(told["troubles"].as_array().unwrap().len(), 0, "{told:#}");
        done += told["done"].as_u64().unwrap();
        let odd = ["dropped", "left"].map(|field| told[field].as_array().unwrap().len());
        anyhow::ensure!(odd == [0, 0] && done > 0, "{told:#}");
        Ok(())
    });
    repaired.unwrap();
}

#[track_caller]
fn all_is_well(lab: &OwnCluster) {
    wait_until_found(lab, <[String]>::is_empty);
    let trips = lab::ping::all(lab).unwrap();
    let lost: Vec<_> = trips.iter().filter(|trip| trip.outcome == lab::ping::Outcome::Lost).collect();
    assert!(trips.len() >= 20 && lost.is_empty(), "{lost:?}");
}

fn an_old_backup(test: &str, store: StoreKind) {
    let Some(lab) = up(test, store) else { return };
    add(&lab, "node1", &["a-0", "a-1", "a-2"]);
    add(&lab, "node2", &["b-0", "b-1"]);
    let backup = records(&lab);
    // One goes, one is made again, one is new.
    del(&lab, "node1", &["a-0", "a-1"]);
    add(&lab, "node1", &["a-1", "a-3"]);
    del(&lab, "node2", &["b-0"]);
    add(&lab, "node2", &["b-2"]);
    let running = sandboxes(&lab);
    put_back(&lab, &backup);
    let codes = ["endpoint-of-old-sandbox", "endpoint-without-sandbox", "pod-without-endpoint"];
    wait_until_found(&lab, |found| codes.iter().all(|code| found.iter().any(|found| found.contains(code))));
    repair(&lab);
    all_is_well(&lab);
    assert_eq!(sandboxes(&lab), running);
}

#[test]
fn an_old_backup_is_made_to_fit_on_sqlite() {
    an_old_backup("an_old_backup_is_made_to_fit_on_sqlite", StoreKind::Sqlite);
}

#[test]
fn an_old_backup_is_made_to_fit_on_etcd() {
    an_old_backup("an_old_backup_is_made_to_fit_on_etcd", StoreKind::Etcdv3);
}

/// Only what people write survives: pools and settings.
fn an_empty_store(test: &str, store: StoreKind) {
    let Some(lab) = up(test, store) else { return };
    add(&lab, "node1", &["a-0", "a-1"]);
    add(&lab, "node2", &["b-0", "b-1"]);
    let running = sandboxes(&lab);
    put_back(&lab, &Records::new());
    for node in ["node1", "node2"] {
        lab.stop(node, "agent").unwrap();
        lab.plumb(&["delete", "node", node]).unwrap();
    }
    for node in ["node1", "node2"] {
        lab.start(node, "agent", &[]).unwrap();
        lab.wait_for_service(node, "agent").unwrap();
    }
    wait_until_found(&lab, |found| {
        found.len() == 4 && found.iter().all(|found| found.contains("pod-without-endpoint"))
    });
    // The address book is made by the endpoints, so these come first.
    let told = apply(&lab);
    assert_eq!(
        (told["done"].as_u64(), told["left"].as_array().map(Vec::len)),
        (Some(4), Some(8)),
        "{told:#}"
    );
    repair(&lab);
    all_is_well(&lab);
    assert_eq!(sandboxes(&lab), running);
}

#[test]
fn an_empty_store_is_filled_from_what_runs_on_sqlite() {
    an_empty_store("an_empty_store_is_filled_from_what_runs_on_sqlite", StoreKind::Sqlite);
}

#[test]
fn an_empty_store_is_filled_from_what_runs_on_etcd() {
    an_empty_store("an_empty_store_is_filled_from_what_runs_on_etcd", StoreKind::Etcdv3);
}

fn a_lost_address_book(test: &str, store: StoreKind) {
    let Some(lab) = up(test, store) else { return };
    add(&lab, "node1", &["a-0", "a-1"]);
    add(&lab, "node2", &["b-0", "b-1"]);
    let endpoints: Records =
        records(&lab).into_iter().filter(|(key, _)| matches!(key, Key::Resource { .. })).collect();
    put_back(&lab, &endpoints);
    // Pods are made all the while, and get addresses that nobody has.
    add(&lab, "node1", &["a-2"]);
    wait_until_found(&lab, |found| {
        found.len() >= 2 && found.iter().all(|found| found.contains("block-missing"))
    });
    repair(&lab);
    add(&lab, "node2", &["b-2"]);
    all_is_well(&lab);
    del(&lab, "node1", &["a-0", "a-1", "a-2"]);
    del(&lab, "node2", &["b-0", "b-1", "b-2"]);
    let held = records(&lab).into_keys().filter(|key| matches!(key, Key::Handle(_) | Key::Resource { .. }));
    assert_eq!(held.collect::<Vec<_>>(), []);
}

#[test]
fn a_lost_address_book_is_made_anew_on_sqlite() {
    a_lost_address_book("a_lost_address_book_is_made_anew_on_sqlite", StoreKind::Sqlite);
}

#[test]
fn a_lost_address_book_is_made_anew_on_etcd() {
    a_lost_address_book("a_lost_address_book_is_made_anew_on_etcd", StoreKind::Etcdv3);
}

/// Its record is there, so nobody but an operator can say that it does not come back.
#[test]
fn a_machine_that_died_is_given_up_by_a_word_and_taken_back_by_another() {
    let test = "a_machine_that_died_is_given_up_by_a_word_and_taken_back_by_another";
    let Some(lab) = up(test, StoreKind::Sqlite) else { return };
    add(&lab, "node1", &["a-0"]);
    add(&lab, "node2", &["b-0", "b-1"]);
    let held = |node: &str| {
        let of_node = |key: &Key| key.to_string().contains(node);
        records(&lab).into_keys().filter(of_node).count()
            + usize::from(lab.plumb(&["get", "node", node]).is_ok())
    };
    let before = held("node2");
    let words = ["plumb", "repair", "node", "node2", "gone", "--apply", "--settle", "1", "--grace", "1"];
    let refused = lab::wait_for("the repair to see that node2 answers", || {
        let answers = lab.output_on("node1", &words)?;
        let told = String::from_utf8_lossy(&answers.stdout).into_owned();
        anyhow::ensure!(told.contains("the agent of node2 answers, so the node is not gone"), "{answers:?}");
        Ok(())
    });
    refused.unwrap();
    assert_eq!(held("node2"), before);
    lab.cut_power("node2").unwrap();
    let refused = lab.output_on("node1", &["plumb", "delete", "node", "node2"]).unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("plumb repair node node2 gone"), "{refused:?}");
    let given_up = lab::wait_for("node2 to have been silent for longer than the grace", || {
        let output = lab.output_on("node1", &words)?;
        anyhow::ensure!(output.status.success() && held("node2") == 0, "{output:?}");
        Ok(())
    });
    given_up.unwrap();
    assert_eq!(found(&lab), [] as [&str; 0]);
    let history = lab.plumb(&["repair", "history", "-o", "json"]).unwrap();
    let history: Value = serde_json::from_str(&history).unwrap();
    lab.plumb(&["repair", "undo", history["repairs"][0]["id"].as_str().unwrap()]).unwrap();
    assert_eq!(held("node2"), before);
}
