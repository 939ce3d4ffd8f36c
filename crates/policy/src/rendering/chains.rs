//! The chains of policies, profiles and workloads.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::IpVersion;

use crate::calculation::{Calculation, Local};
use crate::evaluate::{ICMP_V6, Stage, Staged, governing};
use crate::record::{Direction, Policy, PolicyId, PolicyKind, Profile, Rule as PolicyRule, RuleAction};
use crate::ruleset::{
    Action, Chain, ConnectionStates, Device, Icmp, Match, Name, Pattern, PortRange, Rejection, Rule, Side,
    Verdict,
};

use super::rules::{Wanted, digest, render};
use super::settings::{DenyAction, EndpointToHost, Marks, Settings};

/// From the device of a workload, and to it.
pub(super) const FROM_WORKLOADS: &str = "from-workloads";
pub(super) const TO_WORKLOADS: &str = "to-workloads";
const WORKLOAD_TO_HOST: &str = "workload-to-host";

const UDP: u8 = 17;
const IPIP: u8 = 4;

/// What some records become.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) chains: BTreeMap<Name, Chain>,
    pub(super) sets: Wanted,
    /// Map, device and verdict.
    pub(super) elements: BTreeMap<(Name, Name), Verdict>,
}

/// A name that the kernel takes, whatever its parts are.
pub(super) fn name(prefix: &str, rest: &str) -> Name {
    const LONGEST: usize = 200;
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/-_.".contains(character);
    match rest.len() <= LONGEST && rest.chars().all(is_plain) {
        true => format!("{prefix}-{rest}").into(),
        false => format!("{prefix}-sha-{}", digest(rest)).into(),
    }
}

pub(super) fn policy_chain(id: &PolicyId, direction: Direction) -> Name {
    let prefix = if direction == Direction::Ingress { "pi" } else { "po" };
    name(prefix, &id.to_string())
}

pub(super) fn profile_chain(profile: &str, direction: Direction) -> Name {
    let prefix = if direction == Direction::Ingress { "pri" } else { "pro" };
    name(prefix, profile)
}

pub(super) fn workload_chain(device: &str, direction: Direction) -> Name {
    let prefix = if direction == Direction::Ingress { "tw" } else { "fw" };
    name(prefix, device)
}

/// Counts what a chain decides under a name that does not depend on when it was written.
pub(super) fn counter(chain: &str, what: impl std::fmt::Display) -> Name {
    name("n", &format!("{chain}/{what}"))
}

pub(super) struct Writer<'a> {
    pub(super) calculation: &'a Calculation,
    pub(super) settings: &'a Settings,
    pub(super) marks: Marks,
}

