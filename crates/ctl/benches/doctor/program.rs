//! The whole program on a store, beside `plumb ipam check` on the same records.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use model::{Key, Kind};
use serde_json::Value;
use sim::cluster::{self, Cluster};
use store::{Change, OpenMode, SqliteStore, Store};
use tempfile::TempDir;
use testkit::figures::{Figure, Goal, Peer, median};
use testkit::process::peak_mib;

use crate::Size;

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
const PEER: &str = "plumb ipam check";

pub(crate) fn figures(size: Size, runs: usize) -> Result<Vec<Figure>> {
    let folder = TempDir::with_prefix("plumb-bench-")?;
    let desk = Desk { folder };
    desk.fill(size)?;
    desk.see_that_all_is_found(size)?;
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for run in 1..=runs {
        let (our, their) = (seconds(desk.doctor())?, seconds(desk.ipam_check())?);
        eprintln!("doctor, run {run}: {our:.2} s; {PEER} {their:.2} s");
        ours.push(our);
        theirs.push(their);
        ratios.push(our / their);
    }
    let peer = Peer { name: PEER, value: median(theirs), ratio: Some(median(ratios)) };
    let name = format!("doctor of {}, 1 % faults, loading (both looks) included", size.words());
    let time = Figure::new(name, median(ours), "s").with_peer(peer).wanted(Goal::ValueAtMost(10.0));
    // Leaked addresses are warnings, so the doctor succeeds. The peer does not.
    let name = format!("doctor of {}, peak memory", size.words());
    let memory = Figure::new(name, peak_mib(desk.doctor())?, "MiB").wanted(Goal::ValueAtMost(900.0));
    Ok(vec![time, memory])
}

struct Desk {
    folder: TempDir,
}

impl Desk {
    /// A sound cluster, but every hundredth endpoint was never written: its address is leaked.
    fn fill(&self, size: Size) -> Result<()> {
        let cluster = Cluster {
            nodes: size.nodes,
            blocks: size.blocks(),
            addresses_per_block: Size::PODS_PER_BLOCK,
            has_endpoints: true,
        };
        let started = Instant::now();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(self.path(), OpenMode::CreateIfMissing)?);
        let mut number = 0;
        let commits = cluster.commits().map(move |commit| {
            let kept = commit.into_iter().filter(|change| {
                number += usize::from(is_endpoint(change));
                !(is_endpoint(change) && number % Size::PODS_PER_FAULT == 0)
            });
            kept.collect::<Vec<Change>>()
        });
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(cluster::write(&store, commits))?;
        eprintln!("wrote {} in {:.1} s", size.words(), started.elapsed().as_secs_f64());
        Ok(())
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("plumb.db")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PLUMB);
        command.args(arguments).env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", self.path());
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Nothing waits between the two looks, so that only work is measured.
    fn doctor(&self) -> Command {
        let socket = self.folder.path().join("no-agent");
        let mut command = self.command(&["doctor", "--settle", "0", "--fail-on", "error", "-o", "json"]);
        command.arg("--agent-socket").arg(socket);
        command
    }

    fn ipam_check(&self) -> Command {
        self.command(&["ipam", "check", "--settle", "0", "--show-problem-ips"])
    }

    fn see_that_all_is_found(&self, size: Size) -> Result<()> {
        let output = self.doctor().output().context("cannot start plumb")?;
        let report: Value = serde_json::from_slice(&output.stdout).context("not a report")?;
        let is_leak = |finding: &&Value| finding["code"] == "address-leaked";
        let found =
            report["findings"].as_array().map_or(0, |findings| findings.iter().filter(is_leak).count());
        ensure!(found == size.faults(), "{found} leaks are found, not {}", size.faults());
        Ok(())
    }
}

fn is_endpoint(change: &Change) -> bool {
    matches!(change.key, Key::Resource { kind: Kind::WorkloadEndpoint, .. })
}

/// Both exit with 1 where they find something.
fn seconds(mut command: Command) -> Result<f64> {
    let started = Instant::now();
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    ensure!(matches!(status.code(), Some(0 | 1)), "{command:?} failed ({status})");
    Ok(started.elapsed().as_secs_f64())
}
