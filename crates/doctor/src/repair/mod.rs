//! Findings in, plan out: what would be done about them, in which order, and what is left to people.
//!
//! ```text
//!  Evidence ─▶ Report ─▶ findings ─▶ remedies (one per code) ─▶ Draft ─▶ Plan: steps, and what is left
//!                                     │ what is taken away: witnesses
//!                                     └ by hand: why, and the commands
//! ```
//!
//! A plan is made twice: once for the operator, and again right before it is carried out, from a new look. Only what both plans say
//! is done. So every rule that a remedy keeps holds at both moments, without being written down a second time.

mod depends;
mod draft;
mod edit;
mod page;
mod plan;
#[cfg(test)]
mod proof;
mod remedies;
pub mod witness;

use std::collections::BTreeSet;

pub use depends::Footing;
pub use draft::{Draft, Ground, Target};
pub use edit::{Edit, Holding, Is};
pub use page::{Edited, Page, Surprise};
pub use plan::{Dropped, Left, Mended, OnNode, PLAN_VERSION, Plan, Step, Still};
pub use remedies::{ALL, Remedy, find};

use crate::{Evidence, Options, Report};

/// What the operator wants to be repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    Everything,
    /// Blocks, handles, affinities.
    Ipam,
    /// Endpoints, and whatever a pod has in the kernel.
    Endpoints,
    /// Everything on a node, or that speaks of it. If its Node record is gone, this is the word that it does not come back.
    Node(String),
    /// The same, and the operator's word that the node is gone for good although its Node record is there.
    GoneNode(String),
    /// Findings of these codes.
    Codes(BTreeSet<String>),
}

impl Scope {
    pub fn words(&self) -> String {
        match self {
            Scope::Everything => "everything".to_owned(),
            Scope::Ipam => "ipam".to_owned(),
            Scope::Endpoints => "endpoints".to_owned(),
            Scope::Node(name) => format!("node {name}"),
            Scope::GoneNode(name) => format!("node {name} gone"),
            Scope::Codes(codes) => {
                format!("finding {}", codes.iter().map(String::as_str).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

/// What would be done about a report's findings. ID, cluster and grace are for the caller to fill in.
pub fn plan(evidence: &Evidence, report: &Report, scope: &Scope, options: &Options) -> Plan {
    let ground = Ground::new(evidence, options, scope);
    let mut draft = Draft::new(&ground);
    let mut targets: Vec<(usize, &'static Remedy, Target)> = Vec::new();
    let has_wrong_address = report.findings.iter().any(|finding| remedies::is_about_address(finding.code));
    for finding in &report.findings {
        for target in Target::of(finding) {
            let Some((rank, remedy)) = remedies::ranked(target.code) else { continue };
            if !ground.is_wanted(remedy, &target) || remedies::must_wait(finding.code, target.code) {
                continue;
            }
            if has_wrong_address && remedies::is_made_of_addresses(target.code) {
                draft.leave(
                    &target,
                    "it depends on an address of a node that is wrong: repair that first",
                    Vec::new(),
                );
            } else {
                targets.push((rank, remedy, target));
            }
        }
    }
    targets.extend(node_to_bury(&ground, scope));
    targets.sort_by(|a, b| (a.0, &a.2).cmp(&(b.0, &b.2)));
    targets.dedup_by(|a, b| (a.2.code, &a.2.subject) == (b.2.code, &b.2.subject));
    for (_, remedy, target) in &targets {
        remedy.plan(&mut draft, target);
    }
    let (steps, left) = draft.finish();
    Plan {
        version: PLAN_VERSION,
        looked_at: evidence.taken_at,
        grace_seconds: options.grace.as_secs_f64(),
        scope: scope.words(),
        steps,
        left,
        ..Plan::default()
    }
}

/// A node that the operator asks about and that nobody looked into: whether it is gone no finding can say while its record is there.
fn node_to_bury(ground: &Ground<'_>, scope: &Scope) -> Option<(usize, &'static Remedy, Target)> {
    let (Scope::Node(name) | Scope::GoneNode(name)) = scope else { return None };
    let is_asked_for = matches!(scope, Scope::GoneNode(_));
    let holds_something = ground.holds_something(name);
    if !is_asked_for && (ground.case.node(name).is_some() || !holds_something) {
        return None;
    }
    let code = "affinity-of-gone-node";
    let (rank, remedy) = remedies::ranked(code)?;
    let summary = format!("node {name} is not known to live");
    Some((rank, remedy, Target { code, subject: crate::Subject::node(name), summary }))
}
