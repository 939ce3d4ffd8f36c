//! Records that claim what is nobody's to claim, written straight into the store: no agent routes them, and everybody says so. And a
//! pool that is deleted under its pods.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use lab::cluster::{Mode, Topology};
use model::ipam::{Affinity, AffinityState, Block};
use model::{AffinityOwner, Cidr, Key, Kind};
use serde_json::Value;
use store::Store;

use crate::address::printed;
use crate::bird;
use crate::scene::{Scene, add, plan};
use crate::traffic::{losses, ping_both_ways, wait_for_more};

const MODES: [(Mode, Topology); 4] = [
    (Mode::Direct, Topology::Shared),
    (Mode::Vxlan, Topology::Shared),
    (Mode::Crosssubnet, Topology::Subnets),
    (Mode::Bgp, Topology::Shared),
];

/// Everything that a node's kernel would send somewhere, of both IP versions.
fn all_routes(scene: &Scene, index: usize) -> String {
    let of = |version: &str| printed(scene, index, &["ip", version, "route", "show", "table", "all"]);
    of("-4") + &of("-6")
}

fn readiness(scene: &Scene, index: usize) -> String {
    printed(scene, index, &["curl", "-s", "127.0.0.1:9099/readiness"])
}

/// The addresses that the record of a node names, with their networks.
fn networks_of(scene: &Scene, index: usize) -> Vec<(IpAddr, Cidr)> {
    let text = scene.lab.plumb(&["get", "node", scene.node(index), "-o", "json"]).unwrap();
    let node: Value = serde_json::from_str(&text).unwrap();
    let address = |field: &str| {
        let text = node["spec"]["bgp"][field].as_str()?;
        Some((text.split('/').next()?.parse().ok()?, Cidr::parse_masked(text).ok()?))
    };
    ["ipv4Address", "ipv6Address"].into_iter().filter_map(address).collect()
}

/// What the second node claims: everything, the network and the address of the third, a service, and the third one's block.
fn claims(scene: &Scene) -> Vec<Cidr> {
    let mut claims: Vec<Cidr> = ["0.0.0.0/0", "::/0", "10.96.0.10/32", "fd96::a/128"]
        .iter()
        .map(|text| text.parse().unwrap())
        .collect();
    for (address, network) in networks_of(scene, 2) {
        claims.extend([Cidr::single(address), network]);
    }
    let addresses = scene.pods[2].addresses.iter().map(|address| address.parse::<IpAddr>().unwrap());
    claims.extend(
        addresses.map(|address| Cidr::containing(address, if address.is_ipv4() { 29 } else { 125 }).unwrap()),
    );
    claims
}

/// The block, and the affinity by which a node with BGP announces it.
async fn claim(store: &dyn Store, cidr: Cidr, node: &str) -> Result<()> {
    let owner = AffinityOwner::Host(node.to_owned());
    let block = Block::new(cidr, Some(&owner), 1);
    store.create(block.key(), block.encode()).await?;
    let affinity = Affinity::new(AffinityState::Confirmed);
    store.create(Key::Affinity { owner, block: cidr }, affinity.encode()).await?;
    Ok(())
}

#[test]
fn blocks_that_are_not_theirs_to_claim_get_no_route() {
    for (mode, topology) in MODES {
        let test = "blocks_that_are_not_theirs_to_claim_get_no_route";
        if mode == Mode::Bgp && !testkit::process::on_path("bird") {
            testkit::skip(test, "there is no bird here");
            continue;
        }
        let Some(scene) = Scene::new(test, || plan(3, mode, topology, true)) else { return };
        name_services(&scene);
        if mode == Mode::Bgp {
            bird::wait_for_routes(&scene, &["-4", "-6"]);
        }
        scene.assert_all_talk();
        let before = [0, 2].map(|index| all_routes(&scene, index));
        let claims = claims(&scene);
        scene
            .lab
            .with_store(async |store: &dyn Store| {
                for cidr in &claims {
                    claim(store, *cidr, scene.node(1)).await?;
                }
                Ok(())
            })
            .unwrap();
        let pingers = ping_both_ways(&scene);
        [0, 2].into_iter().for_each(|index| wait_until_refused(&scene, index, mode, &claims));
        wait_for_more(&pingers, 100);
        assert_eq!(losses(pingers), 0, "{mode:?}{}", scene.evidence());
        for (index, before) in [0, 2].into_iter().zip(before) {
            assert_no_route_to(&scene, index, mode, &claims, &before);
        }
        // Packets go where they went before: to nodes, to pods, and to nobody at the service's address.
        for (address, _) in networks_of(&scene, 2) {
            scene
                .lab
                .run_on(scene.node(0), &["ping", "-n", "-c", "1", "-W", "5", &address.to_string()])
                .unwrap();
        }
        scene.assert_all_talk();
        assert_found(&scene, mode, &claims);
    }
}

