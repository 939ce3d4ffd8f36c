//! What goes on when somebody is killed, and what the runtime does about it.
//!
//! The kubelet stand-in does what the real one does: a failed ADD is followed by a DEL, and by a new sandbox with a
//! new ID; a failed DEL is repeated, with the namespace and without; a pod ends with several DELs.

use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, ensure};
use host::Host;
use lab::cluster::StoreKind;
use lab::kubelet::PodReport;
use model::{Key, KeyRange, Kind};

use crate::cells::{Cell, Story, Victim, Way};
use crate::scene::{NODE, Scene};
use crate::{invariants, others, same_id};

pub(crate) const POD: &str = "shop/web-0";
const OTHER: &str = "shop/db-0";

/// Tells a cell's story up to the point where everything has settled again. The pods that run then are to be held
/// against the invariants.
pub(crate) fn tell(scene: &mut Scene, cell: &Cell) -> Result<()> {
    match (cell.victim, cell.story) {
        (Victim::Agent, Story::Add) => agent_dies_in_add(scene, cell),
        (Victim::Agent, Story::FailingAdd) => agent_dies_undoing(scene, cell),
        (Victim::Agent, Story::AddSameId) => same_id::agent_dies_in_add(scene, cell),
        (Victim::Agent, Story::AddAgain) => same_id::agent_dies_adding_again(scene, cell),
        (Victim::Agent, Story::DelSameId) => same_id::agent_dies_in_del(scene, cell),
        (Victim::Agent, Story::AddDelegated) => others::agent_dies_delegating(scene, cell),
        (Victim::Agent, Story::Addresses) => others::agent_dies_giving(scene, cell),
        (Victim::Agent, Story::Del) => agent_dies_in_del(scene, cell),
        (Victim::Agent, Story::DelWithoutStore) => agent_dies_queueing(scene, cell),
        (Victim::Agent, Story::Gc) => agent_dies_in_gc(scene, cell),
        (Victim::Agent, Story::Sweep) => agent_dies_sweeping(scene, cell),
        (Victim::Agent, Story::Collect) => agent_dies_collecting(scene, cell),
        (Victim::Agent, Story::Adopt) => agent_dies_adopting(scene, cell),
        (Victim::Agent, Story::Queue) => agent_dies_finishing(scene, cell),
        (Victim::Agent, Story::Start) => agent_dies_starting(scene, cell),
        (Victim::Agent, Story::Remake) => agent_dies_remaking(scene, cell),
        (Victim::Agent, Story::Bootstrap) => agent_dies_bootstrapping(scene, cell),
        (_, Story::Add) => call_dies_in_add(scene, cell),
        (_, Story::FailingAdd) => call_dies_undoing(scene, cell),
        (_, Story::Del) => call_dies_in_del(scene, cell),
        (_, Story::DelWithoutStore) => call_dies_queueing(scene, cell),
        (_, Story::DelWithoutAgent) => call_dies_without_agent(scene, cell),
        (_, Story::Gc) => call_dies_in_gc(scene, cell),
        (victim, story) => anyhow::bail!("there is no story {story:?} of {victim:?}"),
    }
}

/// An agent that is ready, and will die at the cell's point.
pub(crate) fn arm(scene: &Scene, cell: &Cell) -> Result<()> {
    scene.arm_agent(&cell.point, cell.way, false)?;
    scene.wait_until_ready()
}

/// It dies, and what it leaves in the store is whole.
pub(crate) fn see_die(scene: &Scene, cell: &Cell) -> Result<()> {
    see_die_and_lose(scene, cell, &[])
}

fn see_die_and_lose(scene: &Scene, cell: &Cell, lost: &[String]) -> Result<()> {
    scene.see_agent_die_at(&cell.point)?;
    invariants::books_agree_after_a_death(scene, lost).context("while the agent is dead")
}

