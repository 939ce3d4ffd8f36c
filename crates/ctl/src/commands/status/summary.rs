//! What an examination says in a few numbers, and what of it keeps the network from working.

use std::collections::BTreeMap;

use doctor::Severity;
use evidence::Evidence;
use ipam::{Pool, PoolUsage, Reservations, pool_usage, reserved_networks};
use model::{FindingCode, Kind};
use serde_json::{Value, json};

use super::agents::Agents;
use crate::commands::doctor::Examined;

#[derive(Debug)]
pub(super) struct Summary {
    pub(super) store: String,
    pub(super) agents: Agents,
    /// Established sessions, and how many there should be. `None`: no node reports any.
    pub(super) sessions: Option<(u64, u64)>,
    pub(super) pools: Vec<PoolUsage>,
    /// By their severity: the code, how many, and what the first is about.
    pub(super) findings: BTreeMap<Severity, BTreeMap<FindingCode, (usize, String)>>,
    /// Policies and profiles that would deny traffic and do not.
    pub(super) not_enforced: Vec<String>,
    /// What could not be read, so that no finding is no proof.
    pub(super) unseen: Vec<String>,
    /// Why the network does not work; empty if it does.
    pub(super) problems: Vec<String>,
}

impl Summary {
    pub(super) fn new(store: String, examined: &Examined) -> Summary {
        let (evidence, report) = (&examined.evidence, &examined.report);
        let mut findings: BTreeMap<Severity, BTreeMap<FindingCode, (usize, String)>> = BTreeMap::new();
        for finding in &report.findings {
            let codes = findings.entry(finding.severity).or_default();
            codes.entry(finding.code).or_insert_with(|| (0, finding.summary.clone())).0 += 1;
        }
        let is_of_policies = |finding: &&doctor::Finding| finding.code == FindingCode::PolicyNotEnforced;
        let not_enforced =
            report.findings.iter().filter(is_of_policies).map(|finding| finding.summary.clone());
        let mut summary = Summary {
            store,
            agents: Agents::new(evidence),
            sessions: sessions(evidence),
            pools: pools(evidence),
            findings,
            not_enforced: not_enforced.collect(),
            unseen: report.unseen.iter().map(ToString::to_string).collect(),
            problems: Vec::new(),
        };
        let gap = report.unseen.iter().find(|unseen| unseen.is_essential());
        summary.problems = summary.problems_with(gap.map(ToString::to_string));
        summary
    }

    pub(super) fn works(&self) -> bool {
        self.problems.is_empty()
    }

    fn problems_with(&self, gap: Option<String>) -> Vec<String> {
        let mut problems: Vec<String> = gap.into_iter().collect();
        if problems.is_empty() && self.agents.nodes == 0 {
            problems.push("no node is registered: no agent has started yet".to_owned());
        }
        if problems.is_empty() && self.pools.iter().all(|pool| pool.name.is_none()) {
            problems.push("there is no pool, so no pod gets an address".to_owned());
        }
        problems.extend(self.agents.problems());
        if let Some((established, wanted)) =
            self.sessions.filter(|(established, wanted)| established < wanted)
        {
            problems.push(format!("{} of {wanted} BGP sessions are down", wanted - established));
        }
        for (code, (count, first)) in self.findings.get(&Severity::Error).into_iter().flatten() {
            // It is said on a line of its own; that nothing is denied does not keep packets from arriving.
            if *code != FindingCode::PolicyNotEnforced {
                problems.push(format!("{count} × {code}: {first}"));
            }
        }
        problems
    }

    pub(super) fn json(&self) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .rev()
            .flat_map(|(severity, codes)| {
                codes.iter().map(move |(code, (count, first))| {
                json!({ "severity": severity, "code": code.to_string(), "count": count, "first": first })
            })
            })
            .collect();
        let pools: Vec<Value> = self.pools.iter().filter(|pool| pool.name.is_some()).map(pool_json).collect();
        json!({
            "works": self.works(),
            "problems": self.problems,
            "store": self.store,
            "agents": self.agents.json(),
            "sessions": self.sessions.map(|(established, wanted)| json!({ "established": established, "wanted": wanted })),
            "pools": pools,
            "findings": findings,
            "notEnforced": self.not_enforced,
            "unseen": self.unseen,
        })
    }
}

fn pool_json(pool: &PoolUsage) -> Value {
    // What no integer of JSON's readers could hold is rounded.
    let number =
        |count: u128| u64::try_from(count).map_or_else(|_| json!(count as f64), |count| json!(count));
    json!({
        "name": pool.name, "cidr": pool.cidr.map(|cidr| cidr.to_string()),
        "total": number(pool.total.capacity), "inUse": number(pool.total.in_use),
        "reserved": number(pool.total.reserved), "free": number(pool.total.available()),
    })
}

/// A record that cannot be read is a finding of its own.
fn pools(evidence: &Evidence) -> Vec<PoolUsage> {
    let pools = evidence.records.all(Kind::IpPool).iter();
    let pools: Vec<Pool> = pools.filter_map(|pool| Pool::new(&pool.seen).ok()).collect();
    let reserved = evidence.records.all(Kind::IpReservation).iter();
    let reserved: Vec<_> = reserved.flat_map(|record| reserved_networks(&record.seen)).collect();
    let stored = evidence.ipam.iter().flat_map(|ipam| ipam.books.blocks.values());
    let blocks = stored.map(|stored| &stored.value).filter(|block| !block.deleted);
    pool_usage(&pools, blocks, &Reservations::new(&reserved))
}

/// What nodes report: this node through its agent, others through their status records.
fn sessions(evidence: &Evidence) -> Option<(u64, u64)> {
    let mut by_node: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for record in evidence.records.all(Kind::CalicoNodeStatus) {
        let status = record.seen.body.get("status").unwrap_or(&Value::Null);
        let node = record.seen.spec("node").and_then(Value::as_str).unwrap_or_default();
        let count = |field: &str| status["bgp"][field].as_u64().unwrap_or_default();
        let up = count("numberEstablishedV4") + count("numberEstablishedV6");
        let down = count("numberNotEstablishedV4") + count("numberNotEstablishedV6");
        if up + down > 0 {
            by_node.insert(node.to_owned(), (up, up + down));
        }
    }
    for (name, node) in &evidence.nodes {
        let Some(bgp) = node.bgp.as_ref().filter(|bgp| !bgp.sessions.is_empty()) else { continue };
        let up = bgp.sessions.iter().filter(|session| session.seen.is_established()).count();
        by_node.insert(name.to_string(), (up as u64, bgp.sessions.len() as u64));
    }
    let add = |sum: (u64, u64), of: &(u64, u64)| (sum.0 + of.0, sum.1 + of.1);
    (!by_node.is_empty()).then(|| by_node.values().fold((0, 0), add))
}
