//! What becomes of one packet, and why: the calculated policies, asked in this program instead of in the kernel.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use model::IpVersion;

use crate::calculation::{Calculation, EndpointId, EndpointKind, Local, PolicyView, TierView};
use crate::record::{
    Direction, Entity, Layer, Policy, PolicyId, PolicyKind, Profile, Rule, RuleAction, SetSource,
};
use crate::ruleset::{AddressPort, Element, Icmp, Side};

pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMP_V6: u8 = 58;

/// The first packet of a connection, as it is at the endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    /// Of the source and the destination, for protocols that have ports.
    pub ports: Option<(u16, u16)>,
    /// Of ICMP and ICMPv6.
    pub icmp: Option<Icmp>,
}

impl Packet {
    pub fn version(&self) -> IpVersion {
        IpVersion::of(self.destination)
    }

    fn address(&self, side: Side) -> IpAddr {
        match side {
            Side::Source => self.source,
            Side::Destination => self.destination,
        }
    }

    fn port(&self, side: Side) -> Option<u16> {
        self.ports.map(|(source, destination)| match side {
            Side::Source => source,
            Side::Destination => destination,
        })
    }
}

/// Which of an endpoint's policies are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// What a workload, or a local process of a host, sends or receives.
    Normal,
    /// What a host forwards.
    Forward,
    /// Before services are translated.
    PreDnat,
    /// Before connections are tracked.
    Untracked,
}

impl Stage {
    pub(crate) fn asks(self, layer: Layer) -> bool {
        match self {
            Stage::Normal => layer.is_normal(),
            Stage::Forward => layer == Layer::NormalAndForward,
            Stage::PreDnat => layer == Layer::PreDnat,
            Stage::Untracked => layer == Layer::Untracked,
        }
    }

    /// Whether the end of a tier drops what its policies did not decide.
    pub(crate) fn drops_at_ends(self) -> bool {
        matches!(self, Stage::Normal | Stage::Forward)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Allow,
    Deny,
    /// Nothing here decides: what comes next in the packet's way does.
    Undecided,
}

/// What decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    Rule {
        tier: Arc<str>,
        policy: PolicyId,
        index: usize,
        name: Option<Arc<str>>,
    },
    /// The policy cannot be understood, so it denies.
    SetAside {
        tier: Arc<str>,
        policy: PolicyId,
        why: Arc<str>,
    },
    /// Policies of the tier select the endpoint, and none of them decided.
    EndOfTier {
        tier: Arc<str>,
    },
    ProfileRule {
        profile: Arc<str>,
        index: usize,
    },
    ProfileSetAside {
        profile: Arc<str>,
        why: Arc<str>,
    },
    /// The endpoint names a profile that does not exist.
    ProfileMissing {
        profile: Arc<str>,
    },
    /// No policy selects the endpoint, and no profile decided.
    NothingAllows,
    /// No policy of this stage selects the host endpoint.
    NoPolicy,
    /// A node may always reach its own workloads.
    OwnNode,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Rule { tier, policy, index, name } => {
                write!(f, "tier {tier}, policy {policy}, rule {index}")?;
                name.as_ref().map_or(Ok(()), |name| write!(f, " ({name})"))
            }
            Reason::SetAside { tier, policy, why } => {
                write!(f, "tier {tier}, policy {policy}, which is set aside: {why}")
            }
            Reason::EndOfTier { tier } => write!(f, "end of tier {tier}"),
            Reason::ProfileRule { profile, index } => write!(f, "profile {profile}, rule {index}"),
            Reason::ProfileSetAside { profile, why } => {
                write!(f, "profile {profile}, which is set aside: {why}")
            }
            Reason::ProfileMissing { profile } => write!(f, "profile {profile}, which does not exist"),
            Reason::NothingAllows => f.write_str("no profile allows it"),
            Reason::NoPolicy => f.write_str("no policy applies"),
            Reason::OwnNode => f.write_str("the node of the workload may always reach it"),
        }
    }
}

/// A member of a set because of which a rule matched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    pub side: Side,
    pub set: Arc<SetSource>,
    pub member: Element,
}

