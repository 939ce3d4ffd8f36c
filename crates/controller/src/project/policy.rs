//! Kubernetes' network policies as policies of Calico, as Calico's controller writes them into etcd: `knp.default.NAME`.
//!
//! Every rule allows: the denial comes from the end of the tier. So a rule that cannot be understood is left out, and what it would allow stays
//! denied. It never becomes a rule without a condition.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::kube::convert_uid;
use model::{Kind, Resource};
use serde_json::{Map, Value, json};

pub(super) const PREFIX: &str = "knp.default.";
const OF_PODS: &str = "projectcalico.org/orchestrator == 'k8s'";

/// A policy, and what of it could not be understood.
#[derive(Debug)]
pub(super) struct Converted {
    pub(super) policy: Resource,
    pub(super) left_out: Vec<String>,
}

/// `None`: it has no name or namespace.
pub(super) fn convert(object: &Map<String, Value>) -> Option<Converted> {
    let metadata = object.get("metadata")?;
    let (name, namespace) = (metadata["name"].as_str()?, metadata["namespace"].as_str()?);
    let empty = json!({});
    let spec = object.get("spec").unwrap_or(&empty);
    let mut left_out = Vec::new();
    let types: Vec<&str> = list(&spec["policyTypes"]).filter_map(Value::as_str).collect();
    let has = |direction: &str| types.contains(&direction) || (types.is_empty() && direction == "Ingress");
    let mut body = Map::new();
    let selector = selector(&spec["podSelector"]).unwrap_or_else(|| {
        left_out.push("its podSelector".to_owned());
        // The pods that it is about are not known, so it is about all of them: nothing may become open for want of a policy.
        String::new()
    });
    body.insert("tier".to_owned(), "default".into());
    body.insert("order".to_owned(), 1000.into());
    body.insert("selector".to_owned(), joined(OF_PODS, &selector).into());
    for (direction, field, peers) in [("Ingress", "ingress", "from"), ("Egress", "egress", "to")] {
        if has(direction) {
            let rules = list(&spec[field]).enumerate().flat_map(|(number, rule)| {
                rules(rule, direction, peers, &mut |what| {
                    left_out.push(format!("{what} of {field} rule {number}"))
                })
            });
            let rules: Vec<Value> = rules.collect();
            if !rules.is_empty() {
                body.insert(field.to_owned(), rules.into());
            }
        }
    }
    let types: Vec<&str> = ["Ingress", "Egress"].into_iter().filter(|direction| has(direction)).collect();
    body.insert("types".to_owned(), json!(types));
    let mut policy = Resource::new(Kind::NetworkPolicy, format!("{PREFIX}{name}"));
    policy.metadata.namespace = Some(namespace.to_owned());
    policy.metadata.uid = metadata["uid"].as_str().map(convert_uid);
    policy.metadata.creation_timestamp = metadata["creationTimestamp"].as_str().map(str::to_owned);
    policy.body.insert("spec".to_owned(), Value::Object(body));
    Some(Converted { policy, left_out })
}

/// One rule for each peer and each protocol.
fn rules(rule: &Value, direction: &str, peers: &str, left_out: &mut dyn FnMut(&str)) -> Vec<Value> {
    let entries: Vec<&Value> = list(&rule[peers]).collect();
    let sides: Vec<Map<String, Value>> = match entries.is_empty() {
        true => vec![Map::new()],
        false => {
            let understood = entries.into_iter().filter_map(|peer| {
                let side = side(peer);
                side.is_none().then(|| left_out("a peer"));
                side
            });
            understood.collect()
        }
    };
    let ports: Vec<&Value> = list(&rule["ports"]).collect();
    let protocols: Vec<(Option<String>, Vec<Value>)> = match ports.is_empty() {
        true => vec![(None, Vec::new())],
        false => by_protocol(&ports, left_out),
    };
    let mut made = Vec::new();
    for side in &sides {
        for (protocol, ports) in &protocols {
            let mut made_rule = Map::from_iter([("action".to_owned(), Value::from("Allow"))]);
            let (source, mut destination) = match direction {
                "Ingress" => (side.clone(), Map::new()),
                _ => (Map::new(), side.clone()),
            };
            if !ports.is_empty() {
                destination.insert("ports".to_owned(), json!(ports));
            }
            if let Some(protocol) = protocol {
                made_rule.insert("protocol".to_owned(), protocol.as_str().into());
            }
            for (field, side) in [("source", source), ("destination", destination)] {
                if !side.is_empty() {
                    made_rule.insert(field.to_owned(), Value::Object(side));
                }
            }
            made.push(Value::Object(made_rule));
        }
    }
    made
}

