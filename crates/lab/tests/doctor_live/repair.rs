//! Every fault repaired on a cluster that runs: found, planned, mended, clean; taken back, found again; mended again.
//!
//! What is found, what a repair mends and what it changes must have been injected, nothing less and nothing more. What is left to
//! people has a reason.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use lab::cluster::StoreKind;
use model::FindingCode;
use repair::Plan;
use serde_json::Value;

use crate::combos::{see_that_all_is_explained, see_that_all_is_told};
use crate::extent::Extent;
use crate::faults;
use crate::injection::{Fault, Injection};
use crate::scene::{BUSY_NODES, Scene, Verdict, missing};
use crate::singles::see_that_it_is_clean;

/// Seconds between the two looks that must show something as gone.
const GRACE: &str = "0.2";

/// Codes with a remedy whose faults are left to people here, and why.
const LEFT: &[(FindingCode, &str)] = &[
    (
        FindingCode::AddressShared,
        "both sandboxes run: one keeps the address, the other one has to be recreated",
    ),
    (FindingCode::EndpointAddressDiffers, "record and pod agree, and Kubernetes shows something else"),
    (
        FindingCode::NodeLeftBehind,
        "its agent answers: whether the machine is gone for good only an operator can say",
    ),
    (
        FindingCode::MtuTooLarge,
        "pods have the larger MTU, too, and get another one only when they are recreated",
    ),
];

type Named = (FindingCode, String);

/// How a fault fared.
pub(crate) enum Fared {
    Mended,
    /// Nothing could be done, and why.
    Left(String),
}

fn run(mut command: Command) -> Result<Value> {
    let output = command.output().context("cannot run plumb repair")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "plumb repair says {}: {said}{errors}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("no JSON: {said}{errors}"))
}

pub(crate) fn plan(scene: &Scene, grace: &str) -> Result<Plan> {
    Ok(serde_json::from_value(run(scene.repair(&[], grace)?)?)?)
}

/// Does what can be done, and gives the repair's ID.
pub(crate) fn apply(scene: &Scene, grace: &str) -> Result<String> {
    let outcome = run(scene.repair(&["--apply"], grace)?)?;
    Ok(outcome["id"].as_str().context("an ID")?.to_owned())
}

pub(crate) fn take_back(scene: &Scene, id: &str, grace: &str) -> Result<()> {
    run(scene.repair(&["undo", id], grace)?).map(|_| ())
}

fn mended_by(plan: &Plan) -> BTreeSet<Named> {
    let mends = plan.steps.iter().flat_map(|step| step.fixes());
    mends.map(|(code, subject)| (code, subject.to_owned())).collect()
}

/// What is still told must have been left, with a reason, and be of what was there.
pub(crate) fn see_that_the_rest_was_left(plan: &Plan, before: &Verdict, after: &Verdict) -> Result<()> {
    let left: BTreeSet<Named> = plan.left.iter().map(|left| (left.code, left.subject.clone())).collect();
    // What only packets show, repair does not see: it is for people anyway.
    let is_for_people = |code: FindingCode| repair::find(code).is_by_hand();
    let is_left = |named: &&Named| left.contains(*named) || is_for_people(named.0);
    let wrong: Vec<_> = after.roots.iter().filter(|named| !is_left(named)).collect();
    ensure!(wrong.is_empty(), "after the repair: {wrong:?} in {:#}", after.report["findings"]);
    let new: Vec<_> = after.roots.difference(&before.told()).cloned().collect();
    ensure!(new.is_empty(), "made by the repair: {new:?}");
    ensure!(plan.left.iter().all(|left| !left.why.is_empty()), "left without a reason: {:?}", plan.left);
    Ok(())
}

/// The plan as it was carried out, which is not the one that was shown.
fn carried_out(scene: &Scene, id: &str, grace: &str) -> Result<Plan> {
    let mut told = run(scene.repair(&["show", id], grace)?)?;
    Ok(serde_json::from_value(told["history"][0]["plan"].take())?)
}

/// What a plan does is about what was found, and changes nothing besides.
fn see_that_it_goes_no_further(plan: &Plan, found: &BTreeSet<Named>, extent: &Extent) -> Result<()> {
    let not_there: Vec<_> = mended_by(plan).difference(found).cloned().collect();
    ensure!(not_there.is_empty(), "the plan mends what nobody found: {not_there:?}");
    extent.see_that_it_holds(plan)
}

