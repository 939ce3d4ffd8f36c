//! What a commit costs, beside a bare `INSERT` with the same durability into the same disk, and beside etcd's.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::Key;
use rusqlite::{Connection, params};
use store::{Change, Store};
use testkit::figures::{Figure, Peer, Run, median};

use crate::RUNS;
use crate::target::Target;

const COMMITS_PER_RUN: usize = 200;
const AT_ONCE: usize = 32;
const VALUE: [u8; 500] = [b'x'; 500];

pub(crate) async fn figures(
    sqlite: &Target,
    etcd: Option<&Target>,
    scratch: &Path,
) -> anyhow::Result<Vec<Figure>> {
    let raw = RawInserts::new(&scratch.join("raw.db"))?;
    let sqlite = sqlite.open().await?;
    let etcd = match etcd {
        Some(etcd) => Some(etcd.open().await?),
        None => None,
    };
    let mut runs = Runs::default();
    for run in 0..RUNS {
        let inserts = raw.run()?;
        runs.raw_rates.push(COMMITS_PER_RUN as f64 / inserts.iter().sum::<Duration>().as_secs_f64());
        runs.raw.push(Run::new(inserts));
        runs.sqlite.push(commits(&sqlite, run).await?);
        if let Some(etcd) = &etcd {
            runs.etcd.push(commits(etcd, run).await?);
        }
        runs.burst_rates.push(burst(&sqlite, run).await?);
    }
    Ok(runs.figures())
}

/// The store, after as many commits as it takes for its log to be used for the second time.
pub(crate) async fn warmed_up(sqlite: &Target) -> anyhow::Result<Arc<dyn Store>> {
    let store = sqlite.open().await?;
    for n in 0..400 {
        store.create(Key::Handle(format!("warm-up-{n}").into()), VALUE.to_vec()).await?;
    }
    Ok(store)
}

/// What took turns, run by run.
#[derive(Default)]
struct Runs {
    raw: Vec<Run>,
    sqlite: Vec<Run>,
    /// Empty if there is no etcd here.
    etcd: Vec<Run>,
    raw_rates: Vec<f64>,
    burst_rates: Vec<f64>,
}

impl Runs {
    fn figures(&self) -> Vec<Figure> {
        let beside = |name: &'static str, peer: &'static str, peer_runs: &[Run], quantile: f64| {
            Figure::of_runs(name, &self.sqlite, quantile).beside(peer, &self.sqlite, peer_runs, quantile)
        };
        let mut figures = vec![
            beside("sqlite: one commit, p50", "raw INSERT", &self.raw, 0.5),
            beside("sqlite: one commit, p99", "raw INSERT", &self.raw, 0.99),
            self.burst_figure(),
        ];
        if !self.etcd.is_empty() {
            figures.push(beside("sqlite: one commit beside etcd, p50", "etcd", &self.etcd, 0.5));
            figures.push(beside("sqlite: one commit beside etcd, p99", "etcd", &self.etcd, 0.99));
        }
        figures
    }

    fn burst_figure(&self) -> Figure {
        let ratios = self.burst_rates.iter().zip(&self.raw_rates).map(|(own, raw)| own / raw).collect();
        let peer = Peer {
            name: "raw INSERT, one by one",
            value: median(self.raw_rates.clone()),
            ratio: Some(median(ratios)),
        };
        let rate = median(self.burst_rates.clone());
        Figure::new("sqlite: 32 commits at once", rate, "commits/s").with_peer(peer)
    }
}

/// Creations of one record each, one after another.
async fn commits(store: &Arc<dyn Store>, run: usize) -> anyhow::Result<Run> {
    let mut times = Vec::with_capacity(COMMITS_PER_RUN);
    for n in 0..COMMITS_PER_RUN {
        let key = Key::Handle(format!("commit-{run}-{n}").into());
        let started = Instant::now();
        store.create(key, VALUE.to_vec()).await?;
        times.push(started.elapsed());
    }
    Ok(Run::new(times))
}

/// Commits per second when many wait at once.
async fn burst(store: &Arc<dyn Store>, run: usize) -> anyhow::Result<f64> {
    let started = Instant::now();
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|task| {
            let store = Arc::clone(store);
            tokio::spawn(async move {
                for n in 0..COMMITS_PER_RUN / 8 {
                    let key = Key::Handle(format!("burst-{run}-{task}-{n}").into());
                    store.commit(vec![Change::create(key, VALUE.to_vec())]).await?;
                }
                Ok::<_, store::StoreError>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok((AT_ONCE * (COMMITS_PER_RUN / 8)) as f64 / started.elapsed().as_secs_f64())
}

/// The least that SQLite can do with the same promise: one row, one durable transaction.
struct RawInserts(Connection);

impl RawInserts {
    fn new(path: &Path) -> anyhow::Result<RawInserts> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.execute_batch("CREATE TABLE row (id INTEGER PRIMARY KEY, value BLOB)")?;
        let inserts = RawInserts(connection);
        // Warmed up, too.
        for _ in 0..1200 / COMMITS_PER_RUN {
            inserts.run()?;
        }
        Ok(inserts)
    }

    fn run(&self) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(COMMITS_PER_RUN);
        for _ in 0..COMMITS_PER_RUN {
            let started = Instant::now();
            self.0.execute_batch("BEGIN IMMEDIATE")?;
            self.0.prepare_cached("INSERT INTO row (value) VALUES (?1)")?.execute(params![VALUE])?;
            self.0.execute_batch("COMMIT")?;
            times.push(started.elapsed());
        }
        Ok(times)
    }
}
