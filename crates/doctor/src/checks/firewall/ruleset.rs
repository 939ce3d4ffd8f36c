//! A node's rules with an index: chains call each other by name, and there may be very many.

use std::collections::BTreeMap;

use evidence::firewall::{Chain, Firewall, Match, Rule};

/// How much work a packet may be: so many times what the rules are, and a little more. Hardly a packet meets a rule twice. The kernel
/// refuses chains that lead back to themselves, and a pasted text does not.
const STEPS_PER_RULE: usize = 16;
const STEPS_LEAST: usize = 1_000;

/// A node's rules, made ready to lead packets through.
pub(super) struct Ruleset<'a> {
    chains: Vec<&'a Chain>,
    /// By family, table and name. Of several the first counts.
    by_name: BTreeMap<(&'a str, &'a str, &'a str), &'a Chain>,
    steps_max: usize,
}

impl<'a> Ruleset<'a> {
    /// Without network policy: what it drops, it is meant to drop, and it changes no packet.
    pub(super) fn of(firewall: &'a Firewall) -> Ruleset<'a> {
        Ruleset::of_chains(firewall.chains.iter().filter(|chain| !is_policy(chain)).collect())
    }

    /// Without the agent's own table: what others made.
    pub(super) fn of_others(firewall: &'a Firewall) -> Ruleset<'a> {
        Ruleset::of_chains(firewall.chains.iter().filter(|chain| !is_ours(chain)).collect())
    }

    fn of_chains(chains: Vec<&'a Chain>) -> Ruleset<'a> {
        let mut by_name = BTreeMap::new();
        for chain in &chains {
            by_name
                .entry((chain.family.as_str(), chain.table.as_str(), chain.name.as_str()))
                .or_insert(*chain);
        }
        let weight: usize = chains.iter().flat_map(|chain| &chain.rules).map(weight).sum();
        let steps_max = STEPS_LEAST.saturating_add(weight.saturating_mul(STEPS_PER_RULE));
        Ruleset { chains, by_name, steps_max }
    }

    /// The chain that a rule of another one calls by this name.
    pub(super) fn called(&self, from: &'a Chain, name: &'a str) -> Option<&'a Chain> {
        self.by_name.get(&(from.family.as_str(), from.table.as_str(), name)).copied()
    }

    pub(super) fn chains(&self) -> impl Iterator<Item = &'a Chain> {
        self.chains.iter().copied()
    }

    pub(super) fn steps_max(&self) -> usize {
        self.steps_max
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }
}

/// How much there is to compare a packet with.
pub(super) fn weight(rule: &Rule) -> usize {
    let of_match = |matching: &Match| match matching {
        Match::Device { names, .. } | Match::Protocol { names, .. } => names.len(),
        Match::Address { ranges, .. } => ranges.len(),
        Match::Port { ranges, .. } => ranges.len(),
        Match::State { states, .. } => states.len(),
        _ => 1,
    };
    1 + rule.matches.iter().map(of_match).sum::<usize>()
}

fn is_ours(chain: &Chain) -> bool {
    is_in(chain, plan::between::NAT_TABLE) || is_policy(chain)
}

fn is_policy(chain: &Chain) -> bool {
    is_in(chain, plan::between::POLICY_TABLE)
}

fn is_in(chain: &Chain, table: &str) -> bool {
    table.split_once(' ') == Some((&chain.family, &chain.table))
}
