//! `plumb ipam split`.

use model::{Key, Kind, Resource};
use serde_json::{Value, json};
use store::Change;
use testkit::etcd::EtcdCluster;

use super::town::Town;
use crate::harness::{Desk, Ran, pool};

fn locked(desk: Desk) -> Town {
    let town = Town::new(desk);
    town.desk.plumb(&["datastore", "migrate", "lock"]).succeeded();
    town
}

fn split(town: &Town, args: &[&str]) -> Ran {
    let args: Vec<&str> = ["ipam", "split"].iter().chain(args).copied().collect();
    town.desk.plumb(&args)
}

fn pool_key(name: &str) -> Key {
    Key::cluster(Kind::IpPool, name)
}

fn stored(town: &Town, name: &str) -> Value {
    serde_json::from_slice(&town.record(&pool_key(name)).unwrap().value).unwrap()
}

fn a_pool_is_split(town: &Town) {
    town.desk.plumb(&["label", "ippool", "pods", "rack=a"]).code.unwrap();
    town.set_spec(pool_key("pods"), "future", json!({"id": u64::MAX}));
    let old = stored(town, "pods");
    let ran = split(town, &["4", "--name=pods"]);
    assert_eq!(
        ran.succeeded(),
        "\
IP Pool pods was successfully split into 4 smaller pools.
Created split-pods-0 with CIDR 10.65.0.0/26.
Created split-pods-1 with CIDR 10.65.0.64/26.
Created split-pods-2 with CIDR 10.65.0.128/26.
Created split-pods-3 with CIDR 10.65.0.192/26.
You may now unlock the data store.
"
    );
    assert!(!town.has(&pool_key("pods")));
    let part = stored(town, "split-pods-1");
    assert_eq!(part["spec"]["cidr"], "10.65.0.64/26");
    assert_eq!(part["metadata"]["labels"], json!({"rack": "a"}));
    assert_eq!(part["spec"]["future"]["id"], json!(u64::MAX), "what is not known here is kept");
    assert_ne!(part["metadata"]["uid"], old["metadata"]["uid"]);
    for field in ["blockSize", "nodeSelector", "ipipMode"] {
        assert_eq!(part["spec"][field], old["spec"][field], "{field}");
    }
    // Addresses, blocks and affinities are as they were, and the books still agree.
    town.desk.plumb(&["datastore", "migrate", "unlock"]).succeeded();
    let check = town.desk.plumb(&["ipam", "check", "--settle=0"]);
    assert!(check.succeeded().ends_with("Check complete; found 0 problems.\n"), "{check:?}");
}

#[test]
fn a_pool_is_split_on_sqlite() {
    a_pool_is_split(&locked(Desk::on_sqlite()));
}

#[test]
fn a_pool_is_split_on_etcd() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("a_pool_is_split_on_etcd", &reason);
    }
    let cluster = EtcdCluster::single().unwrap();
    a_pool_is_split(&locked(Desk::on_etcd(&cluster)));
}

#[test]
fn by_network_and_into_ipv6() {
    let town = locked(Desk::on_sqlite());
    let ran = split(&town, &["--cidr=fd65::/120", "2"]);
    assert!(ran.succeeded().contains("Created split-six-1 with CIDR fd65::80/121.\n"), "{ran:?}");
}

