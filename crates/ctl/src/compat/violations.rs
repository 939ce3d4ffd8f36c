//! Broken rules in the frame that calicoctl prints them in.

use model::validate::Violation;
use model::{Kind, Resource};

const NAME_PATTERN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";

/// One field as calicoctl names it: `Name = 'value' (reason)`.
struct Errored {
    name: String,
    value: Option<String>,
    reason: String,
}

/// Everything that is wrong with a resource, as one error of calicoctl's.
pub(crate) fn violations_text(resource: &Resource, violations: &[Violation]) -> String {
    if let Some(missing) = violations.iter().find_map(missing_reference) {
        return missing;
    }
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
    Some(format!("resource does not exist: {kind}({}) with error: <nil>", violation.value))
}

impl Errored {
    fn new(name: &str, value: &str, reason: impl Into<String>) -> Errored {
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
    let Violation { field, value, rule } = violation;
    let of_kind = match resource.kind {
        Kind::IpPool => of_pool(resource, violation),
        Kind::BgpConfiguration => of_bgp_configuration(violation),
        Kind::Node if field == "spec.bgp" => Some(Errored::new("BGP", "", "Spec.BGP should not be empty")),
        _ => None,
    };
    of_kind
        .or_else(|| of_metadata(resource, violation))
        .unwrap_or_else(|| Errored::new(field, value, rule.clone()))
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
    let (name, reason) = match field.as_str() {
        "spec.cidr" if rule == "must be set" => {
            ("IPPool.Spec.CIDR", "IPPool CIDR must be specified".to_owned())
        }
        "spec.cidr" if changed => ("IPPool.Spec.CIDR", "IPPool CIDR cannot be modified".to_owned()),
        "spec.cidr" if rule.starts_with("has host bits") => {
            ("IPPool.Spec.CIDR", "IPPool CIDR is not strictly masked".to_owned())
        }
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
