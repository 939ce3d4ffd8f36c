//! What `plumb` costs on a large Kubernetes cluster, beside `kubectl` reading the same pods: a table of all endpoints, and the check
//! of all addresses. All have the rights of the shipped account for operators who look, and write to /dev/null; their runs alternate.
//!
//! `cargo bench -p ctl --bench kube [-- -o json] [-- --quick]`, or with what agents cost by `cargo xtask bench kube`. `--quick`, or
//! `PLUMB_BENCH_NODES`, makes the cluster smaller, for a trial.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use model::kube::{Layout, access};
use serde_json::json;
use sim::kubernetes::Cluster;
use testkit::figures::{self, Figure, Goal, Peer, median};
use testkit::process::{peak_mib, run, seconds};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
const KUBECTL: &str = "kubectl get pods -A";
const NODES: usize = 5_000;
/// To see whether it works.
const NODES_QUICK: usize = 50;
const PODS_PER_NODE: usize = 30;
const RUNS: usize = 5;
/// Of each program.
const MEMORY_MIB: f64 = 256.0;

fn main() -> Result<()> {
    let figures = match testkit::kube::missing() {
        Some(reason) => {
            eprintln!("not measured: {reason}");
            Vec::new()
        }
        None => {
            let is_quick = std::env::args().any(|argument| argument == "--quick");
            measure(figures::nodes(if is_quick { NODES_QUICK } else { NODES })?)?
        }
    };
    figures::print("kube", &figures);
    Ok(())
}

fn measure(nodes: usize) -> Result<Vec<Figure>> {
    let cluster = Cluster { nodes, pods_per_node: PODS_PER_NODE };
    let mut server = Cluster::server()?;
    cluster.write(&mut server)?;
    let api = server.api();
    access::accounts_and_roles(Layout::V1, access::NAMESPACE)
        .iter()
        .try_for_each(|manifest| api.apply(manifest, ""))?;
    let token = api.loose_token_of(access::NAMESPACE, access::READER_ACCOUNT)?;
    let kubeconfig = server.write_kubeconfig("reader", &server.url(), json!({ "token": token }))?;
    let programs = Programs { kubeconfig, kubectl: kubectl()?, pods: cluster.pods() };
    programs.see_that_all_is_shown()?;
    let mut times: [Vec<f64>; 3] = Default::default();
    for run in 1..=RUNS {
        for (times, command) in times.iter_mut().zip([programs.table(), programs.check(), programs.kubectl()])
        {
            times.push(seconds(command)?);
        }
        let [table, check, kubectl] = [0, 1, 2].map(|program: usize| times[program][run - 1]);
        eprintln!("run {run}: table {table:.2} s, check {check:.2} s, {KUBECTL} {kubectl:.2} s");
    }
    let [table, check, kubectl] = times;
    let memory_of_kubectl = peak_mib(programs.kubectl())?;
    let of = |what: &str| format!("{what} of {} pods, {nodes} nodes", programs.pods);
    let time = |what: &str, own: &[f64], most: f64| {
        let ratios = own.iter().zip(&kubectl).map(|(own, peer)| own / peer).collect();
        let peer = Peer { name: KUBECTL, value: median(kubectl.clone()), ratio: Some(median(ratios)) };
        Figure::new(of(what), median(own.to_vec()), "s").with_peer(peer).wanted(Goal::RatioAtMost(most))
    };
    let memory = |what: &str, command: Command| -> Result<Figure> {
        let mib = peak_mib(command)?;
        let peer = Peer { name: KUBECTL, value: memory_of_kubectl, ratio: Some(mib / memory_of_kubectl) };
        let figure = Figure::new(format!("{}, peak memory", of(what)), mib, "MiB");
        Ok(figure.with_peer(peer).wanted(Goal::ValueAtMost(MEMORY_MIB)))
    };
    Ok(vec![
        time("plumb get wep -A", &table, 1.5),
        memory("plumb get wep -A", programs.table())?,
        time("plumb ipam check", &check, 2.5),
        memory("plumb ipam check", programs.check())?,
    ])
}

/// The one that belongs to the server, if it was built along with it.
fn kubectl() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let of_server = folders.iter().filter(|folder| folder.join("kube-apiserver").is_file());
    let found =
        of_server.chain(&folders).map(|folder| folder.join("kubectl")).find(|program| program.is_file());
    found.context("kubectl is not installed")
}

struct Programs {
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    pods: usize,
}

impl Programs {
    fn table(&self) -> Command {
        self.plumb(&["get", "wep", "-A"])
    }

    fn check(&self) -> Command {
        self.plumb(&["ipam", "check"])
    }

    fn plumb(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PLUMB);
        command.args(arguments).env("DATASTORE_TYPE", "kubernetes").env("KUBECONFIG", &self.kubeconfig);
        command
    }

    fn kubectl(&self) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.args(["get", "pods", "-A"]).env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Fast answers that are not whole would be worth nothing.
    fn see_that_all_is_shown(&self) -> Result<()> {
        for mut command in [self.table(), self.kubectl()] {
            let output = run(&mut command)?;
            let lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
            ensure!(lines == self.pods + 1, "{lines} lines for {} pods and a header: {command:?}", self.pods);
        }
        let output = run(&mut self.check())?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let count = self.pods.to_string();
        let names_it = printed.split(|letter: char| !letter.is_ascii_digit()).any(|number| number == count);
        ensure!(names_it, "plumb ipam check does not speak of {count} addresses: {printed}");
        Ok(())
    }
}
