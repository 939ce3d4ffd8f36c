//! `plumb ipam …` and `plumb datastore migrate …`.

use model::ipam::{Handle, IpamConfig};
use model::{Key, Kind};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::harness::Ran;
use crate::town::{BLOCK_A, BLOCK_B, Town, endpoint_key, handle_key, handle_value};

fn town(test: &str) -> Option<(Cluster, Town)> {
    let cluster = Cluster::for_test(test)?;
    let town = Town::new(cluster.desk());
    Some((cluster, town))
}

fn check(town: &Town, words: &[&str]) -> Ran {
    town.desk.plumb(&[&["ipam", "check", "--settle=0", "--show-problem-ips"], words].concat())
}

#[test]
fn a_cluster_in_order_has_no_problems() {
    let Some((_cluster, town)) = town("a_cluster_in_order_has_no_problems") else { return };
    let ran = check(&town, &[]);
    for line in ["IPAM blocks record 5 allocations.", "Found 2 node tunnel IPs.", "Found 3 workload IPs."] {
        assert!(ran.succeeded().lines().any(|printed| printed == line), "{line:?} is not in\n{}", ran.stdout);
    }
    assert!(ran.succeeded().ends_with("Check complete; found 0 problems.\n"), "{ran:?}");
    let usage = town.desk.plumb(&["ipam", "show", "--show-blocks"]);
    for network in ["10.65.0.0/24", BLOCK_A, BLOCK_B, "fd65::/125"] {
        assert!(usage.succeeded().contains(network), "{usage:?}");
    }
    let borrowed = town.desk.plumb(&["ipam", "show", "--show-borrowed"]);
    assert!(borrowed.succeeded().contains("shop/cart-0"), "{borrowed:?}");
    let one = town.desk.plumb(&["ipam", "show", "--ip=10.65.0.0"]);
    assert!(one.succeeded().contains("Handle ID: net.web-0"), "{one:?}");
}

