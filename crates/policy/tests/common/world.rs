//! Random clusters: records of policies, endpoints and namespaces that have enough in common to concern each other.

use std::collections::BTreeMap;

use model::{Key, Kind, Resource};
use policy::{Calculation, KubernetesKind, Packet};
use serde_json::{Value, json};

use super::Dice;

pub(crate) const NODE: &str = "node-a";
const NAMESPACES: [&str; 3] = ["red", "green", "blue"];
const NAMES: [&str; 3] = ["a", "a-b", "c"];
const VALUES: [&str; 2] = ["x", "y"];

/// Something that a store or an API server has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Record {
    Calico(Box<Resource>),
    Kubernetes(KubernetesKind, Value),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Calico(Kind, Option<String>, String),
    Kubernetes(KubernetesKind, Option<String>, String),
}

pub(crate) type World = BTreeMap<Name, Record>;

impl Record {
    pub(crate) fn name(&self) -> Name {
        match self {
            Record::Calico(record) => {
                Name::Calico(record.kind, record.metadata.namespace.clone(), record.metadata.name.clone())
            }
            Record::Kubernetes(kind, object) => {
                let text = |field: &str| object["metadata"][field].as_str().map(str::to_owned);
                Name::Kubernetes(*kind, text("namespace"), text("name").unwrap_or_default())
            }
        }
    }

    pub(crate) fn put_into(&self, calculation: &mut Calculation) {
        match self {
            Record::Calico(record) => calculation.put(&record.key(), record),
            Record::Kubernetes(kind, object) => calculation.put_kubernetes(*kind, object),
        }
    }
}

impl Name {
    pub(crate) fn remove_from(&self, calculation: &mut Calculation) {
        match self {
            Name::Calico(kind, namespace, name) => {
                let key = Key::Resource { kind: *kind, namespace: namespace.clone(), name: name.clone() };
                calculation.remove(&key);
            }
            Name::Kubernetes(kind, namespace, name) => {
                calculation.remove_kubernetes(*kind, namespace.as_deref(), name);
            }
        }
    }
}

fn resource(kind: Kind, namespace: Option<&str>, name: &str, spec: Value) -> Record {
    let mut record = Resource::new(kind, name);
    record.metadata.namespace = namespace.map(str::to_owned);
    record.body.insert("spec".to_owned(), spec);
    Record::Calico(Box::new(record))
}

fn pick<'a>(dice: &mut Dice, words: &[&'a str]) -> &'a str {
    dice.one_of(words)
}

fn labelled(record: Record, labels: BTreeMap<String, String>) -> Record {
    let Record::Calico(mut record) = record else { return record };
    record.metadata.labels = labels;
    Record::Calico(record)
}

fn labels(dice: &mut Dice) -> BTreeMap<String, String> {
    let names = dice.some_of(&["a", "b"]);
    names.into_iter().map(|name| (name.to_owned(), (*dice.one_of(&VALUES)).to_owned())).collect()
}

fn address(dice: &mut Dice) -> String {
    match dice.number(3) {
        0 => format!("fd00:{}::{}", dice.number(2), dice.number(4) + 1),
        _ => format!("10.{}.0.{}", dice.number(2), dice.number(4) + 1),
    }
}

fn net(dice: &mut Dice) -> String {
    let nets = [
        "10.0.0.0/8",
        "10.0.0.0/16",
        "10.1.0.0/30",
        "10.0.0.4/31",
        "fd00::/16",
        "fd00:1::/64",
        "fd00::2/128",
        "10.0.0.3/32",
    ];
    (*dice.one_of(&nets)).to_owned()
}

fn nets_of_one_family(dice: &mut Dice) -> Vec<String> {
    let is_v4 = !dice.once_in(3);
    let mut nets: Vec<String> =
        (0..=dice.number(3)).map(|_| net(dice)).filter(|net| net.contains('.') == is_v4).collect();
    nets.sort();
    nets.dedup();
    nets
}

