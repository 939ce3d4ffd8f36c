//! What routes between nodes cost: how soon a new block is routed, how long an agent takes to know a large cluster, and whether a change
//! costs more in a larger one.
//!
//! `cargo xtask bench routes`, or `cargo bench -p lab --bench routes [-- -o json] [-- --quick]`. The other nodes of the cluster are
//! records; the agents, the stores and the routes are real.

mod agent;
#[path = "../common/store_place.rs"]
mod store_place;
mod wires;
mod world;

use std::time::{Duration, Instant};

use anyhow::Result;
use lab::{Lab, Node, Programs};
use testkit::effort::{Effort, kernel_ms, resident_bytes};
use testkit::etcd::{EtcdCluster, Setup};
use testkit::figures::{self, Figure, Goal, Peer, Run};

use agent::Agent;
use wires::{Fabric, lone_node};
use world::{Place, World};

/// How much is measured.
#[derive(Clone, Copy)]
struct Extent {
    runs: usize,
    /// Blocks per run that come one at a time.
    singles: usize,
    /// Blocks per run that come and go.
    churn: usize,
    small: usize,
    large: usize,
}

const FULL: Extent = Extent { runs: 5, singles: 100, churn: 200, small: 500, large: 5_000 };
/// To see whether it works.
const QUICK: Extent = Extent { runs: 1, singles: 5, churn: 20, small: 10, large: 50 };
/// Between two changes, so that the agent takes each by itself. It takes several at once where they come faster, and a larger store
/// commits more slowly: without a pause the two clusters would be asked different things.
const APART: Duration = Duration::from_millis(6);
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
    eprintln!("measuring: new blocks on etcd, three nodes");
    figures.extend(new_blocks_on_etcd(&lab, extent)?);
    eprintln!("measuring: a cluster of {} nodes", extent.large);
    figures.extend(clusters(&lab, extent)?);
    figures::print("routes", &figures);
    Ok(())
}

const NODES: u8 = 3;

fn new_blocks_on_sqlite(lab: &Lab, extent: Extent) -> Result<Vec<Figure>> {
    let place = Place::Sqlite(lab.folder().join("new.db"));
    let nodes = (1..=NODES).map(|number| lone_node(lab, &format!("s{number}"), number));
    new_blocks("SQLite", lab, place, nodes.collect::<Result<_>>()?, extent)
}

fn new_blocks_on_etcd(lab: &Lab, extent: Extent) -> Result<Vec<Figure>> {
    let fabric = Fabric::new(lab)?;
    let extra_args = vec!["--unsafe-no-fsync=false".to_owned()];
    let durable = Setup { address: Fabric::ADDRESS, extra_args, ..Setup::default() };
    let etcd = fabric.node.namespace().visit(|| EtcdCluster::start(durable))??;
    let nodes = (1..=NODES).map(|number| fabric.node(lab, &format!("e{number}"), number));
    new_blocks("etcd", lab, Place::Etcd(etcd.endpoint(0)), nodes.collect::<Result<_>>()?, extent)
}

/// From before the commit until the last node can send there.
fn new_blocks(store: &str, lab: &Lab, place: Place, nodes: Vec<Node>, extent: Extent) -> Result<Vec<Figure>> {
    let world = nodes[0].namespace().visit(|| World::new(place, extent.small))??;
    let agents = (1..).zip(nodes).map(|(number, node)| Agent::start(lab, node, &world, number));
    let agents = agents.collect::<Result<Vec<_>>>()?;
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
        let name = format!("block to route, {store}, {NODES} nodes, {words}");
        Figure::of_runs(name, &routed, quantile).beside("the commit alone", &routed, &commits, quantile)
    };
    Ok(vec![figure(0.5, "p50"), figure(0.99, "p99").wanted(Goal::ValueAtMost(20.0))])
}

