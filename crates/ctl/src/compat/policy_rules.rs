//! Broken rules of policies, and broken formats, as calicoctl names them.

use model::schema::{self, Type};
use model::validate::Violation;
use model::{Kind, Resource};

use super::violations::Errored;
use super::{texts_at, value_at};

/// Formats and lists of words, wherever they stand.
pub(super) fn of_format(kind: Kind, violation: &Violation) -> Option<Errored> {
    let Violation { field, value, rule } = violation;
    let last = field.rsplit('.').next().unwrap_or(field);
    if let Some(words) = words_of(kind, field) {
        let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
        return Some(Errored::new(field, "", format!("supported values: {}", words.join(", "))));
    }
    let by_tag = |tag: &str| {
        let name = go_name(last);
        let reason = format!("Reason: failed to validate Field: {name} because of Tag: {tag} ");
        Some(Errored::new(&name, value, reason))
    };
    match rule.as_str() {
        rule if rule.starts_with("must be a selector") => by_tag("selector"),
        rule if rule.starts_with("must be an IP address, IPv4:PORT") => by_tag("IP:port"),
        rule if rule.starts_with("must be a protocol number") => {
            Some(Errored::new("Protocol", value, "protocol name invalid"))
        }
        rule if rule.starts_with("must be an address with a prefix length") => {
            Some(Errored::new(field, "", format!("{field} in body must be of type cidr: {value:?}")))
        }
        _ => None,
    }
}

/// The words that a field may hold, if it is such a field.
fn words_of(kind: Kind, field: &str) -> Option<&'static [&'static str]> {
    let mut ty = Type::Object(schema::document(kind));
    for part in field.split('.') {
        let (name, is_item) = part.split_once('[').map_or((part, false), |(name, _)| (name, true));
        let Type::Object(object) = ty else { return None };
        ty = object.field(name)?.ty;
        if let (Type::List(list), true) = (ty, is_item) {
            ty = list.item;
        }
    }
    match ty {
        Type::OneOf(words) => Some(words),
        _ => None,
    }
}

/// The name of a field in Go's types: `peerIP` is `PeerIP`.
fn go_name(field: &str) -> String {
    let mut characters = field.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Rules over several fields of a policy, or of one of its rules.
pub(super) fn of_rule(resource: &Resource, violation: &Violation) -> Option<Errored> {
    let Violation { field, value, rule } = violation;
    let of_spec = |reason: &str| Some(Errored::new("spec", "", reason));
    match field.as_str() {
        "spec.types[1]" => {
            let spec = match resource.kind {
                Kind::GlobalNetworkPolicy | Kind::StagedGlobalNetworkPolicy => {
                    "GlobalNetworkPolicySpec.Types"
                }
                _ => "NetworkPolicySpec.Types",
            };
            let reason = format!("'{value}' type specified more than once");
            return Some(Errored::new(spec, &format!("[{value} {value}]"), reason));
        }
        "spec.preDNAT" => return of_spec("preDNAT and doNotTrack cannot both be true"),
        "spec.applyOnForward" => {
            return of_spec("applyOnForward must be true if either preDNAT or doNotTrack is true");
        }
        "spec.egress" if rule.contains("preDNAT") => {
            return of_spec("preDNAT policy cannot have any egress rules");
        }
        _ => {}
    }
    let (start, rest) = field.split_once("].")?;
    if !(start.starts_with("spec.ingress[") || start.starts_with("spec.egress[")) {
        return None;
    }
    let (side, of_side) = rest.split_once('.').unwrap_or((rest, ""));
    let list = of_side.split('[').next().unwrap_or(of_side);
    let name = format!("{}.{}", go_name(side), go_name(list));
    let whole = |reason: &str| Some(Errored::new(&format!("{start}]"), "", reason));
    match (list, side) {
        ("ports" | "notPorts", _) if rule.starts_with("must not be set unless protocol") => {
            let reason = match value_at(resource, &format!("{start}].protocol")) {
                Some(_) => "rules that specify ports must set protocol to TCP or UDP or SCTP",
                None => "rules with numeric port or port range must set protocol to TCP or UDP or SCTP",
            };
            Some(Errored::new(&name, &texts_at(resource, field), reason))
        }
        ("nets" | "notNets", _) if rule.starts_with("must have a prefix length") => {
            Some(Errored::new(&name, value, "invalid CIDR"))
        }
        (_, "ipVersion") if rule.contains("ICMPv6") => whole("protocol ICMPv6 requires ipVersion 6"),
        (_, "ipVersion") if rule.contains("ICMP") => whole("protocol ICMP requires ipVersion 4"),
        (_, "icmp") if rule.contains("unless protocol") => {
            whole("ICMP fields require protocol to be ICMP or ICMPv6")
        }
        _ => None,
    }
}
