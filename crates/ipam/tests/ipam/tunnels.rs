//! A node's tunnel addresses: keep, assign, replace, clear.

use std::net::IpAddr;

use ipam::{Pool, Tunnel, TunnelAddress, TunnelNode, TunnelRelease, tunnel_address};
use model::ipam::BlockAttribute;
use model::{Kind, Resource};
use serde_json::{Value, json};

use crate::common::labels;

fn pool(name: &str, spec: Value) -> Pool {
    let mut resource = Resource::new(Kind::IpPool, name);
    resource.body.insert("spec".to_owned(), spec);
    Pool::new(&resource).unwrap()
}

/// The address in the Node record, and what the blocks know about it.
struct Known {
    address: Option<IpAddr>,
    allocation: Option<BlockAttribute>,
    has_key: bool,
}

fn decide(tunnel: Tunnel, known: &Known, pools: &[Pool]) -> TunnelAddress {
    let labels = labels(&[("rack", "a")]);
    let node = TunnelNode {
        name: "node-a",
        labels: &labels,
        address: known.address,
        allocation: known.allocation.as_ref(),
        has_wireguard_key: known.has_key,
    };
    tunnel_address(tunnel, &node, pools)
}

fn owned(tunnel: Tunnel, node: &str) -> Option<BlockAttribute> {
    let owner = tunnel.owner(node);
    let attribute = BlockAttribute {
        handle_id: Some(owner.handle.into()),
        secondary: (&owner.attributes).into(),
        ..Default::default()
    };
    Some(attribute)
}

/// Under the tunnel's handle of node-a, with attributes that say something else.
fn noted(tunnel: Tunnel, node: &str, kind: Tunnel) -> Option<BlockAttribute> {
    let handle_id = Some(tunnel.handle("node-a").into());
    Some(BlockAttribute { handle_id, secondary: (&kind.owner(node).attributes).into(), ..Default::default() })
}

fn release(tunnel: Tunnel, address: Option<&str>) -> TunnelRelease {
    TunnelRelease { handle: tunnel.handle("node-a"), address: address.map(|text| text.parse().unwrap()) }
}

/// A tunnel, a pool for it, an address inside that pool, and one outside.
fn kinds() -> [(Tunnel, Pool, &'static str, &'static str); 5] {
    let v4 = |field: &str| pool("v4", json!({"cidr": "10.0.0.0/24", field: "Always"}));
    let v6 = |field: &str| pool("v6", json!({"cidr": "fd00::/112", field: "CrossSubnet"}));
    [
        (Tunnel::Ipip, v4("ipipMode"), "10.0.0.1", "10.9.0.1"),
        (Tunnel::Vxlan, v4("vxlanMode"), "10.0.0.1", "10.9.0.1"),
        (Tunnel::VxlanV6, v6("vxlanMode"), "fd00::1", "fd09::1"),
        (Tunnel::Wireguard, v4("natOutgoing"), "10.0.0.1", "10.9.0.1"),
        (Tunnel::WireguardV6, v6("natOutgoing"), "fd00::1", "fd09::1"),
    ]
}

#[test]
fn an_address_is_kept_replaced_or_cleared() {
    for (tunnel, right, inside, outside) in kinds() {
        let assign = |address| TunnelAddress::Assign {
            pools: vec![right.cidr.to_string()],
            release: Some(release(tunnel, address)),
        };
        let at = |text: &str, allocation| Known { address: text.parse().ok(), allocation, has_key: true };
        let pools = std::slice::from_ref(&right);
        let cases = [
            (at(inside, owned(tunnel, "node-a")), pools, TunnelAddress::Keep),
            (at("", None), pools, assign(None)),
            // Of another node, of another kind, of a pod, in another pool, not allocated at all.
            (at(inside, owned(tunnel, "node-b")), pools, assign(None)),
            (at(inside, owned(other(tunnel), "node-a")), pools, assign(None)),
            (
                at(inside, Some(BlockAttribute { handle_id: Some("net.1".into()), ..Default::default() })),
                pools,
                assign(None),
            ),
            // Under the node's own handle, but noted down for another node, or as another kind.
            (at(inside, noted(tunnel, "node-b", tunnel)), pools, assign(None)),
            (at(inside, noted(tunnel, "node-a", other(tunnel))), pools, assign(None)),
            (at(outside, owned(tunnel, "node-a")), pools, assign(None)),
            (at(inside, None), pools, assign(None)),
            // Data of old: neither handle nor attributes.
            (at(inside, Some(BlockAttribute::default())), pools, assign(Some(inside))),
            // No pool asks for it any more.
            (
                at(inside, owned(tunnel, "node-a")),
                &[],
                TunnelAddress::Clear { release: release(tunnel, None) },
            ),
            (at("", None), &[], TunnelAddress::Keep),
        ];
        for (position, (known, pools, expected)) in cases.into_iter().enumerate() {
            assert_eq!(decide(tunnel, &known, pools), expected, "{tunnel:?}, case {position}");
        }
    }
}

fn other(tunnel: Tunnel) -> Tunnel {
    if tunnel == Tunnel::Ipip { Tunnel::Vxlan } else { Tunnel::Ipip }
}

#[test]
fn only_pools_that_serve_count() {
    let none = Known { address: None, allocation: None, has_key: true };
    let cases = [
        json!({"cidr": "10.0.0.0/24", "vxlanMode": "Always", "disabled": true}),
        json!({"cidr": "10.0.0.0/24", "vxlanMode": "Never"}),
        json!({"cidr": "10.0.0.0/24", "ipipMode": "Always"}),
        json!({"cidr": "10.0.0.0/24", "vxlanMode": "Always", "allowedUses": ["Workload"]}),
        json!({"cidr": "10.0.0.0/24", "vxlanMode": "Always", "nodeSelector": "rack == 'b'"}),
        json!({"cidr": "fd00::/112", "vxlanMode": "Always"}),
    ];
    for spec in cases {
        assert_eq!(decide(Tunnel::Vxlan, &none, &[pool("p", spec.clone())]), TunnelAddress::Keep, "{spec}");
    }
    let fit = pool("p", json!({"cidr": "10.0.0.0/24", "vxlanMode": "Always", "nodeSelector": "rack == 'a'"}));
    assert!(matches!(decide(Tunnel::Vxlan, &none, std::slice::from_ref(&fit)), TunnelAddress::Assign { .. }));
    let no_key = Known { has_key: false, ..none };
    assert_eq!(decide(Tunnel::Wireguard, &no_key, &[fit]), TunnelAddress::Keep);
}

#[test]
fn handles_and_types_are_calicos() {
    let words: Vec<(String, &str)> =
        Tunnel::ALL.iter().map(|tunnel| (tunnel.handle("node-a").to_string(), tunnel.type_word())).collect();
    let expected = [
        ("ipip-tunnel-addr-node-a", "ipipTunnelAddress"),
        ("vxlan-tunnel-addr-node-a", "vxlanTunnelAddress"),
        ("vxlan-v6-tunnel-addr-node-a", "vxlanV6TunnelAddress"),
        ("wireguard-tunnel-addr-node-a", "wireguardTunnelAddress"),
        ("wireguard-v6-tunnel-addr-node-a", "wireguardV6TunnelAddress"),
    ];
    assert_eq!(words, expected.map(|(handle, word)| (handle.to_owned(), word)));
}
