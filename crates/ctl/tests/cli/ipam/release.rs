//! `plumb ipam release`: only what nobody uses, and only what was looked at.

use ipam::Reservations;
use model::Key;
use serde_json::{Value, json};
use store::Change;
use testkit::etcd::EtcdCluster;

use super::town::{
    BLOCK_A, BLOCK_B, Town, cidr, endpoint, endpoint_key, handle_key, handle_value, made_at, owner,
    with_affinity,
};
use crate::harness::{Desk, Ran};

fn town() -> Town {
    Town::new(Desk::on_sqlite())
}

fn release(town: &Town, args: &[&str]) -> Ran {
    let args: Vec<&str> = ["ipam", "release"].iter().chain(args).copied().collect();
    town.desk.plumb(&args)
}

fn lock(town: &Town) {
    town.desk.plumb(&["datastore", "migrate", "lock"]).succeeded();
}

/// A town with two leaks and a handle of nothing, locked, and a report on it.
fn leaky(desk: Desk) -> Town {
    let town = Town::new(desk);
    town.leak("node-a", "web-1");
    town.leak("node-b", "cart-0");
    town.desk.write(vec![Change::create(handle_key("net.old"), handle_value(BLOCK_A, 1))]);
    lock(&town);
    report(&town, "report.json");
    town
}

