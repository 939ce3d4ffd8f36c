//! Records that a cluster starts with: an agent creates only these, as every cluster has them.

use model::{Key, Kind};
use serde_json::{Value, json};

use super::Refused;
use crate::fixture::Cluster;

const UNKNOWN: &str = "not a record that an agent creates";
const SETTINGS: &str = "a new record has the settings";
const NETWORK: &str = "a default pool is a network";
const POOL_SETTINGS: &str = "a default pool has the settings";

pub(super) fn acts(cluster: &Cluster) -> Vec<Refused> {
    let created = |what: &str, kind, name: &str, spec: Value| {
        let value = json!({ "spec": spec }).to_string();
        cluster.creation(what, &Key::cluster(kind, name), value.as_bytes())
    };
    let bgp = |what: &str, spec| (created(what, Kind::BgpConfiguration, "default", spec), SETTINGS);
    let tier = json!({ "order": 1, "defaultAction": "Pass" });
    let mut acts = vec![
        (created("a pool", Kind::IpPool, "mine", json!({ "cidr": "10.7.0.0/16" })), UNKNOWN),
        (created("a tier", Kind::Tier, "mine", json!({ "order": 1 })), UNKNOWN),
        (created("a node's settings", Kind::FelixConfiguration, "node.node-b", json!({})), UNKNOWN),
        (created("another tier", Kind::Tier, "kube-admin", tier), SETTINGS),
        bgp("an AS", json!({ "asNumber": 64512 })),
        bgp("peers to ignore", json!({ "ignoredInterfaces": ["eth0"] })),
    ];
    for (what, field, value, words) in [
        ("a pool of everything", "cidr", json!("0.0.0.0/0"), NETWORK),
        ("a pool that is no network", "cidr", json!("10.7.0.1/16"), NETWORK),
        ("a pool of loopback addresses", "cidr", json!("127.0.0.0/8"), NETWORK),
        ("a pool of link-local addresses", "cidr", json!("169.254.0.0/16"), NETWORK),
        ("a pool of multicast addresses", "cidr", json!("224.0.0.0/16"), NETWORK),
        ("a pool of the other version", "cidr", json!("fd00:7::/48"), NETWORK),
        ("a pool of large blocks", "blockSize", json!(16), NETWORK),
        ("a pool smaller than a block", "cidr", json!("10.7.0.0/27"), NETWORK),
        ("a pool that is off", "disabled", json!(true), POOL_SETTINGS),
        ("a pool for services", "allowedUses", json!(["LoadBalancer"]), POOL_SETTINGS),
        ("a pool with two tunnels", "ipipMode", json!("Always"), POOL_SETTINGS),
    ] {
        let mut spec = json!({ "cidr": "10.7.0.0/16", "blockSize": 26, "vxlanMode": "Always" });
        spec[field] = value;
        acts.push((created(what, Kind::IpPool, "default-ipv4-ippool", spec), words));
    }
    for (what, cidr) in
        [("all of IPv6", "::/0"), ("IPv6 multicast", "ff00::/32"), ("IPv6 link-local", "fe80::/64")]
    {
        let spec = json!({ "cidr": cidr, "blockSize": 122 });
        acts.push((created(what, Kind::IpPool, "default-ipv6-ippool", spec), NETWORK));
    }
    acts
}
