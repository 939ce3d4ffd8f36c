//! `plumb doctor` on a live store.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;

use model::{Key, Kind};
use serde_json::{Value, json};
use store::Change;

use crate::harness::{Desk, machine_has_own_config, pool};
use crate::ipam::town::Town;

/// An endpoint record, as another program may write it.
fn endpoint(name: &str, address: &str) -> Change {
    let value = serde_json::json!({
        "kind": "WorkloadEndpoint", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"node": "node-a", "orchestrator": "k8s", "pod": name, "endpoint": "eth0",
                 "containerID": name, "ipNetworks": [format!("{address}/32")]}
    });
    Change::create(Key::namespaced(Kind::WorkloadEndpoint, "shop", name), value.to_string())
}

/// A store in which two endpoints hold one address.
fn desk_with_a_fault() -> Desk {
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.0.0.0/16"));
    desk.write(vec![endpoint("a", "10.0.0.7"), endpoint("b", "10.0.0.7")]);
    desk
}

fn codes(json: &str) -> Vec<String> {
    let report: Value = serde_json::from_str(json).unwrap();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_fault_in_the_store_is_found_and_told_in_every_way() {
    if machine_has_own_config("a_fault_in_the_store_is_found_and_told_in_every_way") {
        return;
    }
    let desk = desk_with_a_fault();
    let text = desk.plumb(&["doctor", "--settle", "0"]);
    assert_eq!(text.code, Some(1), "{text:?}");
    assert!(text.stdout.contains("2 endpoints on node node-a have address 10.0.0.7"), "{text:?}");
    assert!(!text.stdout.contains('\u{1b}'), "no colours where there is no terminal");
    let json = desk.plumb(&["doctor", "--settle", "0", "-o", "json"]);
    assert!(codes(&json.stdout).contains(&"address-shared".to_owned()), "{json:?}");
    let written = desk.plumb(&["doctor", "--settle", "0", "-o", "json", "--out", "report.json"]);
    assert_eq!((written.code, written.stdout.as_str()), (Some(1), ""));
    let file = std::fs::read_to_string(desk.folder.path().join("report.json")).unwrap();
    assert!(codes(&file).contains(&"address-shared".to_owned()));
}

#[test]
fn warnings_fail_only_if_they_are_to() {
    if machine_has_own_config("warnings_fail_only_if_they_are_to") {
        return;
    }
    let desk = Desk::on_sqlite();
    desk.apply(&pool("pods", "10.0.0.0/16"));
    let clean = desk.plumb(&["doctor"]);
    assert_eq!(clean.code, Some(0), "{clean:?}");
    assert!(
        clean.stdout.starts_with("Incomplete evidence: "),
        "the first line says what is missing: {clean:?}"
    );
    assert!(clean.stdout.contains("\nNothing wrong was found in the rest."), "{clean:?}");
    let worse = desk_with_a_fault().plumb(&["doctor", "--settle", "0", "--fail-on", "error"]);
    assert_eq!(worse.code, Some(1), "an error fails in any case");
}

#[test]
fn what_cannot_be_looked_at_is_not_clean() {
    if machine_has_own_config("what_cannot_be_looked_at_is_not_clean") {
        return;
    }
    Desk::on_sqlite().plumb(&["doctor"]).refused(2, &["plumb.db"]);
    Desk::on_sqlite()
        .plumb(&["doctor", "explain", "adress-shared"])
        .refused(2, &["did you mean address-shared?"]);
}

#[test]
fn files_that_somebody_collected_are_evidence() {
    let desk = Desk::on_sqlite();
    let incidents = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/incidents/shared-address");
    let json = desk.plumb(&["doctor", "--from", incidents, "-o", "json"]);
    assert_eq!(json.code, Some(1), "{json:?}");
    assert!(codes(&json.stdout).contains(&"address-shared".to_owned()), "{json:?}");
    assert!(json.stdout.contains("workloadendpoints.wide.txt"), "{json:?}");
    desk.file("node-a.route.txt", "default via 10.0.0.1 dev eth0\n");
    let clean = desk.plumb(&["doctor", "--from", "node-a.route.txt"]);
    assert_eq!(clean.code, Some(0), "{clean:?}");
    desk.plumb(&["doctor", "--from", "no-such-folder"]).refused(2, &["cannot read no-such-folder"]);
}

#[test]
fn logs_become_a_history() {
    let desk = Desk::on_sqlite();
    let log =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/incidents/stale-delete/kubelet-dev-slave-107.log");
    let text = desk.plumb(&["doctor", "logs", log]);
    assert_eq!(text.code, Some(1), "{text:?}");
    let unwrapped = text.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for told in [
        "[stale-del]",
        "192.168.8.34 is free in the IPAM records",
        "DEL 41857f70ed13, its network namespace is gone",
    ] {
        assert!(unwrapped.contains(told), "{told}: {text:?}");
    }
    let json = desk.plumb(&["doctor", "logs", log, "-o", "json"]);
    let value: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (&value["findings"][0]["code"], &value["pods"][0]["node"]),
        (&"stale-del".into(), &"dev-slave-107".into())
    );
    let line = "time=\"2024-01-01T00:00:00Z\" level=info msg=\"nothing\"\n";
    let quiet = desk.plumb_with_stdin(&["doctor", "logs", "-"], line.as_bytes());
    assert_eq!(quiet.code, Some(0), "{quiet:?}");
    desk.plumb_with_stdin(&["doctor", "logs", "-"], b"no log").refused(2, &["contain no log lines"]);
}

