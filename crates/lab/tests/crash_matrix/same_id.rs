//! Stories of runtimes that use a container's ID again, and keep its namespace: podman, cnitool, scripts.

use anyhow::{Result, ensure};
use lab::wait_for;

use crate::cells::{Cell, Way};
use crate::direct::{Direct, NAMESPACE};
use crate::invariants;
use crate::scene::Scene;
use crate::stories::{arm, see_die};

/// The ADD fails with its agent. Some try it once more as it was, others begin with a DEL.
pub(crate) fn agent_dies_in_add(scene: &mut Scene, cell: &Cell) -> Result<()> {
    let direct = Direct::new(scene)?;
    arm(scene, cell)?;
    std::thread::scope(|scope| {
        let add = scope.spawn(|| direct.add(scene));
        see_die(scene, cell)?;
        ensure!(add.join().is_ok_and(|outcome| outcome.is_err()), "an ADD succeeds without an agent");
        Ok(())
    })?;
    scene.start_agent()?;
    if cell.way == Way::AtOnce {
        direct.del(scene)?;
        hold_while_idle(scene)?;
    }
    add_and_end(scene, &direct)
}

/// The DEL succeeds, with its agent or without, and the namespace can be used again at once.
pub(crate) fn agent_dies_in_del(scene: &mut Scene, cell: &Cell) -> Result<()> {
    let direct = Direct::new(scene)?;
    direct.add(scene)?;
    arm(scene, cell)?;
    std::thread::scope(|scope| {
        let del = scope.spawn(|| direct.del(scene));
        see_die(scene, cell)?;
        del.join().unwrap_or_else(|_| anyhow::bail!("the test itself broke"))
    })?;
    scene.start_agent()?;
    if cell.way == Way::AtOnce {
        hold_while_idle(scene)?;
    }
    add_and_end(scene, &direct)
}

/// Some runtimes use an ID again. Whoever is quick meets the queued DEL before the agent has finished it.
pub(crate) fn agent_dies_adding_again(scene: &mut Scene, cell: &Cell) -> Result<()> {
    const TRIES: usize = 20;
    let direct = Direct::new(scene)?;
    direct.add(scene)?;
    arm(scene, cell)?;
    let is_hit = || scene.is_hit("agent", &cell.point);
    for _ in 0..TRIES {
        scene.lock_store(true)?;
        direct.del(scene)?;
        scene.lock_store(false)?;
        std::thread::scope(|scope| {
            let add = scope.spawn(|| direct.add(scene).map(|_| ()));
            wait_for("the ADD to end or to be stopped", || {
                ensure!(add.is_finished() || is_hit(), "it goes on");
                Ok(())
            })?;
            if is_hit() { see_die(scene, cell) } else { add.join().unwrap_or(Ok(())) }
        })?;
        if is_hit() {
            break;
        }
    }
    ensure!(is_hit(), "the agent was always faster");
    scene.start_agent()?;
    add_and_end(scene, &direct)
}

/// What fails is undone: no DEL is needed.
pub(crate) fn add_in_vain(scene: &mut Scene) -> Result<()> {
    let direct = Direct::new(scene)?;
    ensure!(direct.add(scene).is_err(), "an ADD succeeds that should not");
    hold_while_idle(scene)?;
    direct.close(scene)
}

/// Connected, held against the invariants; disconnected, and again; then the namespace goes.
fn add_and_end(scene: &mut Scene, direct: &Direct) -> Result<()> {
    let pod = direct.add(scene)?;
    scene.own.push(pod);
    invariants::hold(scene)?;
    scene.own.clear();
    direct.del(scene)?;
    hold_while_idle(scene)?;
    direct.close(scene)
}

fn hold_while_idle(scene: &mut Scene) -> Result<()> {
    scene.idle.push(NAMESPACE.to_owned());
    invariants::hold(scene)?;
    scene.idle.clear();
    Ok(())
}
