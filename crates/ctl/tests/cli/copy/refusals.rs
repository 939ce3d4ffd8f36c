//! Bad input, and destinations that are not empty.

use model::{Key, Kind};
use store::Change;
use testkit::etcd::{EtcdCluster, Setup};

use super::cluster::town;
use super::{copy, is_ready, records};
use crate::harness::{Desk, Place, pool};

#[test]
fn names_of_stores() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.65.0.0/16"));
    let locked = desk.plumb(&["datastore", "migrate", "lock"]);
    assert_eq!(locked.code, Some(0));
    let before = desk.dump();
    let from = "sqlite:plumb.db";
    copy(&desk, "mysql:x", "sqlite:b.db", &[])
        .refused(2, &["--from: \"mysql\" is not a kind of store", "etcdv3:"]);
    let wrong = copy(&desk, from, "https://root:hunter2@h:2379", &[]);
    wrong.refused(2, &["--to: \"https\" is not a kind of store"]);
    assert!(!wrong.stderr.contains("hunter2"), "{wrong:?}");
    copy(&desk, from, from, &[]).refused(2, &["source and destination are the same"]);
    std::os::unix::fs::symlink("plumb.db", desk.folder.path().join("link.db")).unwrap();
    copy(&desk, from, "sqlite:link.db", &[]).refused(2, &["source and destination are the same"]);
    copy(&desk, "sqlite:nowhere.db", "sqlite:b.db", &[]).refused(1, &["nowhere.db", "does not exist"]);
    let port = testkit::free_port();
    let address = format!("http://127.0.0.1:{port}");
    copy(&desk, from, &format!("etcdv3:{address}"), &[]).refused(1, &["cannot reach the store", &address]);
    copy(&desk, from, "kubernetes:nowhere", &[]).refused(1, &["the kubeconfig nowhere"]);
    desk.plumb(&["datastore", "copy", "--from", from]).refused(2, &["--to"]);
    assert_eq!(desk.dump(), before);
    assert!(!desk.folder.path().join("b.db").exists() && !desk.folder.path().join("nowhere.db").exists());
}

#[test]
fn sources_that_cannot_be_copied() {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.65.0.0/16"));
    let from = "sqlite:plumb.db";
    copy(&desk, from, "sqlite:b.db", &[])
        .refused(1, &["is not locked", "plumb datastore migrate lock", "--while-unlocked"]);
    assert!(!desk.folder.path().join("b.db").exists());
    let tried = copy(&desk, from, "sqlite:b.db", &["--dry-run"]);
    assert!(tried.code == Some(0) && tried.stderr.contains("the source is not locked"), "{tried:?}");
    assert!(!desk.folder.path().join("b.db").exists(), "a dry run makes no file");
    let done = copy(&desk, from, "sqlite:b.db", &["--while-unlocked"]);
    assert!(done.succeeded().ends_with("which is ready.\n"), "{done:?}");

    let empty = Desk::on_sqlite();
    drop(
        store::SqliteStore::open(empty.folder.path().join("plumb.db"), store::OpenMode::CreateIfMissing)
            .unwrap(),
    );
    copy(&empty, from, "sqlite:b.db", &[]).refused(1, &["holds no records"]);
}

