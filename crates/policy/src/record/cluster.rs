//! Policies of the whole cluster, of Kubernetes' network-policy-api: ClusterNetworkPolicy, and the two kinds before it.
//!
//! A rule that cannot be understood and would accept is left out. One that would deny or pass denies everything in its place: what it would
//! have kept from the rules after it must not reach them.

use std::sync::Arc;

use model::Selector;
use serde_json::Value;

use super::entity::{in_namespaces, read_net, set_of};
use super::fields::{At, Fault, Read, shared};
use super::kubernetes::{of_pods, read_label_selector};
use super::kubernetes_ports::PortMatch;
use super::{
    Direction, Entity, LABEL_NAMESPACE, LABEL_ORCHESTRATOR, Layer, Order, Policy, PolicyId, PolicyKind, Rule,
    RuleAction,
};
use crate::ruleset::PortRange;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClusterKind {
    ClusterNetworkPolicy,
    Admin,
    Baseline,
}

/// None if the object has no name.
pub(crate) fn read_cluster_policy(kind: ClusterKind, object: &Value) -> Option<Policy> {
    let root = At::root(object);
    let name = root.field("metadata").field("name").word().ok().flatten()?;
    let spec = root.field("spec");
    let policy_kind = match kind {
        ClusterKind::ClusterNetworkPolicy => PolicyKind::ClusterNetworkPolicy,
        ClusterKind::Admin => PolicyKind::AdminNetworkPolicy,
        ClusterKind::Baseline => PolicyKind::BaselineAdminNetworkPolicy,
    };
    let id = PolicyId { kind: policy_kind, namespace: None, name: shared(name) };
    let frame = read_frame(kind, &spec);
    let fault = frame.as_ref().err().cloned();
    let subject = read_subject(&spec.field("subject"));
    let fault = fault.or_else(|| subject.as_ref().err().cloned());
    let any_pod = || of_pods(Selector::has(LABEL_NAMESPACE), Selector::all());
    let (tier, order) = frame.unwrap_or_else(|_| (first_tier(kind), Order::new(f64::NEG_INFINITY)));
    let mut remarks = Vec::new();
    let mut rules = |direction: Direction, peers: &'static str| {
        let list = spec.field(if direction == Direction::Ingress { "ingress" } else { "egress" });
        match (list.items(), &fault) {
            (Ok(items), None) if items.is_empty() => None,
            (Ok(items), None) => {
                Some(items.iter().flat_map(|item| read_rule(kind, item, peers, &mut remarks)).collect())
            }
            (Err(fault), None) => {
                remarks.push(fault.text());
                Some(vec![Rule::new(RuleAction::Deny)])
            }
            (_, Some(_)) => Some(Vec::new()),
        }
    };
    Some(Policy {
        ingress: rules(Direction::Ingress, "from"),
        egress: rules(Direction::Egress, "to"),
        tier,
        order,
        layer: Layer::Normal,
        subject: subject.unwrap_or_else(|_| any_pod()),
        set_aside: fault.map(|fault| fault.text()),
        remarks,
        id,
    })
}

fn first_tier(kind: ClusterKind) -> Arc<str> {
    shared(match kind {
        ClusterKind::ClusterNetworkPolicy => "kube-admin",
        ClusterKind::Admin => "adminnetworkpolicy",
        ClusterKind::Baseline => "baselineadminnetworkpolicy",
    })
}

/// The tier and the place in it.
fn read_frame(kind: ClusterKind, spec: &At<'_>) -> Read<(Arc<str>, Order)> {
    spec.only(&["tier", "priority", "subject", "ingress", "egress"])?;
    let tier = match (kind, spec.field("tier").word()?) {
        (ClusterKind::ClusterNetworkPolicy, Some("Admin")) => shared("kube-admin"),
        (ClusterKind::ClusterNetworkPolicy, Some("Baseline")) => shared("kube-baseline"),
        (ClusterKind::ClusterNetworkPolicy, _) => {
            return Err(spec.field("tier").fault("must be Admin or Baseline"));
        }
        (_, None) => first_tier(kind),
        (_, Some(_)) => return Err(spec.field("tier").fault("is not a field of this kind")),
    };
    let priority = spec.field("priority").whole(0, 1000)?;
    #[expect(clippy::cast_precision_loss, reason = "at most 1000")]
    Ok((tier, Order::new(priority.unwrap_or(0) as f64)))
}

