//! What Calico and Kubernetes say about single cases, each with the verdict written down by hand.

use std::net::IpAddr;

use model::{Key, Kind, Resource};
use policy::evaluate::Connection;
use policy::ruleset::Icmp;
use policy::{
    Calculation, Decision, Direction, End, EndpointId, EndpointKind, KubernetesKind, Outcome, Packet, Reason,
    Scope, Stage, Staged,
};
use serde_json::{Value, json};

struct Cluster(Calculation);

fn allow_all() -> Value {
    json!([{ "action": "Allow" }])
}

impl Cluster {
    /// Namespaces red and green with a profile each, and pods a and b in both: red a is 10.0.0.1, red b 10.0.0.2, green a 10.0.1.1, green b
    /// 10.0.1.2; IPv6 likewise.
    fn new() -> Cluster {
        let mut cluster = Cluster(Calculation::new(Scope::Cluster, false));
        for (number, namespace) in ["red", "green"].into_iter().enumerate() {
            cluster.namespace(namespace, json!({ "pcns.color": namespace }));
            for (host, pod) in ["a", "b"].into_iter().enumerate() {
                let host = host + 1;
                let addresses = [format!("10.0.{number}.{host}/32"), format!("fd00:{number}::{host}/128")];
                cluster.pod(namespace, pod, json!({ "pod": pod }), &addresses);
            }
        }
        cluster
    }

    fn put(
        &mut self,
        kind: Kind,
        namespace: Option<&str>,
        name: &str,
        labels: Value,
        spec: Value,
    ) -> &mut Cluster {
        let mut record = Resource::new(kind, name);
        record.metadata.namespace = namespace.map(str::to_owned);
        record.metadata.labels = serde_json::from_value(labels).unwrap();
        record.body.insert("spec".to_owned(), spec);
        self.0.put(&record.key(), &record);
        self
    }

    fn namespace(&mut self, name: &str, labels: Value) -> &mut Cluster {
        let spec = json!({ "ingress": allow_all(), "egress": allow_all(), "labelsToApply": labels });
        self.put(Kind::Profile, None, &format!("kns.{name}"), json!({}), spec)
    }

    fn pod(&mut self, namespace: &str, name: &str, labels: Value, addresses: &[String]) -> &mut Cluster {
        let number = if name == "a" { 8080 } else { 9090 };
        let spec = json!({
            "orchestrator": "k8s",
            "node": format!("node-{name}"),
            "interfaceName": format!("cali{namespace}{name}"),
            "ipNetworks": addresses,
            "profiles": [format!("kns.{namespace}")],
            "ports": [{ "name": "web", "protocol": "TCP", "port": number }],
        });
        self.put(Kind::WorkloadEndpoint, Some(namespace), name, labels, spec)
    }

    fn policy(&mut self, namespace: &str, name: &str, spec: Value) -> &mut Cluster {
        self.put(Kind::NetworkPolicy, Some(namespace), name, json!({}), spec)
    }

    fn global(&mut self, name: &str, spec: Value) -> &mut Cluster {
        self.put(Kind::GlobalNetworkPolicy, None, name, json!({}), spec)
    }

    fn kubernetes(&mut self, namespace: &str, name: &str, spec: Value) -> &mut Cluster {
        let object = json!({ "metadata": { "name": name, "namespace": namespace }, "spec": spec });
        self.0.put_kubernetes(KubernetesKind::NetworkPolicy, &object);
        self
    }

    fn ask(&mut self, pod: &str, direction: Direction, packet: &Packet) -> Decision {
        self.0.take_update();
        self.0.decide(&id(pod), direction, Stage::Normal, packet, Staged::Ignored).unwrap()
    }

    fn admits(&mut self, pod: &str, packet: &Packet) -> bool {
        self.ask(pod, Direction::Ingress, packet).outcome == Outcome::Allow
    }

    /// Which of red b, green b, and an address outside reach red a.
    fn who_reaches(&mut self, port: u16) -> String {
        let sources = [("red", "10.0.0.2"), ("green", "10.0.1.2"), ("outside", "192.0.2.1")];
        let reaching =
            sources.into_iter().filter(|(_, source)| self.admits("red/a", &tcp(source, "10.0.0.1", port)));
        let names: Vec<&str> = reaching.map(|(name, _)| name).collect();
        names.join(" ")
    }
}

