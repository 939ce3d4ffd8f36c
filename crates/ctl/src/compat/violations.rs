//! Broken rules in the frame that calicoctl prints them in.

use model::validate::Violation;
use model::{Cidr, Kind, Resource};

use super::policy_rules::{of_format, of_rule};
use super::texts_at;

const NAME_PATTERN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// One field as calicoctl names it: `Name = 'value' (reason)`.
pub(super) struct Errored {
    name: String,
    value: Option<String>,
    reason: String,
}

/// Everything that is wrong with a resource, as one error of calicoctl's.
pub(crate) fn violations_text(resource: &Resource, violations: &[Violation]) -> String {
    if let Some(missing) = violations.iter().find_map(missing_reference) {
        return missing;
    }
    // That the name is not that of the spec is found before anything else.
    let misnamed =
        violations.iter().position(|violation| violation.rule.ends_with(", according to the spec"));
    let violations = match misnamed {
        Some(at) => violations.get(at..=at).unwrap_or(violations),
        None => violations,
    };
    let errored: Vec<String> =
        violations.iter().map(|violation| errored(resource, violation).text()).collect();
    match errored.as_slice() {
        [only] => format!("error with field {only}"),
        several => {
            let lines: String = several.iter().map(|one| format!("-  {one}\n")).collect();
            format!("error with the following fields:\n{lines}")
        }
    }
}

/// A record that is named and does not exist is not an error of the field there.
fn missing_reference(violation: &Violation) -> Option<String> {
    let kind = violation.rule.strip_prefix("there is no such ")?;
    if kind == Kind::BgpFilter.name() {
        let name = &violation.value;
        return Some(format!("error with field BGPPeer.Spec.Filters = '[{name}]' (BGPFilter(s) not found)"));
    }
    Some(format!("resource does not exist: {kind}({}) with error: <nil>", violation.value))
}

/// Whether `calicoctl validate` knows the rule: some are only checked when a record is written.
pub(crate) fn is_told_by_validate(violation: &Violation) -> bool {
    let rule = violation.rule.as_str();
    !(rule.starts_with("can only be set on the BGPConfiguration named default")
        || rule.starts_with("cannot be written: this profile is built in")
        || rule.ends_with(", according to the spec"))
}

impl Errored {
    pub(super) fn new(name: &str, value: &str, reason: impl Into<String>) -> Errored {
        let value = (!value.is_empty()).then(|| value.to_owned());
        Errored { name: name.to_owned(), value, reason: reason.into() }
    }

    fn text(&self) -> String {
        match &self.value {
            Some(value) => format!("{} = '{value}' ({})", self.name, self.reason),
            None => format!("{} ({})", self.name, self.reason),
        }
    }
}

fn errored(resource: &Resource, violation: &Violation) -> Errored {
    let Violation { field, rule, .. } = violation;
    let of_kind = match resource.kind {
        Kind::IpPool => of_pool(resource, violation),
        Kind::BgpConfiguration => of_bgp_configuration(violation),
        Kind::Node if field == "spec.bgp" => {
            Some(Errored::new("BGP", "&{<nil>    }", "Spec.BGP should not be empty"))
        }
        Kind::HostEndpoint => of_host_endpoint(violation),
        Kind::WorkloadEndpoint => of_workload_endpoint(resource, violation),
        Kind::Tier => of_tier(resource, violation),
        _ => None,
    };
    of_kind
        .or_else(|| of_metadata(resource, violation))
        .or_else(|| of_rule(resource, violation))
        .or_else(|| of_format(resource.kind, violation))
        // Calico's schemas name the field and the rule, but not the value.
        .unwrap_or_else(|| Errored::new(field, "", rule.clone()))
}

fn of_metadata(resource: &Resource, violation: &Violation) -> Option<Errored> {
    let Violation { field, value, rule } = violation;
    let rest = field.strip_prefix("metadata.")?;
    if rest == "name" {
        if resource.metadata.name.is_empty() {
            let extra = match resource.metadata.extra.contains_key("generateName") {
                true => " (GenerateName is not supported)",
                false => "",
            };
            let reason = format!("field must be set for a Create request{extra}");
            return Some(Errored { value: Some(String::new()), ..Errored::new("Metadata.Name", "", reason) });
        }
        let is_label = resource.kind.is_tiered() || resource.kind == Kind::Tier;
        let reason = if let Some(bytes) = rule.strip_prefix("is ").and_then(|rest| rest.split(' ').next()) {
            format!("name is too long by {bytes} bytes")
        } else if is_label {
            format!("name must consist of lower case alphanumeric characters or '-' (regex: {NAME_PATTERN})")
        } else {
            format!(
                "name must consist of lower case alphanumeric characters, '-' or '.' (regex: {NAME_PATTERN}(\\.{NAME_PATTERN})*)"
            )
        };
        return Some(Errored::new("Metadata.Name", value, reason));
    }
    if rest.starts_with("labels") {
        let is_key = resource.metadata.labels.contains_key(value);
        let name = if is_key { "Metadata.Labels (label)" } else { "Metadata.Labels (value)" };
        return Some(Errored::new(name, value, rule.clone()));
    }
    rest.starts_with("annotations").then(|| Errored::new("Metadata.Annotations (key)", value, rule.clone()))
}

