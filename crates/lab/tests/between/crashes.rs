//! The agent is killed at every place that it names in its work between nodes: at each step of tunnels, routes, rules and BIRD. The
//! next one finds the rest, and whoever could talk before talks on, but for what the test itself takes away.

use std::fmt;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use lab::Programs;
use lab::cluster::{Mode, Topology};
use testkit::Dice;

use crate::bird;
use crate::killed::{NO_BIRD, NO_TUNNEL, held};
use crate::scene::{Scene, plan};
use crate::traffic::{losses, ping_both_ways, wait_for_more};

/// One crash.
#[derive(Debug)]
struct Crash {
    point: String,
    story: Story,
}

/// What the agent has to do when it starts and dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// Nothing: all is there. No packet is lost.
    Restart,
    /// Everything: this test takes it away, and with it packets.
    FromNothing,
    /// Another way for all packets, because tunnels were given up meanwhile. No packet is lost.
    Leave,
    /// Another configuration for BIRD. No packet is lost.
    Reload,
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.point, self.story)
    }
}

/// A point belongs into every story that passes it. One that a story does not pass fails the test.
fn stories(point: &str) -> &'static [Story] {
    match point {
        "between.tunnel-made" => &[Story::FromNothing],
        "between.routes-half" => &[Story::Leave],
        "between.before-rules" | "between.after-rules" => &[Story::Restart, Story::FromNothing],
        _ if point.starts_with("between.") => &[Story::Restart, Story::FromNothing, Story::Leave],
        "bgp.started" => &[Story::FromNothing],
        _ => &[Story::Restart, Story::FromNothing, Story::Reload],
    }
}

/// All crashes at points of this sort, or some of them by chance.
fn crashes(sort: &str, some: usize) -> Vec<Crash> {
    let listed = Command::new(Programs::of_test().unwrap().daemon()).arg("failpoints").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let points = listed.lines().filter(|point| point.starts_with(sort));
    let mut all: Vec<Crash> = points
        .flat_map(|point| stories(point).iter().map(|story| Crash { point: point.to_owned(), story: *story }))
        .collect();
    assert!(all.len() > some, "{listed}");
    let mut dice = Dice::for_purpose(testkit::seed(), sort);
    let chosen = testkit::count(some, all.len());
    while all.len() > chosen {
        all.swap_remove(usize::try_from(dice.roll(all.len() as u64)).unwrap());
    }
    all
}

/// Starts an agent on the first node that does not get past the point, and sees it die there.
fn die_at(scene: &Scene, point: &str) -> Result<()> {
    let node = scene.node(0);
    let words = format!("failpoint {point} reached");
    let deaths = || scene.lab.log_tail(node, "agent", usize::MAX).matches(&words).count();
    let before = deaths();
    scene.lab.launch(node, "agent", &[("PLUMB_FAILPOINT", point)])?;
    lab::wait_for(&format!("the agent to die at {point}"), || {
        ensure!(deaths() > before, "it was not reached");
        Ok(())
    })?;
    scene.lab.kill(node, "agent")
}

fn wait_until_held(scene: &Scene, expected: &str) -> Result<()> {
    lab::wait_for("everything to be as before", || {
        let now = held(scene);
        ensure!(now == expected, "{now}\ninstead of\n{expected}");
        Ok(())
    })
}

fn play(scene: &Scene, crash: &Crash, take_away: &str) -> Result<()> {
    let before = held(scene);
    let node = scene.node(0);
    match crash.story {
        Story::FromNothing => {
            scene.lab.kill(node, "agent")?;
            scene.lab.run_on(node, &["sh", "-c", take_away])?;
            die_at(scene, &crash.point)?;
            scene.lab.start(node, "agent", &[])?;
            wait_until_held(scene, &before)
        }
        Story::Restart => without_loss(scene, || {
            scene.lab.kill(node, "agent")?;
            die_at(scene, &crash.point)?;
            scene.lab.start(node, "agent", &[])?;
            wait_until_held(scene, &before)
        }),
        Story::Leave => {
            without_loss(scene, || leave(scene, &crash.point))?;
            set_mode(scene, "Always", "vxlan.calico")
        }
        Story::Reload => without_loss(scene, || reload(scene, &crash.point)),
    }
}

fn without_loss(scene: &Scene, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let pingers = ping_both_ways(scene);
    wait_for_more(&pingers, 10);
    act()?;
    wait_for_more(&pingers, 20);
    let lost = losses(pingers);
    ensure!(lost == 0, "{lost} packets were lost{}", scene.evidence());
    Ok(())
}