fn selector(dice: &mut Dice) -> String {
    let (one, other) = (*dice.one_of(&VALUES), *dice.one_of(&VALUES));
    match dice.number(9) {
        0 => "all()".to_owned(),
        1 => format!("a == '{one}'"),
        2 => format!("b != '{one}'"),
        3 => format!("a in {{'{one}', '{other}'}}"),
        4 => "has(b)".to_owned(),
        5 => "!has(a)".to_owned(),
        6 => format!("a == '{one}' && b == '{other}'"),
        7 => format!("a == '{one}' || b not in {{'{other}'}}"),
        _ => format!("!(a == '{one}' && has(b)) && b contains '{other}'"),
    }
}

fn entity(dice: &mut Dice, protocol: Option<&str>, is_far: bool, is_global: bool) -> Value {
    let mut entity = json!({});
    let has_ports = protocol.is_some_and(|protocol| matches!(protocol, "TCP" | "UDP" | "SCTP"));
    if dice.once_in(2) {
        return entity;
    }
    if is_far && dice.once_in(4) {
        entity["services"] = json!({ "name": "svc", "namespace": "red" });
        return entity;
    }
    if dice.once_in(3) {
        entity["selector"] = selector(dice).into();
    }
    if dice.once_in(6) {
        entity["notSelector"] = selector(dice).into();
    }
    if dice.once_in(5) {
        let text = if dice.once_in(4) { "global()".to_owned() } else { selector(dice) };
        entity["namespaceSelector"] = text.into();
    }
    if dice.once_in(10) {
        entity["serviceAccounts"] = json!({ "names": ["sa"] });
    }
    if dice.once_in(4) {
        entity["nets"] = nets_of_one_family(dice).into();
    }
    if dice.once_in(6) {
        entity["notNets"] = nets_of_one_family(dice).into();
    }
    let ports = |dice: &mut Dice| {
        let names = [json!("web"), json!("dns")];
        let numbers = [json!(80), json!(53), json!("79:81"), json!("50:60")];
        let mut ports = if has_ports { dice.some_of(&numbers) } else { Vec::new() };
        if (has_ports || protocol.is_none()) && dice.once_in(2) {
            ports.extend(dice.some_of(&names));
        }
        ports
    };
    if dice.once_in(3) {
        entity["ports"] = ports(dice).into();
    }
    if dice.once_in(6) {
        entity["notPorts"] = ports(dice).into();
    }
    let _ = is_global;
    entity
}

fn rule(dice: &mut Dice, is_ingress: bool, is_global: bool) -> Value {
    let action = *dice.one_of(&["Allow", "Allow", "Allow", "Deny", "Deny", "Pass", "Log"]);
    let protocols =
        [None, None, Some("TCP"), Some("TCP"), Some("UDP"), Some("SCTP"), Some("ICMP"), Some("ICMPv6")];
    let protocol = *dice.one_of(&protocols);
    let mut rule = json!({ "action": action });
    if let Some(protocol) = protocol {
        rule["protocol"] = protocol.into();
        if protocol.starts_with("ICMP") && dice.once_in(2) {
            rule["icmp"] =
                if dice.once_in(2) { json!({ "type": 8 }) } else { json!({ "type": 8, "code": 1 }) };
        }
    } else if dice.once_in(6) {
        rule["notProtocol"] = (*dice.one_of(&["TCP", "ICMP"])).into();
    }
    if dice.once_in(12) {
        rule["notICMP"] =
            if dice.once_in(2) { json!({ "type": 8 }) } else { json!({ "type": 8, "code": 0 }) };
    }
    if dice.once_in(10)
        && !protocol.is_some_and(|protocol| protocol.starts_with("ICMP"))
        && rule.get("notProtocol").is_none()
    {
        rule["ipVersion"] = (*dice.one_of(&[4, 6])).into();
    }
    rule["source"] = entity(dice, protocol, is_ingress, is_global);
    rule["destination"] = entity(dice, protocol, !is_ingress, is_global);
    // A service in a destination brings its own ports, and stands alone.
    if rule["destination"].get("services").is_some() {
        rule.as_object_mut().unwrap().remove("icmp");
    }
    rule
}

fn rules(dice: &mut Dice, is_ingress: bool, is_global: bool) -> Value {
    (0..dice.number(4)).map(|_| rule(dice, is_ingress, is_global)).collect()
}

