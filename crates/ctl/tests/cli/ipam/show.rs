//! `plumb ipam show`.

use model::{Key, Kind};
use serde_json::{Value, json};
use store::Change;
use testkit::etcd::EtcdCluster;

use super::town::{BLOCK_A, BLOCK_B, Town, block, cidr, made_at};
use crate::harness::Desk;

fn town() -> Town {
    Town::new(Desk::on_sqlite())
}

#[track_caller]
fn shows(town: &Town, args: &[&str], expected: &str) {
    let args: Vec<&str> = ["ipam", "show"].iter().chain(args).copied().collect();
    assert_eq!(town.desk.plumb(&args).succeeded(), expected);
}

const POOLS: &str = "\
+----------+--------------+-----------+------------+------------+
| GROUPING |     CIDR     | IPS TOTAL | IPS IN USE |  IPS FREE  |
+----------+--------------+-----------+------------+------------+
| IP Pool  | 10.65.0.0/24 |       256 | 4 (2%)     | 252 (98%)  |
| IP Pool  | fd65::/120   |       256 | 1 (0%)     | 255 (100%) |
+----------+--------------+-----------+------------+------------+
";

#[test]
fn pools() {
    shows(&town(), &[], POOLS);
}

#[test]
fn pools_on_etcd() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("pools_on_etcd", &reason);
    }
    let cluster = EtcdCluster::single().unwrap();
    let town = Town::new(Desk::on_etcd(&cluster));
    shows(&town, &[], POOLS);
    shows(&town, &["--ip=10.65.0.1"], WEB_1);
}

#[test]
fn blocks_in_the_order_of_their_addresses_and_those_of_no_pool() {
    let town = town();
    let mut far = block("10.65.0.64/29", "node-a");
    town.pod(&mut far, "node-a", "x");
    let mut orphan = block("10.99.0.0/29", "node-a");
    town.pod(&mut orphan, "node-a", "y");
    town.desk.write([far, orphan].map(|block| Change::create(block.key(), block.encode())).to_vec());
    shows(
        &town,
        &["--show-blocks"],
        "\
+----------+---------------+-----------+------------+------------+
| GROUPING |     CIDR      | IPS TOTAL | IPS IN USE |  IPS FREE  |
+----------+---------------+-----------+------------+------------+
| IP Pool  | 10.65.0.0/24  |       256 | 5 (2%)     | 251 (98%)  |
| Block    | 10.65.0.0/29  |         8 | 3 (38%)    | 5 (62%)    |
| Block    | 10.65.0.8/29  |         8 | 1 (12%)    | 7 (88%)    |
| Block    | 10.65.0.64/29 |         8 | 1 (12%)    | 7 (88%)    |
| IP Pool  | fd65::/120    |       256 | 1 (0%)     | 255 (100%) |
| Block    | fd65::/125    |         8 | 1 (12%)    | 7 (88%)    |
| Block    | 10.99.0.0/29  |         8 | 1 (12%)    | 7 (88%)    |
+----------+---------------+-----------+------------+------------+
",
    );
    let shown = town.desk.plumb(&["ipam", "show", "--show-blocks", "-o", "json"]);
    let shown: Value = serde_json::from_str(shown.succeeded()).unwrap();
    let counts = |cidr: &str, in_use: u64| json!({"cidr": cidr, "total": 8, "inUse": in_use, "reserved": 0, "free": 8 - in_use});
    assert_eq!(shown["pools"][0]["blocks"][0], counts(BLOCK_A, 3));
    assert_eq!(shown["pools"][0]["name"], "pods");
    assert_eq!(shown["blocksWithoutPool"], json!([counts("10.99.0.0/29", 1)]));
}