/// The node says so, and counts every one of them.
fn wait_until_refused(scene: &Scene, index: usize, mode: Mode, claims: &[Cidr]) {
    lab::wait_for("every claim to be refused aloud", || {
        let said = readiness(scene, index);
        ensure!(said.starts_with("ok, but") && said.contains("block 0.0.0.0/0 of node"), "{mode:?}: {said}");
        let metrics = printed(scene, index, &["curl", "-s", "127.0.0.1:9099/metrics"]);
        let refused = metrics.lines().find_map(|line| line.strip_prefix("plumb_blocks_refused "));
        let refused: usize = refused.unwrap_or_default().parse()?;
        ensure!(refused >= claims.len(), "{mode:?}: {refused} of {} are refused: {said}", claims.len());
        Ok(())
    })
    .unwrap();
}

/// The kernel leads nothing of this to the node that claims it, and has no route that it did not have before.
fn assert_no_route_to(scene: &Scene, index: usize, mode: Mode, claims: &[Cidr], before: &str) {
    let now = all_routes(scene, index);
    let gateways = networks_of(scene, 1);
    for cidr in claims {
        let leads = |line: &&str| {
            let is_meant = line.split_whitespace().next().is_some_and(|to| is_same(to, cidr));
            is_meant
                && gateways
                    .iter()
                    .any(|(gateway, _)| line.split_whitespace().any(|word| word == gateway.to_string()))
        };
        assert_eq!(now.lines().find(leads), None, "{mode:?}: {now}");
    }
    let new: Vec<&str> = now
        .lines()
        .filter(|line| line.contains("proto 113") || line.contains("proto bird"))
        .filter(|line| !before.contains(line.trim()))
        .collect();
    assert_eq!(new, [] as [&str; 0], "{mode:?}");
}

/// The doctor names each as an error, and the node's status names them, too.
fn assert_found(scene: &Scene, mode: Mode, claims: &[Cidr]) {
    let report: Value = serde_json::from_str(&printed(scene, 0, &["plumb", "doctor", "-o", "json"])).unwrap();
    for cidr in claims {
        let of_block = |finding: &&Value| {
            finding["subject"].as_str().is_some_and(|subject| subject == format!("block {cidr}"))
        };
        let found = report["findings"].as_array().unwrap().iter().find(of_block);
        let found = found.unwrap_or_else(|| panic!("{mode:?}: nothing about {cidr} in {report:#}"));
        assert_eq!(found["severity"], "error", "{found:#}");
    }
    let status = printed(scene, 0, &["plumb", "node", "status"]);
    assert!(status.contains("block 0.0.0.0/0 of node"), "{status}");
}

/// In the settings of BGP, where records tell of services. A lab with BGP has some already.
fn name_services(scene: &Scene) {
    let services = r#"{"spec":{"serviceClusterIPs":[{"cidr":"10.96.0.0/12"},{"cidr":"fd96::/108"}]}}"#;
    if scene.lab.plumb(&["patch", "bgpconfiguration", "default", "-p", services]).is_err() {
        scene.apply(
            "{apiVersion: projectcalico.org/v3, kind: BGPConfiguration, metadata: {name: default}, \
             spec: {serviceClusterIPs: [{cidr: 10.96.0.0/12}, {cidr: 'fd96::/108'}]}}",
        );
    }
}

/// `default` is a network, too, and a single address needs no length.
fn is_same(shown: &str, cidr: &Cidr) -> bool {
    let is_default = shown == "default" && cidr.prefix_len() == 0;
    is_default
        || shown == cidr.to_string()
        || (Cidr::single(cidr.network()) == *cidr && shown == cidr.network().to_string())
}

#[test]
fn a_pool_that_is_deleted_leaves_every_route() {
    let test = "a_pool_that_is_deleted_leaves_every_route";
    for (mode, topology) in MODES {
        delete_pools_under_traffic(test, mode, topology, Deletes::TheRecord);
    }
}

/// Nodes give up their blocks then, and only single addresses are left to be reached.
#[test]
fn a_pool_that_is_deleted_with_plumb_leaves_its_pods_connected() {
    let test = "a_pool_that_is_deleted_with_plumb_leaves_its_pods_connected";
    for (mode, topology) in MODES {
        delete_pools_under_traffic(test, mode, topology, Deletes::AsOperatorsDo);
    }
}

