//! Blocks and nodes that come and go while an agent is at work: each is taken in, and nothing else is looked at for it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lab::cluster::{Mode, Topology};
use model::ipam::Block;
use model::{AffinityOwner, Key, Kind, Resource};
use serde_json::json;
use store::Store;
use testkit::Dice;

use crate::scene::{Scene, plan};

/// One in which no real pod has an address.
fn make_pool(scene: &Scene, mode: &str) {
    scene.apply(&format!(
        "{{apiVersion: projectcalico.org/v3, kind: IPPool, metadata: {{name: far}}, \
         spec: {{cidr: 10.98.0.0/16, vxlanMode: {mode}, disabled: true}}}}"
    ));
}

/// A number that the first node's agent counts.
fn counted(scene: &Scene, name: &str) -> u64 {
    let text = scene.lab.run_on(scene.node(0), &["curl", "-s", "127.0.0.1:9099/metrics"]).unwrap();
    let value = text.lines().find_map(|line| line.strip_prefix(&format!("plumb_{name} ")));
    value.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
}

#[test]
fn blocks_that_come_and_go_make_nobody_look_at_everything() {
    let test = "blocks_that_come_and_go_make_nobody_look_at_everything";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    let before = counted(&scene, "routes_disturbed_total");
    make_pool(&scene, "Never");
    let block = |number: usize| {
        block_of(&format!("10.98.{}.{}/26", 128 + number / 4, number % 4 * 64), scene.node(1))
    };
    let churn = testkit::count(60, 240);
    let last = block(churn);
    scene
        .lab
        .with_store(async |store: &dyn Store| {
            // Each is gone before the kernel has announced its route.
            for block in (0..churn).map(block) {
                let revision = store.create(block.key(), block.encode()).await?;
                store.delete(block.key(), revision).await?;
            }
            store.create(last.key(), last.encode()).await?;
            Ok(())
        })
        .unwrap();
    lab::wait_for("the last block's route, and only that", || {
        let routes = scene.routes(0);
        let new: Vec<&str> = routes.lines().filter(|line| is_new(line)).collect();
        ensure!(new.len() == 1 && new[0].starts_with(&last.cidr.to_string()), "{routes}");
        Ok(())
    })
    .unwrap();
    assert!(counted(&scene, "routes_changed_total") > 0);
    assert_eq!(counted(&scene, "routes_disturbed_total"), before, "an agent's own changes are no news to it");
    // A stranger's are.
    scene.lab.run_on(scene.node(0), &["ip", "route", "del", &last.cidr.to_string()]).unwrap();
    lab::wait_for("a stranger's change to be noticed", || {
        ensure!(counted(&scene, "routes_disturbed_total") > before, "nobody noticed");
        Ok(())
    })
    .unwrap();
}

/// Of a block that this test made.
fn is_new(route: &str) -> bool {
    route.starts_with("10.98.")
}

/// The look that a change of tunnels asks for takes in whatever has come meanwhile, and with a node come other rules.
#[test]
fn a_node_that_comes_while_tunnels_change_is_let_in() {
    let test = "a_node_that_comes_while_tunnels_change_is_let_in";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Vxlan, Topology::Shared, false)) else { return };
    scene.assert_all_talk();
    make_pool(&scene, "Always");
    let mut dice = Dice::for_purpose(testkit::seed(), test);
    for round in 0..testkit::count(12, 60) {
        let pause = Duration::from_millis(dice.roll(40));
        let late = Late::new(round);
        scene.lab.with_store(async |store: &dyn Store| late.come(store, pause).await).unwrap();
        wait_for_route(&scene, &late.block);
        // Taken in later, so done later.
        let marker = block_of(&format!("10.98.{}.64/26", 100 + round), scene.node(1));
        let put =
            async |store: &dyn Store| Ok(store.create(marker.key(), marker.encode()).await.map(drop)?);
        scene.lab.with_store(put).unwrap();
        wait_for_route(&scene, &marker);
        let rules = scene.lab.run_on(scene.node(0), &["nft", "list", "table", "inet", "plumb"]).unwrap();
        assert!(
            names(&rules, &late.address),
            "round {round}, {pause:?}, seed {}: {} is routed, and not let in: {rules}",
            testkit::seed(),
            late.address
        );
    }
}

/// A node that comes right after tunnels were changed. Its block was there before.
struct Late {
    name: String,
    address: String,
    vxlan_port: usize,
    block: Block,
}

impl Late {
    fn new(round: usize) -> Late {
        let name = format!("late-{round}");
        let block = block_of(&format!("10.98.{}.0/26", 100 + round), &name);
        Late { name, address: format!("192.0.2.{}", round + 1), vxlan_port: 4790 + round, block }
    }

    async fn come(&self, store: &dyn Store, pause: Duration) -> Result<()> {
        store.create(self.block.key(), self.block.encode()).await?;
        set_vxlan_port(store, self.vxlan_port).await?;
        // Not to wait for something: the moment is what is tried.
        tokio::time::sleep(pause).await;
        let mut node = Resource::new(Kind::Node, &self.name);
        let spec = json!({
            "bgp": {"ipv4Address": format!("{}/32", self.address)},
            "ipv4VXLANTunnelAddr": self.block.cidr.network().to_string(),
        });
        node.body.insert("spec".to_owned(), spec);
        store.create(node.key(), node.encode()).await?;
        Ok(())
    }
}

fn block_of(cidr: &str, node: &str) -> Block {
    Block::new(cidr.parse().unwrap(), Some(&AffinityOwner::Host(node.to_owned())), 1)
}

#[track_caller]
fn wait_for_route(scene: &Scene, block: &Block) {
    let cidr = block.cidr.to_string();
    lab::wait_for(&format!("a route to {cidr}"), || {
        let routes = scene.routes(0);
        ensure!(routes.lines().any(|line| line.starts_with(&format!("{cidr} "))), "{routes}");
        Ok(())
    })
    .unwrap();
}

/// Whether a list of nftables holds an address, by itself or in a range.
fn names(rules: &str, address: &str) -> bool {
    let wanted: std::net::Ipv4Addr = address.parse().expect("an address");
    let words = rules.split(|letter: char| letter.is_whitespace() || ",{}=".contains(letter));
    words.filter(|word| !word.is_empty()).any(|word| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let bounds = first.parse::<std::net::Ipv4Addr>().ok().zip(last.parse().ok());
        bounds.is_some_and(|(first, last)| (first..=last).contains(&wanted))
    })
}

async fn set_vxlan_port(store: &dyn Store, port: usize) -> Result<()> {
    let key = Key::cluster(Kind::FelixConfiguration, "default");
    let record = store.get(&key).await?.context("the settings of all nodes")?;
    let mut felix =
        Resource::decode(&key, Kind::FelixConfiguration, &record.value, record.revision.as_str())?;
    felix
        .body
        .entry("spec")
        .or_insert_with(|| json!({}))
        .as_object_mut()
        .context("a spec is an object")?
        .insert("vxlanPort".to_owned(), json!(port));
    store.update(key, felix.encode(), record.revision).await?;
    Ok(())
}
