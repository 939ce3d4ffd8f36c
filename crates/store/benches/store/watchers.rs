//! How soon a watcher in another process sees a change, counted from when the writer asks for the commit, and from
//! when it is told that the commit is there.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Lines};
use std::process::{ChildStdout, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use model::{Key, KeyRange};
use store::{Event, Store, StoreError};
use testkit::Dice;
use testkit::figures::{Figure, Goal, Run};
use testkit::process::{Process, command};

use crate::RUNS;
use crate::target::Target;

const CHANGES_PER_RUN: usize = 200;
/// How soon another process is to see a change, in milliseconds.
const SEEN_WITHIN: Goal = Goal::ValueAtMost(5.0);
const WATCH: &str = "PLUMB_BENCH_WATCH";

pub(crate) async fn figures(sqlite: &Target, etcd: Option<&Target>) -> anyhow::Result<Vec<Figure>> {
    let mut dice = Dice::new(testkit::seed());
    let mut runs: Vec<Seen> = Vec::new();
    let mut peer_runs: Vec<Seen> = Vec::new();
    for _ in 0..RUNS {
        runs.push(run(sqlite, &mut dice).await?);
        if let Some(etcd) = etcd {
            peer_runs.push(run(etcd, &mut dice).await?);
        }
    }
    let asked: Vec<Run> = runs.iter().map(|seen| Run::new(seen.since_asked.iter().copied())).collect();
    let told: Vec<Run> = runs.iter().map(|seen| Run::new(seen.since_told.iter().copied())).collect();
    let peer: Vec<Run> = peer_runs.iter().map(|seen| Run::new(seen.since_asked.iter().copied())).collect();
    let beside = |figure: Figure, quantile: f64| {
        if peer.is_empty() { figure } else { figure.beside("etcd", &asked, &peer, quantile) }
    };
    let asked_for = |name: &str, quantile| beside(Figure::of_runs(name, &asked, quantile), quantile);
    // From the acknowledgement on it is our doing; until then it is the disk that takes its time. Both matter to those
    // who wait.
    Ok(vec![
        asked_for("sqlite: commit asked for, seen by another process, p50", 0.5),
        asked_for("sqlite: commit asked for, seen by another process, p99", 0.99).wanted(SEEN_WITHIN),
        Figure::of_runs("sqlite: commit acknowledged, seen by another process, p50", &told, 0.5),
        Figure::of_runs("sqlite: commit acknowledged, seen by another process, p99", &told, 0.99)
            .wanted(SEEN_WITHIN),
    ])
}

/// Times until a change was seen, from two moments of the writer.
#[derive(Default)]
struct Seen {
    since_asked: Vec<Duration>,
    /// Nothing for a watcher that was faster than the acknowledgement.
    since_told: Vec<Duration>,
}

async fn run(target: &Target, dice: &mut Dice) -> anyhow::Result<Seen> {
    let store = target.open().await?;
    let mut watcher = Watcher::start(target)?;
    let mut moments = HashMap::new();
    for _ in 0..CHANGES_PER_RUN {
        // Long enough for the watcher to be asleep again.
        tokio::time::sleep(Duration::from_micros(1000 + dice.roll(4000))).await;
        let asked = now();
        let revision = write(&store).await?;
        moments.insert(revision, (asked, now()));
    }
    let mut seen = Seen::default();
    for _ in 0..CHANGES_PER_RUN {
        let line = watcher.hear()?;
        let (revision, at) = line.split_once(' ').context("revision and time")?;
        let at = Duration::from_nanos(at.parse()?);
        let (asked, told) = moments.remove(revision).context("a change that was made")?;
        seen.since_asked.push(at.saturating_sub(asked));
        seen.since_told.push(at.saturating_sub(told));
    }
    Ok(seen)
}

async fn write(store: &Arc<dyn Store>) -> Result<String, StoreError> {
    let key = Key::Handle("latency".into());
    let value = vec![b'x'; 500];
    let revision = match store.get(&key).await? {
        None => store.create(key, value).await?,
        Some(record) => store.update(key, value, record.revision).await?,
    };
    Ok(revision.to_string())
}

/// Another process that watches, and says what it sees and when.
pub(crate) struct Watcher {
    pub(crate) process: Process,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watcher {
    pub(crate) fn start(target: &Target) -> anyhow::Result<Watcher> {
        let mut command = command(std::env::current_exe()?);
        command.env(WATCH, target.describe()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = Process::spawn(command)?;
        let stdout = process.child().stdout.take().context("a pipe")?;
        let mut watcher = Watcher { process, lines: BufReader::new(stdout).lines() };
        match watcher.hear()?.as_str() {
            "ready" => Ok(watcher),
            other => bail!("the watcher says {other:?}"),
        }
    }

    fn hear(&mut self) -> anyhow::Result<String> {
        Ok(self.lines.next().context("the watcher has ended")??)
    }
}

pub(crate) fn is_watcher() -> bool {
    std::env::var_os(WATCH).is_some()
}

/// The other process.
pub(crate) fn watch() -> anyhow::Result<()> {
    let target = Target::parse(&std::env::var(WATCH)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = target.open().await?;
        let (_, from) = store.list_all(KeyRange::Handles).await?;
        let mut watch = store.watch(KeyRange::Handles, from).await?;
        println!("ready");
        while let Some(event) = watch.next().await {
            let at = now();
            match event? {
                Event::Put(record) => println!("{} {}", record.revision, at.as_nanos()),
                other => bail!("only changes are made here, not {other:?}"),
            }
        }
        Ok(())
    })
}

/// The one clock that both processes read.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
