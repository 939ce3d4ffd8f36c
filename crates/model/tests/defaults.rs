//! What is filled in: given this spec, expect that one.

use model::{Kind, Resource, manifest};
use serde_json::{Value, json};

fn filled(kind: Kind, spec: &Value) -> Resource {
    let mut resource = Resource::new(kind, "a");
    resource.body.insert("spec".to_owned(), spec.clone());
    resource.fill_defaults();
    resource
}

fn check(kind: Kind, given: Value, expected: Value) {
    assert_eq!(filled(kind, &given).body["spec"], expected, "{kind} {given}");
}

#[test]
fn pools() {
    let full = |cidr: &str, size: u64| {
        json!({ "cidr": cidr, "blockSize": size, "ipipMode": "Never", "vxlanMode": "Never", "nodeSelector": "all()",
            "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic" })
    };
    check(Kind::IpPool, json!({ "cidr": "10.0.0.0/16" }), full("10.0.0.0/16", 26));
    check(
        Kind::IpPool,
        json!({ "cidr": "FD00:0::/64", "blockSize": 0, "ipipMode": "" }),
        full("fd00::/64", 122),
    );
    let mut with_host_bits = full("10.0.0.1/16", 26);
    check(Kind::IpPool, json!({ "cidr": "10.0.0.1/16" }), with_host_bits.clone());
    with_host_bits["natOutgoing"] = true.into();
    check(Kind::IpPool, with_host_bits.clone(), with_host_bits);
}

#[test]
fn policies() {
    let allow = json!([{ "action": "Allow" }]);
    for kind in [Kind::NetworkPolicy, Kind::GlobalNetworkPolicy] {
        check(kind, json!({}), json!({ "tier": "default", "types": ["Ingress"] }));
        check(
            kind,
            json!({ "egress": allow, "tier": "x" }),
            json!({ "egress": allow, "tier": "x", "types": ["Egress"] }),
        );
        check(
            kind,
            json!({ "egress": allow, "ingress": allow }),
            json!({ "egress": allow, "ingress": allow, "tier": "default", "types": ["Ingress", "Egress"] }),
        );
        assert_eq!(filled(kind, &json!({ "tier": "x" })).metadata.labels["projectcalico.org/tier"], "x");
    }
    for kind in [Kind::StagedNetworkPolicy, Kind::StagedGlobalNetworkPolicy] {
        check(kind, json!({}), json!({ "stagedAction": "Set", "tier": "default", "types": ["Ingress"] }));
        check(
            kind,
            json!({ "stagedAction": "Delete", "types": ["Ingress"] }),
            json!({ "stagedAction": "Delete", "tier": "default" }),
        );
    }
    check(Kind::StagedKubernetesNetworkPolicy, json!({}), json!({ "stagedAction": "Set" }));
}

#[test]
fn single_ports_and_as_numbers_become_numbers() {
    let ports = |ports: Value| json!({ "ingress": [{ "action": "Allow", "protocol": "TCP", "source": { "ports": ports } }] });
    let found = filled(Kind::Profile, &ports(json!(["80", "80:81", "http", 8080])));
    assert_eq!(found.body["spec"], ports(json!([80, "80:81", "http", 8080])));
    check(
        Kind::BgpPeer,
        json!({ "asNumber": "1.10", "localASNumber": "65001" }),
        json!({ "asNumber": 65546, "localASNumber": 65001 }),
    );
    check(Kind::Node, json!({ "bgp": { "asNumber": "banana" } }), json!({ "bgp": { "asNumber": "banana" } }));
}

#[test]
fn settings_of_the_cluster() {
    check(
        Kind::BgpConfiguration,
        json!({}),
        json!({ "logSeverityScreen": "Info", "serviceLoadBalancerAggregation": "Enabled" }),
    );
    check(
        Kind::IpamConfiguration,
        json!({ "strictAffinity": true }),
        json!({ "strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 0 }),
    );
    check(Kind::Tier, json!({}), json!({ "order": 1_000_000, "defaultAction": "Deny" }));
    check(
        Kind::KubeControllersConfiguration,
        json!({ "controllers": { "node": {}, "loadBalancer": {}, "migration": {}, "policy": {} } }),
        json!({ "healthChecks": "Enabled", "prometheusMetricsPort": 9094, "controllers": {
            "node": { "leakGracePeriod": "15m0s" }, "loadBalancer": { "assignIPs": "AllServices" },
            "migration": { "policyNameMigrator": "Enabled" }, "policy": {} } }),
    );
}

#[test]
fn the_agents_settings() {
    let felix = |balancing: &str, nat: &str| {
        json!({ "floatingIPs": "Disabled", "nftablesMode": "Auto", "nftablesFlowTableOffload": "Disabled",
            "bpfConnectTimeLoadBalancing": balancing, "bpfHostNetworkedNATWithoutCTLB": nat })
    };
    check(Kind::FelixConfiguration, json!({}), felix("TCP", "Enabled"));
    for (switch, word) in [(true, "Enabled"), (false, "Disabled")] {
        let mut expected = felix(word, "Disabled");
        expected["bpfConnectTimeLoadBalancingEnabled"] = switch.into();
        check(Kind::FelixConfiguration, json!({ "bpfConnectTimeLoadBalancingEnabled": switch }), expected);
    }
}

#[test]
fn endpoints_are_named_and_labelled() {
    let text = "apiVersion: projectcalico.org/v3\nkind: WorkloadEndpoint\n\
        metadata: {namespace: b, labels: {projectcalico.org/namespace: wrong, app: web}}\n\
        spec: {orchestrator: k8s, node: n-1, pod: web-0, endpoint: eth0}";
    let mut endpoint = manifest::parse(text).unwrap().remove(0);
    endpoint.fill_defaults();
    assert_eq!(endpoint.metadata.name, "n--1-k8s-web--0-eth0");
    let labels: Vec<_> =
        endpoint.metadata.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["app=web", "projectcalico.org/namespace=b", "projectcalico.org/orchestrator=k8s"]);
}

#[test]
fn less_is_filled_in_on_read() {
    for kind in Kind::all() {
        let mut resource = Resource::new(kind, "a");
        resource.body.insert("spec".to_owned(), json!({ "cidr": "10.0.0.0/16" }));
        let stored = resource.clone();
        resource.fill_defaults_on_read();
        match kind {
            Kind::IpPool => assert_eq!(resource.spec("blockSize"), Some(&json!(26))),
            kind if kind.is_tiered() => {
                assert_eq!(resource.metadata.labels["projectcalico.org/tier"], "default");
                assert_eq!(resource.body, stored.body);
            }
            _ => assert_eq!(resource, stored),
        }
    }
}
