//! What a commit costs, beside a bare `INSERT` with the same durability into the same disk, and beside etcd's.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::Key;
use rusqlite::{Connection, params};
use store::{Change, Store};

use crate::RUNS;
use crate::figures::{Figure, Peer, Run, median};
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
    let (mut raw_runs, mut sqlite_runs, mut etcd_runs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut burst_rates, mut raw_rates) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        let inserts = raw.run()?;
        raw_rates.push(COMMITS_PER_RUN as f64 / inserts.iter().sum::<Duration>().as_secs_f64());
        raw_runs.push(Run::new(inserts));
        sqlite_runs.push(commits(&sqlite, run).await?);
        if let Some(etcd) = &etcd {
            etcd_runs.push(commits(etcd, run).await?);
        }
        burst_rates.push(burst(&sqlite, run).await?);
    }

    let beside_raw = |name: &'static str, quantile: f64| {
        let figure = Figure::of_runs(name, &sqlite_runs, quantile);
        figure.beside("raw INSERT", &sqlite_runs, &raw_runs, quantile)
    };
    let mut figures = vec![
        beside_raw("sqlite: one commit, p50", 0.5),
        beside_raw("sqlite: one commit, p99", 0.99),
        burst_figure(burst_rates, raw_rates),
    ];
    if !etcd_runs.is_empty() {
        for (name, quantile) in
            [("sqlite: one commit beside etcd, p50", 0.5), ("sqlite: one commit beside etcd, p99", 0.99)]
        {
            let figure = Figure::of_runs(name, &sqlite_runs, quantile);
            figures.push(figure.beside("etcd", &sqlite_runs, &etcd_runs, quantile));
        }
    }
    Ok(figures)
}

/// Creations of one record each, one after another.
async fn commits(store: &Arc<dyn Store>, run: usize) -> anyhow::Result<Run> {
    let mut times = Vec::with_capacity(COMMITS_PER_RUN);
    for n in 0..COMMITS_PER_RUN {
        let key = Key::Handle(format!("commit-{run}-{n}"));
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
                    let key = Key::Handle(format!("burst-{run}-{task}-{n}"));
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

fn burst_figure(rates: Vec<f64>, raw: Vec<f64>) -> Figure {
    let ratios = rates.iter().zip(&raw).map(|(own, raw)| own / raw).collect();
    let peer = Peer { name: "raw INSERT, one by one", value: median(raw), ratio: Some(median(ratios)) };
    Figure {
        name: "sqlite: 32 commits at once",
        value: median(rates),
        unit: "commits/s",
        peer: Some(peer),
        target: None,
    }
}

/// The least that SQLite can do with the same promise: one row, one durable transaction.
struct RawInserts(Connection);

impl RawInserts {
    fn new(path: &Path) -> anyhow::Result<RawInserts> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.execute_batch("CREATE TABLE row (id INTEGER PRIMARY KEY, value BLOB)")?;
        Ok(RawInserts(connection))
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
