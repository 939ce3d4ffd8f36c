//! The check of a whole cluster on etcd, beside `etcdctl` reading the same keys. Both programs write to /dev/null;
//! their runs alternate.

use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use book::load::{Facts, Progress, facts};
use ipam::check::{Evidence, analyse};
use jiff::Timestamp;
use model::KeyRange;
use serde_json::Value;
use sim::cluster::Cluster;
use store::Store;
use store::etcd::{EtcdConfig, EtcdStore};
use testkit::etcd::EtcdCluster;
use testkit::figures::{Figure, Goal, Peer, median};
use testkit::process::{peak_mib, run, seconds};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
const ETCDCTL: &str = "etcdctl get --prefix";

pub(crate) fn figures(size: Cluster, runs: usize) -> Result<Vec<Figure>> {
    let cluster = EtcdCluster::single()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let connected = runtime.block_on(EtcdStore::connect(EtcdConfig::new(cluster.endpoints())))?;
    let store: Arc<dyn Store> = Arc::new(connected);
    let started = Instant::now();
    runtime.block_on(size.write(&store))?;
    eprintln!("wrote {} blocks in {:.1} s", size.blocks, started.elapsed().as_secs_f64());

    let programs = Programs { endpoint: cluster.endpoint(0) };
    programs.see_that_all_is_checked(size)?;
    let mut figures = vec![analysis(&runtime, &store, size, runs)?];
    figures.extend(programs.figures(size, runs)?);
    Ok(figures)
}

/// The analysis alone, beside the least that has to be done with as many records: reading their JSON once.
fn analysis(
    runtime: &tokio::runtime::Runtime,
    store: &Arc<dyn Store>,
    size: Cluster,
    runs: usize,
) -> Result<Figure> {
    let started = Instant::now();
    let facts = runtime.block_on(facts(store.as_ref(), &Progress::default()))?;
    eprintln!("loaded in {:.2} s", started.elapsed().as_secs_f64());
    let handles = runtime.block_on(store.list_all(KeyRange::Handles))?.0;
    let (mut ours, mut floor, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=runs {
        let our = analyse_once(&facts, size)?;
        let started = Instant::now();
        for handle in &handles {
            black_box(serde_json::from_slice::<Value>(&handle.value)?);
        }
        let least = started.elapsed().as_secs_f64();
        eprintln!("analysis, run {run}: {our:.3} s; reading the handles' JSON: {least:.3} s");
        ours.push(our);
        floor.push(least);
        ratios.push(our / least);
    }
    let peer = Peer { name: "reading the handles' JSON", value: median(floor), ratio: Some(median(ratios)) };
    let name = format!("ipam check of {}, analysis", described(size));
    Ok(Figure::new(name, median(ours), "s").with_peer(peer).wanted(Goal::ValueAtMost(1.0)))
}

fn analyse_once(facts: &Facts, size: Cluster) -> Result<f64> {
    let Facts { books, pools, nodes, endpoints } = facts;
    let services = &[];
    let started = Instant::now();
    let analysis = analyse(&Evidence { books, pools, nodes, endpoints, services, now: Timestamp::now() });
    let seconds = started.elapsed().as_secs_f64();
    ensure!(analysis.problems.is_empty(), "the cluster is sound, yet: {:?}", analysis.problems.first());
    ensure!(analysis.in_use == addresses(size), "{} addresses are in use", analysis.in_use);
    Ok(seconds)
}

fn addresses(size: Cluster) -> usize {
    size.blocks * size.addresses_per_block
}

fn described(size: Cluster) -> String {
    format!("{} blocks, {} handles and endpoints", size.blocks, addresses(size))
}

struct Programs {
    endpoint: String,
}

impl Programs {
    fn figures(&self, size: Cluster, runs: usize) -> Result<Vec<Figure>> {
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for run in 1..=runs {
            let (our, their) = (seconds(self.plumb())?, seconds(self.etcdctl())?);
            eprintln!("check, run {run}: plumb {our:.2} s, etcdctl {their:.2} s");
            ours.push(our);
            theirs.push(their);
            ratios.push(our / their);
        }
        let name = format!("ipam check of {}, loading included", described(size));
        let peer = Peer { name: ETCDCTL, value: median(theirs), ratio: Some(median(ratios)) };
        let time = Figure::new(name, median(ours), "s").with_peer(peer).wanted(Goal::ValueAtMost(10.0));
        let (ours, theirs) = (peak_mib(self.plumb())?, peak_mib(self.etcdctl())?);
        let peer = Peer { name: ETCDCTL, value: theirs, ratio: Some(ours / theirs) };
        let name = format!("ipam check of {}, peak memory", described(size));
        let memory = Figure::new(name, ours, "MiB").with_peer(peer).wanted(Goal::ValueAtMost(512.0));
        Ok(vec![time, memory])
    }

    fn plumb(&self) -> Command {
        let mut command = Command::new(PLUMB);
        command.args(["ipam", "check"]).env("ETCD_ENDPOINTS", &self.endpoint).env("DATASTORE_TYPE", "etcdv3");
        command
    }

    fn etcdctl(&self) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint]);
        command.args(["--command-timeout", "5m", "get", "--prefix"]);
        command.arg(KeyRange::Everything.etcd_prefix());
        command
    }

    /// A fast check that does not look at everything would be worth nothing.
    fn see_that_all_is_checked(&self, size: Cluster) -> Result<()> {
        let output = run(&mut self.plumb())?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let count = addresses(size).to_string();
        let names_it = printed.split(|letter: char| !letter.is_ascii_digit()).any(|number| number == count);
        ensure!(names_it, "plumb ipam check does not speak of {count} addresses: {printed}");
        Ok(())
    }
}
