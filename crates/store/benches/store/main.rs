//! What the stores cost: commits, the way of a change to a watcher in another process, a watcher that waits.
//!
//! `cargo xtask bench store`, or `cargo bench -p store --bench store [-- -o json]`. Everything is measured beside a
//! peer, in turns, several runs each; a figure is the median of its runs.

mod commits;
mod idle;
mod target;
mod watchers;

use target::Target;
use testkit::etcd::{EtcdCluster, Setup};
use testkit::figures::{self, Figure};

/// Runs per measurement, in turns with the peer's.
const RUNS: usize = 7;

fn main() -> anyhow::Result<()> {
    if watchers::is_watcher() {
        return watchers::watch();
    }
    if !std::env::args().any(|argument| argument == "--bench") {
        eprintln!("this measures; run it with `cargo bench`");
        return Ok(());
    }
    figures::print("store", &measure()?);
    Ok(())
}

fn measure() -> anyhow::Result<Vec<Figure>> {
    let scratch = tempfile::Builder::new().prefix("plumb-bench-").tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let sqlite = Target::Sqlite(scratch.path().join("plumb.db"));
    let cluster = match testkit::etcd::missing() {
        None => Some(EtcdCluster::start(durable())?),
        Some(what) => {
            eprintln!("etcd is not measured: {what}");
            None
        }
    };
    let etcd = cluster.as_ref().map(|cluster| Target::Etcd(cluster.endpoint(0)));

    // On a node the agent has the file open all the time, and its log has the size it needs.
    let agent = runtime.block_on(commits::warmed_up(&sqlite))?;
    let mut figures = Vec::new();
    eprintln!("measuring: how soon another process sees a change");
    figures.extend(runtime.block_on(watchers::figures(&sqlite, etcd.as_ref()))?);
    eprintln!("measuring: commits");
    figures.extend(runtime.block_on(commits::figures(&sqlite, etcd.as_ref(), scratch.path()))?);
    eprintln!("measuring: a watcher that waits");
    figures.extend(idle::figures(&sqlite)?);
    drop(agent);
    Ok(figures)
}

/// As durable as the other side: what tests spare themselves, a measurement must not.
fn durable() -> Setup {
    Setup { extra_args: vec!["--unsafe-no-fsync=false".to_owned()], ..Setup::default() }
}
