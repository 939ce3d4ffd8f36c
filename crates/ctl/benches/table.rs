//! How long a table of many endpoints takes and how much memory, beside `etcdctl` reading the same keys.
//!
//! `cargo bench -p ctl --bench table [-- -o json]`, or with everything else of the store by
//! `cargo xtask bench store`. Both programs write to /dev/null; their runs alternate.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use model::names::{EndpointName, host_interface_name};
use model::{Key, KeyRange, Kind, Resource};
use serde_json::json;
use store::etcd::{EtcdConfig, EtcdStore};
use store::{Change, MAX_CHANGES, Store};
use testkit::etcd::EtcdCluster;
use testkit::figures::{self, Figure, Goal, Peer, median};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
const FEW: usize = 10_000;
const MANY: usize = 100_000;
const RUNS: usize = 7;
const WRITERS: usize = 8;

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

/// Writes the endpoints with these numbers, many in each commit and several commits at once.
async fn fill(store: &Arc<dyn Store>, numbers: std::ops::Range<usize>) -> Result<()> {
    let numbers: Vec<usize> = numbers.collect();
    let mut writers = Vec::new();
    for share in numbers.chunks(numbers.len().div_ceil(WRITERS)) {
        let (store, share) = (store.clone(), share.to_vec());
        writers.push(tokio::spawn(async move {
            for batch in share.chunks(MAX_CHANGES) {
                let changes = batch.iter().map(|number| endpoint(*number)).collect::<Result<_>>()?;
                store.commit(changes).await?;
            }
            anyhow::Ok(())
        }));
    }
    for writer in writers {
        writer.await??;
    }
    Ok(())
}

/// An endpoint as Calico's plugin writes it: about 900 bytes.
fn endpoint(number: usize) -> Result<Change> {
    let namespace = format!("team-{}", number % 50);
    let (node, pod) =
        (format!("worker-{:03}", number % 500), format!("web-{:05x}-{number:06}", number % 977));
    let name = EndpointName::of_pod(&node, &pod, "eth0").compute()?;
    let mut resource = Resource::new(Kind::WorkloadEndpoint, &name);
    resource.metadata.namespace = Some(namespace.clone());
    resource.metadata.uid = Some(format!("6d0c7f3e-53a4-4b0f-9f0d-{number:012x}"));
    resource.metadata.creation_timestamp = Some("2026-08-22T06:33:20Z".to_owned());
    for (key, value) in [
        ("app", "web"),
        ("pod-template-hash", "7c5ddbdf54"),
        ("projectcalico.org/namespace", &namespace),
        ("projectcalico.org/orchestrator", "k8s"),
        ("projectcalico.org/serviceaccount", "default"),
    ] {
        resource.metadata.labels.insert(key.to_owned(), value.to_owned());
    }
    let spec = json!({
        "orchestrator": "k8s", "node": node, "pod": pod, "endpoint": "eth0", "serviceAccountName": "default",
        "containerID": format!("{number:064x}"),
        "ipNetworks": [format!("10.{}.{}.{}/32", number >> 16 & 255, number >> 8 & 255, number & 255)],
        "profiles": [format!("kns.{namespace}"), format!("ksa.{namespace}.default")],
        "interfaceName": host_interface_name(&namespace, &pod)?.to_string(),
        "mac": "ee:ee:ee:ee:ee:ee",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080, "hostPort": 0, "hostIP": ""}],
    });
    resource.body.insert("spec".into(), spec);
    Ok(Change::create(Key::namespaced(Kind::WorkloadEndpoint, namespace, name), resource.encode()))
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
            let (our, their) = (timed(self.plumb())?, timed(self.etcdctl())?);
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

fn timed(mut command: Command) -> Result<f64> {
    let started = Instant::now();
    let status = command.stdout(Stdio::null()).status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(started.elapsed().as_secs_f64())
}

/// The most memory a process held at once. The kernel keeps the peak for as long as the process lives, so
/// looking now and then is enough, up to what changes between the last look and the end.
fn peak_mib(mut command: Command) -> Result<f64> {
    let mut child = command.stdout(Stdio::null()).spawn().with_context(|| format!("{command:?}"))?;
    let mut peak_kib = 0.0;
    while child.try_wait()?.is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse().ok());
        peak_kib = kib.unwrap_or(peak_kib);
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(peak_kib / 1024.0)
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
