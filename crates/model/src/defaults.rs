//! What a resource holds when its author did not say, and how it is spelt when it is stored.

use serde_json::{Map, Value, json};

use crate::cidr::Cidr;
use crate::duration::{go_nanoseconds, spell_duration};
use crate::names::EndpointName;
use crate::schema::{self, Object, Type, Zero};
use crate::validate::formats::{parse_as_number, parse_ports};
use crate::validate::{LABEL_NAMESPACE, default_block_size};
use crate::{Kind, Resource};

const LABEL_ORCHESTRATOR: &str = "projectcalico.org/orchestrator";
const LABEL_TIER: &str = "projectcalico.org/tier";

impl Resource {
    /// Fills in what Calico fills in before it stores a resource, and spells numbers as it spells them. Doing it
    /// twice changes nothing more.
    pub fn fill_defaults(&mut self) {
        spell_fields(self);
        match self.kind {
            Kind::IpPool => fill_pool(self),
            Kind::WorkloadEndpoint => fill_endpoint(self),
            Kind::BgpConfiguration => {
                let spec = self.spec_mut();
                fill_absent(spec, "logSeverityScreen", "Info".into());
                fill_absent(spec, "serviceLoadBalancerAggregation", "Enabled".into());
            }
            Kind::FelixConfiguration => fill_felix(self.spec_mut()),
            Kind::IpamConfiguration => {
                let spec = self.spec_mut();
                fill_absent(spec, "strictAffinity", false.into());
                fill_absent(spec, "autoAllocateBlocks", true.into());
                fill_absent(spec, "maxBlocksPerHost", 0.into());
            }
            Kind::KubeControllersConfiguration => fill_controllers(self.spec_mut()),
            Kind::StagedKubernetesNetworkPolicy => fill_absent(self.spec_mut(), "stagedAction", "Set".into()),
            Kind::Tier => {
                let spec = self.spec_mut();
                fill_absent(spec, "order", 1_000_000.into());
                fill_absent(spec, "defaultAction", "Deny".into());
            }
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
    let text = pool.spec("cidr").and_then(Value::as_str).unwrap_or_default();
    // A network with host bits is left as it is, so that validation can say so.
    let (cidr, masked) = (text.parse::<Cidr>().ok(), Cidr::parse_masked(text).ok());
    let spec = pool.spec_mut();
    if let Some(cidr) = cidr {
        spec.insert("cidr".to_owned(), cidr.to_string().into());
    }
    if let Some(masked) = masked {
        fill_unset(spec, "blockSize", default_block_size(masked).into());
    }
    fill_unset(spec, "ipipMode", "Never".into());
    fill_unset(spec, "vxlanMode", "Never".into());
    fill_unset(spec, "nodeSelector", "all()".into());
    fill_unset(spec, "allowedUses", json!(["Workload", "Tunnel"]));
    fill_absent(spec, "assignmentMode", "Automatic".into());
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
    policy.metadata.labels.insert(LABEL_TIER.to_owned(), tier.clone());
    let has_rules =
        |field| policy.spec(field).and_then(Value::as_array).is_some_and(|rules| !rules.is_empty());
    let types = match (has_rules("ingress"), has_rules("egress")) {
        (_, false) => json!(["Ingress"]),
        (false, true) => json!(["Egress"]),
        (true, true) => json!(["Ingress", "Egress"]),
    };
    let is_staged = matches!(policy.kind, Kind::StagedGlobalNetworkPolicy | Kind::StagedNetworkPolicy);
    let spec = policy.spec_mut();
    fill_unset(spec, "tier", tier.into());
    if is_staged {
        fill_absent(spec, "stagedAction", "Set".into());
        if spec.get("stagedAction") == Some(&Value::from("Delete")) {
            spec.remove("types");
            return;
        }
    }
    fill_unset(spec, "types", types);
}

fn fill_felix(spec: &mut Map<String, Value>) {
    fill_absent(spec, "floatingIPs", "Disabled".into());
    fill_absent(spec, "nftablesMode", "Auto".into());
    fill_absent(spec, "nftablesFlowTableOffload", "Disabled".into());
    // The older switch, where it is used, decides over the two settings that came after it.
    match spec.get("bpfConnectTimeLoadBalancingEnabled").and_then(Value::as_bool) {
        Some(enabled) => {
            let word = if enabled { "Enabled" } else { "Disabled" };
            spec.insert("bpfConnectTimeLoadBalancing".to_owned(), word.into());
            spec.insert("bpfHostNetworkedNATWithoutCTLB".to_owned(), "Disabled".into());
        }
        None => {
            fill_absent(spec, "bpfConnectTimeLoadBalancing", "TCP".into());
            fill_absent(spec, "bpfHostNetworkedNATWithoutCTLB", "Enabled".into());
        }
    }
}

fn fill_controllers(spec: &mut Map<String, Value>) {
    fill_absent(spec, "healthChecks", "Enabled".into());
    fill_absent(spec, "prometheusMetricsPort", 9094.into());
    let Some(Value::Object(controllers)) = spec.get_mut("controllers") else { return };
    let defaults = [
        ("node", "leakGracePeriod", "15m0s"),
        ("loadBalancer", "assignIPs", "AllServices"),
        ("migration", "policyNameMigrator", "Enabled"),
    ];
    for (controller, field, value) in defaults {
        if let Some(Value::Object(settings)) = controllers.get_mut(controller) {
            fill_unset(settings, field, value.into());
        }
    }
}

/// For fields where Calico can tell "absent" from the zero of the type.
fn fill_absent(spec: &mut Map<String, Value>, field: &str, value: Value) {
    if spec.get(field).is_none_or(Value::is_null) {
        spec.insert(field.to_owned(), value);
    }
}

/// For fields where Calico's decoder cannot.
fn fill_unset(spec: &mut Map<String, Value>, field: &str, value: Value) {
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

/// Spells values as Calico stores them: AS numbers, single ports and protocols as numbers, durations as Go writes them,
/// and nothing where a field holds only the zero of its type.
fn spell_fields(resource: &mut Resource) {
    for field in schema::document(resource.kind).fields() {
        if let (Type::Object(object), Some(Value::Object(values))) =
            (&field.ty, resource.body.get_mut(field.name))
        {
            spell_in_object(values, object);
        }
    }
}

fn spell_in_object(values: &mut Map<String, Value>, object: &Object) {
    for field in object.fields() {
        let Some(value) = values.get_mut(field.name) else { continue };
        spell(value, &field.ty);
        // Some releases of Calico store the empty sides of a rule, others do not: they stay as they are.
        let is_object = matches!(field.ty, Type::Object(_));
        if field.zero == Zero::Dropped && !is_object && is_zero(value) {
            values.remove(field.name);
        }
    }
}

fn spell(value: &mut Value, ty: &Type) {
    match (ty, value) {
        (Type::AsNumber, value) => {
            if let Some(number) = value.as_str().and_then(parse_as_number) {
                *value = number.into();
            }
        }
        (Type::Port, value) => {
            if let Some((first, last)) = value.as_str().and_then(parse_ports)
                && first == last
            {
                *value = first.into();
            }
        }
        (Type::NamedNumber(_), value) => {
            let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
            if let Some(number) = value.as_str().filter(is_number).and_then(|text| text.parse::<u8>().ok()) {
                *value = number.into();
            }
        }
        (Type::Duration(_), value) => {
            if let Some(nanoseconds) = value.as_str().and_then(go_nanoseconds) {
                *value = spell_duration(nanoseconds).into();
            }
        }
        (Type::Object(object), Value::Object(values)) => spell_in_object(values, object),
        (Type::List(list), Value::Array(items)) => {
            for item in items {
                spell(item, &list.item);
            }
        }
        _ => {}
    }
}

/// Whether a value is the zero of its type, as Go's JSON writer sees it.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}