fn of_pool(pool: &Resource, violation: &Violation) -> Option<Errored> {
    let Violation { field, value, rule } = violation;
    let changed = rule.starts_with("cannot be changed");
    if field == "spec.cidr" && rule.starts_with("has host bits") {
        let masked = Cidr::parse_masked(value).map_or_else(|_| value.clone(), |cidr| cidr.to_string());
        return Some(Errored::new("IPPool.Spec.CIDR", &masked, "IPPool CIDR is not strictly masked"));
    }
    let (name, reason) = match field.as_str() {
        "spec.cidr" if rule == "must be set" => {
            ("IPPool.Spec.CIDR", "IPPool CIDR must be specified".to_owned())
        }
        "spec.cidr" if changed => ("IPPool.Spec.CIDR", "IPPool CIDR cannot be modified".to_owned()),
        "spec.cidr" if rule.starts_with("must be an address") => {
            ("IPPool.Spec.CIDR", "IPPool CIDR must be a valid subnet".to_owned())
        }
        "spec.cidr" => {
            let (other, cidr) = rule.strip_prefix("overlaps pool ")?.split_once(" (")?;
            let cidr = cidr.trim_end_matches(')');
            let own = &pool.metadata.name;
            let reason = format!("IPPool({own}) CIDR overlaps with IPPool({other}) CIDR {cidr}");
            ("IPPool.Spec.CIDR", reason)
        }
        "spec.blockSize" if changed => {
            ("IPPool.Spec.BlockSize", "IPPool BlockSize cannot be modified".to_owned())
        }
        "spec.blockSize" if rule.starts_with("the pool's CIDR contains") => (
            "IPPool.Spec.BlockSize",
            "IPPool blocksSize conflicts with existing allocations that use a different blockSize".to_owned(),
        ),
        "spec.allowedUses" if changed => (
            "IPPool.Spec.AllowedUses",
            "IPPool allowed use cannot be changed from LoadBalacer to Workload or Tunnel".to_owned(),
        ),
        "spec.blockSize" if rule.starts_with("must be between") => {
            let reason =
                "blockSize must be between 20 and 32 for IPv4 pools, and between 116 and 128 for IPv6 pools";
            return Some(Errored::new("spec", "", reason));
        }
        "spec.ipipMode" if rule.contains("IPv6") => {
            return Some(Errored::new("spec", "", "IPIP is not supported on IPv6 pools"));
        }
        "spec.vxlanMode" if rule.contains("ipipMode") => {
            return Some(Errored::new("spec", "", "ipipMode and vxlanMode cannot both be enabled"));
        }
        _ => return None,
    };
    Some(Errored::new(name, value, reason))
}

fn of_bgp_configuration(violation: &Violation) -> Option<Errored> {
    if !violation.rule.starts_with("can only be set on the BGPConfiguration named default") {
        return None;
    }
    let (name, said) = match violation.field.strip_prefix("spec.")? {
        "nodeToNodeMeshEnabled" => ("NodeToNodeMeshEnabled", "nodeToNodeMeshEnabled"),
        "asNumber" => ("ASNumber", "ASNumber"),
        "serviceLoadBalancerIPs" => ("ServiceLoadBalancerIPs", "ServiceLoadBalancerIPs"),
        "serviceExternalIPs" => ("ServiceExternalIPs", "ServiceExternalIPs"),
        "serviceClusterIPs" => ("ServiceClusterIPs", "ServiceClusterIPs"),
        "nodeMeshPassword" => ("NodeMeshPassword", "nodeMeshPassword"),
        "nodeMeshMaxRestartTime" => ("NodeMeshMaxRestartTime", "nodeMeshMaxRestartTime"),
        _ => return None,
    };
    let reason = format!("Cannot set {said} on a non default BGP Configuration.");
    Some(Errored::new(&format!("BGPConfiguration.Spec.{name}"), "", reason))
}

fn of_host_endpoint(violation: &Violation) -> Option<Errored> {
    match (violation.field.as_str(), violation.rule.as_str()) {
        ("spec.node", "must be set") => Some(Errored::new("spec", "", "node must be specified")),
        ("spec.interfaceName", rule) if rule.starts_with("must be set if") => {
            Some(Errored::new("spec", "", "at least one of interfaceName or expectedIPs must be specified"))
        }
        _ => None,
    }
}

fn of_workload_endpoint(endpoint: &Resource, violation: &Violation) -> Option<Errored> {
    let Violation { field, value, rule } = violation;
    let named = rule.strip_suffix(", according to the spec").and_then(|rule| rule.strip_prefix("must be "));
    if let Some(expected) = named {
        let reason = format!(
            "the WorkloadEndpoint name does not match the primary identifiers assigned in the Spec: expected name {expected}"
        );
        return Some(Errored::new("Name", value, reason));
    }
    if field.starts_with("spec.ipNetworks") && rule.starts_with("must be a single address") {
        let all = texts_at(endpoint, "spec.ipNetworks");
        return Some(Errored::new("IPNetworks", &all, "IP network contains multiple addresses"));
    }
    None
}

fn of_tier(tier: &Resource, violation: &Violation) -> Option<Errored> {
    let name = &tier.metadata.name;
    let end = format!(" for the tier {name}");
    let wanted = violation.rule.strip_prefix("must be ")?.strip_suffix(end.as_str())?;
    let reason = match violation.field.as_str() {
        "spec.order" => format!("{name} tier order must be {wanted}"),
        "spec.defaultAction" => format!("{name} tier default action must be {wanted}"),
        _ => return None,
    };
    Some(Errored::new("Tier", "", reason))
}
