//! Policies, tiers and profiles of Calico's own kinds.

use std::sync::Arc;

use model::{Kind, Resource, Selector};

use super::entity::{in_namespaces, of_accounts, read_rules};
use super::fields::{At, Fault, Read, shared};
use super::{Direction, LABEL_NAMESPACE, Layer, Order, Policy, PolicyId, PolicyKind, Profile, Rule, Tier};

const POLICY: [&str; 13] = [
    "tier",
    "order",
    "selector",
    "namespaceSelector",
    "serviceAccountSelector",
    "types",
    "ingress",
    "egress",
    "doNotTrack",
    "preDNAT",
    "applyOnForward",
    "performanceHints",
    "stagedAction",
];

/// A tier without an order counts as one with this.
const TIER_ORDER: f64 = 1e6;

pub(crate) fn policy_kind(kind: Kind) -> Option<PolicyKind> {
    Some(match kind {
        Kind::NetworkPolicy => PolicyKind::NetworkPolicy,
        Kind::GlobalNetworkPolicy => PolicyKind::GlobalNetworkPolicy,
        Kind::StagedNetworkPolicy => PolicyKind::StagedNetworkPolicy,
        Kind::StagedGlobalNetworkPolicy => PolicyKind::StagedGlobalNetworkPolicy,
        Kind::StagedKubernetesNetworkPolicy => PolicyKind::StagedKubernetesNetworkPolicy,
        _ => return None,
    })
}

/// None for a staged policy that stands for a deletion, and for what is no policy.
pub(crate) fn read_policy(record: &Resource) -> Option<Policy> {
    let kind = policy_kind(record.kind)?;
    let namespace = record.metadata.namespace.as_deref().filter(|_| record.kind.is_namespaced());
    let id = PolicyId { kind, namespace: namespace.map(shared), name: shared(&record.metadata.name) };
    let spec = At::spec(&record.body);
    if kind.is_staged() && spec.field("stagedAction").text() == Ok(Some("Delete")) {
        return None;
    }
    Some(
        read_rest(id.clone(), &spec, record, namespace)
            .unwrap_or_else(|fault| aside(id, &spec, namespace, &fault)),
    )
}

fn read_rest(id: PolicyId, spec: &At<'_>, record: &Resource, namespace: Option<&str>) -> Read<Policy> {
    spec.only(&POLICY)?;
    spec.field("tier").text()?;
    let types = read_types(&spec.field("types"))?;
    let rules = |direction, field: &str| -> Read<Option<Vec<Rule>>> {
        let rules = read_rules(&spec.field(field), direction, namespace)?;
        Ok(types.contains(&direction).then_some(rules))
    };
    let policy = Policy {
        tier: shared(record.tier()),
        order: read_order(spec)?,
        layer: read_layer(spec)?,
        subject: read_subject(spec, namespace)?,
        ingress: rules(Direction::Ingress, "ingress")?,
        egress: rules(Direction::Egress, "egress")?,
        set_aside: None,
        remarks: Vec::new(),
        id,
    };
    if policy.layer == Layer::PreDnat && policy.egress.is_some() {
        return Err(spec.field("preDNAT").fault("must not be true for a policy with egress"));
    }
    Ok(policy)
}

/// What a policy that cannot be understood stands for: nothing passes at those whom it might select, at its place if that can be read.
fn aside(id: PolicyId, spec: &At<'_>, namespace: Option<&str>, fault: &Fault) -> Policy {
    let all = || Direction::BOTH.to_vec();
    let types = read_types(&spec.field("types")).unwrap_or_else(|_| all());
    let deny = |direction| types.contains(&direction).then(Vec::new);
    let subject = read_subject(spec, namespace).unwrap_or_else(|_| widest_subject(spec, namespace));
    let is_global = namespace.is_none();
    Policy {
        tier: shared(spec.field("tier").word().ok().flatten().unwrap_or(model::resource::DEFAULT_TIER)),
        order: read_order(spec).unwrap_or(Order::new(f64::NEG_INFINITY)),
        layer: read_layer(spec).unwrap_or(if is_global { Layer::NormalAndForward } else { Layer::Normal }),
        subject,
        ingress: deny(Direction::Ingress),
        egress: deny(Direction::Egress),
        set_aside: Some(fault.text()),
        remarks: Vec::new(),
        id,
    }
}

