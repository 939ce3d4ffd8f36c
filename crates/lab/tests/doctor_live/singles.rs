//! Every fault alone: found, and nothing besides.

use anyhow::{Result, ensure};
use lab::cluster::StoreKind;

use crate::faults;
use crate::injection::{Fault, Injection};
use crate::scene::{BUSY_NODES, Scene, Verdict, missing};

// `PLUMB_FAULT=text` tries only the codes that have the text.

/// Injects one fault, looks, and undoes it. Whether all is well again shows at the next look.
pub(crate) fn try_fault(scene: &Scene, fault: &Fault, node: &'static str, number: usize) -> Result<()> {
    let mut injection = Injection::new(scene, fault, node, number);
    let injected = (fault.inject)(&mut injection);
    let verdict = injected.and_then(|()| scene.audit());
    let undone = injection.undo().and_then(|()| scene.restore_records());
    // What kept it from happening comes before what that kept from being undone.
    let verdict = verdict?;
    undone?;
    check(&verdict, &injection)
}

fn check(verdict: &Verdict, injection: &Injection<'_>) -> Result<()> {
    ensure!(
        verdict.roots == injection.roots,
        "expected {:#?}, found {:#?}",
        injection.roots,
        verdict.report["findings"]
    );
    let untold: Vec<_> = injection.symptoms.difference(&verdict.symptoms).collect();
    ensure!(untold.is_empty(), "{untold:?} should follow from it, found {:#?}", verdict.report["findings"]);
    Ok(())
}

/// Nothing is found in a cluster in which nothing is wrong.
pub(crate) fn see_that_it_is_clean(scene: &Scene) {
    let verdict = scene.audit().unwrap();
    assert!(verdict.roots.is_empty(), "{:#}", verdict.report);
}

/// Every so many-th fault, each at a place of its own.
fn every_fault(test: &str, store: StoreKind, step: usize) {
    if let Some(reason) = missing(store) {
        return testkit::skip(test, &reason);
    }
    let scene = Scene::up(store).unwrap();
    see_that_it_is_clean(&scene);
    let wanted = std::env::var("PLUMB_FAULT").unwrap_or_default();
    let first = usize::try_from(testkit::seed()).unwrap_or_default() % step;
    let mut failures = Vec::new();
    let mut tried = 0;
    for (layer, faults) in faults::LAYERS {
        let chosen = faults.iter().filter(|fault| fault.code.as_str().contains(&wanted));
        for (index, fault) in chosen.enumerate().skip(first).step_by(step) {
            let node = BUSY_NODES[index % BUSY_NODES.len()];
            let number = index / BUSY_NODES.len() % scene.pods_of(node);
            if let Err(error) = try_fault(&scene, fault, node, number) {
                failures.push(format!("{layer}: {} on {node}: {error:#}", fault.code));
            }
            tried += 1;
        }
        see_that_it_is_clean(&scene);
    }
    eprintln!("{tried} faults were tried alone");
    assert!(failures.is_empty(), "{} faults:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_fault_is_found_alone() {
    every_fault("every_fault_is_found_alone", StoreKind::Sqlite, 1);
}

#[test]
fn faults_are_found_on_etcd() {
    every_fault("faults_are_found_on_etcd", StoreKind::Etcdv3, testkit::count(5, 1));
}