/// Both agents are dead when the records say that there shall be no tunnels any more. A tunnel that is given up stays for some
/// seconds for those who still send into it; so the other agent is back by then.
fn leave(scene: &Scene, point: &str) -> Result<()> {
    let nodes = [scene.node(0), scene.node(1)];
    nodes.iter().try_for_each(|node| scene.lab.kill(node, "agent"))?;
    patch_mode(scene, "Never")?;
    // Routes to pods change in one step each; this one has to go.
    scene.lab.run_on(nodes[0], &["ip", "route", "add", "10.99.0.0/24", "dev", "eth0", "proto", "113"])?;
    die_at(scene, point)?;
    nodes.iter().try_for_each(|node| scene.lab.launch(node, "agent", &[]))?;
    nodes.iter().try_for_each(|node| scene.lab.wait_for_service(node, "agent"))?;
    lab::wait_for("what is superfluous to go", || {
        let routes = scene.routes(0);
        ensure!(!routes.contains("10.99.0.0/24"), "{routes}");
        Ok(())
    })?;
    wait_until_all_lead_by(scene, "eth0")
}

fn set_mode(scene: &Scene, mode: &str, device: &str) -> Result<()> {
    patch_mode(scene, mode)?;
    wait_until_all_lead_by(scene, device)
}

fn patch_mode(scene: &Scene, mode: &str) -> Result<()> {
    let patch = format!("{{\"spec\":{{\"vxlanMode\":\"{mode}\"}}}}");
    scene.lab.plumb(&["patch", "ippool", "default-ipv4-ippool", "-p", &patch]).map(drop)
}

fn wait_until_all_lead_by(scene: &Scene, device: &str) -> Result<()> {
    for (from, to) in [(0, 1), (1, 0)] {
        lab::wait_for("the routes to follow", || {
            let address = &scene.pods[to].addresses[0];
            let way = scene.lab.run_on(scene.node(from), &["ip", "route", "get", address])?;
            ensure!(way.contains(&format!("dev {device} ")), "{way}");
            Ok(())
        })?;
    }
    // Rules, and the ends of tunnels on both sides.
    nodes_are_ready(scene)
}

fn nodes_are_ready(scene: &Scene) -> Result<()> {
    let nodes = &scene.lab.description().nodes;
    nodes.iter().try_for_each(|node| scene.lab.wait_for_service(&node.name, "agent"))
}

/// BIRD is to be told something new when the agent dies, and is told by the next one.
fn reload(scene: &Scene, point: &str) -> Result<()> {
    let (node, root) = (scene.node(0), scene.lab.root_of(scene.node(0))?);
    let config = || std::fs::read_to_string(root.join("var/lib/plumb/bird.conf")).unwrap_or_default();
    // One or the other, whichever is not there.
    let network = ["10.96.0.0/12", "10.112.0.0/12"].into_iter().find(|network| !config().contains(*network));
    let network = network.context("one of the two is not there")?;
    scene.lab.kill(node, "agent")?;
    let patch = format!(r#"{{"spec": {{"serviceClusterIPs": [{{"cidr": "{network}"}}]}}}}"#);
    scene.lab.plumb(&["patch", "bgpconfiguration", "default", "-p", &patch])?;
    die_at(scene, point)?;
    scene.lab.start(node, "agent", &[])?;
    lab::wait_for("BIRD to announce the new network", || {
        ensure!(config().contains(network), "{}", config());
        let routes = bird::ask(scene, 0, "show route protocol services_v4")?;
        ensure!(routes.contains(network), "{routes}");
        Ok(())
    })?;
    nodes_are_ready(scene)
}

fn play_all(scene: &Scene, crashes: &[Crash], take_away: &str) {
    for crash in crashes {
        println!("{crash}");
        play(scene, crash, take_away)
            .unwrap_or_else(|error| panic!("{crash}, seed {}: {error:#}", testkit::seed()));
    }
    scene.assert_all_talk();
}

#[test]
fn an_agent_that_dies_at_any_step_of_tunnels_and_routes_is_no_loss() {
    let test = "an_agent_that_dies_at_any_step_of_tunnels_and_routes_is_no_loss";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Vxlan, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    play_all(&scene, &crashes("between.", 8), NO_TUNNEL);
}

#[test]
fn an_agent_that_dies_at_any_step_of_bgp_is_no_loss() {
    let test = "an_agent_that_dies_at_any_step_of_bgp_is_no_loss";
    if !testkit::process::on_path("bird") {
        return testkit::skip(test, "there is no bird here");
    }
    let Some(scene) = Scene::new(test, || plan(2, Mode::Bgp, Topology::Shared, false)) else { return };
    bird::wait_for_routes(&scene, &["-4"]);
    scene.assert_all_talk();
    play_all(&scene, &crashes("bgp.", 5), NO_BIRD);
    let birds = scene.lab.run_on(scene.node(0), &["pgrep", "-c", "-x", "bird"]).unwrap();
    assert_eq!(birds.trim(), "1", "one daemon, however many agents there were");
}