fn calico_policy(dice: &mut Dice) -> Record {
    let kinds = [
        Kind::NetworkPolicy,
        Kind::NetworkPolicy,
        Kind::GlobalNetworkPolicy,
        Kind::GlobalNetworkPolicy,
        Kind::StagedNetworkPolicy,
        Kind::StagedGlobalNetworkPolicy,
    ];
    let kind = *dice.one_of(&kinds);
    let is_global = !kind.is_namespaced();
    let mut spec = json!({
        "selector": selector(dice),
        "tier": dice.one_of(&["default", "default", "sec", "gone"]),
        "ingress": rules(dice, true, is_global),
        "egress": rules(dice, false, is_global),
    });
    let types: [&[&str]; 4] = [&["Ingress"], &["Egress"], &["Ingress", "Egress"], &[]];
    spec["types"] = json!(dice.one_of(&types));
    if dice.once_in(2) {
        spec["order"] = (*dice.one_of(&[1.0, 10.0, 1000.0, -3.5])).into();
    }
    if is_global && dice.once_in(4) {
        spec["namespaceSelector"] = selector(dice).into();
    }
    if is_global && dice.once_in(2) {
        protect_hosts(dice, &mut spec);
    }
    if dice.once_in(8) {
        spec["serviceAccountSelector"] = "a == 'x'".into();
    }
    if dice.once_in(20) {
        match dice.number(4) {
            0 => spec["ingress"] = json!([{ "action": "Permit" }]),
            1 => spec["selector"] = "a ==".into(),
            2 => spec["newer"] = true.into(),
            _ => {
                spec["egress"] =
                    json!([{ "action": "Allow", "protocol": "TCP", "destination": { "ports": [70000] } }])
            }
        }
    }
    let namespace = kind.is_namespaced().then(|| *dice.one_of(&NAMESPACES));
    resource(kind, namespace, pick(dice, &NAMES), spec)
}

/// What only host endpoints know.
fn protect_hosts(dice: &mut Dice, spec: &mut Value) {
    spec["applyOnForward"] = true.into();
    match dice.number(3) {
        0 => spec["doNotTrack"] = true.into(),
        1 => {
            spec["preDNAT"] = true.into();
            spec["types"] = json!(["Ingress"]);
            spec["egress"] = json!([]);
        }
        _ => {}
    }
}

pub(crate) fn host_endpoint(dice: &mut Dice) -> Record {
    let device = *dice.one_of(&["eth0", "eth1", "*", "*", ""]);
    let profiles = ["kns.red", "projectcalico-default-allow", "gone"];
    let spec = json!({
        "node": dice.one_of(&[NODE, NODE, NODE, "node-b"]),
        "interfaceName": device,
        "expectedIPs": dice.some_of(&["10.0.0.1", "fd00:1::1"]),
        "profiles": [dice.one_of(&profiles)],
    });
    labelled(resource(Kind::HostEndpoint, None, pick(dice, &NAMES), spec), labels(dice))
}

fn label_selector(dice: &mut Dice) -> Value {
    match dice.number(4) {
        0 => json!({}),
        1 => json!({ "matchLabels": { "a": dice.one_of(&VALUES) } }),
        2 => {
            json!({ "matchExpressions": [{ "key": "b", "operator": "NotIn", "values": [dice.one_of(&VALUES)] }] })
        }
        _ => json!({ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }),
    }
}

fn kubernetes_rule(dice: &mut Dice, peers: &str) -> Value {
    let mut rule = json!({});
    let peer = |dice: &mut Dice| match dice.number(4) {
        0 => json!({ "podSelector": label_selector(dice) }),
        1 => json!({ "namespaceSelector": label_selector(dice) }),
        2 => json!({ "podSelector": label_selector(dice), "namespaceSelector": label_selector(dice) }),
        _ => json!({ "ipBlock": { "cidr": "10.0.0.0/16", "except": ["10.0.0.4/30"] } }),
    };
    if dice.once_in(2) {
        rule[peers] = (0..=dice.number(2)).map(|_| peer(dice)).collect();
    }
    if dice.once_in(2) {
        let ports = [
            json!({ "port": 80 }),
            json!({ "protocol": "UDP", "port": 50, "endPort": 60 }),
            json!({ "port": "web" }),
            json!({ "protocol": "SCTP" }),
            json!({ "protocol": "ICMP" }),
        ];
        rule["ports"] = dice.some_of(&ports).into();
    }
    rule
}

