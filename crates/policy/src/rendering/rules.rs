//! One rule of a policy as rules of the kernel.
//!
//! The kernel's matches are all required, so where a policy's rule offers a choice (an address in one of two sets, a port by number or by
//! name) there is a rule for each. Rules that decide may overlap; of those that log, at most one matches.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipnet::IpNet;
use model::IpVersion;
use sha2::{Digest, Sha256};

use crate::calculation::Calculation;
use crate::evaluate::{applies_to, icmp_protocol};
use crate::record::{Entity, Rule as PolicyRule, RuleAction, SetSource};
use crate::ruleset::{Action, Element, Match, Name, PortRange, Rule, Set, SetKind, Side};

/// What a set of the kernel holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// What the policy says itself.
    Constant(Set),
    /// Those members of a calculated set that fit the kind.
    Members(Arc<SetSource>, SetKind),
}

impl Contents {
    pub(super) fn kind(&self) -> SetKind {
        match self {
            Contents::Constant(set) => set.kind,
            Contents::Members(_, kind) => *kind,
        }
    }
}

/// The sets that rules refer to, by name.
pub(super) type Wanted = BTreeMap<Name, Contents>;

const VERSIONS: [IpVersion; 2] = [IpVersion::V4, IpVersion::V6];

/// The rules of the kernel for a rule of a policy. `actions` is what happens to a packet that matches.
pub(super) fn render(
    calculation: &Calculation,
    rule: &PolicyRule,
    actions: &[Action],
    wanted: &mut Wanted,
) -> Vec<Rule> {
    let mut rules = Vec::new();
    let versions: Vec<Option<IpVersion>> = match speaks_of_family(rule) {
        false => vec![None],
        true => VERSIONS.into_iter().filter(|version| applies_to(rule, *version)).map(Some).collect(),
    };
    for version in versions {
        let mut writer = Writer { calculation, wanted, version, matches: Vec::new(), choices: Vec::new() };
        if !writer.read(rule) {
            continue;
        }
        let is_exclusive = rule.action == RuleAction::Log;
        for matches in combinations(writer.matches, writer.choices, is_exclusive) {
            rules.push(Rule::new(matches, actions.to_vec()));
        }
    }
    rules
}

fn speaks_of_family(rule: &PolicyRule) -> bool {
    let of_entity = |entity: &Entity| {
        !entity.nets.is_empty()
            || !entity.not_nets.is_empty()
            || [&entity.members, &entity.not_members, &entity.named_ports, &entity.not_named_ports]
                .into_iter()
                .any(Option::is_some)
    };
    rule.version.is_some()
        || rule.not_icmp.is_some()
        || of_entity(&rule.source)
        || of_entity(&rule.destination)
}

/// Every way to choose one of each. If they must not overlap, a later one of a choice excludes those before it.
fn combinations(matches: Vec<Match>, choices: Vec<Vec<Match>>, is_exclusive: bool) -> Vec<Vec<Match>> {
    let mut all = vec![matches];
    for choice in choices {
        let mut longer = Vec::with_capacity(all.len() * choice.len());
        for matches in &all {
            for (index, chosen) in choice.iter().enumerate() {
                let mut matches = matches.clone();
                if is_exclusive {
                    matches.extend(choice.iter().take(index).map(negated));
                }
                matches.push(chosen.clone());
                longer.push(matches);
            }
        }
        all = longer;
    }
    all
}

fn negated(found: &Match) -> Match {
    let mut opposite = found.clone();
    match &mut opposite {
        Match::AddressInSet { negated, .. }
        | Match::AddressInNetwork { negated, .. }
        | Match::Protocol { negated, .. }
        | Match::Ports { negated, .. }
        | Match::PortInSet { negated, .. }
        | Match::AddressPortInSet { negated, .. }
        | Match::Icmp { negated, .. }
        | Match::Mark { negated, .. } => *negated = !*negated,
        Match::Dnat(wanted) => *wanted = !*wanted,
        Match::Device { .. } | Match::Family(_) | Match::Connection(_) => {}
    }
    opposite
}

struct Writer<'a> {
    calculation: &'a Calculation,
    wanted: &'a mut Wanted,
    version: Option<IpVersion>,
    matches: Vec<Match>,
    choices: Vec<Vec<Match>>,
}

