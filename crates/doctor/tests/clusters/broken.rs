//! Clusters with one fault each.

use super::expect;

#[test]
fn addresses_and_endpoints() {
    expect("late-del", &[("pod-without-endpoint", "pod shop/web-0", &["10.244.1.3", "worker-1"])]);
    expect(
        "leaked-addresses",
        &[
            ("address-leaked", "10.244.2.40", &["shop/gone-1"]),
            ("address-leaked", "10.244.2.41", &["shop/gone-2"]),
        ],
    );
    expect("one-address-two-pods", &[("address-shared", "10.244.2.2", &["web-1", "cart"])]);
    expect("node-gone", &[("affinity-of-gone-node", "node worker-9", &["10.244.9.0/26"])]);
    expect("status-outdated", &[("endpoint-address-differs", "pod shop/web-0", &["10.244.1.33"])]);
    expect(
        "no-address-left",
        &[("addresses-exhausted", "node worker-2", &["strict affinity", "shop/api-0"])],
    );
}

#[test]
fn what_the_node_itself_does() {
    expect("conntrack-full", &[("conntrack-full", "node worker-2", &["table full"])]);
    expect("forward-dropped", &[("forwarding-dropped", "node worker-1", &["FORWARD"])]);
    expect("forwarding-off", &[("forwarding-off", "net/ipv4/ip_forward on worker-2", &[])]);
    expect("networkmanager", &[("devices-managed-by-others", "node worker-1", &["Wired connection 2"])]);
    expect("felix-killed", &[("network-program-killed", "node worker-2", &["calico-node"])]);
}

#[test]
fn what_other_components_do() {
    expect("stale-token", &[("credentials-refused", "node worker-1", &["Unauthorized", "shop/api-0"])]);
    expect("loose-rp-filter", &[("rp-filter-loose", "node worker-1", &["loose", "calico-node-"])]);
    expect("typha-unreachable", &[("typha-unreachable", "cluster", &["worker-1", "worker-2", "5473"])]);
    expect("kube-proxy-down", &[("watches-exhausted", "node worker-2", &["too many open files"])]);
    expect("no-plugin", &[("cni-plugin-missing", "node worker-1", &["cni plugin not initialized"])]);
    expect("etcd-full", &[("store-full", "cluster", &["database space exceeded"])]);
    expect("store-locked", &[("store-locked", "cluster", &["datastoreReady"])]);
}

#[test]
fn between_nodes() {
    expect("mesh-off", &[("bgp-mesh-off", "BGPConfiguration(default)", &["3 of 3 nodes"])]);
    expect("cloned-tunnel", &[("tunnel-mac-shared", "cluster", &["worker-1", "worker-2"])]);
    expect(
        "pool-around-nodes",
        &[("pool-contains-nodes", "IPPool(default-ipv4-ippool)", &["worker-1 (10.244.200.12)"])],
    );
    expect(
        "tunnel-disabled",
        &[("tunnel-disabled", "FelixConfiguration(default)", &["vxlanEnabled: false"])],
    );
    expect("nat-address", &[("node-address-shared", "10.0.2.15", &["worker-1", "worker-2"])]);
    expect(
        "no-session",
        &[("bgp-session-down", "BGP session worker-1 to 198.51.100.13", &["No route to host"])],
    );
    expect(
        "tunnel-end-missing",
        &[("tunnel-end-unknown", "neighbour 10.244.2.0 at vxlan.calico on worker-1", &["worker-2", "FDB"])],
    );
}