#[test]
fn a_destination_in_use_is_left_alone() {
    let town = town();
    let other = Desk::on_sqlite();
    other.apply(&pool("theirs", "10.99.0.0/16"));
    let to = format!("sqlite:{}", other.folder.path().join("plumb.db").display());
    let before = other.dump();
    let refused = copy(&town.desk, "sqlite:plumb.db", &to, &[]);
    refused.refused(
        1,
        &[
            "IPPool(theirs) does not exist in the source",
            "ClusterInformation(default) differs from the source in spec.clusterGUID",
            "2 records of the destination are in the way: nothing was copied",
            "--existing replace",
        ],
    );
    let dry = copy(&town.desk, "sqlite:plumb.db", &to, &["--dry-run"]);
    assert_eq!(dry.code, Some(1));
    assert!(dry.stdout.contains("in the way: IPPool(theirs): does not exist in the source"), "{dry:?}");
    let dry = copy(&town.desk, "sqlite:plumb.db", &to, &["--dry-run", "--existing", "replace"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert_eq!(other.dump(), before);

    copy(&town.desk, "sqlite:plumb.db", &to, &["--existing", "replace"]).succeeded();
    let (here, there) = (records(&town.desk.open().unwrap()), records(&other.open().unwrap()));
    assert!(is_ready(&there) && !there.contains_key(&Key::cluster(Kind::IpPool, "theirs")));
    let rest = |of: &std::collections::BTreeMap<Key, serde_json::Value>| {
        let mut of = of.clone();
        of.remove(&super::information());
        // Both had the built-in tiers, with UIDs of their own.
        of.retain(|key, _| key.kind() != Kind::Tier);
        of
    };
    assert_eq!(rest(&here), rest(&there));
}

#[test]
fn a_destination_that_an_operator_locked_is_left_alone() {
    let town = town();
    let other = Desk::on_sqlite();
    other.apply(&pool("theirs", "10.99.0.0/16"));
    other.plumb(&["datastore", "migrate", "lock"]).succeeded();
    let to = format!("sqlite:{}", other.folder.path().join("plumb.db").display());
    let before = other.dump();
    for rule in ["refuse", "keep", "replace"] {
        copy(&town.desk, "sqlite:plumb.db", &to, &["--existing", rule]).refused(
            1,
            &[
                "ClusterInformation(default) says that the destination is locked for another migration",
                "plumb datastore migrate unlock",
                "nothing was copied",
            ],
        );
        assert_eq!(other.dump(), before);
    }
}

#[test]
fn a_store_that_is_half_copied_cannot_be_unlocked() {
    let town = town();
    copy(&town.desk, "sqlite:plumb.db", "sqlite:b.db", &["--keep-locked"]).succeeded();
    let there = Desk { place: Place::Sqlite(town.desk.folder.path().join("b.db")), ..Desk::on_sqlite() };
    there.plumb(&["datastore", "migrate", "unlock"]).succeeded();
    let key = super::information();
    let store = there.open().unwrap();
    let record = crate::harness::runtime().block_on(store.get(&key)).unwrap().unwrap();
    let mut own: serde_json::Value = serde_json::from_slice(&record.value).unwrap();
    own["spec"]["datastoreReady"] = false.into();
    own["metadata"]["annotations"] = serde_json::json!({"plumbline.io/unfinished-copy": "etcd at x"});
    there.write(vec![Change::update(key, own.to_string(), record.revision)]);
    there
        .plumb(&["datastore", "migrate", "unlock"])
        .refused(1, &["the datastore holds an unfinished copy of etcd at x", "plumb datastore copy"]);
    copy(&there, "sqlite:b.db", "sqlite:c.db", &[]).refused(1, &[]);
}

#[test]
fn certificates_and_passwords_come_from_files() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("certificates_and_passwords_come_from_files", &reason);
    }
    let town = town();
    let etcd = EtcdCluster::start(Setup::mutual_tls()).unwrap();
    let pki = etcd.certificates();
    let spec = format!(
        "  etcdEndpoints: {}\n  etcdCACertFile: {}\n  etcdCertFile: {}\n  etcdKeyFile: {}\n",
        etcd.endpoint(0),
        pki.cert("ca").display(),
        pki.cert("client").display(),
        pki.key("client").display()
    );
    town.desk.file(
        "etcd.cfg",
        format!("apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n{spec}"),
    );
    let copy = ["datastore", "copy", "--from", "sqlite:plumb.db", "--to-config", "etcd.cfg"];
    assert!(town.desk.plumb(&copy).succeeded().contains("which is ready"));
    // The endpoints of the command line, the certificates of the file.
    let to = format!("etcdv3:{}", etcd.endpoint(0));
    let both = [&copy[..], &["--to", &to]].concat();
    assert!(town.desk.plumb(&both).succeeded().contains("which is ready"));
    let without = super::copy(&town.desk, "sqlite:plumb.db", &to, &[]);
    without.refused(1, &["certificate"]);

    let etcd = EtcdCluster::start(Setup::with_root_password("hunter2")).unwrap();
    let spec =
        format!("  etcdEndpoints: {}\n  etcdUsername: root\n  etcdPassword: hunter2\n", etcd.endpoint(0));
    town.desk.file(
        "etcd.cfg",
        format!("apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n{spec}"),
    );
    let ran = town.desk.plumb(&[&copy[..], &["-l", "trace"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.stderr.contains("hunter2") && !ran.stdout.contains("hunter2"), "{ran:?}");
}
