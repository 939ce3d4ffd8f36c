//! Every fault of the doctor's own tests, planned and repaired on a made-up cluster: what was broken is whole again or left with a
//! reason, and nothing else is touched.

mod faults;
mod files;
mod kernel;
mod losses;
mod mishaps;
mod pages;
mod rules;
mod world;

use std::collections::BTreeSet;

use super::{Plan, Scope, plan};
use doctor::{Options, Report, diagnose};
use evidence::Evidence;
use model::{AgentMode, FindingCode};

/// A finding by its code and subject.
type Named = (FindingCode, String);

/// Everything that a report tells: findings, and what they explain.
fn told(report: &Report) -> BTreeSet<Named> {
    let findings = report.findings.iter().flat_map(|finding| {
        let own = (finding.code, finding.subject.to_string());
        let symptoms = finding.symptoms.iter().map(|symptom| (symptom.code, symptom.subject.to_string()));
        std::iter::once(own).chain(symptoms)
    });
    findings.collect()
}

fn planned(evidence: &Evidence) -> Plan {
    planned_for(evidence, &Scope::Everything)
}

fn planned_for(evidence: &Evidence, scope: &Scope) -> Plan {
    plan(evidence, &diagnose(evidence), scope, &Options::default())
}

fn mended(plan: &Plan) -> BTreeSet<Named> {
    let named = |(code, subject): (FindingCode, &str)| (code, subject.to_owned());
    plan.steps.iter().flat_map(|step| step.fixes().map(named).collect::<Vec<_>>()).collect()
}

/// A cluster in full health, with an agent on every node that carries out repairs.
fn healthy() -> Evidence {
    with_agents(doctor::checks::faults::healthy())
}

fn with_agents(mut evidence: Evidence) -> Evidence {
    evidence.nodes.values_mut().for_each(|node| node.agent_mode = Some(AgentMode::Repairs));
    evidence
}