fn id(pod: &str) -> EndpointId {
    let (namespace, name) = pod.split_once('/').unwrap();
    EndpointId { kind: EndpointKind::Workload, namespace: Some(namespace.into()), name: name.into() }
}

fn tcp(source: &str, destination: &str, port: u16) -> Packet {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    Packet {
        source: address(source),
        destination: address(destination),
        protocol: 6,
        ports: Some((40000, port)),
        icmp: None,
    }
}

fn ping(source: &str, destination: &str) -> Packet {
    let protocol = if source.contains(':') { 58 } else { 1 };
    let icmp = Some(Icmp { kind: 8, code: Some(0) });
    Packet { protocol, ports: None, icmp, ..tcp(source, destination, 0) }
}

#[test]
fn what_no_policy_selects_is_open_and_what_one_selects_is_closed() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.who_reaches(80), "red green outside");
    cluster.policy("green", "deny", json!({ "types": ["Ingress"] }));
    assert_eq!(cluster.who_reaches(80), "red green outside", "a policy of another namespace");
    cluster.policy("red", "deny", json!({ "types": ["Ingress"], "selector": "pod == 'a'" }));
    assert_eq!(cluster.who_reaches(80), "");
    let out = cluster.ask("red/a", Direction::Egress, &tcp("10.0.0.1", "192.0.2.1", 80));
    assert_eq!(out.outcome, Outcome::Allow, "the policy says nothing about egress");
    let denied = cluster.ask("red/a", Direction::Ingress, &tcp("10.0.0.2", "10.0.0.1", 80));
    assert_eq!(denied.reason, Reason::EndOfTier { tier: "default".into() });
}

#[test]
fn two_kinds_of_not() {
    for (entity, reaching) in [
        (json!({}), "red green outside"),
        (json!({ "selector": "all()" }), "red green"),
        (json!({ "selector": "!has(pod)" }), ""),
        (json!({ "selector": "!has(other)" }), "red green"),
        (json!({ "notSelector": "has(other)" }), "red green outside"),
        (json!({ "notSelector": "has(pod)" }), "outside"),
        (json!({ "nets": ["0.0.0.0/0"] }), "red green outside"),
        (json!({ "notNets": ["10.0.1.0/24"] }), "red outside"),
        (json!({ "namespaceSelector": "color == 'green'" }), "green"),
        (json!({ "namespaceSelector": "all()" }), "red green"),
        (json!({ "namespaceSelector": "global()" }), ""),
        (json!({ "notNets": ["fd00::/16"] }), ""),
    ] {
        let mut cluster = Cluster::new();
        let rule = json!({ "action": "Allow", "source": entity });
        cluster.global(
            "p",
            json!({ "types": ["Ingress"], "namespaceSelector": "color == 'red'", "ingress": [rule] }),
        );
        assert_eq!(cluster.who_reaches(80), reaching, "{entity}");
    }
}

#[test]
fn selectors_in_a_namespaced_policy_mean_its_namespace() {
    for (entity, reaching) in [
        (json!({ "selector": "all()" }), "red"),
        (json!({ "notSelector": "has(other)" }), "red"),
        (json!({ "namespaceSelector": "all()" }), "red green"),
        (json!({ "nets": ["0.0.0.0/0"] }), "red green outside"),
    ] {
        let mut cluster = Cluster::new();
        cluster.policy(
            "red",
            "p",
            json!({ "types": ["Ingress"], "ingress": [{ "action": "Allow", "source": entity }] }),
        );
        assert_eq!(cluster.who_reaches(80), reaching, "{entity}");
    }
}

