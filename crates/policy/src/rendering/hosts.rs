//! The chains of host endpoints: what a node's own processes send and receive, what it forwards, and the two early stages.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::IpVersion;

use crate::calculation::{Calculation, EndpointKind, Local};
use crate::evaluate::{Stage, Staged, governing};
use crate::record::Direction;
use crate::ruleset::{
    Action, Base, Chain, Device, Element, Hook, Match, Name, PortRange, Rule, Set, SetKind, Side, Verdict,
};

use super::chains::{Part, Writer};
use super::rules::{Contents, digest};
use super::settings::{Failsafe, Settings};

/// The name that stands for all devices without an endpoint of their own.
const ANY_DEVICE: &str = "*";
const RAW: i32 = -300;
const MANGLE: i32 = -150;
const FILTER: i32 = 0;

/// What policy of hosts needs to know of its node and the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Addresses of this node's devices: some host endpoints are found by them.
    pub devices: BTreeMap<Arc<str>, BTreeSet<IpAddr>>,
    /// Addresses of all nodes. Their tunnels' packets pass before policy of hosts is asked.
    pub nodes: BTreeSet<IpAddr>,
}

/// Where host endpoints are asked.
struct Point {
    stage: Stage,
    direction: Direction,
    /// Of the dispatching chain and of the map.
    name: &'static str,
    prefix: &'static str,
}

const fn point(stage: Stage, direction: Direction, name: &'static str, prefix: &'static str) -> Point {
    Point { stage, direction, name, prefix }
}

const POINTS: [Point; 7] = [
    point(Stage::Normal, Direction::Ingress, "from-hosts", "fh"),
    point(Stage::Normal, Direction::Egress, "to-hosts", "th"),
    point(Stage::Forward, Direction::Ingress, "from-hosts-forward", "fhfw"),
    point(Stage::Forward, Direction::Egress, "to-hosts-forward", "thfw"),
    point(Stage::PreDnat, Direction::Ingress, "from-hosts-prednat", "fhpd"),
    point(Stage::Untracked, Direction::Ingress, "from-hosts-untracked", "fhun"),
    point(Stage::Untracked, Direction::Egress, "to-hosts-untracked", "thun"),
];

/// The maps that dispatch to host endpoints. They are there with or without one.
pub(super) fn map_names() -> impl Iterator<Item = &'static str> {
    POINTS.iter().map(|point| point.name)
}

/// Which host endpoint governs which device. The first by name does, however it came to the device.
fn governed(calculation: &Calculation, settings: &Settings, facts: &HostFacts) -> BTreeMap<Arc<str>, Local> {
    let mut governed: BTreeMap<Arc<str>, Local> = BTreeMap::new();
    let hosts = calculation.locals().iter().filter(|(id, _)| id.kind == EndpointKind::Host);
    for (_, local) in hosts {
        let devices: Vec<Arc<str>> = match local.device.is_empty() {
            false => vec![Arc::clone(&local.device)],
            true => {
                let is_expected = |address: &IpAddr| local.nets.iter().any(|net| net.addr() == *address);
                let found = facts.devices.iter().filter(|(_, addresses)| addresses.iter().any(is_expected));
                found.map(|(device, _)| Arc::clone(device)).collect()
            }
        };
        for device in devices {
            let is_of_workload = settings.device_prefixes.iter().any(|prefix| device.starts_with(&**prefix));
            if !is_of_workload {
                governed.entry(device).or_insert_with(|| local.clone());
            }
        }
    }
    governed
}

