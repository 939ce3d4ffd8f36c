//! Kubernetes' NetworkPolicy. Its rules only allow, so the closed way with one that cannot be understood is to leave it out.

use std::sync::Arc;

use model::{Resource, Selector};
use serde_json::Value;

use super::calico::policy_kind;
use super::entity::{in_namespaces, read_net, set_of};
use super::fields::{At, Read, shared};
use super::kubernetes_ports::{PortMatch, read_ports};
use super::{
    Direction, Entity, LABEL_NAMESPACE, LABEL_ORCHESTRATOR, Layer, Order, Policy, PolicyId, PolicyKind, Rule,
    RuleAction,
};

const ORDER: f64 = 1000.0;

/// None if the object has no name.
pub(crate) fn read_kubernetes_policy(object: &Value) -> Option<Policy> {
    let metadata = At::root(object).field("metadata");
    let text = |field: &str| metadata.field(field).word().ok().flatten();
    let id = PolicyId {
        kind: PolicyKind::KubernetesNetworkPolicy,
        namespace: Some(shared(text("namespace")?)),
        name: shared(text("name")?),
    };
    Some(read(id, &At::root(object).field("spec"), &["podSelector", "policyTypes", "ingress", "egress"]))
}

/// None for one that stands for a deletion.
pub(crate) fn read_staged_kubernetes(record: &Resource) -> Option<Policy> {
    let namespace = record.metadata.namespace.as_deref().unwrap_or_default();
    let id = PolicyId {
        kind: policy_kind(record.kind)?,
        namespace: Some(shared(namespace)),
        name: shared(&record.metadata.name),
    };
    let spec = At::spec(&record.body);
    if spec.field("stagedAction").text() == Ok(Some("Delete")) {
        return None;
    }
    Some(read(id, &spec, &["podSelector", "policyTypes", "ingress", "egress", "stagedAction"]))
}

fn read(id: PolicyId, spec: &At<'_>, known: &[&str]) -> Policy {
    let namespace = id.namespace.clone().unwrap_or_else(|| shared(""));
    let mut remarks = Vec::new();
    let pods = read_label_selector(&spec.field("podSelector"));
    let types = read_types(&spec.field("policyTypes"));
    let fault = pods.as_ref().err().or(types.as_ref().err()).cloned().or_else(|| spec.only(known).err());
    let types = types.unwrap_or_else(|_| Direction::BOTH.to_vec());
    let mut rules = |direction, field: &str, peers: &str| {
        let mut reader = Reader { namespace: &namespace, peers, remarks: &mut remarks, rules: Vec::new() };
        if fault.is_none() {
            reader.read(&spec.field(field));
        }
        let rules = reader.rules;
        types.contains(&direction).then_some(rules)
    };
    let ingress = rules(Direction::Ingress, "ingress", "from");
    let egress = rules(Direction::Egress, "egress", "to");
    let own = Selector::equals(LABEL_NAMESPACE, &*namespace);
    let of_kubernetes = Selector::equals(LABEL_ORCHESTRATOR, "k8s");
    let subject = Selector::all_of([own, of_kubernetes].into_iter().chain(pods.ok()));
    let set_aside = fault.map(|fault| fault.text());
    let (tier, order, layer) = (shared(model::resource::DEFAULT_TIER), Order::new(ORDER), Layer::Normal);
    Policy { id, tier, order, layer, subject, ingress, egress, set_aside, remarks }
}

/// An API server fills them in, so an empty list is that of an old object.
fn read_types(at: &At<'_>) -> Read<Vec<Direction>> {
    let mut types = Vec::new();
    for item in at.items()? {
        types.push(match item.text()? {
            Some("Ingress") => Direction::Ingress,
            Some("Egress") => Direction::Egress,
            _ => return Err(item.fault("must be Ingress or Egress")),
        });
    }
    Ok(if types.is_empty() { vec![Direction::Ingress] } else { types })
}