/// Several at once, of which the agent dies with the first that gets there.
fn agent_dies_in_add(scene: &Scene, cell: &Cell) -> Result<()> {
    arm(scene, cell)?;
    let crowd = crowd(cell);
    scene.begin_adds(&crowd)?;
    see_die(scene, cell)?;
    scene.start_agent()?;
    crowd.iter().try_for_each(|pod| scene.wait_until_running(pod).map(|_| ()))
}

/// One pod by itself, or a burst that shares commits.
fn crowd(cell: &Cell) -> Vec<String> {
    let more = if cell.store == StoreKind::Sqlite { 0 } else { 5 };
    let more = (0..more).map(|number| format!("shop/more-{number}"));
    more.chain([POD.to_owned()]).collect()
}

fn agent_dies_undoing(scene: &mut Scene, cell: &Cell) -> Result<()> {
    let strangers = Strangers::take_all_addresses(scene)?;
    same_id::add_in_vain(scene)?;
    arm(scene, cell)?;
    scene.begin_add(POD)?;
    see_die(scene, cell)?;
    strangers.leave(scene)?;
    scene.start_agent()?;
    scene.wait_until_running(POD).map(|_| ())
}

fn agent_dies_in_del(scene: &Scene, cell: &Cell) -> Result<()> {
    let crowd = crowd(cell);
    scene.begin_adds(&crowd)?;
    crowd.iter().try_for_each(|pod| scene.wait_until_running(pod).map(|_| ()))?;
    let old = scene.wait_until_running(POD)?;
    scene.add(OTHER)?;
    arm(scene, cell)?;
    scene.begin_deletes(&crowd)?;
    see_die(scene, cell)?;
    scene.start_agent()?;
    crowd.iter().try_for_each(|pod| scene.wait_until_gone(pod))?;
    // A new pod of that name has nothing to fear from the old one's DELs.
    scene.add(POD)?;
    scene.repeat_del(&old)
}

fn agent_dies_queueing(scene: &Scene, cell: &Cell) -> Result<()> {
    scene.add(POD)?;
    arm(scene, cell)?;
    scene.lock_store(true)?;
    scene.begin_delete(POD)?;
    see_die(scene, cell)?;
    scene.lock_store(false)?;
    scene.start_agent()?;
    scene.wait_until_gone(POD)
}

fn agent_dies_in_gc(scene: &Scene, cell: &Cell) -> Result<()> {
    let lost = lose_some(scene)?;
    arm(scene, cell)?;
    std::thread::scope(|scope| {
        let gc = scope.spawn(|| scene.gc());
        see_die_and_lose(scene, cell, &[lost])?;
        ensure!(gc.join().is_ok_and(|outcome| outcome.is_err()), "GC succeeds without an agent");
        Ok(())
    })?;
    scene.start_agent()?;
    // A runtime that comes back asks for it.
    scene.restart_kubelet()?;
    scene.gc()
}

/// A runtime comes back from its restart and knows less than before. A new pod has the name of the lost one, whose
/// container ID is told.
fn lose_some(scene: &Scene) -> Result<String> {
    let lost = scene.add(POD)?;
    scene.add(OTHER)?;
    scene.lose(POD)?;
    scene.add(POD)?;
    Ok(lost.container_id)
}

fn agent_dies_sweeping(scene: &Scene, cell: &Cell) -> Result<()> {
    let lost = lose_some(scene)?;
    // The first to die leaves something to be swept.
    let first = "gc.detached";
    scene.arm_agent(first, Way::Held, false)?;
    scene.wait_until_ready()?;
    std::thread::scope(|scope| {
        // The plugin waits for the next agent for a while: who starts one meanwhile has it swept.
        let gc = scope.spawn(|| scene.gc());
        scene.see_agent_die_at(first)?;
        let waiting = scene.on_node(|| Host::here()?.detached_links())??;
        ensure!(!waiting.is_empty(), "nothing waits to be swept");
        ensure!(gc.join().is_ok_and(|outcome| outcome.is_err()), "GC succeeds without an agent");
        Ok(())
    })?;
    scene.arm_agent(&cell.point, cell.way, false)?;
    see_die_and_lose(scene, cell, &[lost])?;
    scene.start_agent()?;
    scene.gc()
}

