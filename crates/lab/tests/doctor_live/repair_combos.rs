//! Several faults at once, repaired while pods come and go on another node.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use lab::cluster::StoreKind;
use lab::kubelet::{KubeletRequest, NewPod};
use testkit::Dice;

use crate::combos::{Place, choose};
use crate::injection::Injection;
use crate::repair::mend;
use crate::scene::{CALICO_NODE, CHURNING, NAMESPACE, Scene, missing};
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
    let mut injections: Vec<Injection<'_>> = Vec::new();
    let (mended, churned) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..CHURNING)
            .map(|worker| {
                scope.spawn({
                    let is_over = &is_over;
                    move || churn(scene, worker, is_over)
                })
            })
            .collect();
        let mut injected = Ok(());
        for (fault, node, pod) in places {
            injections.push(Injection::new(scene, fault, node, *pod));
            injected = injected.and_then(|()| (fault.inject)(injections.last_mut().expect("just added")));
        }
        let expected: BTreeSet<_> = injections.iter().flat_map(|injection| injection.roots.clone()).collect();
        let mended = injected.and_then(|()| mend(scene, &expected, GRACE));
        is_over.store(true, Ordering::Relaxed);
        let churned: Result<usize> = workers.into_iter().map(|worker| worker.join().expect("no panic")).sum();
        (mended, churned)
    });
    let undone = injections.iter_mut().rev().try_for_each(Injection::undo_the_rest);
    let undone = undone.and_then(|()| scene.restore_records());
    let (plan, churned) = (mended?, churned?);
    undone?;
    ensure!(churned > 0, "no pod came and went");
    Ok((churned, plan.left.len()))
}

fn combinations(test: &str, store: StoreKind, count: usize) {
    if let Some(reason) = missing(store) {
        return testkit::skip(test, &reason);
    }
    let agent =
        |node: &str| -> &[&str] { if node == CALICO_NODE { &[] } else { &["--observe", "--repair"] } };
    let scene = Scene::up_with(store, agent).unwrap();
    see_that_it_is_clean(&scene);
    let (mut injected, mut pods, mut left) = (0, 0, 0);
    for number in 0..count {
        let seed = testkit::seed().wrapping_add(number as u64);
        let places = choose(&scene, &mut Dice::for_purpose(seed, test));
        let named: Vec<String> =
            places.iter().map(|(fault, node, pod)| format!("{} on {node}-{pod}", fault.code)).collect();
        eprintln!("seed {seed}: {}", named.join(", "));
        let outcome = try_together(&scene, &places);
        let outcome = outcome.unwrap_or_else(|error| panic!("seed {seed}: {named:?}: {error:#}"));
        (injected, pods, left) = (injected + places.len(), pods + outcome.0, left + outcome.1);
    }
    see_that_it_is_clean(&scene);
    eprintln!(
        "{count} combinations of {injected} faults were repaired while {pods} pods came and went; {left} findings were left to people"
    );
}

#[test]
fn random_combinations_are_repaired_among_pods_that_come_and_go() {
    let test = "random_combinations_are_repaired_among_pods_that_come_and_go";
    combinations(test, StoreKind::Sqlite, testkit::count(3, 200));
}

#[test]
fn random_combinations_are_repaired_on_etcd() {
    combinations("random_combinations_are_repaired_on_etcd", StoreKind::Etcdv3, testkit::count(1, 200));
}