#[test]
fn reserved_addresses_have_a_column_of_their_own_if_there_are_any() {
    let town = town();
    town.desk.apply(
        "{apiVersion: projectcalico.org/v3, kind: IPReservation, metadata: {name: r}, \
         spec: {reservedCIDRs: [10.65.0.128/25, 10.65.0.0/31]}}",
    );
    shows(
        &town,
        &[],
        "\
+----------+--------------+-----------+------------+--------------+------------+
| GROUPING |     CIDR     | IPS TOTAL | IPS IN USE | IPS RESERVED |  IPS FREE  |
+----------+--------------+-----------+------------+--------------+------------+
| IP Pool  | 10.65.0.0/24 |       256 | 4 (2%)     | 128 (50%)    | 124 (48%)  |
| IP Pool  | fd65::/120   |       256 | 1 (0%)     | 0 (0%)       | 255 (100%) |
+----------+--------------+-----------+------------+--------------+------------+
",
    );
}

#[test]
fn huge_pools_are_rounded() {
    let desk = Desk::on_sqlite();
    desk.apply(
        "{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: p}, spec: {cidr: 'fd00::/48'}}",
    );
    assert!(
        desk.plumb(&["ipam", "show"]).succeeded().contains("| 1.2089e+24 | 0 (0%)     | 1.2089e+24 (100%) |")
    );
    let shown = desk.plumb(&["ipam", "show", "-o", "yaml"]);
    let expected = "\
pools:
- cidr: fd00::/48
  free: 1.2089258196146292e+24
  inUse: 0
  name: p
  reserved: 0
  total: 1.2089258196146292e+24
";
    assert_eq!(shown.succeeded(), expected);
}

const WEB_1: &str = "\
IP 10.65.0.1 is in use
Handle ID: net.web-1
Active Owner Attributes:
  namespace: shop
  node: node-a
  pod: web-1
  timestamp: 2026-08-22 06:33:20 +0000 UTC
";

#[test]
fn one_address() {
    let town = town();
    shows(&town, &["--ip=10.65.0.1"], WEB_1);
    shows(&town, &["--ip", "10.65.0.7"], "10.65.0.7 is not assigned\n");
    shows(&town, &["--ip", "192.0.2.1"], "192.0.2.1 is not assigned\n");
    town.change_block(BLOCK_B, |block| {
        block.attributes[0].handle_id = None;
        block.attributes[0].secondary.clear();
        block.attributes[0].alternate_owner.insert("vmi-name", "vm\u{1b}[2J".to_owned());
    });
    let bare = "IP 10.65.0.8 is in use\nHandle ID: <none>\nNo Active Owner attributes defined\n\
                Alternate Owner Attributes:\n  vmi-name: vm [2J\n";
    shows(&town, &["--ip=10.65.0.8"], bare);
    let shown = town.desk.plumb(&["ipam", "show", "--ip=10.65.0.0", "-o", "json"]);
    let shown: Value = serde_json::from_str(shown.succeeded()).unwrap();
    assert_eq!(
        (&shown["inUse"], &shown["handle"], &shown["block"]),
        (&json!(true), &json!("net.web-0"), &json!(BLOCK_A))
    );
    assert_eq!(shown["sequenceNumber"], json!(1_787_380_400_000_000_000u64));
}

/// calicoctl sees only enabled pools.
#[test]
fn an_address_whose_pool_is_disabled_or_gone() {
    let town = town();
    town.set_spec(Key::cluster(Kind::IpPool, "pods"), "disabled", json!(true));
    shows(&town, &["--ip=10.65.0.1"], WEB_1);
    town.remove(&Key::cluster(Kind::IpPool, "pods"));
    shows(&town, &["--ip=10.65.0.1"], WEB_1);
}

#[test]
fn an_address_that_cools_down() {
    let town = town();
    town.change_block(BLOCK_A, |block| ipam::give_back(block, &[1], Some(made_at())));
    shows(
        &town,
        &["--ip=10.65.0.1"],
        "10.65.0.1 is not assigned\nReleased at 2026-08-22T06:33:20Z; it is not allocated again until its cooldown has ended\n",
    );
}

