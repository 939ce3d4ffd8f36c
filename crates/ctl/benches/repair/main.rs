//! What a repair of a large, leaking address book costs on etcd, and what pods that start meanwhile notice of it.
//!
//! `cargo bench -p ctl --bench repair [-- -o json]`, or `cargo xtask bench repair`.

mod assigns;
mod damage;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sim::cluster::Cluster;
use store::Store;
use store::etcd::{EtcdConfig, EtcdStore};
use testkit::etcd::EtcdCluster;
use testkit::figures::{self, Figure, Goal, Peer};

/// 150,000 addresses, each with its handle and its endpoint.
const LARGE: Cluster = Cluster { nodes: 500, blocks: 10_000, addresses_per_block: 15, has_endpoints: true };
const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");
/// How long assigns are measured before the repair.
const BEFORE: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let figures = match testkit::etcd::missing() {
        Some(reason) => {
            eprintln!("not measured: {reason}");
            Vec::new()
        }
        None => measure()?,
    };
    figures::print("repair", &figures);
    Ok(())
}

fn measure() -> Result<Vec<Figure>> {
    let cluster = EtcdCluster::single()?;
    let runtime = tokio::runtime::Runtime::new()?;
    let connected = runtime.block_on(EtcdStore::connect(EtcdConfig::new(cluster.endpoints())))?;
    let store: Arc<dyn Store> = Arc::new(connected);
    let started = Instant::now();
    runtime.block_on(LARGE.write(&store))?;
    let leaked = runtime.block_on(damage::leak(&store))?;
    eprintln!("wrote and damaged the books in {:.1} s: {leaked:?}", started.elapsed().as_secs_f64());
    let folder = tempfile::tempdir()?;
    let plumb = Plumb { endpoint: cluster.endpoint(0), folder };
    let floor = runtime.block_on(damage::floor(&store))?;
    let mut figures = plumb.plan(&leaked)?;
    let before = runtime.block_on(assigns::during(&store, async { tokio::time::sleep(BEFORE).await }))?;
    let before = assigns::run(before);
    let (applied, ended, assigned) = runtime.block_on(async {
        let applying = tokio::task::spawn_blocking(move || plumb.apply());
        let (mut applied, mut ended) = (None, Instant::now());
        let assigned = assigns::during(&store, async {
            applied = Some(applying.await);
            ended = Instant::now();
        })
        .await?;
        anyhow::Ok((applied.context("it was applied")???, ended, assigned))
    })?;
    let began = ended - Duration::from_secs_f64(applied.seconds);
    // The book is loaded first, twice, as with every look at it.
    let (looking, during) = assigned.into_iter().partition::<Vec<_>, _>(|(started, _)| *started < began);
    let (looking, during) = (assigns::run(looking), assigns::run(during));
    eprintln!(
        "{} changes in {:.2} s; the look before took {:.1} s",
        applied.changes, applied.seconds, applied.looking
    );
    figures.push(
        Figure::new(
            "record changes per second, while 50 assigns per second run",
            applied.changes / applied.seconds,
            "/s",
        )
        .with_peer(Peer {
            name: "bare commits of 128 deletions",
            value: floor,
            ratio: Some(applied.changes / applied.seconds / floor),
        })
        .wanted(Goal::ValueAtLeast(2000.0)),
    );
    let ms = |run: &figures::Run, quantile| run.at(quantile);
    let beside = |quantile| Peer {
        name: "before the repair",
        value: ms(&before, quantile),
        ratio: Some(ms(&during, quantile) / ms(&before, quantile)),
    };
    figures.push(Figure::new("assign during the repair, p50", ms(&during, 0.5), "ms").with_peer(beside(0.5)));
    figures
        .push(Figure::new("assign during the repair, p99", ms(&during, 0.99), "ms").with_peer(beside(0.99)));
    let looks = Peer {
        name: "before the repair",
        value: ms(&before, 0.99),
        ratio: Some(ms(&looking, 0.99) / ms(&before, 0.99)),
    };
    figures.push(Figure::new("assign during its looks, p99", ms(&looking, 0.99), "ms").with_peer(looks));
    let left = runtime.block_on(damage::left(&store))?;
    ensure!(left == 0, "{left} leaked addresses are still there");
    Ok(figures)
}

/// The program, on this store.
struct Plumb {
    endpoint: String,
    folder: tempfile::TempDir,
}

struct Applied {
    changes: f64,
    seconds: f64,
    looking: f64,
}

impl Plumb {
    fn run(&self, words: &[&str]) -> Result<(f64, Vec<Timings>)> {
        let started = Instant::now();
        let output = Command::new(PLUMB)
            .args(["repair", "ipam", "--timings", "--settle", "0", "--grace", "0", "-o", "json", "--plan"])
            .arg(self.folder.path().join("plan.json"))
            .args(words)
            .env("DATASTORE_TYPE", "etcdv3")
            .env("ETCD_ENDPOINTS", &self.endpoint)
            .env("PLUMB_REPAIRS", self.folder.path().join("history"))
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stdout).chars().take(2000).collect::<String>()
        );
        let timings =
            said.lines().filter_map(|line| line.strip_prefix("timings: ")).map(Timings::read).collect();
        Ok((started.elapsed().as_secs_f64(), timings))
    }

    fn plan(&self, leaked: &damage::Leaked) -> Result<Vec<Figure>> {
        let (seconds, timings) = self.run(&[])?;
        let first = timings.first().context("timings of the look")?;
        let (loading, analysis, planning) =
            (first.get("loading_ms")?, first.get("analysis_ms")?, first.get("planning_ms")?);
        eprintln!(
            "planned in {seconds:.2} s: loading twice {loading} ms, analysis {analysis} ms, planning {planning} ms"
        );
        let plan: serde_json::Value =
            serde_json::from_slice(&std::fs::read(self.folder.path().join("plan.json"))?)?;
        let steps = plan["steps"].as_array().map_or(0, Vec::len);
        ensure!(steps >= leaked.addresses + leaked.handles, "the plan has only {steps} steps");
        let name = format!("plan of {} steps", steps);
        Ok(vec![
            Figure::new(format!("{name}, analysis and planning"), (analysis + planning) / 1000.0, "s")
                .wanted(Goal::ValueAtMost(5.0)),
            Figure::new(format!("{name}, with loading the books twice"), seconds, "s"),
        ])
    }

    fn apply(&self) -> Result<Applied> {
        let (seconds, timings) = self.run(&["--apply"])?;
        let done = timings.last().context("timings of the repair")?;
        let (applying, changes) = (done.get("applying_ms")? / 1000.0, done.get("changes")?);
        Ok(Applied { changes, seconds: applying, looking: seconds - applying })
    }
}

/// `name=number …`.
struct Timings(Vec<(String, f64)>);

impl Timings {
    fn read(line: &str) -> Timings {
        let pair =
            |word: &str| Some((word.split_once('=')?.0.to_owned(), word.split_once('=')?.1.parse().ok()?));
        Timings(line.split_whitespace().filter_map(pair).collect())
    }

    fn get(&self, name: &str) -> Result<f64> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| *value)
            .with_context(|| format!("no {name}"))
    }
}