/// The peers that an entry names; `None`: it cannot be understood, and must not become everybody.
fn side(peer: &Value) -> Option<Map<String, Value>> {
    let mut side = Map::new();
    let given = |field: &str| peer.get(field).filter(|value| !value.is_null());
    if let Some(block) = given("ipBlock") {
        let cidr = network(&block["cidr"])?;
        side.insert("nets".to_owned(), json!([cidr]));
        let except: Option<Vec<String>> = list(&block["except"]).map(network).collect();
        let except = except?;
        if !except.is_empty() {
            side.insert("notNets".to_owned(), json!(except));
        }
        return Some(side);
    }
    let (pods, namespaces) = (given("podSelector"), given("namespaceSelector"));
    if pods.is_none() && namespaces.is_none() {
        return None;
    }
    let pods = pods.map_or(Some(String::new()), selector)?;
    side.insert("selector".to_owned(), joined(OF_PODS, &pods).into());
    if let Some(namespaces) = namespaces {
        let namespaces = selector(namespaces)?;
        let namespaces = if namespaces.is_empty() { "all()".to_owned() } else { namespaces };
        side.insert("namespaceSelector".to_owned(), namespaces.into());
    }
    Some(side)
}

/// A network as it is meant: without host bits, in the usual spelling. Strictly: what others read in another way is not guessed.
fn network(value: &Value) -> Option<String> {
    let (address, length) = value.as_str()?.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    let is_mapped = matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    let length = length.parse().ok().filter(|_| is_number && !is_mapped)?;
    Some(IpNet::new(address, length).ok()?.trunc().to_string())
}

/// Ports by name, and ranges of numbers.
type Ports = (Vec<String>, Vec<(u16, u16)>);

/// Ports by their protocol, in its order. An entry without a port is all ports of its protocol.
fn by_protocol(entries: &[&Value], left_out: &mut dyn FnMut(&str)) -> Vec<(Option<String>, Vec<Value>)> {
    let mut all: BTreeMap<String, Option<Ports>> = BTreeMap::new();
    for entry in entries {
        let protocol = match &entry["protocol"] {
            Value::Null => "TCP",
            Value::String(text) if matches!(text.as_str(), "TCP" | "UDP" | "SCTP") => text,
            _ => {
                left_out("a protocol");
                continue;
            }
        };
        let known = all.entry(protocol.to_owned()).or_insert_with(|| Some((Vec::new(), Vec::new())));
        match (&entry["port"], ports(entry)) {
            (Value::Null, _) => *known = None,
            (Value::String(name), _) => {
                known.iter_mut().for_each(|(names, _)| names.push(name.clone()));
            }
            (_, Some(range)) => known.iter_mut().for_each(|(_, ranges)| ranges.push(range)),
            (_, None) => left_out("a port"),
        }
    }
    let usable = all.into_iter().filter_map(|(protocol, ports)| match ports {
        None => Some((Some(protocol), Vec::new())),
        // All of them were left out: it must not become every port.
        Some((names, ranges)) if names.is_empty() && ranges.is_empty() => None,
        Some((names, ranges)) => {
            let names = names.into_iter().map(Value::from);
            Some((Some(protocol), names.chain(merged(ranges)).collect()))
        }
    });
    usable.collect()
}

fn ports(entry: &Value) -> Option<(u16, u16)> {
    let number = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    let first = number(&entry["port"])?;
    let last = if entry["endPort"].is_null() { first } else { number(&entry["endPort"])? };
    (first <= last).then_some((first, last))
}

/// As few ranges as possible.
fn merged(mut ranges: Vec<(u16, u16)>) -> Vec<Value> {
    ranges.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    let text = |(first, last): (u16, u16)| match first == last {
        true => Value::from(first),
        false => Value::from(format!("{first}:{last}")),
    };
    merged.into_iter().map(text).collect()
}

/// A selector of Kubernetes in Calico's language; empty if it selects everything. `None`: it cannot be understood.
fn selector(value: &Value) -> Option<String> {
    let mut parts = Vec::new();
    // In the order of their keys.
    let labels: BTreeMap<&String, &Value> = value["matchLabels"].as_object().into_iter().flatten().collect();
    for (key, value) in labels {
        parts.push(format!("{} == {}", name(key)?, quoted(value.as_str()?)?));
    }
    for expression in list(&value["matchExpressions"]) {
        let key = name(expression["key"].as_str()?)?;
        let values: Option<Vec<String>> =
            list(&expression["values"]).map(|value| quoted(value.as_str()?)).collect();
        let values = values?.join(", ");
        parts.push(match expression["operator"].as_str()? {
            "In" => format!("{key} in {{ {values} }}"),
            "NotIn" => format!("{key} not in {{ {values} }}"),
            "Exists" => format!("has({key})"),
            "DoesNotExist" => format!("! has({key})"),
            _ => return None,
        });
    }
    Some(parts.join(" && "))
}

fn name(key: &str) -> Option<&str> {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    (!key.is_empty() && key.bytes().all(is_usual)).then_some(key)
}

/// Values of labels have no quotes; what has some is no value of a label.
fn quoted(value: &str) -> Option<String> {
    (!value.contains(['\'', '"'])).then(|| format!("'{value}'"))
}