/// A rule that matched without deciding: Log and Pass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    pub action: RuleAction,
    pub reason: Reason,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decision {
    pub outcome: Outcome,
    pub reason: Reason,
    pub hits: Vec<Hit>,
    pub steps: Vec<Step>,
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Endpoint(EndpointId),
    /// A process of this node, or a pod that uses its network.
    Node(Arc<str>),
    Elsewhere,
}

/// What both ends say. None where no endpoint of the calculation is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    pub egress: Option<Decision>,
    pub ingress: Option<Decision>,
}

/// Whether staged policies count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Staged {
    Ignored,
    /// As if they were enforced, each in the place of the policy of the same name.
    Counted,
}

impl Calculation {
    /// What both ends of a connection say to its first packet.
    pub fn connection(&self, source: &End, destination: &End, packet: &Packet) -> Connection {
        let decide = |end: &End, direction| match end {
            End::Endpoint(id) => self.decide(id, direction, Stage::Normal, packet, Staged::Ignored),
            End::Node(_) | End::Elsewhere => None,
        };
        let egress = decide(source, Direction::Egress);
        let is_own_node = match (source, destination) {
            (End::Node(node), End::Endpoint(id)) if id.kind == EndpointKind::Workload => {
                self.locals().get(id).is_some_and(|local| local.node.eq_ignore_ascii_case(node))
            }
            _ => false,
        };
        let ingress = match is_own_node {
            true => Some(decision(Outcome::Allow, Reason::OwnNode, Vec::new())),
            false => decide(destination, Direction::Ingress),
        };
        Connection { egress, ingress }
    }

    /// What one local endpoint says to a packet. None if there is no such endpoint.
    pub fn decide(
        &self,
        endpoint: &EndpointId,
        direction: Direction,
        stage: Stage,
        packet: &Packet,
        staged: Staged,
    ) -> Option<Decision> {
        let local = self.locals().get(endpoint)?;
        let tiers = self.tiers(local);
        let mut steps = Vec::new();
        let speaks = |tier: &&TierView| {
            tier.policies.iter().any(|policy| stage.asks(policy.layer) && is_counted(policy, staged))
        };
        if stage != Stage::Normal && !tiers.iter().any(|tier| speaks(&tier)) {
            return Some(decision(Outcome::Undecided, Reason::NoPolicy, steps));
        }
        for tier in tiers.iter() {
            if let Some(mut decided) = self.ask_tier(tier, direction, stage, packet, staged, &mut steps) {
                decided.steps = steps;
                return Some(decided);
            }
        }
        if stage != Stage::Normal {
            return Some(decision(Outcome::Undecided, Reason::NoPolicy, steps));
        }
        Some(self.ask_profiles(local, direction, packet, steps))
    }

    fn ask_tier(
        &self,
        tier: &TierView,
        direction: Direction,
        stage: Stage,
        packet: &Packet,
        staged: Staged,
        steps: &mut Vec<Step>,
    ) -> Option<Decision> {
        let policies = governing(tier, direction, stage, staged);
        let is_asked = !policies.is_empty();
        for view in policies {
            let Some(policy) = self.policy(&view.id) else { continue };
            let name = (&tier.name, policy.as_ref());
            if let Some(why) = &policy.set_aside {
                let reason = Reason::SetAside {
                    tier: Arc::clone(&tier.name),
                    policy: view.id.clone(),
                    why: Arc::clone(why),
                };
                return Some(decision(Outcome::Deny, reason, Vec::new()));
            }
            match self.ask_policy(name, direction, packet, steps) {
                None => {}
                Some((RuleAction::Pass, ..)) => return None,
                Some((action, reason, hits)) => {
                    let outcome = if action == RuleAction::Allow { Outcome::Allow } else { Outcome::Deny };
                    return Some(Decision { outcome, reason, hits, steps: Vec::new() });
                }
            }
        }
        let drops = is_asked && stage.drops_at_ends() && !tier.passes;
        drops.then(|| decision(Outcome::Deny, Reason::EndOfTier { tier: Arc::clone(&tier.name) }, Vec::new()))
    }