fn read_subject(at: &At<'_>) -> Read<Selector> {
    at.only(&["namespaces", "pods"])?;
    read_pods(at)?
        .ok_or_else(|| at.fault("must have namespaces or pods"))
        .map(|selector| Selector::all_of([selector, Selector::equals(LABEL_ORCHESTRATOR, "k8s")]))
}

/// What `namespaces` or `pods` select.
fn read_pods(at: &At<'_>) -> Read<Option<Selector>> {
    let (namespaces, pods) = (at.field("namespaces"), at.field("pods"));
    match (namespaces.exists(), pods.exists()) {
        (true, true) => Err(pods.fault("must not be set together with namespaces")),
        (true, false) => Ok(Some(in_namespaces(&read_label_selector(&namespaces)?))),
        (false, true) => {
            pods.only(&["namespaceSelector", "podSelector"])?;
            let within = in_namespaces(&read_label_selector(&pods.field("namespaceSelector"))?);
            Ok(Some(of_pods(within, read_label_selector(&pods.field("podSelector"))?)))
        }
        (false, false) => Ok(None),
    }
}

fn read_rule(kind: ClusterKind, at: &At<'_>, peers: &'static str, remarks: &mut Vec<Arc<str>>) -> Vec<Rule> {
    let action = match at.field("action").text() {
        Ok(Some("Accept" | "Allow")) => RuleAction::Allow,
        Ok(Some("Pass")) => RuleAction::Pass,
        Ok(Some("Deny")) => RuleAction::Deny,
        _ => {
            remarks.push(at.field("action").fault("is no action; the rule denies everything").text());
            return vec![Rule::new(RuleAction::Deny)];
        }
    };
    match read_matches(kind, at, peers) {
        Ok(mut rules) => {
            let name = at.field("name").word().ok().flatten().map(shared);
            for rule in &mut rules {
                rule.action = action;
                rule.name.clone_from(&name);
            }
            rules
        }
        Err(fault) if action == RuleAction::Allow => {
            remarks.push(format!("{fault}; the rule allows nothing").into());
            Vec::new()
        }
        Err(fault) => {
            remarks.push(format!("{fault}; the rule denies everything").into());
            vec![Rule::new(RuleAction::Deny)]
        }
    }
}

fn read_matches(kind: ClusterKind, at: &At<'_>, peers: &'static str) -> Read<Vec<Rule>> {
    let ports = if kind == ClusterKind::ClusterNetworkPolicy { "protocols" } else { "ports" };
    at.only(&["name", "action", peers, ports])?;
    let items = at.field(peers).items()?;
    if items.is_empty() {
        return Err(at.field(peers).fault("must have at least one peer"));
    }
    let ports = at.field(ports);
    let matches = match ports.exists() {
        false => vec![PortMatch::default()],
        true => {
            let read: Read<Vec<_>> = ports.items()?.iter().map(|item| read_port(kind, item)).collect();
            read?
        }
    };
    if matches.is_empty() {
        return Err(ports.fault("must not be empty"));
    }
    let mut rules = Vec::new();
    for peer in items {
        let entity = read_peer(&peer, peers)?;
        for found in &matches {
            let mut rule = Rule::new(RuleAction::Deny);
            *(if peers == "from" { &mut rule.source } else { &mut rule.destination }) = entity.clone();
            found.put_into(&mut rule);
            rules.push(rule);
        }
    }
    Ok(rules)
}

