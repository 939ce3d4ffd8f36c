//! Faults of how nodes are set up, of what Kubernetes says of them, and of settings of the whole cluster.

use anyhow::{Result, ensure};
use jiff::SignedDuration;
use model::{FindingCode, Key, Kind};
use serde_json::{Value, json};

use crate::injection::{Fault, Injection, Takes};
use crate::kubernetes;
use crate::relay::Relay;
use crate::scene::{BUSY_NODES, CALICO_NODE, address_of, agent_socket};

pub(crate) const FAULTS: &[Fault] = &[
    Fault { code: FindingCode::CalicoNodeNotReady, takes: Takes::Cluster, inject: calico_node_not_ready },
    Fault { code: FindingCode::ClockSkew, takes: Takes::Setup, inject: clock_skew },
    Fault { code: FindingCode::CniConfigShadowed, takes: Takes::Setup, inject: cni_config_shadowed },
    Fault { code: FindingCode::CredentialsExpired, takes: Takes::Setup, inject: credentials_expired },
    Fault { code: FindingCode::DelUnfinished, takes: Takes::Setup, inject: del_unfinished },
    Fault { code: FindingCode::EtcdEvenMembers, takes: Takes::Cluster, inject: etcd_even_members },
    Fault { code: FindingCode::ForwardingDropped, takes: Takes::Setup, inject: forwarding_dropped },
    Fault { code: FindingCode::ForwardingOff, takes: Takes::Setup, inject: forwarding_off },
    Fault { code: FindingCode::ModeUnsupported, takes: Takes::Pod, inject: mode_unsupported },
    Fault { code: FindingCode::NatMissing, takes: Takes::Setup, inject: nat_missing },
    Fault { code: FindingCode::NodeAddressMissing, takes: Takes::Setup, inject: node_address_missing },
    Fault { code: FindingCode::NodeAddressShared, takes: Takes::Setup, inject: node_address_shared },
    Fault { code: FindingCode::NodeAddressUnfit, takes: Takes::Setup, inject: node_address_unfit },
    Fault { code: FindingCode::NodeAddressWrong, takes: Takes::Setup, inject: node_address_wrong },
    Fault { code: FindingCode::NodeNotReady, takes: Takes::Setup, inject: node_not_ready },
    Fault { code: FindingCode::NodeLeftBehind, takes: Takes::Cluster, inject: node_left_behind },
    Fault { code: FindingCode::NodeUnrecorded, takes: Takes::Cluster, inject: node_unrecorded },
    Fault { code: FindingCode::NodenameDiffers, takes: Takes::Setup, inject: nodename_differs },
    Fault { code: FindingCode::PacketsLost, takes: Takes::Cluster, inject: packets_lost },
    Fault { code: FindingCode::PodSpoofingPossible, takes: Takes::Setup, inject: pod_spoofing_possible },
    Fault { code: FindingCode::PolicyNotEnforced, takes: Takes::Cluster, inject: policy_not_enforced },
    Fault { code: FindingCode::RpFilterLoose, takes: Takes::Cluster, inject: rp_filter_loose },
];

fn node_subject(i: &Injection<'_>) -> String {
    format!("node {}", i.node)
}

fn calico_node_not_ready(i: &mut Injection<'_>) -> Result<()> {
    i.edit_item("pods.json", kubernetes::CALICO_POD, |pod| {
        pod["status"]["containerStatuses"][0]["ready"] = json!(false);
    })?;
    i.expect(format!("node {CALICO_NODE}"))
}

/// All nodes of a lab have the machine's clock, so that of its agent's answers is put forward.
fn clock_skew(i: &mut Injection<'_>) -> Result<()> {
    let agent = agent_socket(i.scene.lab(), i.node)?;
    i.ask_through(Relay::start(agent, SignedDuration::from_secs(90))?);
    i.expect(node_subject(i))
}

/// What a network that was tried before leaves behind. No pod is added while it lies there.
fn cni_config_shadowed(i: &mut Injection<'_>) -> Result<()> {
    let file = "/etc/cni/net.d/05-flannel.conflist";
    let text = r#"{"name": "cbr0", "plugins": [{"type": "flannel"}]}"#;
    i.on_node(format!("echo '{text}' > {file}"), format!("rm {file}"))?;
    i.expect(node_subject(i))
}