#[test]
fn kubernetes_peers_absent_empty_and_with_nothing_in_them() {
    for (rules, reaching) in [
        (json!([]), ""),
        (json!([{}]), "red green outside"),
        (json!([{ "from": [] }]), "red green outside"),
        (json!([{ "from": [{ "podSelector": {} }] }]), "red"),
        (json!([{ "from": [{ "namespaceSelector": {} }] }]), "red green"),
        (json!([{ "from": [{ "namespaceSelector": { "matchLabels": { "color": "green" } } }] }]), "green"),
        (
            json!([{ "from": [{ "namespaceSelector": {}, "podSelector": { "matchLabels": { "pod": "a" } } }] }]),
            "",
        ),
        (
            json!([{ "from": [{ "podSelector": {} }, { "ipBlock": { "cidr": "192.0.2.0/24" } }] }]),
            "red outside",
        ),
        (json!([{ "from": [{ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.0.1.0/24"] } }] }]), "red"),
        (json!([{ "from": [{ "ipBlock": { "cidr": "010.0.0.0/8" } }] }]), ""),
        (json!([{ "from": [{}] }]), ""),
        (json!([{ "from": [{ "podSelector": {}, "newer": 1 }] }]), ""),
        (json!([{ "ports": [{ "port": 81 }] }]), ""),
        (json!([{ "ports": [{ "port": 79, "endPort": 80 }] }]), "red green outside"),
        (json!([{ "ports": [{ "protocol": "UDP" }] }]), ""),
        (json!([{ "ports": [{ "protocol": "UDP" }, {}] }]), "red green outside"),
        (json!([{ "ports": [{ "port": "nowhere" }] }]), ""),
        (json!([{ "ports": [{ "port": 700000 }] }]), ""),
    ] {
        let mut cluster = Cluster::new();
        cluster.kubernetes(
            "red",
            "p",
            json!({ "podSelector": {}, "policyTypes": ["Ingress"], "ingress": rules }),
        );
        assert_eq!(cluster.who_reaches(80), reaching, "{rules}");
    }
}

#[test]
fn networks_in_sets_are_no_peers_of_kubernetes() {
    let mut cluster = Cluster::new();
    cluster.put(
        Kind::NetworkSet,
        Some("red"),
        "n",
        json!({ "pod": "b" }),
        json!({ "nets": ["192.0.2.0/24"] }),
    );
    let spec = json!({ "podSelector": {}, "ingress": [{ "from": [{ "podSelector": {} }] }] });
    cluster.kubernetes("red", "p", spec);
    assert_eq!(cluster.who_reaches(80), "red");
    cluster.policy("red", "q", json!({ "order": 1, "types": ["Ingress"], "ingress": [{ "action": "Allow", "source": { "selector": "pod == 'b'" } }] }));
    assert_eq!(cluster.who_reaches(80), "red outside");
}

#[test]
fn a_port_by_name_is_that_of_each_destination() {
    let mut cluster = Cluster::new();
    let rule = json!({ "action": "Allow", "protocol": "TCP", "destination": { "ports": ["web", 443] } });
    cluster.global("p", json!({ "types": ["Egress"], "egress": [rule] }));
    for (destination, port, allowed) in [
        ("10.0.0.1", 8080, true),
        ("10.0.0.1", 9090, false),
        ("10.0.0.2", 9090, true),
        ("10.0.0.2", 8080, false),
        ("192.0.2.1", 8080, false),
        ("192.0.2.1", 443, true),
    ] {
        let decided = cluster.ask("green/a", Direction::Egress, &tcp("10.0.1.1", destination, port));
        assert_eq!(decided.outcome == Outcome::Allow, allowed, "{destination} {port}");
    }
}

#[test]
fn order_then_name_then_tier() {
    let mut cluster = Cluster::new();
    let deny = json!({ "types": ["Ingress"], "ingress": [{ "action": "Deny" }] });
    let allow = json!({ "types": ["Ingress"], "ingress": allow_all() });
    cluster.policy("red", "a", deny.clone()).policy("red", "a-b", allow.clone());
    assert_eq!(cluster.who_reaches(80), "red green outside", "a-b goes before a");
    let mut first = deny.clone();
    first["order"] = json!(-1.5);
    cluster.policy("red", "z", first);
    assert_eq!(cluster.who_reaches(80), "", "an order goes before none");
    let mut in_tier = allow.clone();
    in_tier["tier"] = "sec".into();
    cluster.policy("red", "t", in_tier);
    assert_eq!(cluster.who_reaches(80), "", "a tier without a record comes last");
    cluster.put(Kind::Tier, None, "sec", json!({}), json!({ "order": 5 }));
    assert_eq!(cluster.who_reaches(80), "red green outside");
    cluster.put(Kind::Tier, None, "sec", json!({}), json!({}));
    assert_eq!(
        cluster.who_reaches(80),
        "",
        "without an order it ties with default, and its name comes after"
    );
}

#[test]
fn a_tier_drops_or_passes_at_its_end() {
    let mut cluster = Cluster::new();
    cluster.put(Kind::Tier, None, "sec", json!({}), json!({ "order": 1, "defaultAction": "Pass" }));
    cluster.global("log", json!({ "tier": "sec", "types": ["Ingress"], "ingress": [{ "action": "Log" }] }));
    assert_eq!(cluster.who_reaches(80), "red green outside");
    cluster.put(Kind::Tier, None, "sec", json!({}), json!({ "order": 1, "defaultAction": "Deny" }));
    assert_eq!(cluster.who_reaches(80), "", "a policy that only logs denies at the end of its tier");
    cluster.global("pass", json!({ "tier": "sec", "types": ["Ingress"], "ingress": [{ "action": "Pass", "source": { "nets": ["10.0.1.0/24"] } }] }));
    assert_eq!(cluster.who_reaches(80), "green");
}

#[test]
fn what_cannot_be_understood_is_set_aside_and_nothing_else_is_disturbed() {
    for (spec, reason) in [
        (
            json!({ "ingress": [{ "action": "Permit" }] }),
            "spec.ingress[0].action: Permit: must be Allow, Deny, Log or Pass",
        ),
        (json!({ "selector": "pod ==", "ingress": allow_all() }), "spec.selector: pod ==: character 7"),
        (
            json!({ "ingress": [{ "action": "Allow", "protocol": "TCP", "destination": { "ports": [70000] } }] }),
            "spec.ingress[0].destination.ports[0]: 70000: must be a port from 1 to 65535",
        ),
        (
            json!({ "ingress": [{ "action": "Allow", "destination": { "ports": [80] } }] }),
            "must not be set unless protocol is TCP, UDP or SCTP",
        ),
        (
            json!({ "ingress": [{ "action": "Allow", "http": { "methods": ["GET"] } }] }),
            "spec.ingress[0].http",
        ),
        (
            json!({ "ingress": [{ "action": "Allow", "source": { "domains": ["example.org"] } }] }),
            "spec.ingress[0].source.domains",
        ),
        (
            json!({ "ingress": [{ "action": "Allow", "source": { "nets": ["10.0.0.0/33"] } }] }),
            "spec.ingress[0].source.nets[0]",
        ),
        (json!({ "newer": true, "ingress": allow_all() }), "spec.newer"),
        (json!({ "order": "first", "ingress": allow_all() }), "spec.order: first: must be a number"),
        (
            json!({ "types": ["Sideways"], "ingress": allow_all() }),
            "spec.types[0]: Sideways: must be Ingress or Egress",
        ),
    ] {
        let mut cluster = Cluster::new();
        cluster.policy("red", "bad", spec.clone());
        assert_eq!(cluster.who_reaches(80), "", "{spec}");
        let denied = cluster.ask("red/a", Direction::Ingress, &tcp("10.0.0.2", "10.0.0.1", 80));
        assert!(
            matches!(&denied.reason, Reason::SetAside { why, .. } if why.contains(reason)),
            "{reason}: {denied:?}"
        );
        let problems = cluster.0.problems();
        assert!(
            problems.len() == 1 && problems[0].is_set_aside && problems[0].record == "np/red/bad",
            "{problems:?}"
        );
        assert!(
            cluster.admits("green/a", &tcp("10.0.0.2", "10.0.1.1", 80)),
            "another namespace is disturbed: {spec}"
        );
        cluster.policy(
            "red",
            "first",
            json!({ "order": -1e9, "types": ["Ingress"], "ingress": allow_all() }),
        );
        let is_first = spec.get("order").is_none();
        assert_eq!(
            cluster.who_reaches(80) == "red green outside",
            is_first,
            "what goes before it still decides: {spec}"
        );
        cluster.0.remove(&Key::Resource {
            kind: Kind::NetworkPolicy,
            namespace: Some("red".into()),
            name: "bad".into(),
        });
        assert_eq!(cluster.who_reaches(80), "red green outside");
        assert!(cluster.0.problems().is_empty());
    }
}

#[test]
fn a_pod_does_not_choose_its_namespace() {
    let mut cluster = Cluster::new();
    let spec = json!({ "types": ["Ingress"], "ingress": [{ "action": "Allow", "source": { "namespaceSelector": "color == 'red'" } }] });
    cluster.policy("red", "p", spec);
    assert_eq!(cluster.who_reaches(80), "red");
    let labels = json!({ "pcns.color": "red", "projectcalico.org/namespace": "red" });
    cluster.pod("green", "b", labels, &["10.0.1.2/32".to_owned()]);
    assert_eq!(cluster.who_reaches(80), "red");
}

#[test]
fn staged_policies_are_not_enforced_but_can_be_counted() {
    let mut cluster = Cluster::new();
    cluster.policy("red", "p", json!({ "types": ["Ingress"], "ingress": allow_all() }));
    let spec = json!({ "types": ["Ingress"], "ingress": [{ "action": "Deny" }], "stagedAction": "Set" });
    cluster.put(Kind::StagedNetworkPolicy, Some("red"), "p", json!({}), spec);
    assert_eq!(cluster.who_reaches(80), "red green outside");
    let packet = tcp("10.0.0.2", "10.0.0.1", 80);
    let counted =
        cluster.0.decide(&id("red/a"), Direction::Ingress, Stage::Normal, &packet, Staged::Counted).unwrap();
    assert_eq!(counted.outcome, Outcome::Deny);
    cluster.put(Kind::StagedNetworkPolicy, Some("green"), "only", json!({}), json!({ "types": ["Ingress"] }));
    assert!(
        cluster.admits("green/a", &tcp("10.0.0.2", "10.0.1.1", 80)),
        "a tier with staged policies only is as if absent"
    );
}

#[test]
fn admin_before_namespaces_before_baseline() {
    let mut cluster = Cluster::new();
    let policy = |name: &str, tier: &str, action: &str| {
        let rule = json!({ "action": action, "from": [{ "namespaces": {} }] });
        let subject = json!({ "namespaces": { "matchLabels": { "color": "red" } } });
        json!({ "metadata": { "name": name }, "spec": { "tier": tier, "priority": 1, "subject": subject, "ingress": [rule] } })
    };
    let kind = KubernetesKind::ClusterNetworkPolicy;
    cluster.0.put_kubernetes(kind, &policy("base", "Baseline", "Deny"));
    assert_eq!(cluster.who_reaches(80), "outside");
    cluster.kubernetes(
        "red",
        "p",
        json!({ "podSelector": {}, "ingress": [{ "from": [{ "podSelector": {} }] }] }),
    );
    assert_eq!(cluster.who_reaches(80), "red", "a selected pod never reaches the baseline");
    cluster.0.put_kubernetes(kind, &policy("admin", "Admin", "Deny"));
    assert_eq!(cluster.who_reaches(80), "");
    cluster.0.put_kubernetes(kind, &policy("admin", "Admin", "Pass"));
    assert_eq!(cluster.who_reaches(80), "red");
    cluster.0.put_kubernetes(kind, &policy("admin", "Admin", "Accept"));
    assert_eq!(cluster.who_reaches(80), "red green");
}

#[test]
fn protocols_by_name_belong_to_a_family() {
    let mut cluster = Cluster::new();
    cluster.policy("red", "p", json!({ "types": ["Ingress"], "ingress": [{ "action": "Allow", "protocol": "ICMP", "icmp": { "type": 8 } }] }));
    assert!(cluster.admits("red/a", &ping("10.0.0.2", "10.0.0.1")));
    assert!(!cluster.admits("red/a", &ping("fd00::2", "fd00::1")));
    cluster.policy("red", "p", json!({ "types": ["Ingress"], "ingress": [{ "action": "Allow", "protocol": "ICMP", "icmp": { "type": 8, "code": 1 } }] }));
    assert!(!cluster.admits("red/a", &ping("10.0.0.2", "10.0.0.1")));
    cluster.policy(
        "red",
        "p",
        json!({ "types": ["Ingress"], "ingress": [{ "action": "Allow", "notProtocol": "TCP" }] }),
    );
    assert!(cluster.admits("red/a", &ping("fd00::2", "fd00::1")) && cluster.who_reaches(80).is_empty());
}

#[test]
fn services_are_their_endpoints_ready_or_not() {
    let mut cluster = Cluster::new();
    let slice = json!({
        "metadata": { "name": "s-1", "namespace": "red", "labels": { "kubernetes.io/service-name": "s" } },
        "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": false } }],
        "ports": [{ "port": 8080 }, { "name": "odd" }],
    });
    cluster.0.put_kubernetes(KubernetesKind::EndpointSlice, &slice);
    let rule =
        json!({ "action": "Allow", "destination": { "services": { "name": "s", "namespace": "red" } } });
    cluster.policy("green", "p", json!({ "types": ["Egress"], "egress": [rule] }));
    let mut allows = |destination: &str, port| {
        cluster.ask("green/a", Direction::Egress, &tcp("10.0.1.1", destination, port)).outcome
            == Outcome::Allow
    };
    assert!(allows("10.0.0.1", 8080) && !allows("10.0.0.1", 80) && !allows("10.0.0.2", 8080));
    cluster.0.remove_kubernetes(KubernetesKind::EndpointSlice, Some("red"), "s-1");
    let decided = cluster.ask("green/a", Direction::Egress, &tcp("10.0.1.1", "10.0.0.1", 8080));
    assert_eq!(decided.outcome, Outcome::Deny);
}

#[test]
fn both_ends_are_asked_and_a_node_reaches_its_own_pods() {
    let mut cluster = Cluster::new();
    cluster.policy("red", "in", json!({ "selector": "pod == 'a'", "types": ["Ingress"] }));
    cluster.policy("green", "out", json!({ "selector": "pod == 'b'", "types": ["Egress"] }));
    cluster.0.take_update();
    let outcomes = |source: &End, destination: &str, packet: &Packet| {
        let Connection { egress, ingress } =
            cluster.0.connection(source, &End::Endpoint(id(destination)), packet);
        (egress.map(|decided| decided.outcome), ingress.map(|decided| decided.outcome))
    };
    let (allow, deny) = (Some(Outcome::Allow), Some(Outcome::Deny));
    let pod = |pod: &str| End::Endpoint(id(pod));
    assert_eq!(outcomes(&pod("red/b"), "red/a", &tcp("10.0.0.2", "10.0.0.1", 80)), (allow, deny));
    assert_eq!(outcomes(&pod("green/b"), "green/a", &tcp("10.0.1.2", "10.0.1.1", 80)), (deny, allow));
    assert_eq!(
        outcomes(&End::Node("NODE-a".into()), "red/a", &tcp("192.0.2.1", "10.0.0.1", 80)),
        (None, allow)
    );
    assert_eq!(
        outcomes(&End::Node("node-b".into()), "red/a", &tcp("192.0.2.2", "10.0.0.1", 80)),
        (None, deny)
    );
    assert_eq!(outcomes(&End::Elsewhere, "red/a", &tcp("192.0.2.2", "10.0.0.1", 80)), (None, deny));
}

#[test]
fn without_its_profile_a_pod_is_shut() {
    let mut cluster = Cluster::new();
    cluster.0.remove(&Key::cluster(Kind::Profile, "kns.red"));
    let denied = cluster.ask("red/a", Direction::Ingress, &tcp("10.0.0.2", "10.0.0.1", 80));
    assert_eq!(denied.reason, Reason::ProfileMissing { profile: "kns.red".into() });
    cluster.namespace("red", json!({}));
    assert_eq!(cluster.who_reaches(80), "red green outside");
}