/// Without the parts that do not parse: they would only narrow it.
fn widest_subject(spec: &At<'_>, namespace: Option<&str>) -> Selector {
    let own = namespace.map(|namespace| Selector::equals(LABEL_NAMESPACE, namespace));
    let parts = [
        own,
        spec.field("selector").selector().ok().flatten(),
        spec.field("namespaceSelector").selector().ok().flatten().map(|selector| in_namespaces(&selector)),
        spec.field("serviceAccountSelector").selector().ok().flatten().map(|selector| of_accounts(&selector)),
    ];
    Selector::all_of(parts.into_iter().flatten())
}

fn read_subject(spec: &At<'_>, namespace: Option<&str>) -> Read<Selector> {
    for field in ["selector", "namespaceSelector", "serviceAccountSelector"] {
        spec.field(field).selector()?;
    }
    if namespace.is_some() && spec.field("namespaceSelector").exists() {
        return Err(spec.field("namespaceSelector").fault("must not be set in a policy of a namespace"));
    }
    Ok(widest_subject(spec, namespace))
}

/// A record without types was written past Calico's API, and counts for both directions.
fn read_types(at: &At<'_>) -> Read<Vec<Direction>> {
    let mut types = Vec::new();
    for item in at.items()? {
        types.push(match item.text()? {
            Some("Ingress") => Direction::Ingress,
            Some("Egress") => Direction::Egress,
            _ => return Err(item.fault("must be Ingress or Egress")),
        });
    }
    Ok(if types.is_empty() { Direction::BOTH.to_vec() } else { types })
}

fn read_order(spec: &At<'_>) -> Read<Order> {
    Ok(spec.field("order").float()?.map_or(Order::LAST, Order::new))
}

fn read_layer(spec: &At<'_>) -> Read<Layer> {
    let flag = |field: &str| spec.field(field).flag();
    match (flag("doNotTrack")?, flag("preDNAT")?, flag("applyOnForward")?) {
        (true, true, _) => Err(spec.field("preDNAT").fault("must not be true together with doNotTrack")),
        (true, false, _) => Ok(Layer::Untracked),
        (false, true, _) => Ok(Layer::PreDnat),
        (false, false, true) => Ok(Layer::NormalAndForward),
        (false, false, false) => Ok(Layer::Normal),
    }
}

/// A tier that cannot be understood denies at its end, and comes last.
pub(crate) fn read_tier(record: &Resource) -> (Tier, Option<Fault>) {
    let spec = At::spec(&record.body);
    let order = spec.field("order").float();
    let action = match spec.field("defaultAction").word() {
        Ok(None | Some("Deny")) => Ok(false),
        Ok(Some("Pass")) => Ok(true),
        _ => Err(spec.field("defaultAction").fault("must be Deny or Pass")),
    };
    let order_read = order.clone().map_or(Order::LAST, |order| Order::new(order.unwrap_or(TIER_ORDER)));
    let tier = Tier { order: order_read, passes: *action.as_ref().unwrap_or(&false) };
    (tier, order.err().or(action.err()))
}

/// A profile that cannot be understood denies everything. Its labels count as far as they can be read.
pub(crate) fn read_profile(record: &Resource) -> Profile {
    let spec = At::spec(&record.body);
    let labels = read_labels(&spec.field("labelsToApply"));
    let rules = |direction, field: &str| read_rules(&spec.field(field), direction, None);
    let both = rules(Direction::Ingress, "ingress")
        .and_then(|ingress| Ok((ingress, rules(Direction::Egress, "egress")?)));
    let fault = spec.only(&["ingress", "egress", "labelsToApply"]).err().or(labels.clone().err());
    match (both, fault) {
        (Ok((ingress, egress)), None) => {
            Profile { ingress, egress, labels: labels.unwrap_or_default(), set_aside: None }
        }
        (both, fault) => Profile {
            ingress: Vec::new(),
            egress: Vec::new(),
            labels: labels.unwrap_or_default(),
            set_aside: both.err().or(fault).map(|fault| fault.text()),
        },
    }
}

type LabelList = Vec<(Arc<str>, Arc<str>)>;

fn read_labels(at: &At<'_>) -> Read<LabelList> {
    let Some(labels) = at.object()? else { return Ok(Vec::new()) };
    labels
        .keys()
        .map(|name| {
            let value = at.field(name);
            Ok((shared(name), shared(value.text()?.unwrap_or_default())))
        })
        .collect()
}
