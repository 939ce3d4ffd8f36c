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
mod heartbeat;
mod page;
mod plan;
#[cfg(test)]
mod proof;
mod remedies;
mod scope;
pub mod witness;

pub use depends::Footing;
pub use draft::{Draft, Ground, Target};
pub use edit::{Edit, Holding, Is};
use model::FindingCode;
pub use page::{Edited, Page, Surprise, is_same_record};
pub use plan::{Dropped, Fixed, Left, OnNode, PLAN_VERSION, Plan, Step, StepId, Still};
pub use remedies::{ALL, Remedy, find};
pub use scope::{Scope, ScopeError};

use doctor::{Options, Report};
use evidence::Evidence;

/// What would be done about a report's findings. ID, cluster and grace are for the caller to fill in.
pub fn plan(evidence: &Evidence, report: &Report, scope: &Scope, options: &Options) -> Plan {
    plan_on(&Ground::new(evidence, options, scope), report, scope, options)
}

/// The same, for whoever runs in the cluster and can ask neither runtimes nor kernels: kubelets are witnesses instead. What rests on the word
/// of one ([`witness::rests_on_kubelet`]) must be found for longer than the grace.
pub fn plan_hearing_kubelets(evidence: &Evidence, report: &Report, scope: &Scope, options: &Options) -> Plan {
    let mut ground = Ground::new(evidence, options, scope);
    ground.hears_kubelets = true;
    plan_on(&ground, report, scope, options)
}

fn plan_on(ground: &Ground<'_>, report: &Report, scope: &Scope, options: &Options) -> Plan {
    let evidence = ground.case.evidence;
    let mut draft = Draft::new(ground);
    let mut targets: Vec<(usize, &'static Remedy, Target)> = Vec::new();
    let has_wrong_address = report.findings.iter().any(|finding| remedies::is_about_address(finding.code));
    for finding in &report.findings {
        for target in Target::of(finding) {
            let (rank, remedy) = remedies::ranked(target.code);
            let must_wait = remedies::must_wait(finding.code, target.code)
                || remedies::follows_from_record(ground, finding.code, &target);
            if !ground.is_wanted(remedy, &target) || must_wait {
                continue;
            }
            if has_wrong_address && remedies::is_made_of_addresses(target.code) {
                draft.leave(&target, "it depends on a node's address that is wrong; repair that first");
            } else {
                targets.push((rank, remedy, target));
            }
        }
    }
    targets.extend(node_to_bury(ground, scope));
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
        scope: scope.clone(),
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
    let code = FindingCode::AffinityOfGoneNode;
    let (rank, remedy) = remedies::ranked(code);
    let summary = format!("nothing shows that node {name} is alive");
    Some((rank, remedy, Target { code, subject: doctor::Subject::node(name), summary }))
}
