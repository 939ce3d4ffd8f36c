//! `plumb ipam check`: what it finds, what it does not mistake for a problem, and its report.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use ipam::{Owner, Reservations};
use model::ipam::{Affinity, AffinityState, Block};
use model::{AffinityOwner, Key, Kind};
use serde_json::{Value, json};
use store::Change;
use testkit::etcd::EtcdCluster;

use super::town::{
    BLOCK_A, BLOCK_B, Town, block, cidr, endpoint, endpoint_key, handle_key, handle_value, host, made_at,
    with_affinity,
};
use crate::harness::{Desk, PLUMB, Ran};

fn town() -> Town {
    Town::new(Desk::on_sqlite())
}

/// Runs a check without waiting between the looks: nothing else is going on.
fn check(town: &Town, args: &[&str]) -> Ran {
    let before = town.desk.dump();
    let args: Vec<&str> = ["ipam", "check", "--settle=0"].iter().chain(args).copied().collect();
    let ran = town.desk.plumb(&args);
    assert_eq!(town.desk.dump(), before, "a check changes nothing");
    ran
}

/// Asserts that these lines are among what is printed with every problem by name, and how many problems there are.
#[track_caller]
fn finds(town: &Town, problems: usize, lines: &[&str]) {
    let ran = check(town, &["--show-problem-ips"]);
    assert_eq!(ran.code, Some(i32::from(problems > 0)), "{ran:?}");
    assert_eq!(ran.stderr, "", "{ran:?}");
    for line in lines {
        assert!(ran.stdout.lines().any(|printed| printed == *line), "{line:?} is not in\n{}", ran.stdout);
    }
    let last = format!("Check complete; found {problems} problems.\n");
    assert!(ran.stdout.ends_with(&last), "{}", ran.stdout);
}

/// The same where some things cannot be judged.
#[track_caller]
fn finds_and_leaves(town: &Town, problems: usize, not_judged: usize, lines: &[&str]) {
    let ran = check(town, &["--show-problem-ips"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""), "{ran:?}");
    for line in lines {
        assert!(ran.stdout.lines().any(|printed| printed == *line), "{line:?} is not in\n{}", ran.stdout);
    }
    let last = format!("Check complete; found {problems} problems; {not_judged} not judged.\n");
    assert!(ran.stdout.ends_with(&last), "{}", ran.stdout);
}

const IN_ORDER: &str = "\
Checking IPAM for inconsistencies...

Loading all IPAM blocks...
Found 3 IPAM blocks.
 IPAM block 10.65.0.0/29 affinity=host:node-a:
 IPAM block 10.65.0.8/29 affinity=host:node-b:
 IPAM block fd65::/125 affinity=host:node-b:
IPAM blocks record 5 allocations.

Loading all IPAM pools...
  10.65.0.0/24
  fd65::/120
Found 2 active IP pools.

Loading all nodes.
Found 2 node tunnel IPs.

Loading all service load balancer IPs.
Services are not read from Kubernetes; 0 IPs held for load balancers count as in use.

Loading all workload endpoints.
Found 3 workload IPs.
Workloads and nodes are using 5 IPs.

Loading all handles
Looking for top (up to 20) nodes by allocations...
  node-b has 3 allocations
  node-a has 2 allocations
Node with most allocations has 3; median is 2

Scanning for IPs that are allocated but not actually in use...
Found 0 IPs that are allocated in IPAM but not actually in use.
Scanning for IPs that are in use by a workload or node but not allocated in IPAM...
Found 0 in-use IPs that are not in active IP pools.
Found 0 in-use IPs that are in active IP pools but have no corresponding IPAM allocation.

Scanning for IPAM handles with no matching IPs...
Found 0 handles with no matching IPs (and 5 handles with matches).
Scanning for IPs with missing handle...
Found 0 handles mentioned in blocks with no matching handle resource.
Validating IPAMBlock structures...
Found 0 invalid IPAMBlocks.
Scanning for IPs with several owners...
Found 0 IPs that are used by several workloads or nodes.
Found 0 IPs that are allocated in several blocks.
Comparing handles, blocks, affinities and nodes...
Found 0 wrong counts in handles.
Found 0 blocks that overlap another block.
Found 0 affinities that disagree with their block.
Found 0 blocks of nodes that are gone.
Found 0 other records that cannot be read.
Check complete; found 0 problems.
";

