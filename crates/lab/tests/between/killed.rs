//! Agents that are killed at any moment while they set up routes, tunnels and BIRD: the next one makes the rest, and nothing twice.

use std::time::Duration;

use lab::cluster::{Mode, Topology};
use testkit::Dice;

use crate::bird;
use crate::scene::{Scene, plan};

/// What takes away all that the agent has set up, as a line for a shell.
pub(crate) const NO_TUNNEL: &str =
    "ip route flush proto 113; ip link del vxlan.calico; nft delete table inet plumb; true";
pub(crate) const NO_BIRD: &str = "pkill -9 -x bird; rm -f /var/lib/plumb/bird.conf; ip route flush proto bird; ip route flush proto 113; true";

/// What the first node holds of ours, without what its pods have.
pub(crate) fn held(scene: &Scene) -> String {
    let show = |line: &str| scene.lab.run_on(scene.node(0), &["sh", "-c", line]).unwrap_or_default();
    [
        "ip route show proto 113 | sort",
        "ip route show proto bird | sort",
        "ip neigh show dev vxlan.calico nud permanent | sort",
        "bridge fdb show dev vxlan.calico | sort",
        "ip -4 -br address show dev vxlan.calico",
        "nft -s list table inet plumb",
    ]
    .map(show)
    .join("\n")
}

/// Everything is taken away, and an agent begins anew and again; it is killed sooner or later.
fn kill_while_setting_up(scene: &Scene, take_away: &str) {
    let before = held(scene);
    let node = scene.node(0);
    let mut dice = Dice::for_purpose(testkit::seed(), "killed between nodes");
    for _ in 0..testkit::count(4, 40) {
        scene.lab.kill(node, "agent").unwrap();
        scene.lab.run_on(node, &["sh", "-c", take_away]).unwrap();
        scene.lab.launch(node, "agent", &[]).unwrap();
        // Not to wait for something: the moment is what is tried.
        std::thread::sleep(Duration::from_millis(dice.roll(400)));
    }
    scene.lab.kill(node, "agent").unwrap();
    scene.lab.start(node, "agent", &[]).unwrap();
    lab::wait_for("everything to be as before", || {
        let now = held(scene);
        anyhow::ensure!(now == before, "{now}\ninstead of\n{before}");
        Ok(())
    })
    .unwrap_or_else(|error| panic!("seed {}: {error:#}", testkit::seed()));
    scene.assert_all_talk();
}

#[test]
fn whenever_an_agent_is_killed_the_next_one_completes_tunnels_and_routes() {
    let test = "whenever_an_agent_is_killed_the_next_one_completes_tunnels_and_routes";
    let Some(scene) = Scene::new(test, || plan(3, Mode::Crosssubnet, Topology::Subnets, false)) else {
        return;
    };
    scene.assert_all_talk();
    kill_while_setting_up(&scene, NO_TUNNEL);
}

#[test]
fn whenever_an_agent_is_killed_the_next_one_completes_bird() {
    let test = "whenever_an_agent_is_killed_the_next_one_completes_bird";
    if !testkit::process::on_path("bird") {
        return testkit::skip(test, "there is no bird here");
    }
    let Some(scene) = Scene::new(test, || plan(3, Mode::Bgp, Topology::Shared, false)) else { return };
    bird::wait_for_routes(&scene, &["-4"]);
    scene.assert_all_talk();
    kill_while_setting_up(&scene, NO_BIRD);
    let birds = scene.lab.run_on(scene.node(0), &["pgrep", "-c", "-x", "bird"]).unwrap();
    assert_eq!(birds.trim(), "1", "one daemon, however many agents there were");
}
