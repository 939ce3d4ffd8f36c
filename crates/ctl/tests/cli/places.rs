//! Stores that cannot be reached, that do not let us in, or whose disk refuses.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use testkit::etcd::{EtcdCluster, Setup};

use crate::harness::{Desk, PLUMB, Place, finish, machine_has_own_config};

const SETS: &str = "{apiVersion: projectcalico.org/v3, kind: GlobalNetworkSet, metadata: {name: nets}, spec: {nets: [10.0.0.0/8]}}";

#[test]
fn unreachable_etcd() {
    let port = testkit::free_port();
    let desk = Desk { place: Place::Etcd(format!("http://127.0.0.1:{port}")), ..Desk::on_sqlite() };
    let address = format!("cannot reach the store at http://127.0.0.1:{port}");
    desk.plumb(&["get", "nodes"]).refused(1, &[&address, "hint: "]);
    desk.file("sets.yaml", SETS);
    desk.plumb(&["apply", "-f", "sets.yaml"]).refused(1, &[&address]);
    // What needs no store works without one.
    desk.plumb(&["validate", "-f", "sets.yaml"]).succeeded();
    desk.plumb(&["version", "--client"]).succeeded();
    let version = desk.plumb(&["version"]);
    assert_eq!(version.code, Some(1));
    assert!(version.stdout.contains("Client Version:"), "{version:?}");
    assert!(version.stderr.contains(&address), "{version:?}");
}

#[test]
fn wrong_certificates() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("wrong_certificates", &reason);
    }
    if machine_has_own_config("wrong_certificates") {
        return;
    }
    let cluster = EtcdCluster::start(Setup::mutual_tls()).unwrap();
    let pki = cluster.certificates();
    let desk = Desk { place: Place::Etcd(cluster.endpoint(0)), ..Desk::on_sqlite() };
    desk.file("sets.yaml", SETS);
    let run = |verb: &[&str], ca: &str, client: Option<&str>| {
        let mut command = desk.command(PLUMB);
        command.args(verb).env("ETCD_CA_CERT_FILE", pki.cert(ca));
        if let Some(client) = client {
            command.env("ETCD_CERT_FILE", pki.cert(client)).env("ETCD_KEY_FILE", pki.key(client));
        }
        finish(&mut command)
    };
    let apply = ["apply", "-f", "sets.yaml"];
    run(&apply, "stranger-ca", Some("client")).refused(1, &[&cluster.endpoint(0), "certificate", "hint: "]);
    run(&apply, "ca", Some("stranger-client")).refused(1, &[&cluster.endpoint(0), "certificate", "hint: "]);
    run(&apply, "ca", None).refused(1, &[&cluster.endpoint(0), "certificate", "hint: "]);
    assert_eq!(run(&["get", "globalnetworksets"], "ca", Some("client")).succeeded(), "NAME\n");
    run(&apply, "ca", Some("client")).succeeded();
    assert_eq!(run(&["get", "globalnetworksets"], "ca", Some("client")).succeeded(), "NAME\nnets\n");
}

#[test]
fn missing_store() {
    let desk = Desk::on_sqlite();
    for verb in [&["get", "nodes"][..], &["delete", "node", "x"], &["label", "node", "x", "a=b"]] {
        desk.plumb(verb).refused(1, &["plumb.db: the file does not exist", "hint: "]);
    }
    assert_eq!(desk.folder.path().read_dir().unwrap().count(), 0, "looking made something");
}

#[test]
fn file_that_is_no_store() {
    let desk = Desk::on_sqlite();
    desk.file("plumb.db", "this is not a database, and it is long enough to be looked at as one ".repeat(20));
    desk.plumb(&["get", "nodes"]).refused(1, &["plumb.db"]);
    desk.file("sets.yaml", SETS);
    desk.plumb(&["apply", "-f", "sets.yaml"]).refused(1, &["plumb.db"]);
    let text = std::fs::read_to_string(desk.folder.path().join("plumb.db")).unwrap();
    assert!(text.starts_with("this is not a database"), "it was overwritten");
}

/// Runs a script as root of a mount namespace of its own, where it may mount as it likes.
fn in_own_mounts(desk: &Desk, script: &str) -> crate::harness::Ran {
    finish(desk.command("unshare").args(["-m", "sh", "-ec", script]).env("PLUMB", PLUMB))
}