fn agent_dies_collecting(scene: &Scene, cell: &Cell) -> Result<()> {
    scene.add(POD)?;
    scene.add(OTHER)?;
    scene.arm_agent(&cell.point, cell.way, true)?;
    scene.lose(POD)?;
    see_die(scene, cell)?;
    scene.start_impatient_agent()
}

fn agent_dies_adopting(scene: &Scene, cell: &Cell) -> Result<()> {
    let pod = scene.add(POD)?;
    scene.kill_agent()?;
    scene.forget_journal_of(&pod)?;
    scene.arm_agent(&cell.point, cell.way, false)?;
    see_die(scene, cell)?;
    scene.start_agent()
}

fn agent_dies_finishing(scene: &Scene, cell: &Cell) -> Result<()> {
    scene.add(POD)?;
    scene.kill_agent()?;
    scene.delete(POD)?;
    scene.arm_agent(&cell.point, cell.way, false)?;
    see_die(scene, cell)?;
    // Its DEL has succeeded: the pod may be there again at once.
    scene.begin_add(POD)?;
    scene.start_agent()?;
    scene.wait_until_running(POD).map(|_| ())
}

fn agent_dies_starting(scene: &Scene, cell: &Cell) -> Result<()> {
    scene.add(POD)?;
    scene.kill_agent()?;
    scene.delete(POD)?;
    scene.arm_agent(&cell.point, cell.way, false)?;
    see_die(scene, cell)?;
    scene.begin_add(OTHER)?;
    scene.start_agent()?;
    scene.wait_until_running(OTHER).map(|_| ())
}

fn agent_dies_remaking(scene: &Scene, cell: &Cell) -> Result<()> {
    let pod = scene.add(POD)?;
    scene.kill_agent()?;
    scene.lab.run_on(NODE, &["ip", "link", "del", &pod.device])?;
    scene.arm_agent(&cell.point, cell.way, false)?;
    see_die(scene, cell)?;
    scene.start_agent()
}

fn agent_dies_bootstrapping(scene: &Scene, cell: &Cell) -> Result<()> {
    let before = basic_records(scene)?;
    let fewest = if scene.is_on_kubernetes() { 8 } else { 9 };
    ensure!(before.len() >= fewest, "an agent makes more than {before:?}");
    scene.kill_agent()?;
    scene.with_store(async |store| {
        for key in &before {
            let record = store.get(key).await?.context("it was there just now")?;
            store.delete(record.key, record.revision).await?;
        }
        Ok(())
    })?;
    scene.arm_agent(&cell.point, cell.way, false)?;
    scene.see_agent_die_at(&cell.point)?;
    scene.start_agent()?;
    let after = basic_records(scene)?;
    ensure!(after == before, "an agent made {before:?} at first, and {after:?} after its death");
    scene.add(POD).map(|_| ())
}

/// What an agent makes where it is missing.
fn basic_records(scene: &Scene) -> Result<Vec<Key>> {
    // Kubernetes' own Node is the kubelet's to make.
    let node = (!scene.is_on_kubernetes()).then_some(Kind::Node);
    let kinds = [
        Kind::ClusterInformation,
        Kind::IpPool,
        Kind::Tier,
        Kind::FelixConfiguration,
        Kind::BgpConfiguration,
    ];
    scene.with_store(async |store| {
        let mut keys = Vec::new();
        for kind in kinds.into_iter().chain(node) {
            keys.extend(store.list_all(KeyRange::Kind(kind)).await?.0.into_iter().map(|record| record.key));
        }
        keys.extend(store.get(&Key::IpamConfig).await?.map(|record| record.key));
        Ok(keys)
    })
}