    /// The first rule that matches and ends the policy.
    fn ask_policy(
        &self,
        (tier, policy): (&Arc<str>, &Policy),
        direction: Direction,
        packet: &Packet,
        steps: &mut Vec<Step>,
    ) -> Option<(RuleAction, Reason, Vec<Hit>)> {
        for (index, rule) in policy.rules(direction).unwrap_or_default().iter().enumerate() {
            let Some(hits) = self.matches(rule, packet) else { continue };
            let (tier, policy, name) = (Arc::clone(tier), policy.id.clone(), rule.name.clone());
            let reason = Reason::Rule { tier, policy, index, name };
            if matches!(rule.action, RuleAction::Log | RuleAction::Pass) {
                steps.push(Step { action: rule.action, reason: reason.clone() });
            }
            if rule.action != RuleAction::Log {
                return Some((rule.action, reason, hits));
            }
        }
        None
    }

    fn ask_profiles(
        &self,
        local: &Local,
        direction: Direction,
        packet: &Packet,
        mut steps: Vec<Step>,
    ) -> Decision {
        for name in &local.profiles {
            let Some(Some(profile)) = self.profile(name) else {
                return decision(Outcome::Deny, Reason::ProfileMissing { profile: Arc::clone(name) }, steps);
            };
            if let Some(why) = &profile.set_aside {
                let reason = Reason::ProfileSetAside { profile: Arc::clone(name), why: Arc::clone(why) };
                return decision(Outcome::Deny, reason, steps);
            }
            if let Some(decided) = self.ask_profile(name, profile, direction, packet, &mut steps) {
                return Decision { steps, ..decided };
            }
        }
        decision(Outcome::Deny, Reason::NothingAllows, steps)
    }

    fn ask_profile(
        &self,
        name: &Arc<str>,
        profile: &Profile,
        direction: Direction,
        packet: &Packet,
        steps: &mut Vec<Step>,
    ) -> Option<Decision> {
        for (index, rule) in profile.rules(direction).iter().enumerate() {
            let Some(hits) = self.matches(rule, packet) else { continue };
            let reason = Reason::ProfileRule { profile: Arc::clone(name), index };
            let outcome = match rule.action {
                RuleAction::Allow => Outcome::Allow,
                RuleAction::Deny => Outcome::Deny,
                RuleAction::Log | RuleAction::Pass => {
                    steps.push(Step { action: rule.action, reason });
                    if rule.action == RuleAction::Pass {
                        return None;
                    }
                    continue;
                }
            };
            return Some(Decision { outcome, reason, hits, steps: Vec::new() });
        }
        None
    }

    /// Whether all of a rule is true of a packet, and which members of sets made it so.
    fn matches(&self, rule: &Rule, packet: &Packet) -> Option<Vec<Hit>> {
        let version = packet.version();
        let is_protocol = applies_to(rule, version)
            && rule.protocol.is_none_or(|protocol| protocol == packet.protocol)
            && rule.not_protocol.is_none_or(|protocol| protocol != packet.protocol)
            && rule.icmp.is_none_or(|icmp| packet.icmp.is_some_and(|found| covers(icmp, found)))
            && rule.not_icmp.is_none_or(|icmp| {
                packet.protocol == icmp_protocol(rule, version)
                    && packet.icmp.is_some_and(|found| !covers(icmp, found))
            });
        let mut hits = Vec::new();
        let holds = is_protocol
            && [Side::Source, Side::Destination]
                .into_iter()
                .all(|side| self.entity_matches(rule.entity(side), side, packet, &mut hits));
        holds.then_some(hits)
    }