#[test]
fn a_watch_tells_what_is_new_and_what_is_gone() {
    if machine_has_own_config("a_watch_tells_what_is_new_and_what_is_gone") {
        return;
    }
    let desk = desk_with_a_fault();
    let watch = ["doctor", "--watch", "--looks", "2", "--every", "0", "--settle", "0"];
    let text = desk.plumb(&watch);
    assert_eq!(text.code, Some(1), "{text:?}");
    assert!(text.stdout.lines().last().unwrap().contains("no change: "), "{text:?}");
    let json = desk.plumb(&[&watch[..], &["-o", "json"]].concat());
    let lines: Vec<Value> = json.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{json:?}");
    assert!(
        !lines[0]["new"].as_array().unwrap().is_empty() && lines[1]["new"].as_array().unwrap().is_empty()
    );
}

/// A log as a busy kubelet writes it: mostly nothing, now and then a pod that comes and goes.
fn long_log(bytes: usize, number: usize) -> String {
    let call = |command: &str| {
        format!(
            "Dec 12 20:30:00 n1 kubelet[1]: time=\"2017-12-12T20:30:00+08:00\" level=info msg=\"Configured environment: [CNI_COMMAND={command} \
             CNI_CONTAINERID={number:064x} CNI_NETNS=/proc/1/ns/net CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-{number} CNI_IFNAME=eth0]\"\n"
        )
    };
    let idle = "Dec 12 20:30:00 n1 kubelet[1]: I1212 20:30:00.000000 1 reconciler.go:1] volume is mounted, password=abc\n";
    let mut log = call("ADD");
    while log.len() < bytes {
        log.push_str(idle);
    }
    log + &call("DEL")
}

#[test]
fn a_huge_log_takes_little_memory() {
    const MIB_MAX: f64 = 256.0;
    let desk = Desk::on_sqlite();
    let mut file = std::fs::File::create(desk.folder.path().join("n1.kubelet.log")).unwrap();
    for number in 0..testkit::count(8, 1_024) {
        std::io::Write::write_all(&mut file, long_log(1 << 20, number).as_bytes()).unwrap();
    }
    let mut command = desk.command(crate::harness::PLUMB);
    command.args(["doctor", "logs", "n1.kubelet.log", "-o", "json"]);
    let peak = testkit::process::peak_mib(command).unwrap();
    assert!(peak < MIB_MAX, "{peak} MiB");
}