fn call_dies_in_add(scene: &Scene, cell: &Cell) -> Result<()> {
    scene.arm_plugin("ADD", &cell.point, cell.way)?;
    scene.begin_add(POD)?;
    scene.see_plugin_die_at(&cell.point, cell.way)?;
    scene.wait_until_running(POD).map(|_| ())
}

fn call_dies_undoing(scene: &Scene, cell: &Cell) -> Result<()> {
    let strangers = Strangers::take_all_addresses(scene)?;
    scene.arm_plugin("ADD", &cell.point, cell.way)?;
    scene.begin_add(POD)?;
    scene.see_plugin_die_at(&cell.point, cell.way)?;
    strangers.leave(scene)?;
    scene.wait_until_running(POD).map(|_| ())
}

fn call_dies_in_del(scene: &Scene, cell: &Cell) -> Result<()> {
    scene.add(POD)?;
    scene.add(OTHER)?;
    scene.arm_plugin("DEL", &cell.point, cell.way)?;
    scene.begin_delete(POD)?;
    scene.see_plugin_die_at(&cell.point, cell.way)?;
    scene.wait_until_gone(POD)
}

fn call_dies_queueing(scene: &Scene, cell: &Cell) -> Result<()> {
    scene.add(POD)?;
    scene.lock_store(true)?;
    scene.arm_plugin("DEL", &cell.point, cell.way)?;
    scene.begin_delete(POD)?;
    scene.see_plugin_die_at(&cell.point, cell.way)?;
    scene.lock_store(false)?;
    scene.wait_until_gone(POD)?;
    // Without an agent the next call finishes what is queued.
    scene.add(OTHER).map(|_| ())
}

fn call_dies_without_agent(scene: &Scene, cell: &Cell) -> Result<()> {
    scene.add(POD)?;
    scene.kill_agent()?;
    scene.arm_plugin("DEL", &cell.point, cell.way)?;
    scene.begin_delete(POD)?;
    scene.see_plugin_die_at(&cell.point, cell.way)?;
    scene.wait_until_gone(POD)?;
    scene.start_agent()
}

fn call_dies_in_gc(scene: &Scene, cell: &Cell) -> Result<()> {
    lose_some(scene)?;
    scene.arm_plugin("GC", &cell.point, cell.way)?;
    std::thread::scope(|scope| {
        let gc = scope.spawn(|| scene.gc());
        scene.see_plugin_die_at(&cell.point, cell.way)?;
        ensure!(gc.join().is_ok_and(|outcome| outcome.is_err()), "a GC succeeds that was killed");
        Ok(())
    })?;
    scene.gc()
}

/// A stranger's routes to every address that the node could give: no ADD can succeed.
struct Strangers {
    addresses: Vec<String>,
}

impl Strangers {
    fn take_all_addresses(scene: &Scene) -> Result<Strangers> {
        let pods: Vec<PodReport> = scene.lab.pods(NODE)?;
        let taken: Vec<&String> = pods.iter().flat_map(|pod| &pod.addresses).collect();
        let first: Ipv4Addr = taken.first().context("somebody lives there")?.parse()?;
        let block = u32::from(first) & !63;
        let addresses = (block..block + 64).map(|number| Ipv4Addr::from(number).to_string());
        let strangers =
            Strangers { addresses: addresses.filter(|address| !taken.contains(&address)).collect() };
        strangers.routes(scene, "add")?;
        Ok(strangers)
    }

    fn leave(&self, scene: &Scene) -> Result<()> {
        self.routes(scene, "del")
    }

    fn routes(&self, scene: &Scene, verb: &str) -> Result<()> {
        let line = |address: &String| format!("route {verb} {address} dev lo\n");
        let batch: String = self.addresses.iter().map(line).collect();
        let script = format!("ip -batch - <<'END'\n{batch}END\n");
        scene.lab.run_on(NODE, &["sh", "-c", &script]).map(|_| ())
    }
}
