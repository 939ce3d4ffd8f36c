//! What a pod's network costs: ADD and DEL from exec to exit, one at a time and in bursts, beside Debian's plugins
//! and beside what the kernel alone needs.
//!
//! `cargo xtask bench cni`, or `cargo bench -p lab --bench cni [-- -o json] [-- --quick]`. All take turns, several
//! runs each; every call gets a network namespace that was made for it. Each contender has a node of its own.

mod contender;
mod floor;
mod idle;
mod place;
mod plugin;
mod report;
mod rounds;

use anyhow::Result;
use contender::Who;
use floor::Floor;
use idle::Idle;
use lab::{Lab, Programs};
use place::Place;
use report::Measured;
use testkit::etcd::{EtcdCluster, Setup};
use testkit::figures::{self, Figure};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// In turns.
    runs: usize,
    /// Pods per run that come and go one at a time.
    singles: usize,
    /// Pods that come at once, and go at once.
    bursts: [usize; 2],
}

const FULL: Extent = Extent { runs: 5, singles: 30, bursts: [30, 110] };
/// To see whether it works.
const QUICK: Extent = Extent { runs: 1, singles: 5, bursts: [5, 10] };

fn main() -> Result<()> {
    let is_asked = |wanted: &str| std::env::args().any(|argument| argument == wanted);
    if !is_asked("--bench") {
        eprintln!("this measures; run it with `cargo bench`");
        return Ok(());
    }
    let missing = lab::missing().or_else(plugin::missing).or_else(testkit::etcd::missing);
    if let Some(reason) = missing {
        anyhow::bail!("this cannot be measured here: {reason}");
    }
    let extent = if is_asked("--quick") { QUICK } else { FULL };
    figures::print("cni", &measure(extent)?);
    Ok(())
}

fn measure(extent: Extent) -> Result<Vec<Figure>> {
    let lab = Lab::new(Programs::of_test()?)?;
    // Its node is the first on which a process is started: all that the bench starts by itself run there.
    let etcd_node = lab.node("etcd")?;
    let etcd = etcd_node.namespace().visit(|| EtcdCluster::start(durable()))??;
    let place = Place::Etcd(etcd.endpoint(0));
    let mut contenders = contender::all(&lab, etcd_node, &place)?;
    let mut floor = Floor::new(&lab)?;
    for run in 0..extent.runs {
        eprintln!("measuring: run {} of {}", run + 1, extent.runs);
        for contender in &mut contenders {
            contender.measure(&lab, extent)?;
        }
        let on_etcd = contender::find(&contenders, Who::AgentOnEtcd);
        floor.measure(&lab, extent, (&place, &on_etcd.node))?;
    }
    let pods = extent.bursts[1];
    eprintln!("measuring: an agent with {pods} pods that has nothing to do");
    let idle = Idle::measure(&lab, contender::find(&contenders, Who::AgentOnSqlite), pods)?;
    Ok(Measured { contenders, floor, idle, bursts: extent.bursts }.figures())
}

/// As durable as the other side: what tests spare themselves, a measurement must not.
fn durable() -> Setup {
    Setup { extra_args: vec!["--unsafe-no-fsync=false".to_owned()], ..Setup::default() }
}
