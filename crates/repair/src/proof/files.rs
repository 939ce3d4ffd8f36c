//! Plans as files: what is written can be read, and whatever else is in a file is an error.

use proptest::prelude::*;
use serde_json::Value;

use super::{planned, with_agents};
use crate::Plan;
use doctor::checks::faults::{all, healthy_for};

/// A plan with every fault that is there, each on one of the nodes.
fn large() -> Plan {
    let mut plan = Plan::default();
    for fault in all() {
        let mut evidence = with_agents(healthy_for([&fault]));
        (fault.inject)(&mut evidence, 1);
        let part = planned(&evidence);
        plan.steps.extend(part.steps);
        plan.left.extend(part.left);
    }
    plan
}

#[test]
fn a_plan_is_the_same_after_it_was_written_and_read() {
    let plan = large();
    assert!(plan.steps.len() > 30 && plan.left.len() > 20, "{} {}", plan.steps.len(), plan.left.len());
    let text = serde_json::to_string_pretty(&plan).unwrap();
    let mut read: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(read, plan);
    assert_eq!(read.keep_agreed(&plan), []);
    for step in &plan.steps {
        assert!(!step.title.is_empty() && step.edits.iter().all(|edit| !edit.to_string().is_empty()));
    }
}

#[test]
fn every_removal_waits_for_a_second_look() {
    for step in large().steps {
        let on_node = step.on_node.iter().flat_map(|on_node| &on_node.works);
        let deletes = step.edits.iter().any(|edit| edit.to_string().starts_with("delete"));
        if deletes || on_node.into_iter().any(plan::task::RepairTask::is_removal) {
            assert!(step.needs_second_look, "{step:#?}");
        }
    }
}

/// Replaces the value at a place of a document, counted from the start.
fn replace(value: &mut Value, place: &mut usize, with: &Value) {
    if *place == 0 {
        *value = with.clone();
    }
    *place = place.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, place, with)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace(field, place, with)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn any_text_is_a_plan_or_an_error(text in ".*") {
        let _ = serde_json::from_str::<Plan>(&text);
    }

    /// A plan in which somebody changed something: read as it is, or an error.
    #[test]
    fn any_change_of_a_plan_is_a_plan_or_an_error(place in 0usize..4000, with in prop_oneof![Just(Value::Null), Just(Value::from(-1)), ".*".prop_map(Value::from), Just(Value::Array(Vec::new()))]) {
        thread_local!(static PLAN: Value = serde_json::to_value(large()).unwrap());
        let mut changed = PLAN.with(Value::clone);
        replace(&mut changed, &mut { place }, &with);
        if let Ok(plan) = serde_json::from_value::<Plan>(changed) {
            let words: Vec<String> = plan.steps.iter().flat_map(|step| &step.edits).map(ToString::to_string).collect();
            prop_assert!(words.iter().all(|words| !words.is_empty()));
        }
    }
}
