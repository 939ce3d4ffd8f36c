//! The calculation decides as an evaluator does that was written from the description of Calico's policy alone: see `naive`.

mod common;
mod naive;

use std::fmt::Write as _;

use common::Dice;
use common::world::{NODE, Record, World, packet, record};
use naive::{Direction, Verdict, Why};
use policy::{Calculation, KubernetesKind, Outcome, Packet, Reason, Scope, Stage, Staged};
use proptest::prelude::*;
use serde_json::Value;

/// What the second evaluator does not know: kinds and fields that the other tests are about, and records that are set aside.
const UNKNOWN: [&str; 6] = ["\"services\"", "Permit", "\"a ==\"", "\"newer\"", "70000", "Staged"];

fn as_json(record: &Record) -> Option<Value> {
    let value = match record {
        Record::Calico(record) => Value::Object(record.to_document()),
        Record::Kubernetes(KubernetesKind::NetworkPolicy, object) => {
            let mut object = object.clone();
            object["apiVersion"] = "networking.k8s.io/v1".into();
            object["kind"] = "NetworkPolicy".into();
            object
        }
        Record::Kubernetes(..) => return None,
    };
    let text = value.to_string();
    let is_odd = matches!(record, Record::Kubernetes(..)) && text.contains("ICMP");
    (!is_odd && !UNKNOWN.iter().any(|unknown| text.contains(unknown))).then_some(value)
}

/// A cluster, told to both.
fn both(dice: &mut Dice) -> (Vec<Value>, Calculation) {
    let mut world = World::new();
    for _ in 0..40 {
        let record = record(dice);
        world.insert(record.name(), record);
    }
    let mut calculation = Calculation::new(Scope::Node(NODE.into()), false);
    let mut told = Vec::new();
    for record in world.values() {
        if let Some(value) = as_json(record) {
            record.put_into(&mut calculation);
            told.push(value);
        }
    }
    calculation.take_update();
    (told, calculation)
}

fn in_naive_words(packet: &Packet) -> naive::Packet {
    let (source_port, destination_port) = packet.ports.unwrap_or_default();
    naive::Packet {
        source: packet.source,
        destination: packet.destination,
        protocol: packet.protocol,
        icmp_type: packet.icmp.map_or(0, |icmp| icmp.kind),
        icmp_code: packet.icmp.and_then(|icmp| icmp.code).unwrap_or(0),
        source_port,
        destination_port,
    }
}

/// What both say of a decision, as text.
fn in_short(verdict: &Verdict) -> String {
    let why = match &verdict.why {
        Why::Rule { tier, policy, rule } => format!("tier {tier} policy {policy} rule {rule}"),
        Why::EndOfTier { tier } => format!("end of tier {tier}"),
        Why::Profile { profile, rule } => format!("profile {profile} rule {rule}"),
        Why::NoProfile => "no profile".to_owned(),
    };
    format!("{} {why}", if verdict.allowed { "Allow" } else { "Deny" })
}

fn in_short_of_calculation(outcome: Outcome, reason: &Reason) -> String {
    let why = match reason {
        Reason::Rule { tier, policy, index, .. } => {
            let namespace = policy.namespace.as_deref().unwrap_or_default();
            format!("tier {tier} policy {}/{namespace}/{:?} rule {index}", policy.name, policy.kind)
        }
        Reason::EndOfTier { tier } => format!("end of tier {tier}"),
        Reason::ProfileRule { profile, index } => format!("profile {profile} rule {index}"),
        Reason::ProfileMissing { .. } | Reason::NothingAllows => "no profile".to_owned(),
        other => format!("{other:?}"),
    };
    format!("{outcome:?} {why}")
}

fn check(told: &[Value], calculation: &Calculation, dice: &mut Dice) -> Result<usize, TestCaseError> {
    let world = naive::World::new(told);
    let mut asked = 0;
    for id in calculation.locals().keys().filter(|id| id.namespace.is_some()) {
        let name = format!("{}/{}", id.namespace.as_deref().unwrap_or_default(), id.name);
        for _ in 0..10 {
            let packet = packet(dice);
            for (ours, theirs) in [
                (policy::Direction::Ingress, Direction::Ingress),
                (policy::Direction::Egress, Direction::Egress),
            ] {
                let decided = calculation
                    .decide(id, ours, Stage::Normal, &packet, Staged::Ignored)
                    .expect("a local endpoint");
                let verdict = world.verdict(&name, theirs, &in_naive_words(&packet)).expect("told to both");
                prop_assert_eq!(
                    in_short_of_calculation(decided.outcome, &decided.reason),
                    in_short(&verdict),
                    "{} {:?} {:?}\n{}",
                    name,
                    theirs,
                    packet,
                    in_lines(told)
                );
                asked += 1;
            }
        }
    }
    Ok(asked)
}

fn in_lines(told: &[Value]) -> String {
    told.iter().fold(String::new(), |mut text, value| {
        let _ = writeln!(text, "{value}");
        text
    })
}

proptest! {
    #[test]
    fn a_second_evaluator_says_the_same(seed: u64) {
        let mut dice = Dice::new(seed);
        let (told, calculation) = both(&mut dice);
        check(&told, &calculation, &mut dice)?;
    }
}

#[test]
fn the_second_evaluator_is_asked_often_enough() {
    let mut asked = 0;
    for seed in 0..50 {
        let mut dice = Dice::new(seed);
        let (told, calculation) = both(&mut dice);
        asked += check(&told, &calculation, &mut dice).expect("the same");
    }
    assert!(asked > 2_000, "{asked}");
}