#[test]
fn borrowed_addresses() {
    let town = town();
    shows(
        &town,
        &["--show-borrowed"],
        "\
+-----------+----------------+--------------+-------------+------+--------------+
|    IP     | BORROWING-NODE |    BLOCK     | BLOCK OWNER | TYPE | ALLOCATED-TO |
+-----------+----------------+--------------+-------------+------+--------------+
| 10.65.0.2 | node-b         | 10.65.0.0/29 | node-a      | pod  | shop/cart-0  |
+-----------+----------------+--------------+-------------+------+--------------+
",
    );
    town.change_block(BLOCK_A, |block| {
        block.set_owner(None);
        block.attributes[0].secondary.clear();
    });
    let shown = town.desk.plumb(&["ipam", "show", "--show-borrowed"]);
    assert!(
        shown
            .succeeded()
            .contains("| 10.65.0.1 | node-a         | 10.65.0.0/29 |             | pod  | shop/web-1   |")
    );
    assert!(shown.stdout.ends_with(
        "\nNote: 1 IP allocations do not name a node, so it is unknown whether they are borrowed.\n"
    ));
    let shown = town.desk.plumb(&["ipam", "show", "--show-borrowed", "-o", "json"]);
    let shown: Value = serde_json::from_str(shown.succeeded()).unwrap();
    let first = json!({"ip": "10.65.0.1", "borrowingNode": "node-a", "block": BLOCK_A, "blockOwner": "",
        "type": "pod", "allocatedTo": "shop/web-1"});
    assert_eq!((&shown["borrowed"][0], &shown["unclassified"]), (&first, &json!(1)));
}

#[test]
fn settings() {
    let town = town();
    let table = |strict: &str, blocks: &str, cooldown: &str| {
        format!(
            "\
+------------------------------+---------+
|           PROPERTY           |  VALUE  |
+------------------------------+---------+
| StrictAffinity               | {strict:7} |
| AutoAllocateBlocks           | true    |
| MaxBlocksPerHost             | {blocks:>7} |
| KubeVirtVMAddressPersistence | Enabled |
| IPCooldownSeconds            | {cooldown:>7} |
+------------------------------+---------+
"
        )
    };
    shows(&town, &["--show-configuration"], &table("false", "0", "0"));
    town.put(
        Key::IpamConfig,
        r#"{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":4,"ipCooldownSeconds":60,"new":1}"#,
    );
    shows(&town, &["--show-configuration"], &table("true", "4", "60"));
    let shown = town.desk.plumb(&["ipam", "show", "--show-configuration", "-o", "json"]);
    let shown: Value = serde_json::from_str(shown.succeeded()).unwrap();
    let expected = json!({"strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 4,
        "kubeVirtVMAddressPersistence": "Enabled", "ipCooldownSeconds": 60, "new": 1});
    assert_eq!(shown, expected);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let town = town();
    for (args, text) in [
        (&["--ip=10.65.0.300"][..], "10.65.0.300"),
        (&["--ip="], "--ip"),
        (&["--ip=10.65.0.1", "--show-blocks"], "--show-blocks"),
        (&["--show-borrowed", "--show-configuration"], "--show-configuration"),
        (&["-o", "wide"], "unknown output format 'wide'"),
        (&["-o", "xml"], "unknown output format 'xml'"),
        (&["more"], "more"),
    ] {
        let args: Vec<&str> = ["ipam", "show"].iter().chain(args).copied().collect();
        town.desk.plumb(&args).refused(2, &[text]);
    }
    town.put(Key::IpamConfig, "[");
    town.desk.plumb(&["ipam", "show", "--show-configuration"]).refused(1, &["IPAMConfiguration(default)"]);
}

#[test]
fn a_block_that_cannot_be_read_does_not_hide_the_others() {
    let town = town();
    town.put(Key::Block(cidr(BLOCK_B)), "{");
    for args in [&["--show-blocks"][..], &["--show-borrowed"], &[]] {
        let args: Vec<&str> = ["ipam", "show"].iter().chain(args).copied().collect();
        let ran = town.desk.plumb(&args);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("IPAMBlock(10.65.0.8/29): the stored value cannot be read"), "{ran:?}");
        assert!(ran.stdout.contains("10.65.0.0/2"), "{ran:?}");
    }
    town.desk
        .plumb(&["ipam", "show", "--ip=10.65.0.8"])
        .refused(1, &["IPAMBlock(10.65.0.8/29) contradicts itself"]);
}