/// A pool over the network of the nodes: its addresses are given, but never one that a node has.
#[test]
fn no_pod_gets_the_address_of_a_node() {
    let test = "no_pod_gets_the_address_of_a_node";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    scene.apply(
        "{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {name: nodes}, \
         spec: {cidr: 172.30.0.0/29, blockSize: 29}}",
    );
    let disable = "{\"spec\":{\"disabled\":true}}";
    scene.lab.plumb(&["patch", "ippool", "default-ipv4-ippool", "-p", disable]).unwrap();
    // The runtime tries again what was refused, and is given the next one.
    let given: Vec<String> = (0..3)
        .map(|number| add(&scene.lab, scene.node(0), &format!("near-{number}")).addresses[0].clone())
        .collect();
    for taken in ["172.30.0.1", "172.30.0.2"] {
        assert!(!given.iter().any(|address| address == taken), "{given:?}");
    }
    let log = scene.lab.log_tail(scene.node(0), "kubelet", usize::MAX)
        + &scene.lab.log_tail(scene.node(0), "agent", usize::MAX);
    assert!(log.contains("it is the address of a node"), "{log}");
    scene.lab.run_on(scene.node(0), &["ping", "-n", "-c", "1", "-W", "5", "172.30.0.2"]).unwrap();
    assert!(!scene.routes(1).contains("172.30.0.0/29"), "{}", scene.routes(1));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deletes {
    TheRecord,
    AsOperatorsDo,
}

fn delete_pools_under_traffic(test: &str, mode: Mode, topology: Topology, deletes: Deletes) {
    if mode == Mode::Bgp && !testkit::process::on_path("bird") {
        return testkit::skip(test, "there is no bird here");
    }
    let Some(scene) = Scene::new(test, || plan(3, mode, topology, true)) else { return };
    if mode == Mode::Bgp {
        bird::wait_for_routes(&scene, &["-4", "-6"]);
    }
    scene.assert_all_talk();
    let pingers = ping_both_ways(&scene);
    let ways = || [0, 1, 2].map(|index| between(&scene, index));
    let before = ways();
    delete_pools(&scene, deletes);
    for index in [0, 1, 2] {
        wait_until_said(&scene, index);
    }
    wait_for_more(&pingers, 50);
    let after = ways();
    assert!(after == before || deletes == Deletes::AsOperatorsDo, "{mode:?}: {after:#?} after {before:#?}");
    // An agent that knows no better than its records and its kernel leaves it so.
    for node in [scene.node(0), scene.node(1)] {
        scene.lab.stop(node, "agent").unwrap();
        scene.lab.start(node, "agent", &[]).unwrap();
    }
    for index in [0, 1] {
        wait_until_said(&scene, index);
    }
    println!("{mode:?}, {deletes:?}");
    wait_for_more(&pingers, 50);
    assert_eq!(losses(pingers), 0, "{mode:?}{}", scene.evidence());
    assert!(ways() == after || deletes == Deletes::AsOperatorsDo, "{mode:?}: {:#?} after {after:#?}", ways());
    scene.assert_all_talk();
    let report = printed(&scene, 0, &["plumb", "doctor", "-o", "json"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let is_it = |finding: &&Value| finding["code"] == "block-outside-pools";
    let found = report["findings"].as_array().unwrap().iter().find(is_it);
    assert_eq!(found.unwrap_or_else(|| panic!("{report:#}"))["severity"], "error");
}

/// Routes to other nodes, without what is said of their age.
fn between(scene: &Scene, index: usize) -> Vec<String> {
    let routes = all_routes(scene, index);
    let of_nodes = routes.lines().filter(|line| line.contains("proto 113") || line.contains("proto bird"));
    let mut lines: Vec<String> = of_nodes.map(|line| line.trim().to_owned()).collect();
    lines.sort();
    lines
}

fn wait_until_said(scene: &Scene, index: usize) {
    lab::wait_for("the missing pool to be named", || {
        let said = readiness(scene, index);
        ensure!(said.starts_with("ok, but") && said.contains("no pool holds the block any more"), "{said}");
        Ok(())
    })
    .unwrap();
}

/// Addresses of theirs are in use. Others stay, else an agent that starts would make the usual ones again.
fn delete_pools(scene: &Scene, deletes: Deletes) {
    for (name, cidr) in [("spare-v4", "10.77.0.0/16"), ("spare-v6", "fd77::/48")] {
        scene.apply(&format!(
            "{{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {{name: {name}}}, \
             spec: {{cidr: '{cidr}', disabled: true}}}}"
        ));
    }
    for pool in ["default-ipv4-ippool", "default-ipv6-ippool"] {
        if deletes == Deletes::AsOperatorsDo {
            scene.lab.plumb(&["delete", "ippool", pool]).unwrap();
            continue;
        }
        scene
            .lab
            .with_store(async |store: &dyn Store| {
                let key = Key::cluster(Kind::IpPool, pool);
                let record = store.get(&key).await?.context("the pool")?;
                store.delete(key, record.revision).await?;
                Ok(())
            })
            .unwrap();
    }
}
