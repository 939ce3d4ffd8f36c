//! The screen.

use std::fmt::Write as _;

use doctor::Severity;
use ipam::PoolUsage;
use render::harmless;

use super::summary::Summary;

/// How many names stand on a line, and how many lines of one sort there are.
const SHOWN_MAX: usize = 5;

pub(super) fn text(summary: &Summary) -> String {
    let mut text = String::new();
    let verdict = if summary.works() { "the network works" } else { "the network does not work" };
    line(&mut text, "Status", verdict);
    for problem in summary.problems.iter().take(SHOWN_MAX) {
        line(&mut text, "", &format!("- {problem}"));
    }
    more(&mut text, summary.problems.len());
    line(&mut text, "Store", &summary.store);
    agents(&mut text, summary);
    let sessions =
        summary.sessions.map(|(established, wanted)| format!("{established} of {wanted} established"));
    line(&mut text, "BGP", sessions.as_deref().unwrap_or("no sessions reported"));
    pools(&mut text, &summary.pools);
    findings(&mut text, summary);
    match summary.not_enforced.as_slice() {
        [] => line(&mut text, "Not enforced", "nothing"),
        some => some.iter().take(SHOWN_MAX).for_each(|what| line(&mut text, "Not enforced", what)),
    }
    if !summary.unseen.is_empty() {
        let words = format!("{} sorts of evidence; plumb doctor names them", summary.unseen.len());
        line(&mut text, "Not checked", &words);
    }
    text
}

/// Names and messages of others give the terminal no orders.
fn line(text: &mut String, label: &str, words: &str) {
    // Writing into a text cannot fail.
    let _ = writeln!(text, "{label:<13} {}", harmless(words));
}

fn more(text: &mut String, count: usize) {
    if count > SHOWN_MAX {
        line(text, "", &format!("… and {} more; -o json shows all", count - SHOWN_MAX));
    }
}

fn agents(text: &mut String, summary: &Summary) {
    let agents = &summary.agents;
    let versions = agents.versions.iter().map(|(version, count)| format!("{count} × version {version}"));
    let versions: Vec<String> = versions.collect();
    let with_agent: usize = agents.versions.values().sum();
    let mut words = format!("on {with_agent} of {} nodes", agents.nodes);
    if !versions.is_empty() {
        words = format!("{words}: {}", versions.join(", "));
    }
    line(text, "Agents", &words);
    let ready = agents.observed - agents.not_ready.len().min(agents.observed);
    let words = match agents.observed {
        0 => "not known from here: run this on a node, or against a Kubernetes store".to_owned(),
        observed => format!("{ready} of {observed} observed agents are ready"),
    };
    line(text, "Readiness", &words);
}

fn pools(text: &mut String, pools: &[PoolUsage]) {
    let named: Vec<&PoolUsage> = pools.iter().filter(|pool| pool.name.is_some()).collect();
    if named.is_empty() {
        line(text, "Pools", "none");
    }
    for pool in named {
        let (total, name) = (&pool.total, pool.name.as_deref().unwrap_or_default());
        let cidr = pool.cidr.map(|cidr| cidr.to_string()).unwrap_or_default();
        let share = (total.in_use as f64 / total.capacity.max(1) as f64) * 100.0;
        let words =
            format!("{name} {cidr}: {} in use ({share:.1} %), {} free", total.in_use, total.available());
        line(text, "Pool", &words);
    }
}

fn findings(text: &mut String, summary: &Summary) {
    let count = |severity| -> usize {
        summary.findings.get(&severity).map_or(0, |codes| codes.values().map(|(count, _)| count).sum())
    };
    let (errors, warnings, infos) = (count(Severity::Error), count(Severity::Warning), count(Severity::Info));
    let words = match errors + warnings + infos {
        0 => "none".to_owned(),
        _ => format!("error: {errors}, warning: {warnings}, info: {infos}; plumb doctor explains them"),
    };
    line(text, "Findings", &words);
    for (code, (count, first)) in summary.findings.get(&Severity::Warning).into_iter().flatten() {
        line(text, "", &format!("- {count} × {code}: {first}"));
    }
}