impl Writer<'_> {
    pub(super) fn policy(&self, policy: &Policy) -> Part {
        let mut part = Part::default();
        for direction in Direction::BOTH {
            let Some(rules) = policy.rules(direction) else { continue };
            let chain = policy_chain(&policy.id, direction);
            let rules = match &policy.set_aside {
                Some(why) => vec![self.deny(&chain, "set-aside").commented(format_args!("set aside: {why}"))],
                None => {
                    let (namespace, name) = (policy.id.namespace.as_deref(), &policy.id.name);
                    let prefix = self.log_prefix(&policy.tier, policy.id.kind.name(), namespace, name);
                    self.rules(&chain, rules, &prefix, &mut part.sets)
                }
            };
            part.chains.insert(chain, Chain { base: None, rules });
        }
        part
    }

    /// None where endpoints name a profile that does not exist.
    pub(super) fn profile(&self, name: &str, profile: Option<&Profile>) -> Part {
        let mut part = Part::default();
        for direction in Direction::BOTH {
            let chain = profile_chain(name, direction);
            let rules = match profile {
                None => vec![self.deny(&chain, "missing").commented("the profile does not exist")],
                Some(Profile { set_aside: Some(why), .. }) => {
                    vec![self.deny(&chain, "set-aside").commented(format_args!("set aside: {why}"))]
                }
                Some(profile) => {
                    let prefix = self.log_prefix("", "Profile", None, name);
                    self.rules(&chain, profile.rules(direction), &prefix, &mut part.sets)
                }
            };
            part.chains.insert(chain, Chain { base: None, rules });
        }
        part
    }

    fn rules(&self, chain: &Name, rules: &[PolicyRule], log_prefix: &str, wanted: &mut Wanted) -> Vec<Rule> {
        let mut written = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let actions = self.actions(chain, index, rule, log_prefix);
            let comment = rule
                .name
                .as_ref()
                .map_or_else(|| format!("rule {index}"), |name| format!("rule {index}: {name}"));
            let of_rule = render(self.calculation, rule, &actions, wanted);
            written.extend(of_rule.into_iter().map(|rule| rule.commented(&comment)));
        }
        written
    }

    fn actions(&self, chain: &Name, index: usize, rule: &PolicyRule, log_prefix: &str) -> Vec<Action> {
        let count = Action::Count(counter(chain, index));
        let mark = |bit| Action::SetMark { mask: bit, value: bit };
        match rule.action {
            RuleAction::Allow => vec![count, mark(self.marks.accept), Action::Verdict(Verdict::Return)],
            RuleAction::Pass => vec![count, mark(self.marks.pass), Action::Verdict(Verdict::Return)],
            RuleAction::Deny => vec![count, self.denial()],
            RuleAction::Log => {
                let log = Action::Log { prefix: log_prefix.into(), level: self.settings.log_level };
                [Some(count), self.settings.log_limit.map(Action::Limit), Some(log)]
                    .into_iter()
                    .flatten()
                    .collect()
            }
        }
    }

    /// The kernel prints up to 127 bytes.
    fn log_prefix(&self, tier: &str, kind: &str, namespace: Option<&str>, name: &str) -> String {
        const LONGEST: usize = 100;
        let path = namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
        let expanded = self.settings.log_prefix.replace("%t", tier).replace("%k", kind);
        let expanded = expanded.replace("%n", name).replace("%p", &path);
        let plain = expanded.chars().filter(|character| character.is_ascii_graphic() && *character != '"');
        format!("{}: ", plain.take(LONGEST).collect::<String>())
    }

    fn denial(&self) -> Action {
        Action::Verdict(match self.settings.deny {
            DenyAction::Drop => Verdict::Drop,
            DenyAction::Reject => Verdict::Reject(Rejection::PortUnreachable),
        })
    }

    pub(super) fn deny(&self, chain: &str, what: &str) -> Rule {
        Rule::new(Vec::new(), vec![Action::Count(counter(chain, what)), self.denial()])
    }

    fn is_marked(&self, bit: u32, is_set: bool) -> Match {
        Match::Mark { mask: bit, value: if is_set { bit } else { 0 }, negated: false }
    }

    pub(super) fn clear(&self, bits: u32) -> Rule {
        Rule::new(Vec::new(), vec![Action::SetMark { mask: bits, value: 0 }])
    }

    /// Both chains of a workload, and the ways into them.
    pub(super) fn workload(&self, local: &Local) -> Part {
        let mut part = Part::default();
        for (direction, map) in [(Direction::Egress, FROM_WORKLOADS), (Direction::Ingress, TO_WORKLOADS)] {
            let chain = workload_chain(&local.device, direction);
            let mut rules = self.connections();
            if direction == Direction::Egress {
                rules.extend(self.encapsulated());
            }
            rules.push(self.clear(self.marks.accept | self.marks.pass));
            rules.extend(self.tiers(local, direction, Stage::Normal));
            rules.extend(self.profiles(local, direction));
            part.elements.insert((map.into(), Arc::clone(&local.device)), Verdict::Goto(Arc::clone(&chain)));
            part.chains.insert(chain, Chain { base: None, rules });
        }
        part
    }

    pub(super) fn connections(&self) -> Vec<Rule> {
        let known = ConnectionStates { established: true, related: true, ..ConnectionStates::default() };
        let invalid = ConnectionStates { invalid: true, ..ConnectionStates::default() };
        let on = |states, verdict| Rule::new(vec![Match::Connection(states)], vec![Action::Verdict(verdict)]);
        let mut rules = vec![on(known, Verdict::Accept)];
        rules.extend(self.settings.drops_invalid.then(|| on(invalid, Verdict::Drop)));
        rules
    }

    /// With them a workload could send packets in any other's name.
    fn encapsulated(&self) -> Vec<Rule> {
        let protocol = |protocol| Match::Protocol { protocol, negated: false };
        let drop = |matches, what: &str| {
            Rule::new(
                matches,
                vec![Action::Count(counter("encapsulated", what)), Action::Verdict(Verdict::Drop)],
            )
        };
        let port = Match::Ports {
            side: Side::Destination,
            range: PortRange::single(self.settings.vxlan_port),
            negated: false,
        };
        let vxlan = (!self.settings.allows_vxlan).then(|| drop(vec![protocol(UDP), port], "vxlan"));
        let ipip = (!self.settings.allows_ipip).then(|| drop(vec![protocol(IPIP)], "ipip"));
        vxlan.into_iter().chain(ipip).collect()
    }

    pub(super) fn tiers(&self, local: &Local, direction: Direction, stage: Stage) -> Vec<Rule> {
        let mut rules = Vec::new();
        let jump = |chain| vec![Action::Verdict(Verdict::Jump(chain))];
        for tier in self.calculation.tiers(local).iter() {
            let policies = governing(tier, direction, stage, Staged::Ignored);
            if policies.is_empty() {
                continue;
            }
            if !rules.is_empty() {
                rules.push(self.clear(self.marks.pass).commented(format_args!("tier {}", tier.name)));
            }
            for (index, policy) in policies.iter().enumerate() {
                let unless_passed = (index > 0).then(|| self.is_marked(self.marks.pass, false));
                let chain = policy_chain(&policy.id, direction);
                rules.push(Rule::new(unless_passed.into_iter().collect(), jump(chain)));
                rules.push(self.return_if_accepted());
            }
            if stage.drops_at_ends() && !tier.passes {
                let chain = format!("end-{direction}");
                let drop = self.deny(&chain, &tier.name);
                let matches = vec![self.is_marked(self.marks.pass, false)];
                rules.push(Rule { matches, ..drop }.commented(format_args!("end of tier {}", tier.name)));
            }
        }
        rules
    }

    fn return_if_accepted(&self) -> Rule {
        Rule::new(vec![self.is_marked(self.marks.accept, true)], vec![Action::Verdict(Verdict::Return)])
    }

    pub(super) fn profiles(&self, local: &Local, direction: Direction) -> Vec<Rule> {
        let mut rules = Vec::new();
        for profile in &local.profiles {
            rules.push(Rule::always(Verdict::Jump(profile_chain(profile, direction))));
            rules.push(self.return_if_accepted());
        }
        rules.push(self.deny(&format!("end-{direction}"), "nothing-allows").commented("nothing allows it"));
        rules
    }

    /// The chains that every ruleset has, without those of the kernel's hooks.
    pub(super) fn frame(&self) -> Part {
        let mut part = Part::default();
        for (chain, end, map) in
            [(FROM_WORKLOADS, Device::Input, FROM_WORKLOADS), (TO_WORKLOADS, Device::Output, TO_WORKLOADS)]
        {
            let lookup = Rule::new(Vec::new(), vec![Action::Lookup { end, map: map.into() }]);
            let drop = vec![Action::Count(counter(chain, "unknown-device")), Action::Verdict(Verdict::Drop)];
            let drop = Rule::new(Vec::new(), drop).commented("no endpoint has this device");
            part.chains.insert(chain.into(), Chain { base: None, rules: vec![lookup, drop] });
        }
        part.chains.insert(WORKLOAD_TO_HOST.into(), Chain { base: None, rules: self.workload_to_host() });
        part
    }

    fn workload_to_host(&self) -> Vec<Rule> {
        // Listener reports and queries, router solicitations, neighbours. No router advertisements: workloads are no routers.
        const MAY_PASS: [u8; 6] = [130, 131, 132, 133, 135, 136];
        let mut rules: Vec<Rule> = MAY_PASS.into_iter().map(|kind| self.neighbours(kind)).collect();
        rules.push(Rule::always(Verdict::Jump(FROM_WORKLOADS.into())));
        let verdict = match self.settings.endpoint_to_host {
            EndpointToHost::Drop => Verdict::Drop,
            EndpointToHost::Return => Verdict::Return,
            EndpointToHost::Accept => Verdict::Accept,
        };
        let clear = Action::SetMark { mask: self.marks.accept | self.marks.pass | self.marks.host, value: 0 };
        rules.push(
            Rule::new(Vec::new(), vec![clear, Action::Verdict(verdict)])
                .commented("defaultEndpointToHostAction"),
        );
        rules
    }

    pub(super) fn neighbours(&self, kind: u8) -> Rule {
        let matches = vec![
            Match::Family(IpVersion::V6),
            Match::Protocol { protocol: ICMP_V6, negated: false },
            Match::Icmp { icmp: Icmp { kind, code: None }, negated: false },
        ];
        Rule::new(matches, vec![Action::Verdict(Verdict::Accept)])
    }

    /// What the base chain of forwarded packets asks of workloads.
    pub(super) fn forward_workloads(&self) -> Vec<Rule> {
        self.on_devices(Device::Input, &Verdict::Jump(FROM_WORKLOADS.into()))
            .chain(self.on_devices(Device::Output, &Verdict::Jump(TO_WORKLOADS.into())))
            .collect()
    }

    pub(super) fn input_workloads(&self) -> Vec<Rule> {
        self.on_devices(Device::Input, &Verdict::Goto(WORKLOAD_TO_HOST.into())).collect()
    }

    pub(super) fn on_devices(&self, end: Device, verdict: &Verdict) -> impl Iterator<Item = Rule> {
        self.settings.device_prefixes.iter().map(move |prefix| {
            let is = Pattern::StartsWith(Arc::clone(prefix));
            Rule::new(vec![Match::Device { end, is }], vec![Action::Verdict(verdict.clone())])
        })
    }
}

impl PolicyKind {
    /// Whether the kernel knows policies of this kind.
    pub(super) fn is_rendered(self) -> bool {
        !self.is_staged()
    }
}
