//! What a resource holds when its author did not say.

use serde_json::{Map, Value, json};

use crate::cidr::{Cidr, IpVersion};
use crate::names::EndpointName;
use crate::{Kind, Resource};

const LABEL_NAMESPACE: &str = "projectcalico.org/namespace";
const LABEL_ORCHESTRATOR: &str = "projectcalico.org/orchestrator";
const LABEL_TIER: &str = "projectcalico.org/tier";

impl Resource {
    /// Fills in what Calico fills in before it stores a resource. Doing it twice changes nothing more.
    pub fn fill_defaults(&mut self) {
        match self.kind {
            Kind::IpPool => fill_pool(self),
            Kind::WorkloadEndpoint => fill_endpoint(self),
            kind if kind.is_tiered() => fill_policy(self),
            _ => {}
        }
    }

    /// Fills in what Calico fills in when it hands out a stored resource, for records written by releases or
    /// tools that did not.
    pub fn fill_defaults_on_read(&mut self) {
        match self.kind {
            Kind::IpPool => fill_pool(self),
            kind if kind.is_tiered() => {
                self.metadata.labels.entry(LABEL_TIER.to_owned()).or_insert_with(|| "default".to_owned());
            }
            _ => {}
        }
    }
}

fn fill_pool(pool: &mut Resource) {
    // A network with host bits is left as it is, so that validation can say so.
    let cidr = pool.spec("cidr").and_then(Value::as_str).and_then(|text| text.parse::<Cidr>().ok());
    let masked = pool.spec("cidr").and_then(Value::as_str).and_then(|text| Cidr::parse_masked(text).ok());
    let spec = pool.spec_mut();
    if let Some(cidr) = cidr {
        spec.insert("cidr".to_owned(), cidr.to_string().into());
    }
    if let Some(masked) = masked {
        let size = if masked.version() == IpVersion::V4 { 26 } else { 122 };
        fill(spec, "blockSize", size.into());
    }
    fill(spec, "ipipMode", "Never".into());
    fill(spec, "vxlanMode", "Never".into());
    fill(spec, "nodeSelector", "all()".into());
    fill(spec, "allowedUses", json!(["Workload", "Tunnel"]));
    fill(spec, "assignmentMode", "Automatic".into());
}

/// Names the endpoint after its spec, and sets the labels that are not the author's to choose.
fn fill_endpoint(endpoint: &mut Resource) {
    if endpoint.metadata.name.is_empty() {
        endpoint.metadata.name = EndpointName::of_spec(endpoint).compute().unwrap_or_default();
    }
    let namespace = endpoint.metadata.namespace.clone().unwrap_or_default();
    let orchestrator = endpoint.spec("orchestrator").and_then(Value::as_str).unwrap_or_default().to_owned();
    endpoint.metadata.labels.insert(LABEL_NAMESPACE.to_owned(), namespace);
    endpoint.metadata.labels.insert(LABEL_ORCHESTRATOR.to_owned(), orchestrator);
}

fn fill_policy(policy: &mut Resource) {
    let tier = policy.tier().to_owned();
    policy.metadata.labels.insert(LABEL_TIER.to_owned(), tier);
    let has_rules =
        |field| policy.spec(field).and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    let types = match (has_rules("ingress"), has_rules("egress")) {
        (_, false) => json!(["Ingress"]),
        (false, true) => json!(["Egress"]),
        (true, true) => json!(["Ingress", "Egress"]),
    };
    fill(policy.spec_mut(), "types", types);
}

/// Calico's decoder cannot tell an absent field from one that holds the zero of its type.
fn fill(spec: &mut Map<String, Value>, field: &str, value: Value) {
    let is_unset = match spec.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Number(number)) => number.as_u64() == Some(0),
        Some(_) => false,
    };
    if is_unset {
        spec.insert(field.to_owned(), value);
    }
}