/// The same in a small cluster and in a large one, in turns.
fn clusters(lab: &Lab, extent: Extent) -> Result<Vec<Figure>> {
    let mut small = Cluster::new(lab, "small", extent.small)?;
    let mut large = Cluster::new(lab, "large", extent.large)?;
    for _ in 0..extent.runs {
        small.start(lab)?;
        large.start(lab)?;
    }
    std::thread::sleep(SETTLE);
    let resident = [large.resident_mib()?, small.resident_mib()?];
    for _ in 0..extent.runs {
        small.churn(extent.churn)?;
        large.churn(extent.churn)?;
    }
    let figure = |what: &str, unit, of: fn(&Cluster) -> &Vec<f64>| {
        let (large_runs, small_runs) = (of(&large), of(&small));
        let ratios = large_runs.iter().zip(small_runs).map(|(large, small)| large / small).collect();
        let value = figures::median(small_runs.clone());
        let peer = Peer { name: "the small cluster", value, ratio: Some(figures::median(ratios)) };
        let name = format!("{} nodes: {what}", extent.large);
        Figure::new(name, figures::median(large_runs.clone()), unit).with_peer(peer)
    };
    let [large_mib, small_mib] = resident;
    let beside = Peer { name: "the small cluster", value: small_mib, ratio: Some(large_mib / small_mib) };
    Ok(vec![
        figure("start to all routes", "s", |cluster| &cluster.start_seconds).wanted(Goal::ValueAtMost(2.0)),
        figure("CPU of the start", "ms", |cluster| &cluster.start_cpu_ms),
        Figure::new(format!("{} nodes: resident memory", extent.large), large_mib, "MiB")
            .with_peer(beside)
            .wanted(Goal::ValueAtMost(40.0)),
        figure("CPU per changed block", "ms", |cluster| &cluster.change_cpu_ms)
            .wanted(Goal::RatioAtMost(2.0)),
        part(extent, "that, in the agent itself", large.own_ms_per_change(), small.own_ms_per_change()),
        part(extent, "that, in the kernel", large.kernel_ms_per_change(), small.kernel_ms_per_change()),
    ])
}

/// Over all runs: within one there is too little to sample.
fn part(extent: Extent, what: &str, large: f64, small: f64) -> Figure {
    let peer = Peer { name: "the small cluster", value: small, ratio: Some(large / small) };
    Figure::new(format!("{} nodes: {what}", extent.large), large, "ms").with_peer(peer)
}

/// An agent among many nodes, and what it took, run by run.
struct Cluster {
    nodes: usize,
    world: World,
    agent: Agent,
    start_seconds: Vec<f64>,
    start_cpu_ms: Vec<f64>,
    change_cpu_ms: Vec<f64>,
    changes: f64,
    changes_cpu_ms: f64,
    changes_kernel_ms: f64,
}

impl Cluster {
    fn new(lab: &Lab, name: &str, nodes: usize) -> Result<Cluster> {
        let place = Place::Sqlite(lab.folder().join(format!("{name}.db")));
        let node = lone_node(lab, name, 1)?;
        let world = node.namespace().visit(|| World::new(place, nodes))??;
        let agent = Agent::start(lab, node, &world, 1)?;
        let [start_seconds, start_cpu_ms, change_cpu_ms] = [const { Vec::new() }; 3];
        let [changes, changes_cpu_ms, changes_kernel_ms] = [0.0; 3];
        Ok(Cluster {
            nodes,
            world,
            agent,
            start_seconds,
            start_cpu_ms,
            change_cpu_ms,
            changes,
            changes_cpu_ms,
            changes_kernel_ms,
        })
    }

    fn start(&mut self, lab: &Lab) -> Result<()> {
        // With routes that are there already, and with none: the second is the longer way.
        self.agent.flush_routes()?;
        let started = Instant::now();
        self.agent.restart(lab, &self.world)?;
        self.start_seconds.push(started.elapsed().as_secs_f64());
        self.start_cpu_ms.push(Effort::of(self.agent.id())?.cpu_ms);
        assert_eq!(self.agent.route_count()?, self.nodes, "every block is routed");
        Ok(())
    }

    fn resident_mib(&self) -> Result<f64> {
        Ok(resident_bytes(self.agent.id())? as f64 / f64::from(1 << 20))
    }

    /// What else the agent does now and then falls into some runs, and not into their median.
    fn churn(&mut self, blocks: usize) -> Result<()> {
        let before = Effort::of(self.agent.id())?.cpu_ms;
        let kernel_before = kernel_ms(self.agent.id())?;
        for _ in 0..blocks {
            let block = self.agent.visit(|| self.world.add_block())??;
            std::thread::sleep(APART);
            self.agent.visit(|| self.world.remove_block(&block))??;
            std::thread::sleep(APART);
        }
        let last = self.agent.visit(|| self.world.add_block())??;
        self.agent.await_route(last.first)?;
        let spent = Effort::of(self.agent.id())?.cpu_ms - before;
        self.changes_kernel_ms += kernel_ms(self.agent.id())? - kernel_before;
        self.agent.visit(|| self.world.remove_block(&last))??;
        let changes = (2 * blocks + 1) as f64;
        self.changes += changes;
        self.changes_cpu_ms += spent;
        self.change_cpu_ms.push(spent / changes);
        Ok(())
    }

    fn kernel_ms_per_change(&self) -> f64 {
        self.changes_kernel_ms / self.changes
    }

    fn own_ms_per_change(&self) -> f64 {
        (self.changes_cpu_ms - self.changes_kernel_ms).max(0.0) / self.changes
    }
}