impl Writer<'_> {
    /// The base chains, and with host endpoints all that leads to them.
    pub(super) fn hooks(&self, facts: &HostFacts, part: &mut Part) {
        let governed = governed(self.calculation, self.settings, facts);
        let mut used = BTreeSet::new();
        for point in &POINTS {
            if self.dispatch(point, &governed, part) {
                used.insert(point.name);
            }
        }
        let jump = |name: &'static str| {
            used.contains(name)
                .then(|| Rule::always(Verdict::Jump(name.into())))
                .into_iter()
                .collect::<Vec<_>>()
        };
        let is_host = !governed.is_empty();
        self.base(part, "forward", Hook::Forward, FILTER, self.forward(&jump));
        self.base(part, "input", Hook::Input, FILTER, self.input(&jump, is_host, facts));
        if !is_host {
            return;
        }
        self.base(part, "output", Hook::Output, FILTER, self.output(&jump, facts));
        self.base(part, "postrouting", Hook::Postrouting, MANGLE, self.postrouting(&jump));
        self.base(part, "prednat", Hook::Prerouting, MANGLE, self.prednat(&jump));
        self.base(part, "untracked-in", Hook::Prerouting, RAW, self.untracked(&jump("from-hosts-untracked")));
        self.base(part, "untracked-out", Hook::Output, RAW, self.untracked(&jump("to-hosts-untracked")));
        self.tunnel_sets(facts, part);
    }

    fn base(&self, part: &mut Part, name: &str, hook: Hook, priority: i32, rules: Vec<Rule>) {
        part.chains.insert(name.into(), Chain { base: Some(Base { hook, priority }), rules });
    }

    /// The chains of one point, and the way into them. False if no endpoint is asked there.
    fn dispatch(&self, point: &Point, governed: &BTreeMap<Arc<str>, Local>, part: &mut Part) -> bool {
        let mut rules = Vec::new();
        for (device, local) in governed {
            // Policies that switch tracking off are not for all devices at once.
            let is_refused = &**device == ANY_DEVICE && point.stage == Stage::Untracked;
            let Some(of_device) = self.host_chain(point, local).filter(|_| !is_refused) else { continue };
            let chain =
                super::chains::name(point.prefix, if &**device == ANY_DEVICE { "/any" } else { device });
            part.chains.insert(Arc::clone(&chain), Chain { base: None, rules: of_device });
            let verdict = Verdict::Goto(chain);
            match &**device == ANY_DEVICE {
                true => rules.push(Rule::always(verdict)),
                false => drop(part.elements.insert((point.name.into(), Arc::clone(device)), verdict)),
            }
        }
        let has_devices = part.elements.keys().any(|(map, _)| &**map == point.name);
        if rules.is_empty() && !has_devices {
            return false;
        }
        // A device with an endpoint of its own is not one of "all devices", even where nothing is asked of it.
        let own = governed.keys().filter(|device| &***device != ANY_DEVICE);
        for device in own {
            part.elements.entry((point.name.into(), Arc::clone(device))).or_insert(Verdict::Return);
        }
        let end = if point.direction == Direction::Ingress { Device::Input } else { Device::Output };
        rules.insert(0, Rule::new(Vec::new(), vec![Action::Lookup { end, map: point.name.into() }]));
        part.chains.insert(point.name.into(), Chain { base: None, rules });
        true
    }

    /// None if there is nothing to ask at this point.
    fn host_chain(&self, point: &Point, local: &Local) -> Option<Vec<Rule>> {
        let tiers = self.calculation.tiers(local);
        let is_asked = tiers
            .iter()
            .any(|tier| !governing(tier, point.direction, point.stage, Staged::Ignored).is_empty());
        if !is_asked && point.stage != Stage::Normal {
            return None;
        }
        let mut rules = Vec::new();
        if point.stage != Stage::Untracked {
            rules.extend(self.connections());
        }
        if point.stage != Stage::Forward {
            rules.extend(self.failsafes(point));
        }
        rules.push(self.clear(self.marks.accept | self.marks.pass));
        rules.extend(self.tiers(local, point.direction, point.stage));
        if point.stage == Stage::Normal {
            rules.extend(self.profiles(local, point.direction));
        }
        Some(rules)
    }

    fn failsafes(&self, point: &Point) -> Vec<Rule> {
        let (own, other) = match point.direction {
            Direction::Ingress => (&self.settings.failsafe_inbound, &self.settings.failsafe_outbound),
            Direction::Egress => (&self.settings.failsafe_outbound, &self.settings.failsafe_inbound),
        };
        let far = if point.direction == Direction::Ingress { Side::Source } else { Side::Destination };
        let mut rules: Vec<Rule> =
            own.iter().map(|failsafe| accept(failsafe, Side::Destination, far)).collect();
        if point.stage == Stage::Untracked {
            // Replies: without tracking nobody knows that they are.
            rules.extend(other.iter().map(|failsafe| accept(failsafe, Side::Source, far)));
        }
        rules
    }

    fn forward(&self, jump: &dyn Fn(&'static str) -> Vec<Rule>) -> Vec<Rule> {
        let bits = self.marks.accept | self.marks.pass;
        let mut rules = vec![self.clear(bits)];
        rules.extend(jump("from-hosts-forward").into_iter().map(|rule| self.unless_host(rule)));
        rules.extend(self.forward_workloads());
        rules.extend(jump("to-hosts-forward"));
        rules.push(self.clear(bits | self.marks.host));
        rules
    }

    fn input(&self, jump: &dyn Fn(&'static str) -> Vec<Rule>, is_host: bool, facts: &HostFacts) -> Vec<Rule> {
        let mut rules = vec![self.clear(self.marks.accept | self.marks.pass)];
        rules.extend(self.input_workloads());
        if is_host {
            rules.extend(self.tunnels(facts, Side::Source));
            rules.extend((133..=136).map(|kind| self.neighbours(kind)));
            rules.extend(jump("from-hosts").into_iter().map(|rule| self.unless_host(rule)));
        }
        rules
    }

    fn output(&self, jump: &dyn Fn(&'static str) -> Vec<Rule>, facts: &HostFacts) -> Vec<Rule> {
        let mut rules = vec![self.clear(self.marks.accept | self.marks.pass)];
        rules.extend(self.on_devices(Device::Output, &Verdict::Accept));
        rules.extend(self.tunnels(facts, Side::Destination));
        rules.extend((133..=136).map(|kind| self.neighbours(kind)));
        // The device may be another one after translation, so such packets are asked later.
        let later = Action::SetMark { mask: self.marks.pass, value: self.marks.pass };
        let translated = Rule::new(vec![Match::Dnat(true)], vec![later, Action::Verdict(Verdict::Accept)]);
        rules.push(self.unless_host(translated));
        rules.extend(jump("to-hosts").into_iter().map(|rule| self.unless_host(rule)));
        rules
    }

    fn postrouting(&self, jump: &dyn Fn(&'static str) -> Vec<Rule>) -> Vec<Rule> {
        let is_later = Match::Mark { mask: self.marks.pass, value: self.marks.pass, negated: false };
        let mut rules: Vec<Rule> = self
            .on_devices(Device::Output, &Verdict::Accept)
            .map(|mut rule| {
                rule.matches.insert(0, is_later.clone());
                rule
            })
            .collect();
        for mut rule in jump("to-hosts") {
            rule.matches.push(is_later.clone());
            rules.push(rule);
        }
        rules.push(self.clear(self.marks.accept | self.marks.pass | self.marks.host));
        rules
    }

    fn prednat(&self, jump: &dyn Fn(&'static str) -> Vec<Rule>) -> Vec<Rule> {
        let mut rules = vec![self.clear(self.marks.accept | self.marks.pass)];
        rules.extend(jump("from-hosts-prednat").into_iter().map(|rule| self.unless_host(rule)));
        rules.push(self.remember(Vec::new()));
        rules
    }

    fn untracked(&self, jump: &[Rule]) -> Vec<Rule> {
        let mut rules = vec![self.clear(self.marks.accept | self.marks.pass | self.marks.host)];
        rules.extend(jump.iter().cloned());
        rules.push(self.remember(vec![Action::NoTrack]));
        rules
    }

    /// An early policy accepted, so later ones of hosts are not asked.
    fn remember(&self, mut actions: Vec<Action>) -> Rule {
        let matches = vec![Match::Mark { mask: self.marks.accept, value: self.marks.accept, negated: false }];
        actions.push(Action::SetMark { mask: self.marks.accept | self.marks.host, value: self.marks.host });
        Rule::new(matches, actions)
    }

    fn unless_host(&self, mut rule: Rule) -> Rule {
        rule.matches.insert(0, Match::Mark { mask: self.marks.host, value: 0, negated: false });
        rule
    }

    /// Between nodes, encapsulated packets pass. What is in them is asked when it comes out.
    fn tunnels(&self, facts: &HostFacts, side: Side) -> Vec<Rule> {
        let mut rules = Vec::new();
        for version in [IpVersion::V4, IpVersion::V6] {
            let set = nodes(facts, version);
            if set.elements.is_empty() {
                continue;
            }
            let set = nodes_name(&set);
            let is_node = |protocol| {
                let address = Match::AddressInSet { side, version, set: Arc::clone(&set), negated: false };
                vec![Match::Family(version), address, Match::Protocol { protocol, negated: false }]
            };
            let mut vxlan = is_node(17);
            let range = PortRange::single(self.settings.vxlan_port);
            vxlan.push(Match::Ports { side: Side::Destination, range, negated: false });
            let accept = || vec![Action::Verdict(Verdict::Accept)];
            rules.push(Rule::new(vxlan, accept()));
            if version == IpVersion::V4 {
                rules.push(Rule::new(is_node(4), accept()));
            }
        }
        rules
    }

    fn tunnel_sets(&self, facts: &HostFacts, part: &mut Part) {
        for version in [IpVersion::V4, IpVersion::V6] {
            let set = nodes(facts, version);
            if !set.elements.is_empty() {
                part.sets.insert(nodes_name(&set), Contents::Constant(set));
            }
        }
    }
}

fn nodes(facts: &HostFacts, version: IpVersion) -> Set {
    let of_version = facts.nodes.iter().filter(|address| IpVersion::of(**address) == version);
    Set { kind: SetKind::Addresses(version), elements: of_version.copied().map(Element::Address).collect() }
}

fn nodes_name(set: &Set) -> Name {
    let text: Vec<String> = set.elements.iter().map(ToString::to_string).collect();
    format!("nodes-{}", digest(&text.join(","))).into()
}

fn accept(failsafe: &Failsafe, port: Side, net: Side) -> Rule {
    let mut matches = vec![Match::Protocol { protocol: failsafe.protocol, negated: false }];
    matches.push(Match::Ports { side: port, range: PortRange::single(failsafe.port), negated: false });
    if let Some(network) = failsafe.net {
        matches.insert(0, Match::Family(IpVersion::of(network.addr())));
        matches.push(Match::AddressInNetwork { side: net, network: network.trunc(), negated: false });
    }
    Rule::new(matches, vec![Action::Verdict(Verdict::Accept)]).commented("failsafe")
}