impl Writer<'_> {
    /// False if no packet can match.
    fn read(&mut self, rule: &PolicyRule) -> bool {
        self.matches.extend(self.version.map(Match::Family));
        self.matches.extend(rule.protocol.map(|protocol| Match::Protocol { protocol, negated: false }));
        self.matches.extend(rule.not_protocol.map(|protocol| Match::Protocol { protocol, negated: true }));
        self.matches.extend(rule.icmp.map(|icmp| Match::Icmp { icmp, negated: false }));
        if let (Some(icmp), Some(version)) = (rule.not_icmp, self.version) {
            let protocol = icmp_protocol(rule, version);
            self.matches.push(Match::Protocol { protocol, negated: false });
            self.matches.push(Match::Icmp { icmp, negated: true });
        }
        [Side::Source, Side::Destination].into_iter().all(|side| self.read_entity(rule.entity(side), side))
    }

    fn read_entity(&mut self, entity: &Entity, side: Side) -> bool {
        if let Some(version) = self.version
            && !(self.read_nets(&entity.nets, side, version, false)
                && self.read_nets(&entity.not_nets, side, version, true))
        {
            return false;
        }
        self.read_members(entity, side);
        self.read_ports(entity, side);
        true
    }

    fn read_nets(&mut self, nets: &[IpNet], side: Side, version: IpVersion, negated: bool) -> bool {
        let nets: Vec<IpNet> =
            nets.iter().filter(|net| IpVersion::of(net.addr()) == version).map(IpNet::trunc).collect();
        if nets.iter().any(|net| net.prefix_len() == 0) {
            return !negated;
        }
        match nets.as_slice() {
            [] => {}
            [network] => self.matches.push(Match::AddressInNetwork { side, network: *network, negated }),
            _ => {
                let elements =
                    IpNet::aggregate(&nets).into_iter().flat_map(halves).map(Element::Network).collect();
                let set = self.constant(Set { kind: SetKind::Networks(version), elements });
                self.matches.push(Match::AddressInSet { side, version, set, negated });
            }
        }
        true
    }

    fn read_members(&mut self, entity: &Entity, side: Side) {
        let Some(version) = self.version else { return };
        if let Some(source) = &entity.members {
            let choice = self.member_matches(source, side, version, false);
            self.choices.push(choice);
        }
        if let Some(source) = &entity.not_members {
            let excluded = self.member_matches(source, side, version, true);
            self.matches.extend(excluded);
        }
        if let Some(source) = &entity.not_named_ports {
            let set = self.members(source, SetKind::AddressPorts(version));
            self.matches.push(Match::AddressPortInSet { side, version, set, negated: true });
        }
    }

    /// Single addresses, and networks if there are any.
    fn member_matches(
        &mut self,
        source: &Arc<SetSource>,
        side: Side,
        version: IpVersion,
        negated: bool,
    ) -> Vec<Match> {
        let has_networks = self.calculation.set(source).is_some_and(|set| set.has_networks(version));
        let mut kinds = vec![SetKind::Addresses(version)];
        kinds.extend(has_networks.then_some(SetKind::Networks(version)));
        let in_set = |set| Match::AddressInSet { side, version, set, negated };
        kinds.into_iter().map(|kind| in_set(self.members(source, kind))).collect()
    }

    fn read_ports(&mut self, entity: &Entity, side: Side) {
        if let Some(excluded) = self.ranges(&entity.not_ports, side, true) {
            self.matches.push(excluded);
        }
        let mut choice: Vec<Match> = self.ranges(&entity.ports, side, false).into_iter().collect();
        if let (Some(source), Some(version)) = (&entity.named_ports, self.version) {
            let set = self.members(source, SetKind::AddressPorts(version));
            choice.push(Match::AddressPortInSet { side, version, set, negated: false });
        }
        if !choice.is_empty() {
            self.choices.push(choice);
        }
    }

    fn ranges(&mut self, ranges: &[PortRange], side: Side, negated: bool) -> Option<Match> {
        match ranges {
            [] => None,
            [range] => Some(Match::Ports { side, range: *range, negated }),
            _ => {
                let elements = ranges.iter().copied().map(Element::Ports).collect();
                let set = self.constant(Set { kind: SetKind::Ports, elements });
                Some(Match::PortInSet { side, set, negated })
            }
        }
    }

    fn constant(&mut self, set: Set) -> Name {
        let text: Vec<String> = set.elements.iter().map(ToString::to_string).collect();
        let name = set_name("const", set.kind, &text.join(","));
        self.wanted.insert(Arc::clone(&name), Contents::Constant(set));
        name
    }

    fn members(&mut self, source: &Arc<SetSource>, kind: SetKind) -> Name {
        let name = member_set_name(source, kind);
        self.wanted.insert(Arc::clone(&name), Contents::Members(Arc::clone(source), kind));
        name
    }
}

/// Aggregation may make everything of two halves, which no set holds.
fn halves(net: IpNet) -> Vec<IpNet> {
    match net.prefix_len() {
        0 => net.subnets(1).map_or_else(|_| Vec::new(), Iterator::collect),
        _ => vec![net],
    }
}

/// A set has the same name whenever and wherever it is made.
pub(super) fn member_set_name(source: &SetSource, kind: SetKind) -> Name {
    let prefix = match source {
        SetSource::Selector(_) => "sel",
        SetSource::NamedPorts { .. } => "port",
        SetSource::Service { .. } | SetSource::ServicePorts { .. } => "svc",
    };
    set_name(prefix, kind, &source.to_string())
}

fn set_name(prefix: &str, kind: SetKind, text: &str) -> Name {
    let kind = match kind {
        SetKind::Addresses(IpVersion::V4) => "4",
        SetKind::Addresses(IpVersion::V6) => "6",
        SetKind::Networks(IpVersion::V4) => "4net",
        SetKind::Networks(IpVersion::V6) => "6net",
        SetKind::AddressPorts(IpVersion::V4) => "4port",
        SetKind::AddressPorts(IpVersion::V6) => "6port",
        SetKind::Ports => "ports",
    };
    format!("{prefix}{kind}-{}", digest(text)).into()
}

/// 128 bits, so that no author of a policy finds another text for it.
pub(super) fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