    fn entity_matches(&self, entity: &Entity, side: Side, packet: &Packet, hits: &mut Vec<Hit>) -> bool {
        let address = packet.address(side);
        let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address));
        if !entity.nets.is_empty() && !within(&entity.nets) || within(&entity.not_nets) {
            return false;
        }
        let member = |set: &Option<Arc<SetSource>>| self.set(set.as_deref()?)?.member_of(address);
        let port_member = |set: &Option<Arc<SetSource>>| {
            let (port, protocol) = (packet.port(side)?, packet.protocol);
            let element = Element::AddressPort(AddressPort { address, protocol, port });
            self.set(set.as_deref()?)?.contains(&element).then_some(element)
        };
        let mut hit = |set: &Option<Arc<SetSource>>, member: Option<Element>| {
            if let (Some(set), Some(member)) = (set, member) {
                hits.push(Hit { side, set: Arc::clone(set), member });
            }
            member.is_some()
        };
        if entity.members.is_some() && !hit(&entity.members, member(&entity.members)) {
            return false;
        }
        if member(&entity.not_members).is_some() || port_member(&entity.not_named_ports).is_some() {
            return false;
        }
        let port_within = |ranges: &[crate::ruleset::PortRange]| {
            packet.port(side).is_some_and(|port| ranges.iter().any(|range| range.contains(port)))
        };
        if port_within(&entity.not_ports) {
            return false;
        }
        let asks_for_ports = !entity.ports.is_empty() || entity.named_ports.is_some();
        !asks_for_ports
            || port_within(&entity.ports)
            || hit(&entity.named_ports, port_member(&entity.named_ports))
    }
}

fn decision(outcome: Outcome, reason: Reason, steps: Vec<Step>) -> Decision {
    Decision { outcome, reason, hits: Vec::new(), steps }
}

fn covers(icmp: Icmp, found: Icmp) -> bool {
    icmp.kind == found.kind && (icmp.code.is_none() || icmp.code == found.code)
}

/// A rule that excludes some ICMP speaks of ICMP: of the protocol that it names, or of the packet's family.
pub(crate) fn icmp_protocol(rule: &Rule, version: IpVersion) -> u8 {
    match (rule.protocol, version) {
        (Some(protocol @ (ICMP | ICMP_V6)), _) => protocol,
        (_, IpVersion::V4) => ICMP,
        (_, IpVersion::V6) => ICMP_V6,
    }
}

/// Whether a rule exists for packets of a family. One that names networks, be it to exclude them, exists in their family only.
pub(crate) fn applies_to(rule: &Rule, version: IpVersion) -> bool {
    let has_family =
        |nets: &[IpNet]| nets.is_empty() || nets.iter().any(|net| IpVersion::of(net.addr()) == version);
    rule.version.is_none_or(|wanted| wanted == version)
        && [&rule.source, &rule.destination]
            .into_iter()
            .all(|entity| has_family(&entity.nets) && has_family(&entity.not_nets))
}

fn is_counted(policy: &PolicyView, staged: Staged) -> bool {
    !policy.staged || staged == Staged::Counted
}

/// The policies of a tier that are asked, in order.
pub(crate) fn governing(
    tier: &TierView,
    direction: Direction,
    stage: Stage,
    staged: Staged,
) -> Vec<&PolicyView> {
    let replaced: BTreeSet<PolicyId> = match staged {
        Staged::Ignored => BTreeSet::new(),
        Staged::Counted => {
            let staged = tier.policies.iter().filter(|policy| policy.staged);
            staged.filter_map(|policy| stands_for(&policy.id)).collect()
        }
    };
    let is_asked = |policy: &&PolicyView| {
        is_counted(policy, staged)
            && policy.has(direction)
            && stage.asks(policy.layer)
            && !replaced.contains(&policy.id)
    };
    tier.policies.iter().filter(is_asked).collect()
}

/// The enforced policy of the same name.
fn stands_for(staged: &PolicyId) -> Option<PolicyId> {
    let kind = match staged.kind {
        PolicyKind::StagedNetworkPolicy => PolicyKind::NetworkPolicy,
        PolicyKind::StagedGlobalNetworkPolicy => PolicyKind::GlobalNetworkPolicy,
        PolicyKind::StagedKubernetesNetworkPolicy => PolicyKind::KubernetesNetworkPolicy,
        _ => return None,
    };
    Some(PolicyId { kind, ..staged.clone() })
}
