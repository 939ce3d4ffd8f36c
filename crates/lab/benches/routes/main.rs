//! What routes between nodes cost: how soon a new block is routed, how long an agent takes to know a large cluster, and whether a change
//! costs more in a larger one.
//!
//! `cargo xtask bench routes`, or `cargo bench -p lab --bench routes [-- -o json] [-- --quick]`. The other nodes of the cluster are
//! records; the agents, the stores and the routes are real.

mod agent;
#[path = "../common/store_place.rs"]
mod store_place;
mod world;

use std::time::{Duration, Instant};

use anyhow::Result;
use lab::{Lab, Programs};
use testkit::effort::{Effort, resident_bytes};
use testkit::etcd::{EtcdCluster, Setup};
use testkit::figures::{self, Figure, Goal, Peer, Run};

use agent::Agent;
use world::{Place, World};

/// How much is measured.
#[derive(Clone, Copy)]
struct Extent {
    runs: usize,
    /// Blocks per run that come one at a time.
    singles: usize,
    /// Blocks that come and go, all in all.
    churn: usize,
    small: usize,
    large: usize,
}

const FULL: Extent = Extent { runs: 5, singles: 100, churn: 1_000, small: 500, large: 5_000 };
/// To see whether it works.
const QUICK: Extent = Extent { runs: 1, singles: 5, churn: 20, small: 10, large: 50 };
/// What a start leaves to do is not meant.
const SETTLE: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let is_asked = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    if !is_asked("--bench") {
        eprintln!("this measures; run it with `cargo bench`");
        return Ok(());
    }
    if let Some(reason) = lab::missing().or_else(testkit::etcd::missing) {
        anyhow::bail!("this cannot be measured here: {reason}");
    }
    let extent = if is_asked("--quick") { QUICK } else { FULL };
    let lab = Lab::new(Programs::of_test()?)?;
    let mut figures = Vec::new();
    eprintln!("measuring: new blocks on SQLite, three nodes");
    figures.extend(new_blocks_on_sqlite(&lab, extent)?);
    eprintln!("measuring: new blocks on etcd, one node");
    figures.extend(new_blocks_on_etcd(&lab, extent)?);
    eprintln!("measuring: a cluster of {} nodes", extent.large);
    figures.extend(clusters(&lab, extent)?);
    figures::print("routes", &figures);
    Ok(())
}

fn new_blocks_on_sqlite(lab: &Lab, extent: Extent) -> Result<Vec<Figure>> {
    let place = Place::Sqlite(lab.folder().join("new.db"));
    let nodes = (1..=3).map(|number| lab.node(&format!("s{number}"))).collect::<Result<Vec<_>>>()?;
    let world = nodes[0].namespace().visit(|| World::new(place, extent.small))??;
    let agents = (1..).zip(nodes).map(|(number, node)| Agent::start(lab, node, &world, number));
    let agents = agents.collect::<Result<Vec<_>>>()?;
    new_blocks("SQLite, 3 nodes", &world, &agents, extent)
}

fn new_blocks_on_etcd(lab: &Lab, extent: Extent) -> Result<Vec<Figure>> {
    // etcd is reached from its own node only.
    let node = lab.node("e1")?;
    let durable = Setup { extra_args: vec!["--unsafe-no-fsync=false".to_owned()], ..Setup::default() };
    let etcd = node.namespace().visit(|| EtcdCluster::start(durable))??;
    let world = node.namespace().visit(|| World::new(Place::Etcd(etcd.endpoint(0)), extent.small))??;
    let agent = Agent::start(lab, node, &world, 1)?;
    new_blocks("etcd, 1 node", &world, &[agent], extent)
}