fn report(town: &Town, name: &str) -> Value {
    let ran = town.desk.plumb(&["ipam", "check", "--settle=0", "-o", name]);
    assert!(ran.code == Some(1) || ran.code == Some(0), "{ran:?}");
    let text = std::fs::read_to_string(town.desk.folder.path().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn is_in_order(town: &Town) {
    let ran = town.desk.plumb(&["ipam", "check", "--settle=0"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn one_address_and_several() {
    let town = town();
    for name in ["web-0", "web-1"] {
        town.leak("node-a", name);
    }
    town.leak("node-b", "cart-0");
    let ran = release(&town, &["--ip=10.65.0.0"]);
    assert_eq!(ran.succeeded(), "Successfully released IP address 10.65.0.0\n");
    assert!(!town.is_allocated("10.65.0.0") && town.is_allocated("10.65.0.1"));
    assert!(!town.has(&handle_key("net.web-0")), "its handle goes with it");
    let ran = release(&town, &["--ip=10.65.0.1,10.65.0.2", "--ip", "10.65.0.1"]);
    assert_eq!(
        ran.succeeded(),
        "Successfully released IP address 10.65.0.1\nSuccessfully released IP address 10.65.0.2\n"
    );
    is_in_order(&town);
}

#[test]
fn what_is_not_assigned_does_not_hold_up_the_others() {
    let town = town();
    town.leak("node-a", "web-0");
    let ran = release(&town, &["--ip=10.65.0.0,10.65.0.7,192.0.2.1"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "Successfully released IP address 10.65.0.0\n"));
    assert_eq!(
        ran.stderr,
        "error: IP address 10.65.0.7 is not assigned\nerror: IP address 192.0.2.1 is not assigned\n"
    );
    town.change_block(BLOCK_A, |block| ipam::give_back(block, &[1], Some(made_at())));
    town.leak("node-a", "web-1");
    release(&town, &["--ip=10.65.0.1"]).refused(1, &["IP address 10.65.0.1 is not assigned"]);
}

/// Another pod would get the address too.
#[test]
fn an_address_in_use_is_released_only_by_force() {
    let town = town();
    town.leak("node-a", "web-0");
    let before = town.desk.dump();
    let workload =
        "IP address 10.65.0.1 is in use by Workload(shop/node--a-k8s-web--1-eth0); nothing was released";
    release(&town, &["--ip=10.65.0.0,10.65.0.1"]).refused(1, &[workload, "hint: --force"]);
    release(&town, &["--ip=10.65.0.8"]).refused(1, &["in use by Node(node-b)"]);
    release(&town, &["--ip=fd65::"]).refused(1, &["in use by Node(node-b)"]);
    assert_eq!(town.desk.dump(), before);
    release(&town, &["--ip=10.65.0.1", "--force"]).succeeded();
    assert!(!town.is_allocated("10.65.0.1"));
}

#[test]
fn nothing_is_released_while_a_user_cannot_be_read() {
    let town = leaky(Desk::on_sqlite());
    town.put(endpoint_key("node-a", "web-0"), "{");
    let before = town.desk.dump();
    let texts = &["WorkloadEndpoint(shop/node--a-k8s-web--0-eth0) cannot be read"];
    release(&town, &["--from-report=report.json"]).refused(1, texts);
    release(&town, &["--from-report=report.json", "--force"]).refused(1, texts);
    assert_eq!(release(&town, &["--ip=10.65.0.1"]).code, Some(1));
    assert_eq!(town.desk.dump(), before);
}

const RELEASED: &str = "\
Releasing 2 old IPs...
Released 2 IPs successfully
Deleting 1 handles...
Released 1 handles; 0 skipped; 0 errors.
You may now unlock the data store.
";

fn a_report_is_carried_out(desk: Desk) {
    let town = leaky(desk);
    let before = town.desk.dump();
    let tried = release(&town, &["--from-report=report.json", "--dry-run"]);
    assert_eq!(
        tried.succeeded(),
        "Releasing 2 old IPs...\nDry run: 2 IPs would be released\n\
         Deleting 1 handles...\nDry run: 1 handles would be released; 0 skipped.\n"
    );
    assert_eq!(town.desk.dump(), before);
    assert_eq!(release(&town, &["--from-report=report.json"]).succeeded(), RELEASED);
    for handle in ["net.web-1", "net.cart-0", "net.old"] {
        assert!(!town.has(&handle_key(handle)), "{handle}");
    }
    assert!(town.is_allocated("10.65.0.0") && town.has(&handle_key("net.web-0")));
    is_in_order(&town);
    // Once more: everything is done already.
    let again = release(&town, &["--from-report=report.json"]);
    assert_eq!(
        again.succeeded(),
        "\
Releasing 2 old IPs...
Released 0 IPs successfully
2 addresses marked as leaked in the report had already been cleaned up.
Deleting 1 handles...
Released 0 handles; 1 skipped; 0 errors.
You may now unlock the data store.
"
    );
}

#[test]
fn a_report_is_carried_out_on_sqlite() {
    a_report_is_carried_out(Desk::on_sqlite());
}

#[test]
fn a_report_is_carried_out_on_etcd() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("a_report_is_carried_out_on_etcd", &reason);
    }
    let cluster = EtcdCluster::single().unwrap();
    a_report_is_carried_out(Desk::on_etcd(&cluster));
}

#[test]
fn a_report_of_nothing() {
    let town = town();
    lock(&town);
    report(&town, "report.json");
    let ran = release(&town, &["--from-report=report.json"]);
    assert_eq!(
        ran.succeeded(),
        "Report didn't contain any leaked IPs to clean up.\nReport didn't contain any handles to clean up.\n\
         You may now unlock the data store.\n"
    );
}

/// The address was leaked, released and given to another pod since: same address, even the same handle.
#[test]
fn what_was_given_anew_since_is_left_alone() {
    let town = leaky(Desk::on_sqlite());
    town.change_block(BLOCK_A, |block| ipam::give_back(block, &[1], None));
    town.change_block(BLOCK_A, |block| {
        assert!(ipam::take_address(block, &owner("node-a", "web-1"), "10.65.0.1".parse().unwrap()));
    });
    town.change_block(BLOCK_A, |block| {
        ipam::give_back(block, &[2], None);
        assert!(ipam::take_address(block, &owner("node-a", "new"), "10.65.0.2".parse().unwrap()));
    });
    town.put(handle_key("net.old"), handle_value(BLOCK_A, 2));
    let ran = release(&town, &["--from-report=report.json"]);
    assert_eq!(
        ran.succeeded(),
        "\
Releasing 2 old IPs...
Released 0 IPs successfully
2 addresses were allocated again since the report, and were skipped.
Deleting 1 handles...
Released 0 handles; 1 skipped; 0 errors.
You may now unlock the data store.
"
    );
    assert!(
        town.is_allocated("10.65.0.1") && town.is_allocated("10.65.0.2") && town.has(&handle_key("net.old"))
    );
}

/// As calicoctl's reports call IPv6 tunnels leaked.
#[test]
fn what_is_in_use_by_now_is_left_alone() {
    let town = leaky(Desk::on_sqlite());
    town.desk.write(vec![endpoint("node-a", "web-1", "10.65.0.1".parse().unwrap())]);
    let mut document = report(&town, "other.json");
    for address in ["10.65.0.1", "fd65::"] {
        document["allocations"][address][0]["inUse"] = json!(false);
    }
    town.desk.file("calico.json", document.to_string());
    let ran = release(&town, &["--from-report=calico.json", "--force"]);
    assert!(
        ran.succeeded()
            .contains("Released 1 IPs successfully\n2 addresses are in use now, and were skipped.\n")
    );
    assert!(town.is_allocated("10.65.0.1") && town.is_allocated("fd65::"));
}

#[test]
fn of_several_reports_what_all_of_them_say() {
    let town = leaky(Desk::on_sqlite());
    let mut earlier = report(&town, "earlier.json");
    earlier["clusterInformationRevision"] = json!("1");
    earlier["allocations"].as_object_mut().unwrap().remove("10.65.0.2");
    earlier["leakedHandles"] = json!([]);
    town.desk.file("earlier.json", earlier.to_string());
    let ran = release(&town, &["--from-report=earlier.json,report.json"]);
    assert!(ran.succeeded().starts_with("Releasing 1 old IPs...\nReleased 1 IPs successfully\n"), "{ran:?}");
    assert!(
        !town.is_allocated("10.65.0.1") && town.is_allocated("10.65.0.2") && town.has(&handle_key("net.old"))
    );
}

/// One thing wrong each; nothing may be released.
#[test]
fn reports_that_must_not_be_acted_on() {
    let town = leaky(Desk::on_sqlite());
    let good: Value = report(&town, "report.json");
    let with = |field: &str, value: Value| {
        let mut document = good.clone();
        document[field] = value;
        document.to_string()
    };
    let first = |field: &str, value: Value| {
        let mut document = good.clone();
        document["allocations"]["10.65.0.1"][0][field] = value;
        document.to_string()
    };
    let text = good.to_string();
    let bad: Vec<(String, &str)> = vec![
        (String::new(), "is not a report of ipam check: EOF"),
        ("[]".to_owned(), "is not a report of ipam check"),
        ("{}".to_owned(), "missing field"),
        (text[..text.len() / 2].to_owned(), "EOF"),
        (format!("{text}{text}"), "trailing characters"),
        (with("clusterGUID", json!("0".repeat(32))), "is a report of another cluster"),
        (with("clusterGUID", json!("")), "is a report of another cluster"),
        (with("version", json!("v3.32.1")), "was written by another version (v3.32.1, this is v0.1.0)"),
        (with("clusterInformationRevision", json!("1")), "the reports are stale"),
        (with("allocations", json!([1])), "is not a report of ipam check"),
        (first("ip", json!("10.65.0.0")), "the entry 10.65.0.1 contains an allocation of \"10.65.0.0\""),
        (first("sequenceNumber", json!(-1)), "is not a report of ipam check"),
        (first("sequenceNumber", json!(null)), "has no sequence number"),
        (first("inUse", json!(null)), "is not a report of ipam check"),
    ];
    let before = town.desk.dump();
    for (document, text) in bad {
        town.desk.file("bad.json", &document);
        for args in
            [&["--from-report=bad.json"][..], &["--from-report=report.json", "--from-report=bad.json"]]
        {
            let is_second_report = args.len() == 2 && text.contains("stale");
            if !is_second_report {
                release(&town, args).refused(1, &[text]);
                assert_eq!(town.desk.dump(), before, "{document}");
            }
        }
    }
    town.desk.file("binary.json", [0xff, 0, 1]);
    release(&town, &["--from-report=binary.json"]).refused(1, &["binary.json is not a report"]);
    release(&town, &["--from-report=nowhere.json"]).refused(1, &["cannot read the report nowhere.json"]);
    release(&town, &["--from-report=."]).refused(1, &["cannot read the report ."]);
    let deep = format!("{{\"version\":{}", "[".repeat(100_000));
    town.desk.file("deep.json", deep);
    release(&town, &["--from-report=deep.json"]).refused(1, &["deep.json is not a report"]);
    assert_eq!(town.desk.dump(), before);
}

#[test]
fn the_store_must_be_locked_unless_forced() {
    let town = leaky(Desk::on_sqlite());
    town.desk.plumb(&["datastore", "migrate", "unlock"]).succeeded();
    let before = town.desk.dump();
    release(&town, &["--from-report=report.json"]).refused(1, &["the reports are stale"]);
    report(&town, "report.json");
    release(&town, &["--from-report=report.json"])
        .refused(1, &["the datastore is not locked", "migrate lock"]);
    assert_eq!(town.desk.dump(), before);
    let mut document = report(&town, "report.json");
    document["version"] = json!("v3.32.1");
    town.desk.file("report.json", document.to_string());
    let ran = release(&town, &["--from-report=report.json", "--force"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), RELEASED), "{ran:?}");
    assert_eq!(
        ran.stderr,
        "warning: report.json was written by another version (v3.32.1, this is v0.1.0); continuing because of --force\n\
         warning: the datastore is not locked; continuing because of --force\n"
    );
    is_in_order(&town);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let town = leaky(Desk::on_sqlite());
    let before = town.desk.dump();
    for (args, text) in [
        (&[][..], "--ip"),
        (&["--force"], "--ip"),
        (&["--ip="], "--ip"),
        (&["--ip=10.65.0.300"], "10.65.0.300"),
        (&["--ip=10.65.0.1/32"], "10.65.0.1/32"),
        (&["--ip=10.65.0.1", "--from-report=report.json"], "--from-report"),
        (&["10.65.0.1"], "10.65.0.1"),
    ] {
        release(&town, args).refused(2, &[text]);
    }
    assert_eq!(town.desk.dump(), before);
}

/// Addresses of a block that contradicts itself stay; the others do not suffer for it.
#[test]
fn a_corrupt_block_holds_up_nobody_else() {
    let town = leaky(Desk::on_sqlite());
    town.change_block(BLOCK_B, |block| {
        assert!(ipam::take_address(block, &owner("node-b", "third"), "10.65.0.9".parse().unwrap()));
    });
    town.put(handle_key("net.third"), handle_value(BLOCK_B, 1));
    report(&town, "report.json");
    town.change_block(BLOCK_B, |block| block.unallocated.push(1));
    let ran = release(&town, &["--from-report=report.json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.starts_with("Releasing 3 old IPs...\nReleased 2 IPs successfully\n"), "{ran:?}");
    assert!(
        ran.stderr.starts_with("error: 10.65.0.9 was not released\n  caused by: IPAMBlock(10.65.0.8/29)"),
        "{ran:?}"
    );
    assert!(town.is_allocated("10.65.0.9"));
}

/// Whatever a report says, of ours or calicoctl's: what cannot be read may hold addresses of any handle.
#[test]
fn no_handle_is_deleted_while_a_block_cannot_be_read() {
    let town = leaky(Desk::on_sqlite());
    town.put(Key::Block(cidr(BLOCK_B)), "[");
    let ran = release(&town, &["--from-report=report.json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("Released 2 IPs successfully"), "{ran:?}");
    assert!(
        ran.stderr.contains("1 handles were not deleted: IPAMBlock(10.65.0.8/29) cannot be read"),
        "{ran:?}"
    );
    assert!(town.has(&handle_key("net.old")));
}

/// More than fits into one commit, and than is done before the lock is looked at again.
#[test]
fn many_leaks_in_many_blocks() {
    let town = town();
    let blocks = testkit::count(12, 80);
    for number in 0..blocks {
        let mut block =
            super::town::block(&format!("10.65.{}.{}/29", 1 + number / 16, number % 16 * 16), "node-a");
        for pod in 0..8 {
            let name = format!("p{number}-{pod}");
            ipam::take(&mut block, &owner("node-a", &name), 1, &Reservations::default());
            ipam::count_write(&mut block);
            let value = handle_value(&block.cidr.to_string(), 1);
            town.desk.write(vec![Change::create(handle_key(&format!("net.{name}")), value)]);
        }
        town.desk.write(with_affinity(&block, "node-a"));
    }
    lock(&town);
    report(&town, "report.json");
    let ran = release(&town, &["--from-report=report.json"]);
    assert!(ran.succeeded().contains(&format!("Released {} IPs successfully\n", blocks * 8)), "{ran:?}");
    is_in_order(&town);
}