#[test]
fn a_cluster_in_order() {
    let town = town();
    assert_eq!(check(&town, &[]).succeeded(), IN_ORDER);
    assert_eq!(check(&town, &["--show-problem-ips", "--kubeconfig=nowhere"]).succeeded(), IN_ORDER);
    let all = check(&town, &["--show-all-ips"]);
    let attributes =
        "Main:net.cart-0 Extra:namespace=shop,node=node-b,pod=cart-0,timestamp=2026-08-22 06:33:20 +0000 UTC";
    for line in [
        &format!("  10.65.0.2 allocated; attrs {attributes}"),
        "  fd65:: belongs to Node(node-b)",
        "  10.65.0.2 belongs to Workload(shop/node--b-k8s-cart--0-eth0)",
    ] {
        assert!(all.succeeded().lines().any(|printed| printed == line), "{line}: {}", all.stdout);
    }
}

#[test]
fn the_same_on_etcd() {
    if let Some(reason) = testkit::etcd::missing() {
        return testkit::skip("the_same_on_etcd", &reason);
    }
    let cluster = EtcdCluster::single().unwrap();
    let town = Town::new(Desk::on_etcd(&cluster));
    assert_eq!(check(&town, &[]).succeeded(), IN_ORDER);
    spoil(&town);
    finds(&town, SPOILT.0, SPOILT.1);
}

/// Everything that calicoctl's check counts, at once.
fn spoil(town: &Town) {
    town.leak("node-a", "web-1");
    town.desk.write(vec![
        endpoint("node-a", "outside", "192.0.2.7".parse().unwrap()),
        endpoint("node-a", "free", "10.65.0.5".parse().unwrap()),
        Change::create(handle_key("net.old"), handle_value("10.65.0.200/29", 1)),
    ]);
    town.remove(&handle_key("net.web-0"));
    town.put(Key::Block(cidr("10.65.0.16/29")), {
        let mut block = Block::new(cidr("10.65.0.16/29"), None, 7);
        block.unallocated.push(3);
        block.encode()
    });
}

const SPOILT: (usize, &[&str]) = (
    6,
    &[
        "  10.65.0.1 leaked; attrs Main:net.web-1 Extra:namespace=shop,node=node-a,pod=web-1,timestamp=2026-08-22 06:33:20 +0000 UTC [address-leaked]",
        "Found 1 IPs that are allocated in IPAM but not actually in use.",
        "  192.0.2.7 in use by Workload(shop/node--a-k8s-outside-eth0) is not in any active IP pool. [address-outside-pools]",
        "  10.65.0.5 in use by Workload(shop/node--a-k8s-free-eth0) and in active IPAM pool but has no IPAM allocation. [address-used-but-free]",
        "Found 1 in-use IPs that are not in active IP pools.",
        "Found 1 in-use IPs that are in active IP pools but have no corresponding IPAM allocation.",
        "  net.old doesn't have any active IPs. [handle-unused]",
        "Found 1 handles with no matching IPs (and 4 handles with matches).",
        "  net.web-0 is in use in a block but doesn't exist. [handle-missing]",
        "Found 1 handles mentioned in blocks with no matching handle resource.",
        "  IPAMBlock 10.65.0.16/29 is invalid: address 3 is listed twice as unallocated [block-contradicts-itself]",
        "Found 1 invalid IPAMBlocks.",
    ],
);

#[test]
fn what_calicoctl_finds() {
    let town = town();
    spoil(&town);
    finds(&town, SPOILT.0, SPOILT.1);
    // Without names, only the counts; what is wrong with a block is always told.
    let ran = check(&town, &[]);
    assert_eq!(ran.code, Some(1));
    let codes = "Finding codes, see plumb doctor explain CODE: address-leaked (1), address-outside-pools (1), address-used-but-free (1), \
                 block-contradicts-itself (1), handle-missing (1), handle-unused (1)";
    assert!(ran.stdout.lines().any(|line| line == codes), "{}", ran.stdout);
    assert!(!ran.stdout.contains("leaked;") && ran.stdout.contains("is invalid:"), "{}", ran.stdout);
}