#[test]
fn a_bundle_says_the_same_as_the_store_and_no_secrets() {
    if machine_has_own_config("a_bundle_says_the_same_as_the_store_and_no_secrets") {
        return;
    }
    let desk = desk_with_a_fault();
    let peer = serde_json::json!({"spec": {"peerIP": "192.0.2.1", "asNumber": 64512, "password": "hunter2"}});
    desk.write(vec![Change::create(Key::cluster(Kind::BgpPeer, "p"), peer.to_string())]);
    let collected = desk.plumb(&["collect", "--settle", "0.1", "--out", "a.bundle"]);
    assert_eq!((collected.code, collected.stderr.as_str()), (Some(0), "wrote a.bundle\n"), "{collected:?}");
    let path = desk.folder.path().join("a.bundle");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hunter2") && text.contains("[masked]"), "{text}");
    assert_eq!(text.matches("plumbBundle").count(), 2, "two looks");
    let live = desk.plumb(&["doctor", "--settle", "0", "-o", "json"]);
    let later = desk.plumb(&["doctor", "--from", "a.bundle", "-o", "json"]);
    assert_eq!((codes(&later.stdout), later.code), (codes(&live.stdout), Some(1)));
    let findings =
        |ran: &crate::harness::Ran| serde_json::from_str::<Value>(&ran.stdout).unwrap()["findings"].clone();
    assert_eq!(findings(&later), findings(&live));
}

#[test]
fn this_machine_can_be_looked_at_without_store_and_agent() {
    let desk = Desk::on_sqlite();
    let seen = desk.plumb(&["doctor", "--node", "here", "-o", "json"]);
    let report: Value = serde_json::from_str(&seen.stdout).unwrap();
    let unseen = report["unseen"].to_string();
    assert!(unseen.contains("the store could not be read: "), "{unseen}");
    assert!(matches!(seen.code, Some(1 | 2)), "without the records nothing is clean: {seen:?}");
    assert!(!unseen.contains("links of nodes"), "its kernel was: {unseen}");
}

/// What kubectl said some minutes ago, beside a store in which pods have come and gone since: neither is held against them.
#[test]
fn an_older_list_of_pods_condemns_nothing_that_changed_since() {
    let town = Town::new(Desk::on_sqlite());
    let pod = |name: &str, address: &str| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": "2026-08-22T06:33:20Z"},
            "spec": {"nodeName": "node-a"}, "status": {"phase": "Running", "podIP": address}})
    };
    // web-9 was deleted since.
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [pod("web-0", "10.65.0.0"), pod("web-9", "10.65.0.5")]});
    town.desk.file("pods.json", list.to_string());
    let listed_at = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    let file = std::fs::File::options().write(true).open(town.desk.folder.path().join("pods.json")).unwrap();
    file.set_modified(listed_at).unwrap();
    let report = |grace: &str| -> Value {
        let args =
            ["doctor", "-o", "json", "--settle", "0", "--live", "--from", "pods.json", "--grace", grace];
        let ran = town.desk.plumb(&args);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
    };
    let errors = |report: &Value| -> Vec<String> {
        let findings = report["findings"].as_array().unwrap().iter();
        let bad = findings.filter(|finding| finding["severity"] == "error");
        bad.map(|finding| format!("{} {}", finding["code"], finding["subject"])).collect()
    };
    let codes = |report: &Value, list: &str| -> BTreeSet<String> {
        report[list]
            .as_array()
            .unwrap()
            .iter()
            .map(|found| found["code"].as_str().unwrap().to_owned())
            .collect()
    };
    let judged = report("60");
    assert_eq!(errors(&judged), [] as [&str; 0], "{judged}");
    let new = codes(&judged, "notJudged");
    assert!(new.contains("address-used-but-free") && new.contains("pod-without-endpoint"), "{judged}");
    // Whoever gives nothing a grace has all of it judged.
    let strict = report("0");
    assert_eq!(errors(&strict), ["\"pod-without-endpoint\" \"pod shop/web-9\""], "{strict}");
    let symptoms = strict["findings"][0]["symptoms"].to_string();
    assert!(symptoms.contains("address-used-but-free"), "{strict}");
}