fn kubernetes_policy(dice: &mut Dice) -> Record {
    let rules = |dice: &mut Dice, peers: &str| -> Value {
        (0..dice.number(3)).map(|_| kubernetes_rule(dice, peers)).collect()
    };
    let types: [&[&str]; 3] = [&["Ingress"], &["Ingress", "Egress"], &["Egress"]];
    let object = json!({
        "metadata": { "name": dice.one_of(&NAMES), "namespace": dice.one_of(&NAMESPACES) },
        "spec": {
            "podSelector": label_selector(dice),
            "policyTypes": dice.one_of(&types),
            "ingress": rules(dice, "from"),
            "egress": rules(dice, "to"),
        },
    });
    Record::Kubernetes(KubernetesKind::NetworkPolicy, object)
}

fn cluster_policy(dice: &mut Dice) -> Record {
    let peer = |dice: &mut Dice, peers: &str| match dice.number(3) {
        0 => json!({ "namespaces": label_selector(dice) }),
        1 if peers == "to" => json!({ "networks": ["10.0.0.0/16", "fd00::/16"] }),
        _ => {
            json!({ "pods": { "namespaceSelector": label_selector(dice), "podSelector": label_selector(dice) } })
        }
    };
    let rule = |dice: &mut Dice, peers: &str| {
        let mut rule =
            json!({ "action": dice.one_of(&["Accept", "Deny", "Pass"]), peers: [peer(dice, peers)] });
        if dice.once_in(2) {
            let ports = [
                json!({ "tcp": { "destinationPort": { "number": 80 } } }),
                json!({ "destinationNamedPort": "web" }),
            ];
            rule["protocols"] = json!([dice.one_of(&ports)]);
        }
        if dice.once_in(12) {
            rule["newer"] = true.into();
        }
        rule
    };
    let rules =
        |dice: &mut Dice, peers: &str| -> Value { (0..dice.number(3)).map(|_| rule(dice, peers)).collect() };
    let object = json!({
        "metadata": { "name": dice.one_of(&NAMES) },
        "spec": {
            "tier": dice.one_of(&["Admin", "Baseline"]),
            "priority": dice.number(3),
            "subject": { "namespaces": label_selector(dice) },
            "ingress": rules(dice, "from"),
            "egress": rules(dice, "to"),
        },
    });
    Record::Kubernetes(KubernetesKind::ClusterNetworkPolicy, object)
}

fn workload(dice: &mut Dice) -> Record {
    let (namespace, number) = (*dice.one_of(&NAMESPACES), dice.number(4));
    let node = *dice.one_of(&[NODE, NODE, "node-b"]);
    let mut profiles = vec![format!("kns.{namespace}"), format!("ksa.{namespace}.sa")];
    if dice.once_in(6) {
        profiles.remove(0);
    }
    let mut addresses =
        vec![format!("{}/32", format_args!("10.{}.0.{}", dice.number(2), dice.number(4) + 1))];
    if dice.once_in(2) {
        addresses.push(format!("fd00:{}::{}/128", dice.number(2), dice.number(4) + 1));
    }
    let ports = [
        json!({ "name": "web", "protocol": "TCP", "port": 80 }),
        json!({ "name": "web", "protocol": "TCP", "port": 81 }),
        json!({ "name": "dns", "protocol": "UDP", "port": 53 }),
        json!({ "name": "dns", "protocol": "SCTP", "port": 53 }),
    ];
    let spec = json!({
        "orchestrator": if dice.once_in(8) { "cni" } else { "k8s" },
        "node": node,
        "interfaceName": format!("cali{namespace}{}", if dice.once_in(8) { 0 } else { number }),
        "ipNetworks": addresses,
        "profiles": profiles,
        "serviceAccountName": if dice.once_in(2) { "sa" } else { "" },
        "ports": dice.some_of(&ports),
    });
    let mut labels = labels(dice);
    if dice.once_in(8) {
        labels.insert("pcns.a".to_owned(), "x".to_owned());
    }
    labelled(resource(Kind::WorkloadEndpoint, Some(namespace), &format!("pod-{number}"), spec), labels)
}