/// A pod whose addresses the plugin has taken back, and one that ran to its end: neither uses its address.
#[test]
fn addresses_of_pods_that_use_none_are_leaked_and_released() {
    let Some((cluster, town)) = town("addresses_of_pods_that_use_none_are_leaked_and_released") else {
        return;
    };
    town.leak("node-a", "web-0");
    let path = "/api/v1/namespaces/shop/pods/web-1";
    let mut pod = cluster.api.read(path).unwrap();
    pod["status"]["phase"] = "Succeeded".into();
    cluster.api.replace(&format!("{path}/status"), &pod).unwrap();
    let ran = check(&town, &["-o", "report.json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.ends_with("Check complete; found 2 problems.\n"), "{ran:?}");

    town.desk
        .plumb(&["ipam", "release", "--ip=10.65.0.2"])
        .refused(1, &["is in use by Workload(shop/node--b-k8s-cart--0-eth0)"]);
    let stale = town.desk.plumb(&["ipam", "release", "--from-report=report.json"]);
    stale.refused(1, &["the datastore is not locked"]);
    town.desk.plumb(&["datastore", "migrate", "lock"]).succeeded();
    check(&town, &["-o", "locked.json"]);
    let released =
        town.desk.plumb(&["ipam", "release", "--from-report=report.json", "--from-report=locked.json"]);
    assert!(released.succeeded().contains("Released 2 IPs successfully"), "{released:?}");
    town.desk.plumb(&["datastore", "migrate", "unlock"]).succeeded();
    assert!(
        !town.is_allocated("10.65.0.0") && !town.is_allocated("10.65.0.1") && town.is_allocated("10.65.0.2")
    );
    assert!(!town.has(&handle_key("net.web-0")) && town.has(&handle_key("net.cart-0")));
    assert_eq!(check(&town, &[]).code, Some(0));
}

#[test]
fn one_address_is_released_with_its_handle() {
    let Some((_cluster, town)) = town("one_address_is_released_with_its_handle") else { return };
    town.leak("node-a", "web-0");
    let released = town.desk.plumb(&["ipam", "release", "--ip=10.65.0.0"]);
    assert_eq!(released.succeeded(), "Successfully released IP address 10.65.0.0\n");
    assert!(!town.is_allocated("10.65.0.0") && !town.has(&handle_key("net.web-0")));
    assert!(town.has(&endpoint_key("node-a", "web-0")), "the pod is there, without an address");
}

/// calicoctl's reports of this store have the UIDs of handles.
#[test]
fn handles_of_a_report_with_uids_are_deleted() {
    let Some((cluster, town)) = town("handles_of_a_report_with_uids_are_deleted") else { return };
    town.put(handle_key("net.nothing"), handle_value(BLOCK_A, 1));
    town.desk.plumb(&["datastore", "migrate", "lock"]).succeeded();
    assert_eq!(check(&town, &["-o", "report.json"]).code, Some(1));
    let path = town.desk.folder.path().join("report.json");
    let mut report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let handle = cluster.api.read("/apis/crd.projectcalico.org/v1/ipamhandles/net.nothing").unwrap();
    assert_eq!(report["leakedHandles"][0]["Revision"], handle["metadata"]["resourceVersion"]);
    report["leakedHandles"][0]["UID"] = handle["metadata"]["uid"].clone();
    town.desk.file("report.json", report.to_string());
    let released = town.desk.plumb(&["ipam", "release", "--from-report=report.json"]);
    assert!(released.succeeded().contains("Released 1 handles; 0 skipped; 0 errors."), "{released:?}");
    assert!(!town.has(&handle_key("net.nothing")));
}

#[test]
fn settings_are_written() {
    let Some((_cluster, town)) = town("settings_are_written") else { return };
    let desk = &town.desk;
    let set = desk.plumb(&["ipam", "configure", "--strictaffinity=true"]);
    assert_eq!(set.succeeded(), "Successfully set StrictAffinity to: true\n");
    desk.plumb(&["ipam", "configure", "--strictaffinity=true", "--max-blocks-per-host=9"]).succeeded();
    let config = IpamConfig::decode(&town.record(&Key::IpamConfig).unwrap().value).unwrap();
    assert_eq!((config.strict_affinity, config.max_blocks_per_host), (true, 9));
    let shown = desk.plumb(&["ipam", "show", "--show-configuration"]);
    assert!(shown.succeeded().contains("MaxBlocksPerHost"), "{shown:?}");
}

#[test]
fn a_pool_is_split() {
    let Some((_cluster, town)) = town("a_pool_is_split") else { return };
    let desk = &town.desk;
    desk.plumb(&["ipam", "split", "4", "--name=pods"]).refused(1, &["the datastore is not locked"]);
    desk.plumb(&["datastore", "migrate", "lock"]).succeeded();
    let split = desk.plumb(&["ipam", "split", "4", "--name=pods"]);
    assert!(
        split.succeeded().contains("IP Pool pods was successfully split into 4 smaller pools."),
        "{split:?}"
    );
    desk.plumb(&["datastore", "migrate", "unlock"]).succeeded();
    assert!(
        !town.has(&Key::cluster(Kind::IpPool, "pods"))
            && town.has(&Key::cluster(Kind::IpPool, "split-pods-3"))
    );
    assert_eq!(check(&town, &[]).code, Some(0));
}

/// A pool that goes takes its empty blocks along; blocks in use stay, without owner.
#[test]
fn a_deleted_pool_lets_its_blocks_go() {
    let Some((_cluster, town)) = town("a_deleted_pool_lets_its_blocks_go") else { return };
    let deleted = town.desk.plumb(&["delete", "ippool", "pods"]);
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    assert!(deleted.stderr.contains("4 address(es) of IPPool(pods) are in use"), "{deleted:?}");
    assert_eq!(town.block(BLOCK_A).owner(), None);
    let handle = town.record(&handle_key("net.web-0")).unwrap();
    assert_eq!(Handle::decode(&"net.web-0".into(), &handle.value).unwrap().block.len(), 1);
}