#[test]
fn a_dry_run_writes_nothing() {
    let town = locked(Desk::on_sqlite());
    let before = town.desk.dump();
    let ran = split(&town, &["2", "--name=pods", "--dry-run"]);
    let expected = "Dry run: IP Pool pods would be split into 2 smaller pools.\n\
                    Would create split-pods-0 with CIDR 10.65.0.0/25.\nWould create split-pods-1 with CIDR 10.65.0.128/25.\n";
    assert_eq!(ran.succeeded(), expected);
    assert_eq!(town.desk.dump(), before);
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_changes() {
    let town = locked(Desk::on_sqlite());
    town.desk.write(vec![Change::create(
        pool_key("split-six-1"),
        r#"{"metadata":{"name":"split-six-1"},"spec":{"cidr":"10.99.0.0/24"}}"#,
    )]);
    let before = town.desk.dump();
    for (args, code, text) in [
        (&["2"][..], 2, "--cidr"),
        (&["--name=pods"], 2, "NUMBER"),
        (&["2", "--name=pods", "--cidr=10.65.0.0/24"], 2, "--cidr"),
        (&["0", "--name=pods"], 2, "a pool cannot be split into 0 parts"),
        (&["1", "--name=pods"], 2, "a pool cannot be split into 1 parts"),
        (&["3", "--name=pods"], 2, "a pool cannot be split into 3 parts"),
        (&["2048", "--name=pods"], 2, "a pool cannot be split into 2048 parts"),
        (&["two", "--name=pods"], 2, "two"),
        (&["-2", "--name=pods"], 2, "-2"),
        (&["2", "--name=nowhere"], 1, "IP pool nowhere does not exist"),
        (&["2", "--cidr=10.66.0.0/24"], 1, "no IP pool has the CIDR 10.66.0.0/24"),
        (&["2", "--cidr=rubbish"], 1, "no IP pool has the CIDR rubbish"),
        (&["64", "--name=pods"], 1, "IP pool pods (10.65.0.0/24) cannot be split into 64 parts: spec."),
        (&["512", "--name=pods"], 1, "cannot be split into 512 parts: it is not large enough"),
        (&["2", "--name=six"], 1, "pool split-six-1 already exists, with CIDR 10.99.0.0/24"),
    ] {
        split(&town, args).refused(code, &[text]);
        assert_eq!(town.desk.dump(), before, "{args:?}");
    }
}

#[test]
fn a_store_that_is_not_locked_is_left_alone() {
    let town = Town::new(Desk::on_sqlite());
    let before = town.desk.dump();
    split(&town, &["2", "--name=pods"])
        .refused(1, &["the datastore is not locked", "plumb datastore migrate lock"]);
    town.remove(&Key::cluster(Kind::ClusterInformation, "default"));
    split(&town, &["2", "--name=pods"]).refused(1, &["the datastore is not locked"]);
    assert_eq!(town.desk.dump().len(), before.len() - 1);
}

/// More pools than fit into one commit; and what is left of such a split that was stopped in the middle is finished by
/// the same command.
#[test]
fn a_split_that_was_stopped_goes_on() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("wide", "10.128.0.0/10"));
    desk.plumb(&["datastore", "migrate", "lock"]).succeeded();
    let town = Town { desk };
    // As if it had stopped after the first pools.
    town.set_spec(pool_key("wide"), "disabled", json!(true));
    for index in 0..3 {
        let mut part = Resource::new(Kind::IpPool, format!("split-wide-{index}"));
        let spec = json!({"cidr": format!("10.{}.0.0/18", 128), "blockSize": 26});
        part.body.insert("spec".to_owned(), spec);
        part.spec_mut().insert("cidr".to_owned(), format!("10.128.{}.0/18", index * 64).into());
        town.put(part.key(), part.encode());
    }
    let before = town.record(&pool_key("split-wide-2")).unwrap().revision;
    let ran = split(&town, &["256", "--name=wide"]);
    assert!(ran.succeeded().starts_with("IP Pool wide was successfully split into 256 smaller pools.\n"));
    let listed = town.desk.plumb(&["get", "ippools", "-o", "name"]);
    assert_eq!(listed.succeeded().lines().count(), 256);
    assert_eq!(
        town.record(&pool_key("split-wide-2")).unwrap().revision,
        before,
        "what was there is left as it is"
    );
    assert_eq!(stored(&town, "split-wide-255")["spec"]["cidr"], "10.191.192.0/18");
    assert_eq!(stored(&town, "split-wide-255")["spec"].get("disabled"), None);
}
