//! The address by which a node is known: a second card does not move it, and where it really moves the others follow.

use lab::Pinger;
use lab::cluster::{Mode, Topology};

use crate::scene::{Scene, plan};

/// Nothing is said about the address, and looks follow each other quickly.
const UNSAID: [(&str, &str); 2] = [("IP", ""), ("AUTODETECT_POLL_INTERVAL", "200ms")];

fn recorded(scene: &Scene, index: usize) -> String {
    scene.lab.plumb(&["get", "node", scene.node(index), "-o", "jsonpath={.spec.bgp.ipv4Address}"]).unwrap()
}

#[test]
fn a_second_card_that_comes_later_does_not_move_a_node() {
    let test = "a_second_card_that_comes_later_does_not_move_a_node";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::TwoCards, false)) else { return };
    scene.assert_all_talk();
    let pinger = Pinger::start("the other node's pod", scene.in_pod(0), &scene.pods[1].addresses[0]).unwrap();
    for setting in [&UNSAID[..], &[("IP", "autodetect"), ("AUTODETECT_POLL_INTERVAL", "200ms")]] {
        let node = scene.node(1);
        scene.lab.kill(node, "agent").unwrap();
        // Even the default route leads out of the second card now.
        scene.lab.run_on(node, &["ip", "route", "replace", "default", "via", "172.30.9.254"]).unwrap();
        scene.lab.launch(node, "agent", setting).unwrap();
        scene.lab.wait_for_service(node, "agent").unwrap();
        pinger.wait_for_more(100).unwrap();
        assert_eq!(recorded(&scene, 1).trim(), "172.30.0.2/24", "{setting:?}");
    }
    let tally = pinger.stop().unwrap();
    assert_eq!(tally.lost, 0, "{tally:?}");
}

#[test]
fn an_address_on_the_wrong_card_is_named() {
    let test = "an_address_on_the_wrong_card_is_named";
    let Some(scene) = Scene::new(test, || plan(3, Mode::Direct, Topology::TwoCards, false)) else { return };
    scene.assert_all_talk();
    let node = scene.node(1);
    let forced = [("IP", "autodetect"), ("IP_AUTODETECTION_METHOD", "interface=eth1")];
    scene.lab.kill(node, "agent").unwrap();
    scene.lab.launch(node, "agent", &forced).unwrap();
    let readiness = |index: usize| {
        scene.lab.run_on(scene.node(index), &["curl", "-s", "127.0.0.1:9099/readiness"]).unwrap_or_default()
    };
    lab::wait_for("the cause to be named", || {
        let said = readiness(1);
        let cause = "172.30.9.2/24 is not in 172.30.0.0/24, where 2 other nodes are";
        anyhow::ensure!(said.contains(cause), "{said}");
        Ok(())
    })
    .unwrap();
    assert!(!readiness(0).contains("172.30"), "the others are not to blame: {}", readiness(0));
    // Put right: nothing is left of it.
    scene.lab.kill(node, "agent").unwrap();
    scene.lab.start(node, "agent", &[]).unwrap();
    assert_eq!(recorded(&scene, 1).trim(), "172.30.0.2/24");
    scene.assert_all_talk();
}

#[test]
fn a_node_that_returns_with_another_address_is_reached_again() {
    let test = "a_node_that_returns_with_another_address_is_reached_again";
    let Some(scene) = Scene::new(test, || plan(3, Mode::Crosssubnet, Topology::Shared, false)) else {
        return;
    };
    scene.assert_all_talk();
    let pinger =
        Pinger::start("the pod of the node that moves", scene.in_pod(0), &scene.pods[2].addresses[0])
            .unwrap();
    let node = scene.node(2);
    scene.lab.kill(node, "agent").unwrap();
    for words in [
        "address del 172.30.0.3/24 dev eth0",
        "address add 172.30.0.33/24 dev eth0",
        "route replace default via 172.30.0.254",
    ] {
        scene.lab.run_on(node, &[&["ip"], &words.split(' ').collect::<Vec<_>>()[..]].concat()).unwrap();
    }
    scene.lab.launch(node, "agent", &UNSAID).unwrap();
    scene.lab.wait_for_service(node, "agent").unwrap();
    lab::wait_for("the others to follow", || {
        let routes = scene.routes(0);
        anyhow::ensure!(routes.contains("via 172.30.0.33"), "{routes}{}", scene.evidence());
        Ok(())
    })
    .unwrap();
    pinger.wait_for_more(50).unwrap();
    let tally = pinger.stop().unwrap();
    println!("while the node moved: {} packets lost, {} answered", tally.lost, tally.answered);
    scene.assert_all_talk();
}
