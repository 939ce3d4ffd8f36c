//! What a pod's network costs: ADD and DEL from exec to exit, one at a time and in bursts, beside Debian's plugins
//! and beside what the kernel alone needs.
//!
//! `cargo xtask bench cni`, or `cargo bench -p lab --bench cni [-- -o json] [-- --quick] [-- --calls]` (calls only:
//! not what an agent does between them). All take turns, several
//! runs each; every call gets a network namespace that was made for it. Each contender has a node of its own.

#[path = "../../../../xtask/src/test/busy.rs"]
mod busy;
mod contender;
mod crowded;
mod floor;
mod idle;
mod place;
mod plugin;
mod report;
mod rounds;
#[path = "../common/store_place.rs"]
mod store_place;
mod strangers;

use anyhow::Result;
use contender::{Contender, Who};
use floor::Floor;
use idle::{Crowd, Idle};
use lab::{Lab, Programs};
use place::Place;
use report::Measured;
use strangers::Strangers;
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
    /// Pods on which a stranger lays hands.
    harmed: usize,
}

const FULL: Extent = Extent { runs: 5, singles: 30, bursts: [30, 110], harmed: 20 };
/// The floor is measured as often as all others, some at a time: stores are quicker once they are warm.
const FLOOR_EVERY: usize = 10;
/// To see whether it works.
const QUICK: Extent = Extent { runs: 1, singles: 5, bursts: [5, 10], harmed: 3 };

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
    figures::print("cni", &measure(extent, is_asked("--calls"))?);
    Ok(())
}

fn measure(extent: Extent, only_calls: bool) -> Result<Vec<Figure>> {
    let lab = Lab::new(Programs::of_test()?)?;
    // Its node is the first on which a process is started: all that the bench starts by itself run there.
    let etcd_node = lab.node("etcd")?;
    let etcd = etcd_node.namespace().visit(|| EtcdCluster::start(durable()))??;
    let place = Place::Etcd(etcd.endpoint(0));
    let mut contenders = contender::all(&lab, etcd_node, &place)?;
    let mut floor = Floor::new(&lab)?;
    for run in 0..extent.runs {
        eprintln!("measuring: run {} of {}", run + 1, extent.runs);
        measure_run(&lab, extent, &mut contenders, &mut floor, &place)?;
    }
    let agent = contender::find(&contenders, Who::AgentOnSqlite);
    let between = (!only_calls).then(|| Between::measure(&lab, agent, extent)).transpose()?;
    Ok(Measured { contenders, floor, between, bursts: extent.bursts }.figures())
}

/// All take turns, pod by pod and burst by burst: whatever else the machine does hits all of them.
fn measure_run(
    lab: &Lab,
    extent: Extent,
    contenders: &mut [Contender],
    floor: &mut Floor,
    etcd: &Place,
) -> Result<()> {
    for number in 0..extent.singles {
        for contender in contenders.iter_mut() {
            contender.single(lab, &format!("single-{number}"))?;
        }
        if number % FLOOR_EVERY == 0 {
            let on_etcd = contender::find(contenders, Who::AgentOnEtcd);
            floor.measure(lab, FLOOR_EVERY, (etcd, &on_etcd.node))?;
        }
    }
    contenders.iter_mut().for_each(|contender| contender.singles.end_run());
    floor.end_run();
    crowded::measure(lab, extent, contenders)?;
    for which in 0..extent.bursts.len() {
        for contender in contenders.iter_mut() {
            contender.burst(lab, extent, which)?;
        }
    }
    Ok(())
}

/// What an agent does between calls.
#[derive(Debug)]
pub(crate) struct Between {
    idle: Idle,
    strangers: Strangers,
}

impl Between {
    fn measure(lab: &Lab, agent: &Contender, extent: Extent) -> Result<Between> {
        let crowd = Crowd::gather(lab, agent, extent.bursts[1])?;
        eprintln!("measuring: an agent with {} pods that has nothing to do", extent.bursts[1]);
        let idle = Idle::measure(&crowd)?;
        eprintln!("measuring: what a stranger breaks, among those pods");
        let strangers = Strangers::measure(lab, agent, extent.harmed)?;
        crowd.disperse()?;
        Ok(Between { idle, strangers })
    }
}

/// As durable as the other side: what tests spare themselves, a measurement must not.
fn durable() -> Setup {
    Setup { extra_args: vec!["--unsafe-no-fsync=false".to_owned()], ..Setup::default() }
}