/// Repairs what was found, and sees that nothing of it is left and nothing else was done.
fn repair_once(scene: &Scene, found: &Verdict, extent: &Extent, grace: &str) -> Result<String> {
    let id = apply(scene, grace)?;
    let done = carried_out(scene, &id, grace)?;
    see_that_it_goes_no_further(&done, &found.told(), extent)?;
    // An agent that acts follows what was changed of records, in its own time.
    lab::wait_for("a clean look", || see_that_the_rest_was_left(&done, found, &scene.audit_with(grace)?))?;
    Ok(id)
}

/// Found, mended, clean; taken back, found again; mended again. What was mended needs no undoing.
pub(crate) fn mend(scene: &Scene, injections: &[Injection<'_>], grace: &str) -> Result<Plan> {
    let extent = Extent::of(scene, injections)?;
    injections.iter().try_for_each(Injection::provoke)?;
    let before = scene.audit_with(grace)?;
    see_that_all_is_told(&before, injections)?;
    let plan = plan(scene, grace)?;
    see_that_it_goes_no_further(&plan, &before.told(), &extent)?;
    if plan.is_empty() {
        see_that_the_rest_was_left(&plan, &before, &before)?;
        return Ok(plan);
    }
    let id = repair_once(scene, &before, &extent, grace).context("the first time")?;
    take_back(scene, &id, grace)?;
    injections.iter().try_for_each(Injection::provoke)?;
    let again = scene.audit_with(grace)?;
    see_that_all_is_explained(&again, injections).context("when the repair was taken back")?;
    repair_once(scene, &again, &extent, grace).context("the second time")?;
    Ok(plan)
}

fn try_fault(scene: &Scene, fault: &Fault, node: &'static str, number: usize) -> Result<Fared> {
    let mut injection = Injection::new(scene, fault, node, number);
    let injected = (fault.inject)(&mut injection);
    let mended = injected.and_then(|()| mend(scene, std::slice::from_ref(&injection), GRACE));
    let undone = match &mended {
        Ok(plan) if plan.is_empty() => injection.undo(),
        _ => injection.undo_the_rest(),
    };
    let undone = undone.and_then(|()| scene.restore_records());
    let plan = mended?;
    undone?;
    let left = plan.left.iter().find(|left| left.code == fault.code);
    Ok(match left {
        Some(left) => Fared::Left(left.why.clone()),
        None if plan.is_empty() => Fared::Left("only packets show it, and repair sends none".to_owned()),
        None => Fared::Mended,
    })
}

/// Every so many-th fault, each at a place of its own.
fn every_fault(test: &str, store: StoreKind, step: usize) {
    if let Some(reason) = missing(store) {
        return testkit::skip(test, &reason);
    }
    let scene = Scene::up_with(store, |_| &["--observe", "--repair"]).unwrap();
    see_that_it_is_clean(&scene);
    let wanted = std::env::var("PLUMB_FAULT").unwrap_or_default();
    let first = usize::try_from(testkit::seed()).unwrap_or_default() % step;
    let (mut failures, mut mended, mut left) = (Vec::new(), 0, Vec::new());
    for (index, fault) in faults::all().enumerate().skip(first).step_by(step) {
        if !fault.code.as_str().contains(&wanted) {
            continue;
        }
        let node = BUSY_NODES[index % BUSY_NODES.len()];
        let number = index / BUSY_NODES.len() % scene.pods_of(node);
        match try_fault(&scene, fault, node, number) {
            Ok(Fared::Mended) => mended += 1,
            Ok(Fared::Left(why)) => left.push((fault.code, why)),
            Err(error) => failures.push(format!("{} on {node}: {error:#}", fault.code)),
        }
    }
    if failures.is_empty() {
        see_that_it_is_clean(&scene);
    }
    eprintln!(
        "{mended} faults were mended, taken back and mended again; {} were left to people:",
        left.len()
    );
    for (code, why) in &left {
        eprintln!("  {code}: {why}");
        let is_by_hand = repair::find(*code).is_by_hand();
        if !is_by_hand && !LEFT.iter().any(|(known, _)| known == code) {
            failures.push(format!("{code} was left: {why}"));
        }
    }
    assert!(failures.is_empty(), "{} faults:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_fault_is_mended_or_left_with_a_reason() {
    every_fault("every_fault_is_mended_or_left_with_a_reason", StoreKind::Sqlite, testkit::count(5, 1));
}

#[test]
fn faults_are_mended_on_etcd() {
    every_fault("faults_are_mended_on_etcd", StoreKind::Etcdv3, testkit::count(12, 1));
}
