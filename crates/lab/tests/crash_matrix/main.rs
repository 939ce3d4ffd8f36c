//! The crash matrix: agent and plugin are killed at every place that they name, one after the other, while pods come
//! and go. The runtime does what runtimes do then, and in the end everything is as if nothing had happened.

mod cells;
mod direct;
mod invariants;
mod others;
mod same_id;
mod scene;
mod stories;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use lab::Programs;

use cells::{Cell, Points};
use scene::Scene;

/// Labs at the same time: most of a cell's time is waiting.
const LANES: usize = 4;
/// How many of all crashes an ordinary run tries.
const QUICK: usize = 40;

#[test]
fn whoever_is_killed_anywhere_leaves_nothing_behind() {
    let test = "whoever_is_killed_anywhere_leaves_nothing_behind";
    if let Some(reason) = lab::missing() {
        return testkit::skip(test, &reason);
    }
    let programs = Programs::of_test().unwrap();
    let points = Points::of(&programs).unwrap();
    let cells = chosen(points.cells().unwrap());
    let runs = cells.len();
    let failures = run_all(cells, &programs);
    println!(
        "crash matrix: {} points of the agent, {} of the plugin, {runs} runs",
        points.agent.len(),
        points.plugin.len()
    );
    assert!(
        failures.is_empty(),
        "seed {}: {} of {runs} runs failed\n{}",
        testkit::seed(),
        failures.len(),
        failures.join("\n")
    );
}

/// All, or some by chance. `PLUMB_CRASH` names those whose description has that text, for who looks for a fault.
fn chosen(mut cells: Vec<Cell>) -> Vec<Cell> {
    if let Ok(wanted) = std::env::var("PLUMB_CRASH") {
        cells.retain(|cell| cell.to_string().contains(&wanted));
        return cells;
    }
    let count = testkit::count(QUICK, cells.len());
    let mut cells = cells::choose(cells, count, testkit::seed());
    cells.retain(|cell| match cell.missing() {
        Some(reason) => {
            testkit::skip(&cell.to_string(), &reason);
            false
        }
        None => true,
    });
    cells
}

fn run_all(cells: Vec<Cell>, programs: &Programs) -> Vec<String> {
    let (waiting, failures) = (Mutex::new(VecDeque::from(cells)), Mutex::new(Vec::new()));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(cell) = next() {
                    let started = Instant::now();
                    let outcome = run_or_panic(&cell, programs);
                    eprintln!("{:5.1} s {cell}", started.elapsed().as_secs_f64());
                    if let Err(error) = outcome {
                        let failure = format!("=== {cell}: {error:#}");
                        eprintln!("{failure}");
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
                    }
                }
            });
        }
    });
    failures.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// One that breaks does not keep the others from running.
fn run_or_panic(cell: &Cell, programs: &Programs) -> Result<()> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(cell, programs)));
    outcome.unwrap_or_else(|_| Err(anyhow!("the test itself broke")))
}

fn run(cell: &Cell, programs: &Programs) -> Result<()> {
    let mut scene = Scene::up(cell, programs).context("the lab does not come up")?;
    play(&mut scene, cell).with_context(|| scene.logs())
}

fn play(scene: &mut Scene, cell: &Cell) -> Result<()> {
    stories::tell(scene, cell)?;
    invariants::hold(scene).context("after it all")?;
    scene.end_everything()?;
    invariants::hold(scene).context("when everybody is gone")
}
