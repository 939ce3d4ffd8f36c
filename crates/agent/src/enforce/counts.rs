//! How many packets each rule dropped, for the metrics.

use std::collections::{BTreeMap, BTreeSet};

use host::nftables::object::Counter;
use policy::ruleset::{Action, Change, Name, Rule, Verdict};

/// Which counters count packets that are dropped. The others count what is allowed, passed on or logged.
#[derive(Debug, Default)]
pub(super) struct Denials(BTreeSet<Name>);

impl Denials {
    /// Learns from the changes that rules go through.
    pub(super) fn follow(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::AddRules { rules, .. } => self.0.extend(rules.iter().filter_map(denial)),
                Change::DeleteCounter { counter, .. } => drop(self.0.remove(counter)),
                _ => {}
            }
        }
    }

    /// Packets by policy, direction and rule.
    pub(super) fn totals(&self, counters: &[Counter]) -> BTreeMap<[String; 3], u64> {
        let mut totals = BTreeMap::new();
        for counter in counters.iter().filter(|counter| counter.packets > 0) {
            if self.0.contains(counter.name.as_str()) {
                *totals.entry(labels(&counter.name)).or_default() += counter.packets;
            }
        }
        totals
    }
}

/// The counter of a rule that counts and drops.
fn denial(rule: &Rule) -> Option<Name> {
    match rule.actions.as_slice() {
        [Action::Count(counter), .., Action::Verdict(Verdict::Drop | Verdict::Reject(_))] => {
            Some(counter.clone())
        }
        _ => None,
    }
}

/// From the name of a counter, as the rendering makes it: `n-`, the chain, and what of it.
fn labels(name: &str) -> [String; 3] {
    let name = name.strip_prefix("n-").unwrap_or(name);
    let (chain, what) = name.rsplit_once('/').unwrap_or((name, ""));
    let known = [
        ("pi-", "ingress", ""),
        ("po-", "egress", ""),
        ("pri-", "ingress", "profile "),
        ("pro-", "egress", "profile "),
    ];
    for (prefix, direction, sort) in known {
        if let Some(policy) = chain.strip_prefix(prefix) {
            return [format!("{sort}{policy}"), direction.to_owned(), what.to_owned()];
        }
    }
    match (chain, what) {
        ("end-ingress" | "end-egress", "nothing-allows") => {
            [String::new(), chain[4..].to_owned(), what.to_owned()]
        }
        ("end-ingress" | "end-egress", tier) => {
            [format!("tier {tier}"), chain[4..].to_owned(), "end".to_owned()]
        }
        _ => [chain.to_owned(), String::new(), what.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_dropped_counts() {
        let count = |name: &str| Action::Count(name.into());
        let rules = vec![
            Rule::new(Vec::new(), vec![count("n-pi-knp/shop/web/0"), Action::Verdict(Verdict::Return)]),
            Rule::new(Vec::new(), vec![count("n-pi-gnp/shut/1"), Action::Verdict(Verdict::Drop)]),
            Rule::new(Vec::new(), vec![count("n-end-ingress/default"), Action::Verdict(Verdict::Drop)]),
        ];
        let mut denials = Denials::default();
        let (table, chain): (Name, Name) = ("t".into(), "c".into());
        denials.follow(&[Change::AddRules { table: table.clone(), chain, rules }]);
        let counter = |name: &str| Counter { name: name.to_owned(), packets: 3, bytes: 180 };
        let all = ["n-pi-knp/shop/web/0", "n-pi-gnp/shut/1", "n-end-ingress/default", "n-other"].map(counter);
        let labels = |texts: [&str; 3]| texts.map(str::to_owned);
        let expected =
            [(labels(["gnp/shut", "ingress", "1"]), 3), (labels(["tier default", "ingress", "end"]), 3)];
        assert_eq!(denials.totals(&all), BTreeMap::from(expected));
        denials.follow(&[Change::DeleteCounter { table, counter: "n-pi-gnp/shut/1".into() }]);
        assert_eq!(denials.totals(&all).len(), 1);
    }
}
