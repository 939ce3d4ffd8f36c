//! BIRD ends, dies or is told something new while pods talk.

use lab::cluster::{Mode, Topology};
use lab::{Pinger, wait_for};

use crate::scene::{Scene, plan};

pub(crate) fn ask(scene: &Scene, index: usize, question: &str) -> std::io::Result<String> {
    let socket = scene.lab.root_of(scene.node(index)).unwrap().join("run/plumb/bird.ctl");
    host::bird::ask(&socket, question)
}

/// Until BIRD has written, on every node, a route to the block of every other. New blocks take a moment to get around.
pub(crate) fn wait_for_routes(scene: &Scene, versions: &[&str]) {
    let nodes = &scene.lab.description().nodes;
    for node in nodes {
        for version in versions {
            wait_for("BIRD's routes", || {
                let routes =
                    scene.lab.run_on(&node.name, &["ip", version, "route", "show", "proto", "bird"])?;
                let count = routes.lines().filter(|line| line.contains(" via ")).count();
                anyhow::ensure!(count >= nodes.len() - 1, "{} has {routes}", node.name);
                Ok(())
            })
            .unwrap();
        }
    }
}

/// Until every session of every node is up again.
fn wait_until_settled(scene: &Scene) {
    wait_for("BIRD to be back", || Ok(ask(scene, 1, "show status").map(drop)?)).unwrap();
    for node in &scene.lab.description().nodes {
        scene.lab.wait_for_service(&node.name, "agent").unwrap();
    }
}

#[test]
fn traffic_goes_on_while_bird_restarts_reloads_and_dies() {
    let test = "traffic_goes_on_while_bird_restarts_reloads_and_dies";
    if !testkit::process::on_path("bird") {
        return testkit::skip(test, "there is no bird here");
    }
    let Some(scene) = Scene::new(test, || plan(3, Mode::Bgp, Topology::Shared, false)) else { return };
    wait_for_routes(&scene, &["-4"]);
    scene.assert_all_talk();
    let events: [(&str, &dyn Fn()); 3] = [
        ("a graceful restart of BIRD", &|| drop(ask(&scene, 1, "graceful restart").unwrap())),
        ("a reload of BIRD", &|| {
            scene
                .lab
                .plumb(&[
                    "patch",
                    "bgpconfiguration",
                    "default",
                    "-p",
                    r#"{"spec": {"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]}}"#,
                ])
                .map(drop)
                .unwrap();
        }),
        ("the death of BIRD", &|| drop(scene.lab.run_on(scene.node(1), &["pkill", "-9", "bird"]).unwrap())),
    ];
    for (what, happen) in events {
        let pinger = Pinger::start(what, scene.in_pod(0), &scene.pods[1].addresses[0]).unwrap();
        let back = Pinger::start(what, scene.in_pod(1), &scene.pods[2].addresses[0]).unwrap();
        pinger.wait_for_more(10).unwrap();
        happen();
        pinger.wait_for_more(25).unwrap();
        wait_until_settled(&scene);
        pinger.wait_for_more(25).unwrap();
        let (there, back) = (pinger.stop().unwrap(), back.stop().unwrap());
        println!(
            "{what}: {} and {} packets lost of {} and {}",
            there.lost, back.lost, there.answered, back.answered
        );
        assert_eq!((there.lost, back.lost), (0, 0), "{what}");
    }
    scene.assert_all_talk();
}