/// Somebody deletes the node, and the machine lives on.
fn node_unrecorded(i: &mut Injection<'_>) -> Result<()> {
    i.remove(Key::cluster(Kind::Node, i.node))?;
    let name = i.node;
    i.edit_list("nodes.json", |nodes| nodes.retain(|node| node["metadata"]["name"] != name))?;
    i.expect(node_subject(i))
}

/// `kubectl delete node`, while the machine lives on.
fn node_left_behind(i: &mut Injection<'_>) -> Result<()> {
    let name = i.node;
    i.edit_list("nodes.json", |nodes| nodes.retain(|node| node["metadata"]["name"] != name))?;
    i.expect(node_subject(i))
}

/// A token that ended in 2001: its middle part says so, the rest is nobody's.
fn credentials_expired(i: &mut Injection<'_>) -> Result<()> {
    const HEADER: &str = "eyJhbGciOiJub25lIn0";
    const EXPIRED: &str = "eyJleHAiOjEwMDAwMDAwMDB9";
    let file = "/etc/cni/net.d/calico-kubeconfig";
    let text = format!("users:\n- name: calico\n  user:\n    token: {HEADER}.{EXPIRED}.x");
    i.on_node(format!("echo '{text}' > {file}"), format!("rm {file}"))?;
    i.expect(node_subject(i))
}

/// A DEL of an hour ago that nobody can understand: whoever looks sets it aside.
fn del_unfinished(i: &mut Injection<'_>) -> Result<()> {
    let queue = "/var/lib/plumb/queue";
    let file = format!("{queue}/del-odd.json");
    i.on_node(
        format!("mkdir -p -m 700 {queue} && echo '{{}}' > {file} && touch -d '1 hour ago' {file}"),
        format!("rm {queue}/del-odd.*"),
    )?;
    i.expect(node_subject(i))
}

fn etcd_even_members(i: &mut Injection<'_>) -> Result<()> {
    i.edit_list("pods.json", |pods| {
        pods.extend(BUSY_NODES.map(|node| kubernetes::host_pod(&format!("etcd-{node}"), node)));
    })?;
    i.expect("cluster")
}

fn forwarding_off(i: &mut Injection<'_>) -> Result<()> {
    let path = "net/ipv4/ip_forward";
    i.on_node(format!("echo 0 > /proc/sys/{path}"), format!("echo 1 > /proc/sys/{path}"))?;
    // The kernel sets all devices as it was told to set the node.
    i.takes_pods_along = true;
    i.expect_symptom(
        FindingCode::DeviceSettingWrong,
        format!("net/ipv4/conf/{}/forwarding on {}", i.device(), i.node),
    );
    i.expect(format!("{path} on {}", i.node))
}

/// What Docker does when it starts.
fn forwarding_dropped(i: &mut Injection<'_>) -> Result<()> {
    let rules =
        "chain FORWARD { type filter hook forward priority 0; policy drop; iifname \"docker0\" accept; }";
    i.on_node(format!("nft 'table ip stranger {{ {rules}; }}'"), "nft delete table ip stranger")?;
    i.expect(node_subject(i))
}

/// A script that clears a chain before it fills it, and fails in between.
fn nat_missing(i: &mut Injection<'_>) -> Result<()> {
    flush(i, "postrouting")
}

fn pod_spoofing_possible(i: &mut Injection<'_>) -> Result<()> {
    flush(i, "pods")
}

fn flush(i: &mut Injection<'_>, chain: &str) -> Result<()> {
    let kept = format!("/run/plumb/{chain}-before");
    let flush = format!("nft list chain inet plumb {chain} > {kept}; nft flush chain inet plumb {chain}");
    i.on_node(flush, format!("nft -f {kept}; rm {kept}"))?;
    i.expect(node_subject(i))
}

/// This kernel, like that of most clouds, has no IPIP unless it is asked for.
fn mode_unsupported(i: &mut Injection<'_>) -> Result<()> {
    let name = format!("ipip-{}", i.lot());
    i.put_resource(
        Kind::IpPool,
        &name,
        json!({"cidr": format!("198.19.{}.0/24", i.lot()), "ipipMode": "Always"}),
    )?;
    i.expect(format!("IPPool({name})"))
}

