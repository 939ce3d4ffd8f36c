//! What the kernel is told: the ruleset of single cases, and how little an update changes.

use std::collections::BTreeMap;

use model::{Kind, Resource};
use policy::ruleset::{Change, Hook, Ruleset};
use policy::walk::{ConnectionState, Fate, Walker};
use policy::{Calculation, Packet, Rendering, Scope, Settings};
use serde_json::{Value, json};

/// A node's policy as an agent keeps it.
struct Node {
    calculation: Calculation,
    rendering: Rendering,
    kernel: Ruleset,
}

impl Node {
    fn new(settings: Settings) -> Node {
        let calculation = Calculation::new(Scope::Node("here".into()), false);
        Node { calculation, rendering: Rendering::new(settings), kernel: Ruleset::default() }
    }

    fn put(&mut self, kind: Kind, namespace: Option<&str>, name: &str, labels: Value, spec: Value) {
        let mut record = Resource::new(kind, name);
        record.metadata.namespace = namespace.map(str::to_owned);
        record.metadata.labels = serde_json::from_value::<BTreeMap<String, String>>(labels).unwrap();
        record.body.insert("spec".to_owned(), spec);
        self.calculation.put(&record.key(), &record);
    }

    fn pod(&mut self, name: &str, node: &str, address: &str, labels: Value) {
        let spec = json!({
            "orchestrator": "k8s",
            "node": node,
            "interfaceName": format!("cali-{name}"),
            "ipNetworks": [format!("{address}/32")],
            "profiles": ["kns.red"],
        });
        self.put(Kind::WorkloadEndpoint, Some("red"), name, labels, spec);
    }

    fn namespace(&mut self) {
        let allow = json!([{ "action": "Allow" }]);
        self.put(Kind::Profile, None, "kns.red", json!({}), json!({ "ingress": allow, "egress": allow }));
    }

    fn networks(&mut self, nets: Value) {
        self.put(Kind::GlobalNetworkSet, None, "nets", json!({ "role": "net" }), json!({ "nets": nets }));
    }

    fn policy(&mut self, name: &str, rules: Value) {
        self.put(
            Kind::NetworkPolicy,
            Some("red"),
            name,
            json!({}),
            json!({ "types": ["Ingress"], "ingress": rules }),
        );
    }