fn read_peer(at: &At<'_>, peers: &str) -> Read<Entity> {
    let networks = at.field("networks");
    if networks.exists() && peers == "to" {
        at.only(&["networks"])?;
        let nets: Read<Vec<_>> = networks
            .items()?
            .iter()
            .map(|item| {
                read_net(item.text()?.unwrap_or_default()).ok_or_else(|| item.fault("must be a network"))
            })
            .collect();
        let nets = nets?;
        return match nets.is_empty() {
            true => Err(networks.fault("must not be empty")),
            false => Ok(Entity { nets, ..Entity::default() }),
        };
    }
    at.only(&["namespaces", "pods"])?;
    let selector = read_pods(at)?.ok_or_else(|| at.fault("must have namespaces or pods"))?;
    Ok(Entity { members: Some(set_of(&selector)), ..Entity::default() })
}

fn read_port(kind: ClusterKind, at: &At<'_>) -> Read<PortMatch> {
    let named = |name: &str| PortMatch { names: [shared(name)].into(), ..PortMatch::default() };
    if kind != ClusterKind::ClusterNetworkPolicy {
        return read_old_port(at, named);
    }
    at.only(&["tcp", "udp", "sctp", "destinationNamedPort"])?;
    if let Some(name) = at.field("destinationNamedPort").word()? {
        at.only(&["destinationNamedPort"])?;
        return Ok(named(name));
    }
    let mut found = None;
    for (field, protocol) in [("tcp", 6), ("udp", 17), ("sctp", 132)] {
        let of = at.field(field);
        if !of.exists() {
            continue;
        }
        if found.is_some() {
            return Err(of.fault("must stand alone"));
        }
        of.only(&["destinationPort"])?;
        let port = of.field("destinationPort");
        port.only(&["number", "range"])?;
        let ranges = match (port.field("number").whole(1, 65535)?, port.field("range").exists()) {
            (Some(number), false) => vec![range(&port, number, number)?],
            (None, true) => {
                let ends = port.field("range");
                ends.only(&["start", "end"])?;
                vec![read_range(&ends)?]
            }
            (None, false) if !port.exists() => Vec::new(),
            _ => return Err(port.fault("must have either number or range")),
        };
        found = Some(PortMatch { protocol: Some(protocol), ranges, ..PortMatch::default() });
    }
    found.ok_or_else(|| at.fault("must have tcp, udp, sctp or destinationNamedPort"))
}

fn read_old_port(at: &At<'_>, named: impl Fn(&str) -> PortMatch) -> Read<PortMatch> {
    at.only(&["portNumber", "portRange", "namedPort"])?;
    if let Some(name) = at.field("namedPort").word()? {
        return Ok(named(name));
    }
    let (number, ends) = (at.field("portNumber"), at.field("portRange"));
    let of = if number.exists() { &number } else { &ends };
    of.only(if number.exists() { &["protocol", "port"] } else { &["protocol", "start", "end"] })?;
    let protocol = match of.field("protocol").word()? {
        None | Some("TCP") => 6,
        Some("UDP") => 17,
        Some("SCTP") => 132,
        Some(_) => return Err(of.field("protocol").fault("must be TCP, UDP or SCTP")),
    };
    let range = match number.field("port").whole(1, 65535)? {
        Some(port) => range(&number, port, port)?,
        None => read_range(&ends)?,
    };
    Ok(PortMatch { protocol: Some(protocol), ranges: vec![range], ..PortMatch::default() })
}

fn read_range(at: &At<'_>) -> Read<PortRange> {
    match (at.field("start").whole(1, 65535)?, at.field("end").whole(1, 65535)?) {
        (Some(start), Some(end)) if start <= end => range(at, start, end),
        _ => Err(at.fault("must have a start and an end that is not before it")),
    }
}

fn range(at: &At<'_>, first: u64, last: u64) -> Result<PortRange, Fault> {
    let port = |number: u64| u16::try_from(number).map_err(|_| at.fault("must be a port"));
    Ok(PortRange { first: port(first)?, last: port(last)? })
}
