//! In every mode between nodes, with both IP versions.

use anyhow::ensure;
use lab::cluster::{Mode, Topology};

use crate::attacks::Stage;
use crate::raw;
use crate::scene::{Scene, add, plan};

/// Where a node's default is to check no sources at all, which most distributions leave as it is.
fn without_rp_filter(scene: &Scene) {
    for index in 0..scene.pods.len() {
        let line = "for each in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $each; done";
        scene.lab.run_on(scene.node(index), &["sh", "-ec", line]).unwrap();
    }
}

fn has_rules(scene: &Scene) -> anyhow::Result<()> {
    let listed = scene.lab.run_on(scene.node(0), &["nft", "list", "chain", "inet", "plumb", "pods"])?;
    ensure!(listed.contains("fib saddr"), "{listed}");
    Ok(())
}

fn attack(test: &str, mode: Mode, topology: Topology) {
    if let Some(reason) = raw::missing() {
        return testkit::skip(test, reason);
    }
    let Some(scene) = Scene::new(test, || plan(2, mode, topology, true)) else { return };
    scene.assert_all_talk();
    without_rp_filter(&scene);
    let stage = Stage::new(&scene);
    stage.nothing_arrives().unwrap();
    // A new pod's very first packets, both ways.
    let fresh = add(&scene.lab, scene.node(0), "fresh");
    for address in &fresh.addresses {
        scene.lab.run_on(scene.node(0), &["ping", "-n", "-c", "1", "-W", "5", address]).unwrap();
    }
    // As with pods of an older version: no rules, and `route_localnet` on. Not even for who is no node at all.
    let node = scene.node(0);
    let flush = "for each in pods pods-tunnels input; do nft flush chain inet plumb $each || true; done; \
                 nft delete table inet plumb-policy";
    for node in [node, scene.node(1)] {
        scene.lab.kill(node, "agent").unwrap();
        scene.lab.run_on(node, &["sh", "-c", flush]).unwrap();
    }
    stage.assert_everything_arrives();
    for node in [node, scene.node(1)] {
        scene.lab.launch(node, "agent", &[]).unwrap();
    }
    lab::wait_for("the rules of a new agent", || has_rules(&scene)).unwrap();
    stage.nothing_arrives().unwrap();
    scene.assert_all_talk();
    // A stranger's hand.
    scene.lab.run_on(node, &["nft", "delete", "table", "inet", "plumb"]).unwrap();
    lab::wait_for("the rules to be put back", || has_rules(&scene)).unwrap();
    stage.nothing_arrives().unwrap();
}

#[test]
fn pods_cannot_pose_as_others_with_direct_routes() {
    attack("pods_cannot_pose_as_others_with_direct_routes", Mode::Direct, Topology::Shared);
}

#[test]
fn pods_cannot_pose_as_others_with_vxlan() {
    attack("pods_cannot_pose_as_others_with_vxlan", Mode::Vxlan, Topology::Shared);
}

#[test]
fn pods_cannot_pose_as_others_across_subnets() {
    attack("pods_cannot_pose_as_others_across_subnets", Mode::Crosssubnet, Topology::Subnets);
}

#[test]
fn pods_cannot_pose_as_others_with_bgp() {
    let test = "pods_cannot_pose_as_others_with_bgp";
    if !testkit::process::on_path("bird") {
        return testkit::skip(test, "there is no bird here");
    }
    attack(test, Mode::Bgp, Topology::Shared);
}