/// From before the commit until the last node can send there.
fn new_blocks(name: &str, world: &World, agents: &[Agent], extent: Extent) -> Result<Vec<Figure>> {
    std::thread::sleep(SETTLE);
    let (mut routed, mut commits) = (Vec::new(), Vec::new());
    for _ in 0..extent.runs {
        let (mut times, mut of_commits) = (Vec::new(), Vec::new());
        for _ in 0..extent.singles {
            let started = Instant::now();
            let block = agents[0].visit(|| world.add_block())??;
            of_commits.push(started.elapsed());
            agents.iter().try_for_each(|agent| agent.await_route(block.first))?;
            times.push(started.elapsed());
            agents[0].visit(|| world.remove_block(&block))??;
        }
        routed.push(Run::new(times));
        commits.push(Run::new(of_commits));
    }
    let figure = |quantile: f64, words: &str| {
        let name = format!("block to route, {name}, {words}");
        Figure::of_runs(name, &routed, quantile).beside("the commit alone", &routed, &commits, quantile)
    };
    Ok(vec![figure(0.5, "p50"), figure(0.99, "p99").wanted(Goal::ValueAtMost(20.0))])
}

/// The same in a small cluster and in a large one.
fn clusters(lab: &Lab, extent: Extent) -> Result<Vec<Figure>> {
    let small = Measured::of(lab, "small", extent.small, extent)?;
    let large = Measured::of(lab, "large", extent.large, extent)?;
    let beside = |large: f64, small: f64| Peer {
        name: "the small cluster",
        value: small,
        ratio: Some(large / small.max(f64::MIN_POSITIVE)),
    };
    let name = |what: &str| format!("{} nodes: {what}", extent.large);
    Ok(vec![
        Figure::new(name("start to all routes"), large.start_seconds, "s")
            .with_peer(beside(large.start_seconds, small.start_seconds))
            .wanted(Goal::ValueAtMost(2.0)),
        Figure::new(name("CPU of the start"), large.start_cpu_ms, "ms")
            .with_peer(beside(large.start_cpu_ms, small.start_cpu_ms)),
        Figure::new(name("resident memory"), large.resident_mib, "MiB")
            .with_peer(beside(large.resident_mib, small.resident_mib))
            .wanted(Goal::ValueAtMost(40.0)),
        Figure::new(name("CPU per changed block"), large.change_cpu_ms, "ms")
            .with_peer(beside(large.change_cpu_ms, small.change_cpu_ms))
            .wanted(Goal::RatioAtMost(2.0)),
    ])
}

struct Measured {
    start_seconds: f64,
    start_cpu_ms: f64,
    resident_mib: f64,
    change_cpu_ms: f64,
}

impl Measured {
    fn of(lab: &Lab, name: &str, nodes: usize, extent: Extent) -> Result<Measured> {
        let place = Place::Sqlite(lab.folder().join(format!("{name}.db")));
        let node = lab.node(name)?;
        let world = node.namespace().visit(|| World::new(place, nodes))??;
        let mut agent = Agent::start(lab, node, &world, 1)?;
        let (mut seconds, mut cpu) = (Vec::new(), Vec::new());
        for _ in 0..extent.runs {
            // With routes that are there already, and with none: the second is the longer way.
            agent.flush_routes()?;
            let started = Instant::now();
            agent.restart(lab, &world)?;
            seconds.push(started.elapsed().as_secs_f64());
            cpu.push(Effort::of(agent.id())?.cpu_ms);
            assert_eq!(agent.route_count()?, nodes, "every block is routed");
        }
        std::thread::sleep(SETTLE);
        let resident_mib = resident_bytes(agent.id())? as f64 / f64::from(1 << 20);
        let before = Effort::of(agent.id())?.cpu_ms;
        for _ in 0..extent.churn / 2 {
            let block = agent.visit(|| world.add_block())??;
            agent.visit(|| world.remove_block(&block))??;
        }
        let last = agent.visit(|| world.add_block())??;
        agent.await_route(last.first)?;
        let spent = Effort::of(agent.id())?.cpu_ms - before;
        Ok(Measured {
            start_seconds: figures::median(seconds),
            start_cpu_ms: figures::median(cpu),
            resident_mib,
            change_cpu_ms: spent / (extent.churn + 1) as f64,
        })
    }
}
