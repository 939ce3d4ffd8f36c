//! Kubernetes' NetworkPolicy, written as Calico's.

use serde_json::{Map, Value, json};

use super::{Policy, list, text};

const PODS: &str = "projectcalico.org/orchestrator == 'k8s'";

pub(crate) fn converted(name: String, namespace: String, spec: &Value) -> Policy {
    let types = match list(&spec["policyTypes"]) {
        [] => json!(["Ingress"]),
        types => json!(types),
    };
    let converted = json!({
        "selector": pods(&spec["podSelector"]),
        "types": types,
        "ingress": rules(&spec["ingress"], "from", "source"),
        "egress": rules(&spec["egress"], "to", "destination"),
    });
    Policy {
        kind: "KubernetesNetworkPolicy".to_owned(),
        tier: "default".to_owned(),
        order: 1000.0,
        namespace,
        name,
        spec: converted,
    }
}

fn rules(rules: &Value, peers: &str, peer_side: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for rule in list(rules) {
        let peers = list(&rule[peers]);
        let peers: Vec<Value> =
            if peers.is_empty() { vec![json!({})] } else { peers.iter().map(peer).collect() };
        for peer in peers {
            let of_peer =
                |(protocol, ports): (Value, Vec<Value>)| one_rule(&peer, peer_side, &protocol, &ports);
            all.extend(ports(&rule["ports"]).into_iter().map(of_peer));
        }
    }
    all
}

fn one_rule(peer: &Value, peer_side: &str, protocol: &Value, ports: &[Value]) -> Value {
    let mut rule = Map::new();
    rule.insert("action".to_owned(), json!("Allow"));
    rule.insert(peer_side.to_owned(), peer.clone());
    if !protocol.is_null() {
        rule.insert("protocol".to_owned(), protocol.clone());
    }
    if !ports.is_empty() {
        let mut destination = rule.get("destination").cloned().unwrap_or_else(|| json!({}));
        destination["ports"] = json!(ports);
        rule.insert("destination".to_owned(), destination);
    }
    Value::Object(rule)
}

fn peer(peer: &Value) -> Value {
    let block = &peer["ipBlock"];
    if !block.is_null() {
        return json!({ "nets": [block["cidr"]], "notNets": list(&block["except"]) });
    }
    let mut entity = json!({ "selector": pods(&peer["podSelector"]) });
    if !peer["namespaceSelector"].is_null() {
        let selector = requirements(&peer["namespaceSelector"]).join(" && ");
        entity["namespaceSelector"] = json!(if selector.is_empty() { "all()".to_owned() } else { selector });
    }
    entity
}

/// Ports by protocol, in order of protocol name; no ports at all is one entry without protocol.
fn ports(ports: &Value) -> Vec<(Value, Vec<Value>)> {
    let ports = list(ports);
    if ports.is_empty() {
        return vec![(Value::Null, Vec::new())];
    }
    let protocol = |port: &Value| port["protocol"].as_str().unwrap_or("TCP").to_owned();
    let mut protocols: Vec<String> = ports.iter().map(protocol).collect();
    protocols.sort();
    protocols.dedup();
    let of_one = |name: &String| {
        let own: Vec<&Value> = ports.iter().filter(|port| protocol(port) == *name).collect();
        // An entry without a number means every port of the protocol.
        let every = own.iter().any(|port| port["port"].is_null());
        let texts = if every { Vec::new() } else { own.into_iter().map(port_text).collect() };
        (json!(name), texts)
    };
    protocols.iter().map(of_one).collect()
}

fn port_text(port: &Value) -> Value {
    match port["endPort"].as_u64() {
        Some(end) => json!(format!("{}:{end}", port["port"])),
        None => port["port"].clone(),
    }
}

fn pods(selector: &Value) -> String {
    let mut all = vec![PODS.to_owned()];
    all.extend(requirements(selector));
    all.join(" && ")
}

fn requirements(selector: &Value) -> Vec<String> {
    let mut all = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        all.push(format!("{key} == '{}'", text(value)));
    }
    for expression in list(&selector["matchExpressions"]) {
        let key = text(&expression["key"]);
        let values: Vec<String> =
            list(&expression["values"]).iter().map(|value| format!("'{}'", text(value))).collect();
        all.push(match text(&expression["operator"]).as_str() {
            "In" => format!("{key} in {{ {} }}", values.join(", ")),
            "NotIn" => format!("{key} not in {{ {} }}", values.join(", ")),
            "Exists" => format!("has({key})"),
            _ => format!("! has({key})"),
        });
    }
    all
}