fn can_mount(test: &str) -> bool {
    let tried = Command::new("unshare").args(["-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]).output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        testkit::skip(test, "a mount namespace needs root and unshare(1)");
    }
    can
}

#[test]
fn read_only_disk() {
    if !can_mount("read_only_disk") {
        return;
    }
    let mut desk = Desk::on_sqlite();
    std::fs::create_dir(desk.folder.path().join("disk")).unwrap();
    desk.place = Place::Sqlite(desk.folder.path().join("disk/plumb.db"));
    desk.apply(SETS);
    desk.file("other.yaml", SETS.replace("name: nets", "name: others"));
    let before = desk.dump();
    let mount = "mount --bind disk disk; mount -o remount,ro,bind disk;";
    in_own_mounts(&desk, &format!("{mount} exec $PLUMB apply -f other.yaml"))
        .refused(1, &["disk/plumb.db", "read-only", "hint: "]);
    let shown = in_own_mounts(&desk, &format!("{mount} exec $PLUMB get globalnetworksets"));
    assert_eq!(shown.succeeded(), "NAME\nnets\n", "a read-only disk can still be read");
    assert_eq!(desk.dump(), before);

    // Nor can a store be made there.
    let make = "mkdir empty; mount --bind empty empty; mount -o remount,ro,bind empty; \
                SQLITE_PATH=$PWD/empty/plumb.db exec $PLUMB apply -f other.yaml";
    in_own_mounts(&desk, make).refused(1, &["empty/plumb.db", "Read-only"]);
}

#[test]
fn full_disk() {
    if !can_mount("full_disk") {
        return;
    }
    let desk = Desk::on_sqlite();
    desk.apply(SETS);
    let nets: Vec<String> = (0..20_000).map(|n| format!("10.{}.{}.0/24", n / 256, n % 256)).collect();
    desk.file("large.yaml", SETS.replace("10.0.0.0/8", &nets.join(",")).replace("name: nets", "name: large"));
    // The database moves onto a disk that is nearly full: what is there can be read, nothing can be added.
    let script = "mkdir disk; mount -t tmpfs -o size=512k tmpfs disk; cp plumb.db* disk/; \
                  export SQLITE_PATH=$PWD/disk/plumb.db; $PLUMB get globalnetworksets -o name > before; \
                  cat /dev/zero > disk/filling 2>&- || true; \
                  $PLUMB apply -f large.yaml && exit 9; code=$?; \
                  $PLUMB get globalnetworksets -o name > after; rm disk/filling; \
                  $PLUMB get globalnetworksets -o name > later; exit $code";
    let ran = in_own_mounts(&desk, script);
    ran.refused(1, &["disk/plumb.db", "full", "hint: "]);
    for name in ["before", "after", "later"] {
        let seen = std::fs::read_to_string(desk.folder.path().join(name)).unwrap();
        assert_eq!(seen, "globalnetworkset/nets\n", "{name}");
    }
}

#[test]
fn secrets_are_never_shown() {
    let desk = Desk::on_sqlite();
    let config = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n  datastoreType: etcdv3\n  \
                  etcdEndpoints: http://127.0.0.1:1\n  etcdUsername: root\n  etcdPassword: hunter2\n";
    desk.file("good.cfg", config);
    desk.file("typo.cfg", config.replace("etcdPassword", "etcdPasswort"));
    desk.file("broken.cfg", config.replace(": hunter2", ": [hunter2"));
    for file in ["good.cfg", "typo.cfg", "broken.cfg"] {
        let ran = desk.plumb(&["-c", file, "-l", "trace", "get", "nodes"]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(!ran.stderr.contains("hunter2"), "{ran:?}");
    }
}

#[test]
fn a_configuration_file_is_the_only_source() {
    let desk = Desk::on_sqlite();
    let path = desk.folder.path().join("configured.db");
    let text = format!(
        "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec: {{datastoreType: sqlite, sqlitePath: {}}}\n",
        path.display()
    );
    desk.file("calicoctl.cfg", text);
    desk.file("sets.yaml", SETS);
    let mut apply = desk.command(PLUMB);
    apply
        .args(["apply", "-f", "sets.yaml", "--config", "calicoctl.cfg"])
        .env("ETCD_ENDPOINTS", "http://127.0.0.1:1");
    assert_eq!(finish(&mut apply).succeeded(), "Successfully applied 1 'GlobalNetworkSet' resource(s)\n");
    assert!(path.exists(), "the file's path counts");
    assert!(desk.open().is_none(), "the environment's does not");
}

#[test]
fn a_store_is_for_its_owner_only() {
    let desk = Desk::on_sqlite();
    desk.apply(SETS);
    let mode = desk.folder.path().join("plumb.db").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}
