//! Several faults at once, repaired while pods come and go on another node.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use lab::cluster::StoreKind;
use lab::kubelet::{KubeletRequest, NewPod};
use model::FindingCode;
use testkit::Dice;

use crate::combos::{Place, choose, in_words, inject};
use crate::faults;
use crate::injection::Injection;
use crate::repair::mend;
use crate::scene::{BUSY_NODES, CALICO_NODE, CHURNING, NAMESPACE, Scene, missing};
use crate::singles::see_that_it_is_clean;

const GRACE: &str = "0.2";

/// One pod after the other, until it is over. All of them are gone then.
fn churn(scene: &Scene, worker: usize, is_over: &AtomicBool) -> Result<usize> {
    let name = format!("{NAMESPACE}/churn-{worker}");
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let pod = NewPod::new(&name.parse()?);
        scene.lab().kubelet(CALICO_NODE, &KubeletRequest::Add { pods: vec![pod], waits: true })?;
        scene
            .lab()
            .kubelet(CALICO_NODE, &KubeletRequest::Delete { pods: vec![name.parse()?], waits: true })?;
        count += 1;
    }
    Ok(count)
}

/// Repairs these faults while others come and go. Gives how many pods did, and how many findings were left to people.
fn try_together(scene: &Scene, places: &[Place]) -> Result<(usize, usize)> {
    let is_over = AtomicBool::new(false);
    let (mut injections, mended, churned) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CHURNING)
            .map(|worker| {
                scope.spawn({
                    let is_over = &is_over;
                    move || churn(scene, worker, is_over)
                })
            })
            .collect();
        let (injections, injected) = inject(scene, places);
        let mended = injected.and_then(|()| mend(scene, &injections, GRACE));
        is_over.store(true, Ordering::Relaxed);
        let churned: Result<usize> = workers.into_iter().map(|worker| worker.join().expect("no panic")).sum();
        (injections, mended, churned)
    });
    let undone = injections.iter_mut().rev().try_for_each(Injection::undo_the_rest);
    let undone = undone.and_then(|()| scene.restore_records());
    let (plan, churned) = (mended?, churned?);
    undone?;
    ensure!(churned > 0, "no pod came and went");
    // The agent of the third node follows the records in its own time.
    lab::wait_for("everything to be as it was", || {
        let verdict = scene.audit()?;
        ensure!(verdict.roots.is_empty(), "{:#}", verdict.report["findings"]);
        Ok(())
    })?;
    Ok((churned, plan.left.len()))
}

/// Node 3 acts, so that pods can come and go; the others only do what a repair asks for.
fn up(store: StoreKind) -> Scene {
    let agent =
        |node: &str| -> &[&str] { if node == CALICO_NODE { &[] } else { &["--observe", "--repair"] } };
    let scene = Scene::up_with(store, agent).unwrap();
    see_that_it_is_clean(&scene);
    scene
}

/// One combination after the other. Whichever fails is told at the end: the others get a new cluster.
fn combinations(test: &str, store: StoreKind, count: usize) {
    if let Some(reason) = missing(store) {
        return testkit::skip(test, &reason);
    }
    let mut scene = up(store);
    let (mut injected, mut pods, mut left, mut failures) = (0, 0, 0, Vec::new());
    for number in 0..count {
        let seed = testkit::seed().wrapping_add(number as u64);
        let places = choose(&scene, &mut Dice::for_purpose(seed, test));
        let named = in_words(&places);
        eprintln!("seed {seed}: {named}");
        match try_together(&scene, &places) {
            Ok((came, left_now)) => {
                (injected, pods, left) = (injected + places.len(), pods + came, left + left_now);
            }
            Err(error) => {
                eprintln!("seed {seed} failed: {error:#}");
                failures.push(format!("seed {seed}: {named}: {error:#}"));
                drop(scene);
                scene = up(store);
            }
        }
    }
    see_that_it_is_clean(&scene);
    eprintln!(
        "{} combinations of {injected} faults were repaired while {pods} pods came and went; {left} findings were left to people",
        count - failures.len()
    );
    assert!(failures.is_empty(), "{} combinations:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn random_combinations_are_repaired_among_pods_that_come_and_go() {
    let test = "random_combinations_are_repaired_among_pods_that_come_and_go";
    combinations(test, StoreKind::Sqlite, testkit::count(3, 200));
}

/// Nobody routes to a node without an address, so the doctor reports the route with the address. When the address is back, the
/// route still has to be added.
#[test]
fn what_remains_when_its_cause_is_repaired_is_repaired_too() {
    let test = "what_remains_when_its_cause_is_repaired_is_repaired_too";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let scene = up(StoreKind::Sqlite);
    let fault = |code| faults::all().find(|fault| fault.code == code).expect("it can be injected");
    let places = [
        (fault(FindingCode::BlockRouteMissing), BUSY_NODES[1], 0),
        (fault(FindingCode::NodeAddressMissing), BUSY_NODES[0], 0),
    ];
    try_together(&scene, &places).unwrap();
    see_that_it_is_clean(&scene);
}

#[test]
fn random_combinations_are_repaired_on_etcd() {
    combinations("random_combinations_are_repaired_on_etcd", StoreKind::Etcdv3, testkit::count(1, 200));
}