#[test]
fn an_address_with_several_owners() {
    let town = town();
    town.desk.write(vec![endpoint("node-b", "twin", "10.65.0.0".parse().unwrap())]);
    finds(
        &town,
        1,
        &[
            "  10.65.0.0 is used by more than one: endpoint shop/node--a-k8s-web--0-eth0, endpoint shop/node--b-k8s-twin-eth0 [address-shared]",
            "Found 1 IPs that are used by several workloads or nodes.",
        ],
    );
}

#[test]
fn wrong_counts_of_handles() {
    let town = town();
    town.put(handle_key("net.web-0"), handle_value(BLOCK_A, 7));
    finds(
        &town,
        1,
        &[
            "  handle net.web-0 counts 7 addresses in 10.65.0.0/29, but the block holds 1 of them [handle-count-wrong]",
            "Found 1 wrong counts in handles.",
        ],
    );
}

#[test]
fn blocks_that_overlap() {
    let town = town();
    let mut inner = block("10.65.0.0/30", "node-a");
    ipam::take(&mut inner, &super::town::owner("node-a", "web-0"), 1, &Reservations::default());
    town.desk.write(with_affinity(&inner, "node-a"));
    finds(
        &town,
        3,
        &[
            "  10.65.0.0 is allocated in more than one block: 10.65.0.0/29, 10.65.0.0/30 [address-allocated-twice]",
            "Found 1 IPs that are allocated in several blocks.",
            "  handle net.web-0 counts 0 addresses in 10.65.0.0/30, but the block holds 1 of them [handle-count-wrong]",
            "  blocks 10.65.0.0/29 and 10.65.0.0/30 overlap [block-overlap]",
            "Found 1 blocks that overlap another block.",
        ],
    );
}

#[test]
fn affinities_that_do_not_agree() {
    let town = town();
    let affinity = |node: &str, block: &str| Key::Affinity { owner: host(node), block: cidr(block) };
    let value = |state| Affinity::new(state).encode();
    town.put(affinity("node-b", BLOCK_A), value(AffinityState::Confirmed));
    town.put(affinity("node-a", "10.65.0.32/29"), value(AffinityState::Pending));
    town.put(affinity("node-a", BLOCK_A), value(AffinityState::PendingDeletion));
    town.remove(&affinity("node-b", BLOCK_B));
    finds(
        &town,
        4,
        &[
            "  node node-b has an affinity for block 10.65.0.0/29, which belongs to node node-a [affinity-contradicted]",
            "  node node-a has an affinity for block 10.65.0.32/29, which does not exist [affinity-unfinished]",
            "  the affinity of node node-a for block 10.65.0.0/29 is still pendingDeletion [affinity-unfinished]",
            "  block 10.65.0.8/29 belongs to node node-b, which has no affinity for it [affinity-missing]",
            "Found 4 affinities that disagree with their block.",
        ],
    );
}

#[test]
fn a_node_that_is_gone() {
    let town = town();
    town.remove(&Key::cluster(Kind::Node, "node-a"));
    finds(
        &town,
        1,
        &[
            "  block 10.65.0.0/29 belongs to node node-a, which is gone [affinity-of-gone-node]",
            "Found 1 blocks of nodes that are gone.",
        ],
    );
}

#[test]
fn addresses_of_load_balancers_are_not_called_leaked() {
    let town = town();
    let virtual_owner = AffinityOwner::Virtual("load-balancer".to_owned());
    let mut block = ipam::new_block(cidr("10.65.0.40/29"), &virtual_owner, None, made_at());
    let owner = Owner { handle: "lb-x".into(), attributes: Default::default() }
        .with("service", "web")
        .with("namespace", "shop");
    ipam::take(&mut block, &owner, 1, &Reservations::default());
    town.desk.write(vec![
        Change::create(block.key(), block.encode()),
        Change::create(
            Key::Affinity { owner: virtual_owner, block: block.cidr },
            Affinity::new(AffinityState::Confirmed).encode(),
        ),
        Change::create(handle_key("lb-x"), handle_value("10.65.0.40/29", 1)),
    ]);
    let line = "Services are not read from Kubernetes; 1 IPs held for load balancers count as in use.";
    finds(&town, 0, &[line]);
}

