//! Nodes that are cut off from the others for a while: what they know stays, and when they are joined again everything is as before.

use lab::Pinger;
use lab::cluster::{Mode, StoreKind, Topology};

use crate::bird;
use crate::scene::{Scene, plan};

/// Two of three nodes talk on, and the third is out of reach until it is joined again.
fn cut_off_and_join(scene: &Scene, what: &str, meanwhile: impl Fn()) {
    let ping = |from: usize, to: usize| {
        Pinger::start(what, scene.in_pod(from), &scene.pods[to].addresses[0]).unwrap()
    };
    let (inside, across) = (ping(0, 1), ping(0, 2));
    let third = scene.node(2).to_owned();
    scene.lab.partition(&[&third]).unwrap();
    // Answers from before the cut may still be on their way to the counter.
    inside.wait_for_more(10).unwrap();
    let before = across.answered();
    meanwhile();
    inside.wait_for_more(testkit::count(3, 30) * 50).unwrap();
    assert!(across.answered() <= before + 2, "{what}: a node that is cut off still answers");
    scene.lab.heal().unwrap();
    across.wait_for_more(100).unwrap();
    let (inside, across) = (inside.stop().unwrap(), across.stop().unwrap());
    println!(
        "partition, {what}: {} packets lost of those that stayed together, {} of {} across the cut",
        inside.lost,
        across.lost,
        across.lost + across.answered
    );
    assert_eq!(inside.lost, 0, "{what}: {}", scene.evidence());
    assert!(across.lost > 0, "{what}: nothing was cut");
    for node in &scene.lab.description().nodes {
        scene.lab.wait_for_service(&node.name, "agent").unwrap();
    }
    scene.assert_all_talk();
}

#[test]
fn a_partition_heals_without_a_trace() {
    let test = "a_partition_heals_without_a_trace";
    for (mode, topology) in [(Mode::Vxlan, Topology::Shared), (Mode::Crosssubnet, Topology::Subnets)] {
        let Some(scene) = Scene::new(test, || plan(3, mode, topology, false)) else { return };
        scene.assert_all_talk();
        let routes: Vec<String> = (0..3).map(|index| scene.routes(index)).collect();
        // The third node is on the first one's network in both topologies, and the second one is not in the latter.
        cut_off_and_join(&scene, &format!("{mode:?}"), || {});
        assert_eq!((0..3).map(|index| scene.routes(index)).collect::<Vec<_>>(), routes);
    }
}

#[test]
fn a_node_that_loses_its_store_as_well_is_back_after_the_partition() {
    let test = "a_node_that_loses_its_store_as_well_is_back_after_the_partition";
    if let Some(reason) = lab::missing_for_cluster(StoreKind::Etcdv3, None) {
        return testkit::skip(test, &reason);
    }
    let on_etcd =
        || lab::cluster::Plan { store: StoreKind::Etcdv3, ..plan(3, Mode::Vxlan, Topology::Shared, false) };
    let Some(scene) = Scene::new(test, on_etcd) else { return };
    scene.assert_all_talk();
    cut_off_and_join(&scene, "with its store on the other side", || {});
}

#[test]
fn sessions_return_after_a_partition() {
    let test = "sessions_return_after_a_partition";
    if !testkit::process::on_path("bird") {
        return testkit::skip(test, "there is no bird here");
    }
    let Some(scene) = Scene::new(test, || plan(3, Mode::Bgp, Topology::Shared, false)) else { return };
    bird::wait_for_routes(&scene, &["-4"]);
    scene.assert_all_talk();
    // Sessions would outlive a short partition; these do not.
    let sessions = || bird::ask(&scene, 2, "show protocols").unwrap_or_default();
    cut_off_and_join(&scene, "BGP", || {
        bird::ask(&scene, 2, "restart all").unwrap();
        lab::wait_for("the sessions to be down", || {
            anyhow::ensure!(!sessions().contains("Established"), "{}", sessions());
            Ok(())
        })
        .unwrap();
    });
    assert_eq!(sessions().matches("Established").count(), 2, "{}", sessions());
    bird::wait_for_routes(&scene, &["-4"]);
}
