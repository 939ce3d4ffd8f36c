//! A second opinion: what happens to one packet, worked out the slow and obvious way from records as JSON.
//!
//! It shares nothing with the calculation but `model::selector` and `ipnet`: no index, no sets, no rendering. Every question walks all
//! records. So a mistake in the calculation is not repeated here.

mod kubernetes;
mod labels;
mod matching;

use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use labels::LabelMap;

/// One packet, as the endpoint that is asked sees it.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) icmp_type: u8,
    pub(crate) icmp_code: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

impl Direction {
    fn name(self) -> &'static str {
        match self {
            Direction::Ingress => "Ingress",
            Direction::Egress => "Egress",
        }
    }

    fn rules(self) -> &'static str {
        match self {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        }
    }
}

/// What decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Rule { tier: String, policy: String, rule: usize },
    EndOfTier { tier: String },
    Profile { profile: String, rule: usize },
    NoProfile,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    pub(crate) why: Why,
}

#[derive(Clone, Debug)]
struct Tier {
    name: String,
    order: f64,
    passes_at_end: bool,
}

/// A policy of any enforced kind. `namespace` is empty for those of the whole cluster.
#[derive(Clone, Debug)]
struct Policy {
    kind: String,
    namespace: String,
    name: String,
    tier: String,
    order: f64,
    spec: Value,
}

/// What an address can belong to: an endpoint or a network set.
#[derive(Clone, Debug)]
struct Member {
    name: String,
    namespace: String,
    labels: LabelMap,
    nets: Vec<IpNet>,
    ports: Vec<(String, u8, u16)>,
    profiles: Vec<String>,
    is_workload: bool,
    is_set: bool,
}

#[derive(Clone, Debug)]
struct Profile {
    name: String,
    spec: Value,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    tiers: Vec<Tier>,
    policies: Vec<Policy>,
    profiles: Vec<Profile>,
    members: Vec<Member>,
}

impl World {
    /// Records as Calico's API prints them, and `networking.k8s.io/v1` NetworkPolicies.
    pub(crate) fn new(records: &[Value]) -> World {
        let mut world = World::default();
        for record in records {
            world.take(record);
        }
        let named: Vec<String> = world.policies.iter().map(|policy| policy.tier.clone()).collect();
        for name in named {
            if !world.tiers.iter().any(|tier| tier.name == name) {
                // A tier that policies name but that is not there comes last and denies. The default tier is implied.
                let order = if name == "default" { 1_000_000.0 } else { f64::INFINITY };
                world.tiers.push(Tier { name, order, passes_at_end: false });
            }
        }
        let profiles = records.iter().filter(|record| text(&record["kind"]) == "Profile").collect::<Vec<_>>();
        for member in &mut world.members {
            member.labels.inherit(&member.profiles, &profiles);
        }
        world
    }

    fn take(&mut self, record: &Value) {
        let spec = &record["spec"];
        let name = text(&record["metadata"]["name"]);
        let namespace = text(&record["metadata"]["namespace"]);
        let of_kubernetes = text(&record["apiVersion"]).starts_with("networking.k8s.io/");
        // These are asked at other places of a packet's way, and only of hosts.
        if spec["preDNAT"] == true || spec["doNotTrack"] == true {
            return;
        }
        match text(&record["kind"]).as_str() {
            "NetworkPolicy" if of_kubernetes => {
                self.policies.push(kubernetes::converted(name, namespace, spec))
            }
            kind @ ("NetworkPolicy" | "GlobalNetworkPolicy") => self.policies.push(Policy {
                kind: kind.to_owned(),
                tier: spec["tier"].as_str().filter(|tier| !tier.is_empty()).unwrap_or("default").to_owned(),
                order: spec["order"].as_f64().unwrap_or(f64::INFINITY),
                namespace,
                name,
                spec: spec.clone(),
            }),
            "Tier" => self.tiers.push(Tier {
                order: spec["order"].as_f64().unwrap_or(1_000_000.0),
                passes_at_end: spec["defaultAction"] == "Pass",
                name,
            }),
            "Profile" => self.profiles.push(Profile { name, spec: spec.clone() }),
            "WorkloadEndpoint" => self.members.push(labels::workload(name, namespace, record)),
            "HostEndpoint" => self.members.push(labels::host(name, record)),
            "NetworkSet" | "GlobalNetworkSet" => self.members.push(labels::set(name, namespace, record)),
            _ => {}
        }
    }

