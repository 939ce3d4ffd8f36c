//! How long a table of many endpoints takes and how much memory, beside `etcdctl` reading the same keys.
//!
//! `cargo bench -p ctl --bench table [-- -o json]`, or with everything else of the store by
//! `cargo xtask bench store`. Both programs write to /dev/null; their runs alternate.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Result, ensure};
use model::{KeyRange, Kind};
use sim::cluster::{self, Pod};
use store::Store;
use store::etcd::{EtcdConfig, EtcdStore};
use testkit::etcd::EtcdCluster;
use testkit::figures::{self, Figure, Goal, Peer, median};
use testkit::process::{peak_mib, seconds};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
const FEW: usize = 10_000;
const MANY: usize = 100_000;
const RUNS: usize = 7;

fn main() -> Result<()> {
    let figures = match testkit::etcd::missing() {
        Some(reason) => {
            eprintln!("not measured: {reason}");
            Vec::new()
        }
        None => measure()?,
    };
    figures::print("store", &figures);
    Ok(())
}

fn measure() -> Result<Vec<Figure>> {
    let cluster = EtcdCluster::single()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let connected = runtime.block_on(EtcdStore::connect(EtcdConfig::new(cluster.endpoints())))?;
    let store: Arc<dyn Store> = Arc::new(connected);
    let peer = Bench { endpoint: cluster.endpoint(0) };

    runtime.block_on(fill(&store, 0..FEW))?;
    let few = peer.compare(FEW)?;
    runtime.block_on(fill(&store, FEW..MANY))?;
    let many = peer.compare(MANY)?;
    Ok(vec![
        few.time_figure(FEW),
        many.time_figure(MANY).wanted(Goal::RatioAtMost(2.0)),
        memory_figure(FEW, few.memory_mib),
        memory_figure(MANY, many.memory_mib),
        growth_figure(many.memory_mib / few.memory_mib),
    ])
}

/// Writes the endpoints with these numbers.
async fn fill(store: &Arc<dyn Store>, numbers: std::ops::Range<usize>) -> Result<()> {
    let endpoint = |number| {
        let address = Ipv4Addr::from(0x0a00_0000 + number as u32);
        vec![Pod::new(number, &format!("worker-{:03}", number % 500)).endpoint(address.into())]
    };
    Ok(cluster::write(store, cluster::pack(numbers.map(endpoint))).await?)
}

struct Bench {
    endpoint: String,
}

struct Compared {
    seconds: f64,
    peer_seconds: f64,
    ratio: f64,
    memory_mib: f64,
}

impl Bench {
    fn compare(&self, endpoints: usize) -> Result<Compared> {
        self.check_output(endpoints)?;
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for run in 1..=RUNS {
            let (our, their) = (seconds(self.plumb())?, seconds(self.etcdctl())?);
            eprintln!("{endpoints} endpoints, run {run}: plumb {our:.2} s, etcdctl {their:.2} s");
            ours.push(our);
            theirs.push(their);
            ratios.push(our / their);
        }
        let memory_mib = (0..3).map(|_| peak_mib(self.plumb())).collect::<Result<Vec<_>>>()?;
        Ok(Compared {
            seconds: median(ours),
            peer_seconds: median(theirs),
            ratio: median(ratios),
            memory_mib: median(memory_mib),
        })
    }

    fn plumb(&self) -> Command {
        let mut command = Command::new(PLUMB);
        command.args(["get", "wep", "-A", "-o", "wide"]).env("ETCD_ENDPOINTS", &self.endpoint);
        command.env("DATASTORE_TYPE", "etcdv3");
        command
    }

    fn etcdctl(&self) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint]);
        command.args(["--command-timeout", "5m", "get", "--prefix"]);
        command.arg(KeyRange::Kind(Kind::WorkloadEndpoint).etcd_prefix());
        command
    }

    /// A fast table that is not all there would be worth nothing.
    fn check_output(&self, endpoints: usize) -> Result<()> {
        let output = self.plumb().output()?;
        let lines = output.stdout.split(|byte| *byte == b'\n').count() - 1;
        ensure!(output.status.success(), "plumb failed: {}", String::from_utf8_lossy(&output.stderr));
        ensure!(lines == endpoints + 1, "{lines} lines for {endpoints} endpoints and a header");
        Ok(())
    }
}

impl Compared {
    fn time_figure(&self, endpoints: usize) -> Figure {
        let peer = Peer { name: "etcdctl get --prefix", value: self.peer_seconds, ratio: Some(self.ratio) };
        Figure::new(format!("table of {endpoints} endpoints on etcd"), self.seconds, "s").with_peer(peer)
    }
}

fn memory_figure(endpoints: usize, mib: f64) -> Figure {
    let name = format!("peak memory of a table of {endpoints} endpoints");
    Figure::new(name, mib, "MiB").wanted(Goal::ValueAtMost(64.0))
}

/// "About equal" is wanted; half as much again would not be.
fn growth_figure(ratio: f64) -> Figure {
    let name = format!("that memory, {MANY} endpoints against {FEW}");
    Figure::new(name, ratio, "×").wanted(Goal::ValueAtMost(1.5))
}