fn namespace_profile(dice: &mut Dice) -> Record {
    let namespace = *dice.one_of(&NAMESPACES);
    let own: BTreeMap<String, String> =
        labels(dice).into_iter().map(|(name, value)| (format!("pcns.{name}"), value)).collect();
    let allow = json!([{ "action": "Allow" }]);
    let spec = json!({ "ingress": allow, "egress": allow, "labelsToApply": own });
    resource(Kind::Profile, None, &format!("kns.{namespace}"), spec)
}

fn account_profile(dice: &mut Dice) -> Record {
    let namespace = *dice.one_of(&NAMESPACES);
    let mut own: BTreeMap<String, String> =
        labels(dice).into_iter().map(|(name, value)| (format!("pcsa.{name}"), value)).collect();
    // A profile may hand on labels of any name; the endpoint's own win.
    own.extend(labels(dice));
    let mut spec = json!({ "labelsToApply": own });
    if dice.once_in(3) {
        spec["ingress"] = rules(dice, true, true);
    }
    resource(Kind::Profile, None, &format!("ksa.{namespace}.sa"), spec)
}

fn network_set(dice: &mut Dice) -> Record {
    let nets: Vec<String> =
        (0..dice.number(4)).map(|_| if dice.once_in(3) { address(dice) } else { net(dice) }).collect();
    let spec = json!({ "nets": nets });
    let name = *dice.one_of(&NAMES);
    let set = match dice.once_in(2) {
        true => resource(Kind::NetworkSet, Some(*dice.one_of(&NAMESPACES)), name, spec),
        false => resource(Kind::GlobalNetworkSet, None, name, spec),
    };
    labelled(set, labels(dice))
}

fn tier(dice: &mut Dice) -> Record {
    let spec =
        json!({ "order": dice.one_of(&[1.0, 1e6, 2e6]), "defaultAction": dice.one_of(&["Deny", "Pass"]) });
    resource(Kind::Tier, None, pick(dice, &["sec", "default"]), spec)
}

fn slice(dice: &mut Dice) -> Record {
    let endpoints: Vec<Value> =
        (0..dice.number(6)).map(|_| json!({ "addresses": [address(dice)] })).collect();
    let ports = [json!({ "port": 80 }), json!({ "port": 53, "protocol": "UDP" })];
    let object = json!({
        "metadata": {
            "name": format!("svc-{}", dice.number(2)),
            "namespace": "red",
            "labels": { "kubernetes.io/service-name": "svc" },
        },
        "endpoints": endpoints,
        "ports": dice.some_of(&ports),
    });
    Record::Kubernetes(KubernetesKind::EndpointSlice, object)
}

/// Any record; two with one name are states of the same.
pub(crate) fn record(dice: &mut Dice) -> Record {
    match dice.number(20) {
        0..=3 => calico_policy(dice),
        4..=6 => kubernetes_policy(dice),
        7 => cluster_policy(dice),
        8..=12 => workload(dice),
        13..=14 => namespace_profile(dice),
        15 => account_profile(dice),
        16..=17 => network_set(dice),
        18 if dice.once_in(2) => tier(dice),
        _ => slice(dice),
    }
}

pub(crate) fn packet(dice: &mut Dice) -> Packet {
    let is_v4 = !dice.once_in(3);
    let mut of_family = || loop {
        let found = address(dice);
        if found.contains('.') == is_v4 {
            return found.parse().unwrap();
        }
    };
    let (source, destination) = (of_family(), of_family());
    let protocol = *dice.one_of(&[6, 6, 6, 6, 17, 17, 132, 1, 58, 47]);
    let ports = [53, 80, 80, 81, 55];
    let ports = matches!(protocol, 6 | 17 | 132).then(|| (*dice.one_of(&ports), *dice.one_of(&ports)));
    let kind = *dice.one_of(&[8, 0, 128]);
    let code = u8::try_from(dice.number(2)).unwrap();
    let icmp = matches!(protocol, 1 | 58).then_some(policy::ruleset::Icmp { kind, code: Some(code) });
    Packet { source, destination, protocol, ports, icmp }
}