fn edit_bgp(i: &Injection<'_>, change: impl FnOnce(&mut Value)) -> Result<()> {
    i.edit_node(i.node, |spec| change(&mut spec["bgp"]))
}

fn node_address_missing(i: &mut Injection<'_>) -> Result<()> {
    edit_bgp(i, |bgp| {
        bgp.as_object_mut().expect("it is there").remove("ipv4Address");
    })?;
    i.expect(node_subject(i))
}

/// A machine that was made from this one's image.
fn node_address_shared(i: &mut Injection<'_>) -> Result<()> {
    let own = address_of(i.node);
    let spec = json!({"bgp": {"ipv4Address": format!("{own}/24")}});
    i.put_node(&format!("copy-of-{}", i.node), spec)?;
    i.expect(own)
}

fn node_address_unfit(i: &mut Injection<'_>) -> Result<()> {
    edit_bgp(i, |bgp| bgp["ipv4Address"] = json!(format!("172.30.0.{}/24", 150 + i.lot())))?;
    i.expect(node_subject(i))
}

/// A second card's network, which the others are not on.
fn node_address_wrong(i: &mut Injection<'_>) -> Result<()> {
    let address = format!("10.99.{}.1/24", i.lot());
    i.on_node(format!("ip address add {address} dev eth0"), format!("ip address del {address} dev eth0"))?;
    edit_bgp(i, |bgp| bgp["ipv4Address"] = json!(address))?;
    i.expect(node_subject(i))
}

fn node_not_ready(i: &mut Injection<'_>) -> Result<()> {
    i.edit_item("nodes.json", i.node, |node| node["status"]["conditions"][0]["status"] = json!("False"))?;
    i.expect(node_subject(i))
}

fn nodename_differs(i: &mut Injection<'_>) -> Result<()> {
    let file = "/var/lib/calico/nodename";
    let write = format!("mkdir -p /var/lib/calico; echo another-{} > {file}", i.lot());
    i.on_node(write, format!("rm {file}"))?;
    i.expect(node_subject(i))
}

/// Somebody between two nodes does not let one's packets to the other's pods through: everything that is recorded looks right.
fn packets_lost(i: &mut Injection<'_>) -> Result<()> {
    let other = i.other_node();
    // Nothing is lost as long as nothing is in the way.
    i.scene.send_packets(true);
    let verdict = i.scene.audit()?;
    ensure!(verdict.roots.is_empty(), "{:#}", verdict.report["findings"]);
    let lost = format!("ip saddr {} ip daddr {} drop", address_of(i.node), i.scene.block_of(other));
    let rules = format!("chain between {{ type filter hook prerouting priority -300; {lost}; }}");
    i.on(other, format!("nft 'table ip stranger {{ {rules}; }}'"), "nft delete table ip stranger")?;
    i.expect(format!("way {} to {other}", i.node))
}

fn policy_not_enforced(i: &mut Injection<'_>) -> Result<()> {
    // It selects nothing, so the other nodes' agents, which enforce it, shut no pod of the lab.
    let spec = json!({"selector": "has(nobody)", "types": ["Ingress"], "ingress": [{"action": "Deny"}]});
    i.put_resource(Kind::GlobalNetworkPolicy, "deny-all", spec)?;
    i.edit(&Key::cluster(Kind::Node, CALICO_NODE), |record| {
        record["metadata"]["annotations"]["plumbline.io/policies-not-enforced"] = "1".into();
    })?;
    i.expect("cluster")
}

/// Felix refuses it; our agent does not mind.
fn rp_filter_loose(i: &mut Injection<'_>) -> Result<()> {
    let path = "net/ipv4/conf/all/rp_filter";
    let before = i.scene.on(CALICO_NODE, &format!("cat /proc/sys/{path}"))?;
    i.on(
        CALICO_NODE,
        format!("echo 2 > /proc/sys/{path}"),
        format!("echo {} > /proc/sys/{path}", before.trim()),
    )?;
    i.expect(format!("{path} on {CALICO_NODE}"))
}
