//! Several faults at once: all of them are found, and nothing else.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use lab::cluster::StoreKind;
use testkit::Dice;

use crate::faults;
use crate::injection::{Fault, Injection, Takes};
use crate::scene::{BUSY_NODES, Scene, Verdict, missing};
use crate::singles::see_that_it_is_clean;

/// A fault and where it is put.
pub(crate) type Place = (&'static Fault, &'static str, usize);

/// Stands for a node's set-up among its pods.
const SETUP: usize = usize::MAX;

/// Two to five faults that do not meet: each has a pod of its own, or a node's set-up, or a whole node.
pub(crate) fn choose(scene: &Scene, dice: &mut Dice) -> Vec<Place> {
    let candidates: Vec<&Fault> = faults::all().filter(|fault| fault.takes != Takes::Cluster).collect();
    let count = 2 + usize::try_from(dice.roll(4)).expect("small");
    let mut roll = |below: usize| usize::try_from(dice.roll(below as u64)).expect("small");
    let parts = |node: &'static str| (0..scene.pods_of(node)).chain([SETUP]).map(move |part| (node, part));
    let mut free: BTreeSet<(&'static str, usize)> = BUSY_NODES.into_iter().flat_map(parts).collect();
    let mut chosen: Vec<Place> = Vec::new();
    while chosen.len() < count {
        let fault = candidates[roll(candidates.len())];
        let node = BUSY_NODES[roll(BUSY_NODES.len())];
        let left: Vec<usize> = free.iter().filter(|(at, _)| *at == node).map(|(_, part)| *part).collect();
        let pods: Vec<usize> = left.iter().copied().filter(|part| *part != SETUP).collect();
        match fault.takes {
            Takes::Pod if !pods.is_empty() => {
                let pod = pods[roll(pods.len())];
                free.remove(&(node, pod));
                chosen.push((fault, node, pod));
            }
            Takes::Setup if free.remove(&(node, SETUP)) => chosen.push((fault, node, 0)),
            Takes::Node if left.len() == parts(node).count() => {
                free.retain(|(at, _)| *at != node);
                chosen.push((fault, node, 0));
            }
            _ if free.is_empty() => break,
            _ => {}
        }
    }
    chosen
}

pub(crate) fn in_words(places: &[Place]) -> String {
    let named = places.iter().map(|(fault, node, pod)| format!("{} on {node}-{pod}", fault.code));
    named.collect::<Vec<_>>().join(", ")
}

fn try_together(scene: &Scene, places: &[Place]) -> Result<()> {
    let (mut injections, injected) = inject(scene, places);
    let verdict = injected.and_then(|()| scene.audit());
    let undone = injections.iter_mut().rev().try_for_each(Injection::undo);
    let undone = undone.and_then(|()| scene.restore_records());
    let verdict = verdict?;
    undone?;
    see_that_all_is_told(&verdict, &injections)
}

/// Puts them in, one after the other. Whether that went well, and in any case what there is to undo.
pub(crate) fn inject<'s>(scene: &'s Scene, places: &[Place]) -> (Vec<Injection<'s>>, Result<()>) {
    let mut injections: Vec<Injection<'_>> = Vec::new();
    let mut injected = Ok(());
    for (fault, node, pod) in places {
        injections.push(Injection::new(scene, fault, node, *pod));
        injected = injected.and_then(|()| (fault.inject)(injections.last_mut().expect("just added")));
    }
    (injections, injected)
}

/// What was injected is there again, if something else came of it on the way: a root that was not injected must explain one that was.
pub(crate) fn see_that_all_is_explained(verdict: &Verdict, injections: &[Injection<'_>]) -> Result<()> {
    let expected: BTreeSet<_> = injections.iter().flat_map(|injection| injection.roots.clone()).collect();
    let lost: Vec<_> = expected.difference(&verdict.told()).cloned().collect();
    let invented: Vec<_> = verdict
        .roots
        .difference(&expected)
        .filter(|root| verdict.symptoms_of(root).is_disjoint(&expected))
        .collect();
    ensure!(
        lost.is_empty() && invented.is_empty(),
        "not found: {lost:?}; found without being there: {invented:?} in {:#}",
        verdict.report["findings"]
    );
    Ok(())
}

/// Found = injected.
pub(crate) fn see_that_all_is_told(verdict: &Verdict, injections: &[Injection<'_>]) -> Result<()> {
    let expected: BTreeSet<_> = injections.iter().flat_map(|injection| injection.roots.clone()).collect();
    // A fault that another one explains is told with that one, by the doctor's own rule: but it must be told, and
    // nobody may tell it who was not injected himself.
    let lost: Vec<_> = expected.difference(&verdict.told()).cloned().collect();
    let invented: Vec<_> = verdict.roots.difference(&expected).collect();
    ensure!(
        lost.is_empty() && invented.is_empty(),
        "not found: {lost:?}; found without being there: {invented:?} in {:#}",
        verdict.report["findings"]
    );
    Ok(())
}

#[test]
fn random_combinations_are_found_whole() {
    let test = "random_combinations_are_found_whole";
    if let Some(reason) = missing(StoreKind::Sqlite) {
        return testkit::skip(test, &reason);
    }
    let scene = Scene::up(StoreKind::Sqlite).unwrap();
    see_that_it_is_clean(&scene);
    let mut injected = 0;
    let combinations = testkit::count(6, 200);
    for number in 0..combinations {
        let seed = testkit::seed().wrapping_add(number as u64);
        let places = choose(&scene, &mut Dice::for_purpose(seed, test));
        let named = in_words(&places);
        eprintln!("seed {seed}: {named}");
        injected += places.len();
        try_together(&scene, &places).unwrap_or_else(|error| panic!("seed {seed}: {named}: {error:#}"));
    }
    see_that_it_is_clean(&scene);
    eprintln!("{combinations} combinations of {injected} faults were found whole");
}