fn joined(first: &str, rest: &str) -> String {
    if rest.is_empty() { first.to_owned() } else { format!("{first} && {rest}") }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec_of(spec: Value) -> (Value, Vec<String>) {
        let object = json!({ "metadata": { "namespace": "shop", "name": "x" }, "spec": spec });
        let converted = convert(object.as_object().unwrap()).unwrap();
        (converted.policy.body["spec"].clone(), converted.left_out)
    }

    #[test]
    fn a_policy_has_calicos_frame() {
        let object = json!({ "metadata": { "namespace": "shop", "name": "x",
            "uid": "01234567-89ab-4def-8123-456789abcdef" },
            "spec": { "podSelector": { "matchLabels": { "b": "2", "a": "1" }, "matchExpressions": [
                { "key": "c", "operator": "NotIn", "values": ["x", "y"] }, { "key": "d", "operator": "DoesNotExist" }] },
                "policyTypes": ["Ingress", "Egress"] } });
        let Converted { policy, left_out } = convert(object.as_object().unwrap()).unwrap();
        assert_eq!(policy.key().to_string(), "NetworkPolicy(shop/knp.default.x)");
        assert_eq!(policy.metadata.uid.as_deref(), Some("80c4a2e6-91d5-4df7-81c4-a2e691d5b3f7"));
        assert_eq!(
            policy.body["spec"],
            json!({ "tier": "default", "order": 1000, "types": ["Ingress", "Egress"], "selector":
                "projectcalico.org/orchestrator == 'k8s' && a == '1' && b == '2' && c not in { 'x', 'y' } && ! has(d)" })
        );
        assert!(left_out.is_empty());
    }

    #[test]
    fn peers_times_protocols_are_rules() {
        let (spec, left_out) = spec_of(json!({ "podSelector": {}, "ingress": [{
            "from": [{ "podSelector": { "matchLabels": { "app": "web" } } }, { "namespaceSelector": {} },
                { "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"] } }],
            "ports": [{ "port": 80 }, { "port": 81 }, { "port": 90, "endPort": 95 }, { "port": "http" },
                { "protocol": "UDP" }, { "protocol": "UDP", "port": 53 }] }] }));
        assert_eq!((&spec["types"], left_out.len()), (&json!(["Ingress"]), 0));
        let rules = spec["ingress"].as_array().unwrap();
        assert_eq!(rules.len(), 6);
        assert_eq!(
            rules[0],
            json!({ "action": "Allow", "protocol": "TCP",
                "source": { "selector": "projectcalico.org/orchestrator == 'k8s' && app == 'web'" },
                "destination": { "ports": ["http", "80:81", "90:95"] } })
        );
        assert_eq!(rules[1]["protocol"], "UDP");
        assert_eq!(rules[1].get("destination"), None, "all ports");
        assert_eq!(rules[2]["source"]["namespaceSelector"], "all()");
        assert_eq!(rules[4]["source"], json!({ "nets": ["10.0.0.0/8"], "notNets": ["10.1.0.0/16"] }));
        let (open, _) =
            spec_of(json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [{}], "ingress": [{}] }));
        assert_eq!(open["egress"], json!([{ "action": "Allow" }]));
        assert_eq!(open.get("ingress"), None, "rules of a type that it does not have are ignored");
    }

    /// What cannot be understood allows nobody, and not everybody.
    #[test]
    fn what_cannot_be_understood_opens_nothing() {
        for rule in [
            json!({ "from": [{ "ipBlock": { "cidr": "010.0.0.0/8" } }] }),
            json!({ "from": [{ "ipBlock": { "cidr": "::ffff:10.0.0.0/104" } }] }),
            json!({ "from": [{ "ipBlock": { "cidr": "10.0.0.0/+8" } }] }),
            json!({ "from": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["x"] } }] }),
            json!({ "from": [{}] }),
            json!({ "from": [{ "podSelector": { "matchLabels": { "a": "' || all() || '" } } }] }),
            json!({ "from": [{ "podSelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } }] }),
            json!({ "ports": [{ "port": 70000 }] }),
            json!({ "ports": [{ "protocol": "ICMP", "port": 1 }] }),
            json!({ "ports": [{ "port": 9, "endPort": 8 }] }),
        ] {
            let (spec, left_out) = spec_of(json!({ "podSelector": {}, "ingress": [rule] }));
            assert_eq!(spec.get("ingress"), None, "{rule}: {spec}");
            assert_eq!(left_out.len(), 1, "{rule}: {left_out:?}");
        }
        let (spec, _) = spec_of(json!({ "podSelector": { "matchLabels": { "a'": "b" } } }));
        assert_eq!(spec["selector"], OF_PODS, "a policy whose pods are not known is about all of them");
    }

    proptest! {
        #[test]
        fn any_object_is_survived(text in "\\PC{0,12}", number in any::<i64>()) {
            for value in [json!(text), json!([text]), json!(number), json!({ text.clone(): [number] })] {
                let rule = json!([{ "from": [value, { "podSelector": value }], "ports": [{ "port": value, "endPort": number }] }]);
                for spec in [json!({ "ingress": rule, "podSelector": value }), value.clone()] {
                    let object = json!({ "metadata": { "namespace": "n", "name": "x" }, "spec": spec });
                    let _ = convert(object.as_object().unwrap());
                }
            }
        }
    }
}