/// An empty one selects everything.
pub(super) fn read_label_selector(at: &At<'_>) -> Read<Selector> {
    at.only(&["matchLabels", "matchExpressions"])?;
    let mut parts = Vec::new();
    let labels = at.field("matchLabels");
    for label in labels.object()?.into_iter().flat_map(|labels| labels.keys()) {
        let value = labels.field(label);
        parts.push(Selector::equals(label, value.text()?.unwrap_or_default()));
    }
    for item in at.field("matchExpressions").items()? {
        item.only(&["key", "operator", "values"])?;
        let key = item.field("key");
        let label = key.word()?.ok_or_else(|| key.fault("must be set"))?;
        let values = || -> Read<Vec<String>> {
            Ok(item.field("values").texts()?.into_iter().map(str::to_owned).collect())
        };
        parts.push(match item.field("operator").text()? {
            Some("In") => Selector::is_in(label, values()?),
            Some("NotIn") => Selector::is_in(label, values()?).negated(),
            Some("Exists") => Selector::has(label),
            Some("DoesNotExist") => Selector::has(label).negated(),
            _ => return Err(item.field("operator").fault("must be In, NotIn, Exists or DoesNotExist")),
        });
    }
    Ok(Selector::all_of(parts))
}

struct Reader<'a> {
    namespace: &'a str,
    /// `from` or `to`.
    peers: &'a str,
    remarks: &'a mut Vec<Arc<str>>,
    rules: Vec<Rule>,
}

impl Reader<'_> {
    fn read(&mut self, list: &At<'_>) {
        match list.items() {
            Err(fault) => self.remarks.push(fault.text()),
            Ok(items) => {
                for (index, item) in items.iter().enumerate() {
                    if let Err(fault) = self.read_rule(index, item) {
                        self.remarks.push(format!("{fault}; the rule allows nothing").into());
                    }
                }
            }
        }
    }

    fn read_rule(&mut self, index: usize, at: &At<'_>) -> Read<()> {
        at.only(&["ports", self.peers])?;
        let matches = read_ports(&at.field("ports"), self.remarks)?;
        let mut entities = Vec::new();
        let peers = at.field(self.peers).items()?;
        for peer in &peers {
            match self.read_peer(peer) {
                Ok(entity) => entities.push(entity),
                Err(fault) => self.remarks.push(format!("{fault}; the peer allows nothing").into()),
            }
        }
        if peers.is_empty() {
            entities.push(Entity::default());
        }
        for entity in entities {
            for found in &matches {
                self.rules.push(self.rule(index, entity.clone(), found));
            }
        }
        Ok(())
    }

    fn rule(&self, index: usize, peer: Entity, ports: &PortMatch) -> Rule {
        let mut rule = Rule::new(RuleAction::Allow);
        rule.name =
            Some(format!("{} {index}", if self.peers == "from" { "ingress" } else { "egress" }).into());
        match self.peers {
            "from" => rule.source = peer,
            _ => rule.destination = peer,
        }
        ports.put_into(&mut rule);
        rule
    }

    fn read_peer(&self, at: &At<'_>) -> Read<Entity> {
        at.only(&["podSelector", "namespaceSelector", "ipBlock"])?;
        let block = at.field("ipBlock");
        let (pods, namespaces) = (at.field("podSelector"), at.field("namespaceSelector"));
        if block.exists() {
            if pods.exists() || namespaces.exists() {
                return Err(block.fault("must stand alone"));
            }
            return read_block(&block);
        }
        if !pods.exists() && !namespaces.exists() {
            return Err(at.fault("must have podSelector, namespaceSelector or ipBlock"));
        }
        let within = match namespaces.exists() {
            true => in_namespaces(&read_label_selector(&namespaces)?),
            false => Selector::equals(LABEL_NAMESPACE, self.namespace),
        };
        Ok(Entity {
            members: Some(set_of(&of_pods(within, read_label_selector(&pods)?))),
            ..Entity::default()
        })
    }
}

/// Pods only: no sets of networks, no hosts.
pub(super) fn of_pods(within: Selector, pods: Selector) -> Selector {
    Selector::all_of([within, Selector::equals(LABEL_ORCHESTRATOR, "k8s"), pods])
}

fn read_block(at: &At<'_>) -> Read<Entity> {
    at.only(&["cidr", "except"])?;
    let net = |at: &At<'_>| {
        let text = at.text()?.unwrap_or_default();
        let net = read_net(text).filter(|_| text.contains('/'));
        net.ok_or_else(|| at.fault("must be a network, such as 10.0.0.0/8"))
    };
    let not_nets: Read<Vec<_>> = at.field("except").items()?.iter().map(net).collect();
    Ok(Entity { nets: vec![net(&at.field("cidr"))?], not_nets: not_nets?, ..Entity::default() })
}