#[test]
fn nothing_is_called_leaked_while_an_endpoint_cannot_be_read() {
    let town = town();
    town.put(endpoint_key("node-a", "web-1"), "{");
    finds_and_leaves(
        &town,
        1,
        1,
        &[
            "Found 0 IPs that are allocated in IPAM but not actually in use.",
            "Not judged: 1 IPs that no readable workload or node uses: an unreadable one may use them.",
            "  10.65.0.1 is not judged.",
            "  WorkloadEndpoint(shop/node--a-k8s-web--1-eth0) cannot be read: EOF while parsing an object at line 1 column 1 [record-unreadable]",
        ],
    );
    assert_eq!(report(&town).1["allocations"].get("10.65.0.1"), None);
}

/// An address that was given out just now is not called leaked, and that is said.
#[test]
fn what_was_given_out_just_now_is_counted_and_not_judged() {
    let town = town();
    let young = Owner::on_node("net.young", "node-a", jiff::Timestamp::now()).of_pod("shop", "young", None);
    town.change_block(BLOCK_A, |block| {
        ipam::take(block, &young, 1, &Reservations::default());
    });
    town.put(handle_key("net.young"), handle_value(BLOCK_A, 1));
    let ran = check(&town, &["--show-problem-ips", "-o", "report.json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("Not judged: 1 IPs that are not in use yet"), "{ran:?}");
    assert!(ran.stdout.ends_with("Check complete; found 0 problems; 1 not judged.\n"), "{ran:?}");
    let text = std::fs::read_to_string(town.desk.folder.path().join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["notJudged"]["young"], json!(["10.65.0.3"]));
    assert_eq!(report["allocations"].get("10.65.0.3"), None, "nothing that a release would take");
    // The doctor says the same.
    let ran = town.desk.plumb(&["doctor", "-o", "json", "--settle", "0"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let named = report["notJudged"].as_array().unwrap().iter();
    let named: Vec<_> = named.map(|new| (new["code"].as_str(), new["subject"].as_str())).collect();
    assert_eq!(named, [(Some("address-leaked"), Some("10.65.0.3"))], "{report}");
    let text = town.desk.plumb(&["doctor", "--settle", "0"]).stdout;
    let summary = text.lines().find(|line| line.starts_with("Found ")).unwrap();
    assert!(summary.ends_with("1 possible fault is too new to be judged."), "{text}");
    let page = town.desk.plumb(&["doctor", "--settle", "0", "-o", "html"]).stdout;
    assert!(
        page.contains("1 possible fault is too new to be judged.") && page.contains("Not judged yet"),
        "{page}"
    );
    finds_young(&town);
}

/// Whoever gives nothing a grace has it judged.
fn finds_young(town: &Town) {
    let ran = check(town, &["--grace=0"]);
    assert!(ran.stdout.ends_with("Check complete; found 1 problems.\n"), "{ran:?}");
    let ran = town.desk.plumb(&["doctor", "-o", "json", "--settle", "0", "--grace", "0"]);
    assert!(ran.stdout.contains("\"address-leaked\"") && ran.stdout.contains("\"notJudged\": []"), "{ran:?}");
}

/// A block that cannot be read holds the addresses and handles of running pods, until somebody can read it again.
#[test]
fn a_block_that_cannot_be_read_vouches_for_handles_and_addresses() {
    let town = town();
    town.put(Key::Block(cidr(BLOCK_A)), "[");
    finds_and_leaves(
        &town,
        1,
        6,
        &[
            "Found 0 handles with no matching IPs (and 5 handles with matches).",
            "Not judged: 3 IPs in use whose block cannot be trusted.",
            "Not judged: 3 handles that no readable block refers to: an unreadable block may.",
            "  net.web-0 is not judged.",
        ],
    );
    let (_, report) = report(&town);
    assert_eq!(report.get("leakedHandles"), None, "{report}");
    assert_eq!(report["notJudged"]["handles"], json!(["net.cart-0", "net.web-0", "net.web-1"]));
    assert_eq!(report["notJudged"]["used"].as_array().unwrap().len(), 3, "{report}");
}

/// A node that cannot be read exists, and a pool that cannot be read may have any address.
#[test]
fn nodes_affinities_and_pools_that_cannot_be_read_vouch_as_well() {
    let town = self::town();
    town.put(Key::cluster(Kind::Node, "node-b"), "{");
    let ran = check(&town, &["--show-problem-ips"]);
    assert!(ran.stdout.contains("Found 0 blocks of nodes that are gone."), "{ran:?}");
    assert!(ran.stdout.ends_with("found 1 problems; 2 not judged.\n"), "its tunnels: {ran:?}");
    let town = self::town();
    town.put(Key::Affinity { owner: host("node-a"), block: cidr(BLOCK_A) }, "{");
    finds(&town, 1, &["Found 0 affinities that disagree with their block."]);
    let town = self::town();
    town.put(Key::cluster(Kind::IpPool, "pods"), "{");
    let ran = check(&town, &[]);
    assert!(ran.stdout.contains("Found 0 in-use IPs that are not in active IP pools."), "{ran:?}");
    assert!(ran.stdout.ends_with("found 1 problems; 4 not judged.\n"), "{ran:?}");
}

#[test]
fn corrupt_records_of_every_sort_are_named() {
    let town = town();
    town.put(Key::Block(cidr(BLOCK_A)), "null");
    town.put(handle_key("net.web-0"), "[]");
    town.put(Key::cluster(Kind::IpPool, "six"), r#"{"spec":{"cidr":"six"}}"#);
    let ran = check(&town, &[]);
    assert_eq!(ran.code, Some(1));
    for text in [
        "  IPAMBlock 10.65.0.0/29 is invalid: ",
        "  IPAMHandle(net.web-0) cannot be read: ",
        "  IPPool(six) cannot be read: ",
    ] {
        assert!(ran.stdout.contains(text), "{text}: {}", ran.stdout);
    }
}

/// The block of the incident, as it was pasted: cut, so nothing can be said about its addresses.
#[test]
fn the_cut_block_of_the_incident_is_named_and_no_more_is_claimed() {
    let town = town();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/incidents/ipam-drift/block-192.168.106.64-26.excerpt.txt"
    );
    let excerpt = std::fs::read_to_string(path).unwrap();
    let value = excerpt.split_once('{').map(|(_, rest)| format!("{{{rest}")).unwrap();
    town.put(Key::Block(cidr("192.168.106.64/26")), value);
    town.desk.write(vec![endpoint("node-a", "inside", "192.168.106.70".parse().unwrap())]);
    let ran = check(&town, &["--show-problem-ips"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stdout.contains("  IPAMBlock 192.168.106.64/26 is invalid: "), "{}", ran.stdout);
    let outside = "  192.168.106.70 in use by Workload(shop/node--a-k8s-inside-eth0) is not in any active IP pool. [address-outside-pools]";
    assert!(ran.stdout.contains(outside), "{}", ran.stdout);
    assert!(ran.stdout.ends_with("Check complete; found 2 problems; 1 not judged.\n"), "{}", ran.stdout);
}

/// What the operators of the incident had to find out by hand.
#[test]
fn the_drift_of_the_incident_is_found() {
    let town = town();
    // Handles of pods that no longer exist; addresses in use that are marked free; outside any pool.
    town.leak("node-a", "web-0");
    town.change_block(BLOCK_A, |block| ipam::give_back(block, &[1], None));
    town.desk.write(vec![endpoint("node-a", "lost", "192.0.2.1".parse().unwrap())]);
    // Handles that count wrongly, a block at odds with itself, a node that is gone.
    town.put(handle_key("net.cart-0"), handle_value(BLOCK_A, 3));
    town.change_block("fd65::/125", |block| block.unallocated.retain(|ordinal| *ordinal != 4));
    town.remove(&Key::cluster(Kind::Node, "node-b"));
    let (ran, report) = report(&town);
    assert_eq!(ran.code, Some(1));
    let problems = report["problems"].as_array().unwrap();
    let mut kinds: Vec<&str> = problems.iter().map(|problem| problem["kind"].as_str().unwrap()).collect();
    kinds.dedup();
    let expected = [
        "leaked",
        "used-outside-pools",
        "used-not-allocated",
        "handle-unused",
        "handle-count",
        "affinity-of-gone-node",
        "corrupt",
    ];
    assert_eq!(kinds, expected, "{problems:#?}");
}

/// Pods that come and go between the two looks are no problem; what stays wrong is.
#[test]
fn what_is_put_right_meanwhile_is_not_told() {
    let town = town();
    town.leak("node-a", "web-0");
    town.leak("node-a", "web-1");
    let mut checking = town
        .desk
        .command(PLUMB)
        .args(["ipam", "check", "--settle=6", "-l", "info"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(checking.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("waiting before the second observation")));
    // web-0's endpoint is there now; a third pod comes with a leak of its own, but has been seen once only.
    town.desk.write(vec![endpoint("node-a", "web-0", "10.65.0.0".parse().unwrap())]);
    town.change_block(BLOCK_A, |block| {
        ipam::take(block, &super::town::owner("node-a", "late"), 1, &Reservations::default());
    });
    town.put(handle_key("net.late"), handle_value(BLOCK_A, 1));
    let output = checking.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("Found 1 IPs that are allocated in IPAM but not actually in use."), "{text}");
    assert!(text.ends_with("Check complete; found 1 problems.\n"), "{text}");
}

/// Whoever reads the check and the doctor side by side finds the same thing under the same code.
#[test]
fn every_problem_has_the_code_under_which_the_doctor_reports_it() {
    let overlap = |town: &Town| {
        let mut inner = block("10.65.0.0/30", "node-a");
        ipam::take(&mut inner, &super::town::owner("node-a", "web-0"), 1, &Reservations::default());
        town.desk.write(with_affinity(&inner, "node-a"));
    };
    let affinities = |town: &Town| {
        let affinity = |node: &str, block: &str| Key::Affinity { owner: host(node), block: cidr(block) };
        town.put(affinity("node-b", BLOCK_A), Affinity::new(AffinityState::Confirmed).encode());
        town.put(affinity("node-a", "10.65.0.32/29"), Affinity::new(AffinityState::Pending).encode());
        town.remove(&affinity("node-b", BLOCK_B));
    };
    let owners = |town: &Town| {
        town.desk.write(vec![
            endpoint("node-b", "twin", "10.65.0.0".parse().unwrap()),
            endpoint("node-b", "tunnelled", "fd65::".parse().unwrap()),
        ]);
        town.put(handle_key("net.cart-0"), handle_value(BLOCK_A, 3));
        town.put(handle_key("net.web-1"), "[]");
    };
    let gone = |town: &Town| town.remove(&Key::cluster(Kind::Node, "node-b"));
    for damage in [&spoil as &dyn Fn(&Town), &overlap, &affinities, &owners, &gone] {
        let town = town();
        damage(&town);
        let (_, report) = report(&town);
        let ran = town.desk.plumb(&["doctor", "-o", "json", "--settle", "0", "--grace", "0"]);
        let told: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let findings = told["findings"].as_array().unwrap().iter();
        let reported: Vec<&Value> = findings
            .flat_map(|finding| {
                std::iter::once(finding).chain(finding["symptoms"].as_array().into_iter().flatten())
            })
            .map(|finding| &finding["code"])
            .collect();
        let problems = report["problems"].as_array().unwrap();
        assert!(!problems.is_empty());
        for problem in problems {
            assert!(reported.contains(&&problem["code"]), "{problem} is not among {reported:?}");
        }
    }
}

fn report(town: &Town) -> (Ran, Value) {
    let ran = check(town, &["-o", "report.json"]);
    let text = std::fs::read_to_string(town.desk.folder.path().join("report.json")).unwrap();
    (ran, serde_json::from_str(&text).unwrap())
}

#[test]
fn the_report_is_calicoctls() {
    let town = town();
    town.leak("node-b", "cart-0");
    town.desk.write(vec![Change::create(handle_key("net.old"), handle_value(BLOCK_A, 1))]);
    town.desk.plumb(&["datastore", "migrate", "lock"]).succeeded();
    let (ran, report) = report(&town);
    assert_eq!(ran.code, Some(1));
    let information = town.record(&Key::cluster(Kind::ClusterInformation, "default")).unwrap();
    let old = town.record(&handle_key("net.old")).unwrap();
    let stored: Value = serde_json::from_slice(&information.value).unwrap();
    assert_eq!(report["version"], "v0.1.0");
    assert_eq!(report["clusterGUID"], stored["spec"]["clusterGUID"]);
    assert_eq!(report["clusterInformationRevision"], information.revision.as_str());
    assert_eq!(report["datastoreLocked"], true);
    assert_eq!(report["clusterType"], "");
    assert_eq!(
        report["leakedHandles"],
        json!([{"ID": "net.old", "UID": null, "Revision": old.revision.as_str()}])
    );
    let leaked = json!([{"ip": "10.65.0.2", "handle": "net.cart-0", "sequenceNumber": 1_787_380_400_000_000_002u64,
        "pod": "cart-0", "namespace": "shop", "node": "node-b",
        "creationTimestamp": "2026-08-22 06:33:20 +0000 UTC", "inUse": false, "borrowed": true, "owners": null}]);
    assert_eq!(report["allocations"]["10.65.0.2"], leaked);
    let tunnel = json!([{"ip": "fd65::", "handle": "vxlan-v6-tunnel-addr-node-b",
        "sequenceNumber": 1_787_380_400_000_000_000u64, "node": "node-b", "type": "vxlanV6TunnelAddress",
        "inUse": true, "owners": ["Node(node-b)"]}]);
    assert_eq!(report["allocations"]["fd65::"], tunnel);
    assert_eq!(report["allocations"].as_object().unwrap().len(), 5);
    let messages: Vec<&Value> =
        report["problems"].as_array().unwrap().iter().map(|problem| &problem["kind"]).collect();
    assert_eq!(messages, ["leaked", "handle-unused"]);
    // To stdout, the report is alone there.
    let ran = check(&town, &["-o", "-"]);
    assert_eq!(serde_json::from_str::<Value>(&ran.stdout).unwrap(), report);
    assert!(ran.stderr.ends_with("Check complete; found 2 problems.\n"));
}

#[test]
fn a_check_that_cannot_be_made_is_told_apart_from_problems() {
    let town = town();
    let unwritable = town.desk.plumb(&["ipam", "check", "-o", "missing/report.json"]);
    assert_eq!(unwritable.code, Some(2), "{unwritable:?}");
    assert!(unwritable.stderr.starts_with("error: cannot write the report to missing/report.json"));
    town.desk.plumb(&["ipam", "check", "--settle=-1"]).refused(2, &["--settle"]);
    town.desk.plumb(&["ipam", "check", "--show-all"]).refused(2, &["--show-all"]);
    Desk::on_sqlite().plumb(&["ipam", "check"]).refused(2, &["the file does not exist"]);
    town.put(Key::cluster(Kind::ClusterInformation, "default"), "{");
    town.desk.plumb(&["ipam", "check"]).refused(2, &["ClusterInformation(default)"]);
    town.remove(&Key::cluster(Kind::ClusterInformation, "default"));
    assert_eq!(check(&town, &[]).succeeded(), IN_ORDER, "calicoctl needs it, we do not");
}

#[test]
fn timings_are_told_on_demand() {
    let ran = check(&town(), &["--timings"]);
    assert!(ran.stderr.starts_with("timings: loading_ms="), "{ran:?}");
    assert!(ran.stderr.contains(" analysis_ms=") && ran.stderr.trim_end().ends_with("records=18"), "{ran:?}");
}
