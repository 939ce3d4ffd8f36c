//! Calls that nobody should make, and the code that each must get, whoever serves it.

use lab::CniCall;
use serde_json::json;

/// ADDs of one pod that must be refused. `add` is what would succeed.
pub(crate) fn refused_adds(add: impl Fn() -> CniCall) -> Vec<(CniCall, u64)> {
    let mut calls = refused_names(&add);
    calls.extend(refused_configurations(&add));
    calls
}

fn refused_names(add: &impl Fn() -> CniCall) -> Vec<(CniCall, u64)> {
    vec![
        (add().with("CNI_NETNS", "/proc/self/status"), 4),
        (add().with("CNI_NETNS", "/proc/self/ns/net"), 4),
        (add().with("CNI_NETNS", "/proc/self/ns/mnt"), 4),
        (add().with("CNI_NETNS", "/nowhere"), 4),
        (add().with("CNI_NETNS", "/"), 4),
        (add().with("CNI_NETNS", "/dev/null"), 4),
        (add().with("CNI_NETNS", ""), 4),
        (add().with("CNI_IFNAME", "eth/0"), 4),
        (add().with("CNI_IFNAME", "sixteen-letters-"), 4),
        (add().with("CNI_IFNAME", ".."), 4),
        (add().with("CNI_IFNAME", ""), 4),
        (add().with("CNI_CONTAINERID", "../../x"), 4),
        (add().with("CNI_CONTAINERID", ""), 4),
        (add().with("CNI_ARGS", "K8S_POD_NAMESPACE=a/b;K8S_POD_NAME=c"), 4),
        (add().with("CNI_COMMAND", "FROB"), 4),
    ]
}

fn refused_configurations(add: &impl Fn() -> CniCall) -> Vec<(CniCall, u64)> {
    vec![
        (add().with_netconf("cniVersion", "9.9.9"), 1),
        (add().with_netconf("mtu", "big"), 7),
        (add().with_netconf("runtimeConfig", json!({"ips": "nonsense"})), 7),
        (add().with_netconf("ipam", json!({"type": "host-local"})), 7),
        (add().with_netconf("ipam", json!({"ipv4_pools": ["nowhere"]})), 103),
    ]
}