    /// What the workload endpoint, named as `namespace/name`, does with the packet.
    pub(crate) fn verdict(&self, endpoint: &str, direction: Direction, packet: &Packet) -> Option<Verdict> {
        let is_it = |member: &&Member| {
            member.is_workload && format!("{}/{}", member.namespace, member.name) == endpoint
        };
        let subject = self.members.iter().find(is_it)?;
        for tier in self.ordered_tiers() {
            let applying: Vec<&Policy> = self
                .ordered_policies(&tier.name)
                .into_iter()
                .filter(|policy| has_type(&policy.spec, direction) && selects(policy, subject))
                .collect();
            if applying.is_empty() {
                continue;
            }
            match self.walk_tier(tier, &applying, direction, packet) {
                TierEnd::Decided(verdict) => return Some(verdict),
                TierEnd::Next => {}
            }
        }
        Some(self.ask_profiles(subject, direction, packet))
    }

    fn walk_tier(&self, tier: &Tier, policies: &[&Policy], direction: Direction, packet: &Packet) -> TierEnd {
        for policy in policies {
            for (index, rule) in list(&policy.spec[direction.rules()]).iter().enumerate() {
                if !matching::rule(self, &policy.namespace, rule, packet) {
                    continue;
                }
                let why = Why::Rule { tier: tier.name.clone(), policy: policy.full_name(), rule: index };
                match text(&rule["action"]).as_str() {
                    "Allow" => return TierEnd::Decided(Verdict { allowed: true, why }),
                    "Deny" => return TierEnd::Decided(Verdict { allowed: false, why }),
                    "Pass" => return TierEnd::Next,
                    _ => {}
                }
            }
        }
        if tier.passes_at_end {
            return TierEnd::Next;
        }
        TierEnd::Decided(Verdict { allowed: false, why: Why::EndOfTier { tier: tier.name.clone() } })
    }

    fn ask_profiles(&self, subject: &Member, direction: Direction, packet: &Packet) -> Verdict {
        for name in &subject.profiles {
            // A profile that is named but absent stands for "deny".
            let Some(profile) = self.profiles.iter().find(|profile| profile.name == *name) else { break };
            for (index, rule) in list(&profile.spec[direction.rules()]).iter().enumerate() {
                let action = text(&rule["action"]);
                if !matching::rule(self, "", rule, packet) || action == "Log" {
                    continue;
                }
                if action == "Pass" {
                    break;
                }
                let why = Why::Profile { profile: name.clone(), rule: index };
                return Verdict { allowed: action == "Allow", why };
            }
        }
        Verdict { allowed: false, why: Why::NoProfile }
    }

    fn ordered_tiers(&self) -> Vec<&Tier> {
        let mut tiers: Vec<&Tier> = self.tiers.iter().collect();
        tiers.sort_by(|a, b| a.order.total_cmp(&b.order).then_with(|| a.name.cmp(&b.name)));
        tiers
    }

    fn ordered_policies(&self, tier: &str) -> Vec<&Policy> {
        let mut policies: Vec<&Policy> = self.policies.iter().filter(|policy| policy.tier == tier).collect();
        policies.sort_by(|a, b| a.order.total_cmp(&b.order).then_with(|| a.full_name().cmp(&b.full_name())));
        policies
    }
}

enum TierEnd {
    Decided(Verdict),
    Next,
}

impl Policy {
    /// The text by which policies of equal order are ordered.
    fn full_name(&self) -> String {
        format!("{}/{}/{}", self.name, self.namespace, self.kind)
    }
}

/// Absent types count as both.
fn has_type(spec: &Value, direction: Direction) -> bool {
    let types = list(&spec["types"]);
    types.is_empty() || types.iter().any(|one| one == direction.name())
}

fn selects(policy: &Policy, subject: &Member) -> bool {
    let spec = &policy.spec;
    let in_namespace = policy.namespace.is_empty() || policy.namespace == subject.namespace;
    in_namespace
        && subject.labels.matches(&text(&spec["selector"]))
        && subject.labels.namespace_matches(&text(&spec["namespaceSelector"]))
        && subject.labels.account_matches(&text(&spec["serviceAccountSelector"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