    /// Brings the kernel up to date, and gives the changes without table names.
    fn settle(&mut self) -> Vec<String> {
        let update = self.calculation.take_update();
        let changes: Vec<Change> = self.rendering.update(&self.calculation, &update);
        self.kernel.apply(&changes).unwrap();
        assert_eq!(self.kernel, self.rendering.ruleset(&self.calculation));
        let texts = changes.iter().map(|change| change.to_string().replace(" inet plumb-policy", ""));
        // The names of sets are digests.
        texts
            .map(|text| {
                text.split(' ')
                    .map(|word| {
                        word.split_once("-")
                            .filter(|(start, _)| start.starts_with("sel"))
                            .map_or(word, |(start, _)| start)
                    })
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    fn walk(&self, hook: Hook, input: &str, output: &str, packet: Packet) -> (Fate, Walker) {
        let mut walker = Walker::new(packet, input, output);
        (walker.pass(&self.kernel, hook, i32::MIN..=i32::MAX), walker)
    }

    fn reaches_web(&self, source: &str) -> bool {
        self.walk(Hook::Forward, "eth0", "cali-web", tcp(source, "10.0.0.1", 80)).0 == Fate::Accepted
    }
}

fn tcp(source: &str, destination: &str, port: u16) -> Packet {
    let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
    Packet { source, destination, protocol: 6, ports: Some((40000, port)), icmp: None }
}

fn udp(source: &str, destination: &str, port: u16) -> Packet {
    Packet { protocol: 17, ..tcp(source, destination, port) }
}

fn from_role(role: &str) -> Value {
    json!([{ "action": "Allow", "source": { "namespaceSelector": "global()", "selector": format!("role == '{role}'") } }])
}

fn with_web() -> Node {
    let mut node = Node::new(Settings::default());
    node.namespace();
    node.pod("web", "here", "10.0.0.1", json!({ "app": "web" }));
    node
}

#[test]
fn only_the_outermost_networks_are_in_the_kernel_and_the_others_come_when_they_are_uncovered() {
    let mut node = with_web();
    node.networks(json!(["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16", "192.0.2.7"]));
    node.policy("p", from_role("net"));
    node.settle();
    assert!(node.reaches_web("10.1.2.3") && node.reaches_web("192.0.2.7") && !node.reaches_web("192.0.2.8"));
    node.networks(json!(["10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16", "192.0.2.7"]));
    assert_eq!(
        node.settle(),
        ["delete element sel4net { 10.0.0.0/8 }", "add element sel4net { 10.1.0.0/16, 10.2.0.0/16 }"]
    );
    assert!(node.reaches_web("10.1.2.3") && !node.reaches_web("10.3.0.1"));
    node.networks(json!(["10.1.2.0/24", "10.2.0.0/16", "192.0.2.7", "10.0.0.0/12"]));
    assert_eq!(
        node.settle(),
        ["delete element sel4net { 10.1.0.0/16, 10.2.0.0/16 }", "add element sel4net { 10.0.0.0/12 }"]
    );
    node.networks(json!(["192.0.2.7", "0.0.0.0/0"]));
    node.settle();
    assert!(node.reaches_web("203.0.113.1") && node.reaches_web("10.3.0.1"));
    node.networks(json!(["192.0.2.7"]));
    let changes = node.settle();
    assert!(changes.contains(&"delete set sel4net".to_owned()), "{changes:?}");
    assert!(node.reaches_web("192.0.2.7") && !node.reaches_web("10.3.0.1"));
}

#[test]
fn a_rule_that_logs_does_so_once_however_its_set_is_divided() {
    let mut node = with_web();
    node.networks(json!(["10.0.0.0/8"]));
    node.pod("db", "there", "10.0.0.2", json!({ "role": "net" }));
    let log = json!([{ "action": "Log", "source": { "namespaceSelector": "!has(other) || global()", "selector": "role == 'net'" } }]);
    node.policy("p", log);
    node.settle();
    for source in ["10.0.0.2", "10.9.9.9"] {
        let (fate, walker) = node.walk(Hook::Forward, "eth0", "cali-web", tcp(source, "10.0.0.1", 80));
        assert_eq!(fate, Fate::Dropped);
        assert_eq!(walker.trail.iter().filter(|step| step.has_logged).count(), 1, "{source}");
    }
    let (_, walker) = node.walk(Hook::Forward, "eth0", "cali-web", tcp("192.0.2.1", "10.0.0.1", 80));
    assert!(walker.trail.iter().all(|step| !step.has_logged));
}

#[test]
fn an_update_changes_only_what_it_concerns() {
    let mut node = with_web();
    for number in 0..50 {
        node.policy(
            &format!("p-{number}"),
            json!([{ "action": "Allow", "source": { "selector": format!("role == 'r{number}'") } }]),
        );
        for host in 0..20 {
            let address = format!("10.1.{number}.{host}");
            node.pod(
                &format!("far-{number}-{host}"),
                "there",
                &address,
                json!({ "role": format!("r{number}") }),
            );
        }
    }
    node.settle();
    assert_eq!(node.settle(), Vec::<String>::new());
    node.pod("new", "there", "10.2.0.1", json!({ "role": "r7" }));
    assert_eq!(node.settle(), ["add element sel4 { 10.2.0.1 }"], "a new pod of another node");
    node.pod("new", "there", "10.2.0.1", json!({ "role": "r8" }));
    assert_eq!(
        node.settle(),
        ["delete element sel4 { 10.2.0.1 }", "add element sel4 { 10.2.0.1 }"],
        "a label"
    );
    node.pod("new", "there", "10.2.0.1", json!({ "role": "nobody's" }));
    assert_eq!(node.settle(), ["delete element sel4 { 10.2.0.1 }"]);
    node.pod("new", "there", "10.2.0.1", json!({ "role": "nobody's either" }));
    assert_eq!(node.settle(), Vec::<String>::new());
    node.policy("p-3", json!([{ "action": "Deny", "source": { "selector": "role == 'r3'" } }]));
    let changes = node.settle();
    assert_eq!(changes.len(), 2, "one chain is written again: {changes:?}");
    assert!(
        changes[0] == "flush chain pi-np/red/p-3" && changes[1].starts_with("add rule pi-np/red/p-3 "),
        "{changes:?}"
    );
    node.put(Kind::NetworkPolicy, Some("green"), "elsewhere", json!({}), json!({ "types": ["Ingress"] }));
    assert_eq!(node.settle(), Vec::<String>::new(), "a policy that selects no pod of this node");
}

#[test]
fn a_device_without_an_endpoint_is_shut_and_established_connections_pass_before_policy() {
    let mut node = with_web();
    node.settle();
    let packet = || tcp("10.0.0.1", "192.0.2.1", 80);
    assert_eq!(node.walk(Hook::Forward, "cali-web", "eth0", packet()).0, Fate::Accepted);
    assert_eq!(node.walk(Hook::Forward, "cali-other", "eth0", packet()).0, Fate::Dropped);
    assert_eq!(node.walk(Hook::Forward, "eth0", "cali-other", packet()).0, Fate::Dropped);
    assert_eq!(node.walk(Hook::Forward, "eth0", "eth1", packet()).0, Fate::Accepted, "no workload's");
    node.policy("deny", json!([]));
    node.settle();
    for (state, fate) in [
        (ConnectionState::New, Fate::Dropped),
        (ConnectionState::Established, Fate::Accepted),
        (ConnectionState::Related, Fate::Accepted),
        (ConnectionState::Invalid, Fate::Dropped),
        (ConnectionState::Untracked, Fate::Dropped),
    ] {
        let mut walker = Walker::new(tcp("10.0.0.2", "10.0.0.1", 80), "eth0", "cali-web");
        walker.state = state;
        assert_eq!(walker.pass(&node.kernel, Hook::Forward, i32::MIN..=i32::MAX), fate, "{state:?}");
    }
}

#[test]
fn between_a_pod_and_its_node() {
    for (action, open) in [
        (policy::rendering::EndpointToHost::Drop, Fate::Dropped),
        (policy::rendering::EndpointToHost::Accept, Fate::Accepted),
        (policy::rendering::EndpointToHost::Return, Fate::Accepted),
    ] {
        let mut node = Node::new(Settings { endpoint_to_host: action, ..Settings::default() });
        node.namespace();
        node.pod("web", "here", "10.0.0.1", json!({}));
        node.settle();
        let to_node = |node: &Node, packet| node.walk(Hook::Input, "cali-web", "", packet).0;
        assert_eq!(to_node(&node, tcp("10.0.0.1", "192.0.2.1", 80)), open, "{action:?}");
        let neighbour = |kind| Packet {
            protocol: 58,
            ports: None,
            icmp: Some(policy::ruleset::Icmp { kind, code: Some(0) }),
            ..tcp("fe80::1", "fe80::2", 0)
        };
        node.put(
            Kind::NetworkPolicy,
            Some("red"),
            "deny",
            json!({}),
            json!({ "types": ["Ingress", "Egress"] }),
        );
        node.settle();
        assert_eq!(
            to_node(&node, tcp("10.0.0.1", "192.0.2.1", 80)),
            Fate::Dropped,
            "egress policy is asked first"
        );
        assert_eq!(
            to_node(&node, neighbour(135)),
            Fate::Accepted,
            "neighbour discovery survives every policy"
        );
        assert_eq!(to_node(&node, neighbour(134)), Fate::Dropped, "a pod is no router");
        let to_pod = node.walk(Hook::Output, "", "cali-web", tcp("192.0.2.1", "10.0.0.1", 80)).0;
        assert_eq!(to_pod, Fate::Accepted, "a node always reaches its own pods");
    }
}

#[test]
fn a_pod_sends_no_encapsulated_packets_unless_it_may() {
    let ipip = || Packet { protocol: 4, ports: None, ..tcp("10.0.0.1", "192.0.2.1", 0) };
    for allowed in [false, true] {
        let mut node =
            Node::new(Settings { allows_vxlan: allowed, allows_ipip: allowed, ..Settings::default() });
        node.namespace();
        node.pod("web", "here", "10.0.0.1", json!({}));
        node.settle();
        for packet in [udp("10.0.0.1", "192.0.2.1", 4789), ipip()] {
            let fate = node.walk(Hook::Forward, "cali-web", "eth0", packet).0;
            assert_eq!(fate == Fate::Accepted, allowed);
        }
    }
}

#[test]
fn a_host_endpoint_closes_its_device_but_not_what_a_node_needs() {
    let mut node = with_web();
    node.settle();
    let ssh = || tcp("192.0.2.1", "192.0.2.2", 22);
    let http = || tcp("192.0.2.1", "192.0.2.2", 80);
    assert_eq!(node.walk(Hook::Input, "eth0", "", http()).0, Fate::Accepted, "there is no host endpoint");
    let spec = json!({ "node": "here", "interfaceName": "eth0", "expectedIPs": ["192.0.2.2"] });
    node.put(Kind::HostEndpoint, None, "h", json!({ "host": "yes" }), spec);
    node.rendering.set_host_facts(policy::HostFacts {
        nodes: ["192.0.2.9".parse().unwrap()].into(),
        ..policy::HostFacts::default()
    });
    node.settle();
    let input = |node: &Node, device, packet| node.walk(Hook::Input, device, "", packet).0;
    assert_eq!(input(&node, "eth0", http()), Fate::Dropped, "neither policy nor profile allows it");
    assert_eq!(input(&node, "eth1", http()), Fate::Accepted, "another device");
    assert_eq!(input(&node, "eth0", ssh()), Fate::Accepted, "a failsafe port");
    assert_eq!(
        input(&node, "eth0", udp("192.0.2.9", "192.0.2.2", 4789)),
        Fate::Accepted,
        "a tunnel of a node"
    );
    assert_eq!(input(&node, "eth0", udp("192.0.2.8", "192.0.2.2", 4789)), Fate::Dropped, "nobody's tunnel");
    assert_eq!(
        node.walk(Hook::Forward, "eth0", "cali-web", tcp("192.0.2.1", "10.0.0.1", 80)).0,
        Fate::Accepted
    );
    let rule = json!([{ "action": "Allow", "protocol": "TCP", "destination": { "ports": [80] } }]);
    let spec = |rules: &Value| json!({ "selector": "has(host)", "types": ["Ingress"], "ingress": rules });
    node.put(Kind::GlobalNetworkPolicy, None, "http", json!({}), spec(&rule));
    node.settle();
    assert_eq!(input(&node, "eth0", http()), Fate::Accepted);
    let mut early = spec(&json!([{ "action": "Deny", "destination": { "nets": ["192.0.2.2/32"] } }]));
    early["preDNAT"] = true.into();
    early["applyOnForward"] = true.into();
    node.put(Kind::GlobalNetworkPolicy, None, "early", json!({}), early);
    node.settle();
    assert_eq!(node.walk(Hook::Prerouting, "eth0", "", http()).0, Fate::Dropped);
    assert_eq!(node.walk(Hook::Prerouting, "eth0", "", ssh()).0, Fate::Accepted, "a failsafe port");
    assert_eq!(node.walk(Hook::Prerouting, "cali-web", "", http()).0, Fate::Accepted, "another device");
    node.calculation.remove(&model::Key::cluster(Kind::HostEndpoint, "h"));
    node.settle();
    assert_eq!(node.walk(Hook::Prerouting, "eth0", "", http()).0, Fate::Accepted);
    assert_eq!(node.kernel.tables.values().next().unwrap().entered_at(Hook::Prerouting).len(), 0);
}
