//! Faults of a node's kernel: links, routes, neighbours, settings, and the ways between nodes.

use anyhow::{Context as _, Result};
use model::{FindingCode, IpVersion, Kind};
use serde_json::json;

use crate::injection::{Fault, Injection, Takes};

pub(crate) const FAULTS: &[Fault] = &[
    Fault { code: FindingCode::BlockRouteMissing, takes: Takes::Setup, inject: block_route_missing },
    Fault { code: FindingCode::BlockRouteWrong, takes: Takes::Setup, inject: block_route_wrong },
    Fault { code: FindingCode::DeviceDown, takes: Takes::Pod, inject: device_down },
    Fault { code: FindingCode::DeviceSettingWrong, takes: Takes::Pod, inject: device_setting_wrong },
    Fault { code: FindingCode::DeviceWithoutEndpoint, takes: Takes::Pod, inject: device_without_endpoint },
    Fault { code: FindingCode::EndpointWithoutDevice, takes: Takes::Pod, inject: endpoint_without_device },
    Fault { code: FindingCode::MtuDiffers, takes: Takes::Pod, inject: mtu_differs },
    Fault { code: FindingCode::MtuTooLarge, takes: Takes::Cluster, inject: mtu_too_large },
    Fault { code: FindingCode::NeighbourMissing, takes: Takes::Pod, inject: neighbour_missing },
    Fault {
        code: FindingCode::NeighbourWithoutEndpoint,
        takes: Takes::Pod,
        inject: neighbour_without_endpoint,
    },
    Fault { code: FindingCode::NeighbourWrong, takes: Takes::Pod, inject: neighbour_wrong },
    Fault { code: FindingCode::RouteDiverted, takes: Takes::Pod, inject: route_diverted },
    Fault {
        code: FindingCode::RouteGatewayUnreachable,
        takes: Takes::Setup,
        inject: route_gateway_unreachable,
    },
    Fault { code: FindingCode::RouteMissing, takes: Takes::Pod, inject: route_missing },
    Fault { code: FindingCode::RouteShadowed, takes: Takes::Pod, inject: route_shadowed },
    Fault { code: FindingCode::RouteToWrongDevice, takes: Takes::Pod, inject: route_to_wrong_device },
    Fault { code: FindingCode::RouteViaWrongNode, takes: Takes::Setup, inject: route_via_wrong_node },
    Fault { code: FindingCode::RouteWithoutEndpoint, takes: Takes::Pod, inject: route_without_endpoint },
];

/// The node's route to the pod, as `ip route` takes it.
fn route(i: &Injection<'_>) -> Result<String> {
    let shown = i.scene.on(i.node, &format!("ip route show exact {}", i.address()))?;
    Ok(format!("ip route replace {}", shown.trim()))
}

/// The node's neighbour entry of the pod, as `ip neigh` takes it.
fn neighbour(i: &Injection<'_>) -> Result<String> {
    let (address, device) = (i.address(), i.device());
    let shown = i.scene.on(i.node, &format!("ip neigh show {address} dev {device}"))?;
    let mac = shown.split_whitespace().skip_while(|word| *word != "lladdr").nth(1);
    let mac = mac.with_context(|| format!("no neighbour in {shown:?}"))?;
    Ok(format!("ip neigh replace {address} lladdr {mac} dev {device} nud permanent"))
}

fn settings(device: &str) -> String {
    let needed = plan::needed_settings().filter(|needed| needed.setting.version() == IpVersion::V4);
    let needed = needed.map(|needed| {
        let (path, value) = (needed.setting.path(device), needed.value);
        format!("echo {value} > /proc/sys/{path}")
    });
    needed.collect::<Vec<_>>().join("; ")
}

fn device_subject(i: &Injection<'_>, device: &str) -> String {
    format!("device {device} on {}", i.node)
}

fn route_subject(i: &Injection<'_>) -> String {
    format!("route {}/32 on {}", i.address(), i.node)
}

fn neighbour_subject(i: &Injection<'_>) -> String {
    format!("neighbour {} at {} on {}", i.address(), i.device(), i.node)
}

/// The other node's block, and its route on this node.
fn other_block(i: &Injection<'_>) -> (String, String) {
    let block = i.scene.block_of(i.other_node());
    (block.to_string(), format!("route {block} on {}", i.node))
}

fn block_route_missing(i: &mut Injection<'_>) -> Result<()> {
    // Of the two other nodes one has a block: another route shows that this node should know the ways.
    let extra = "192.0.2.128/26";
    let (block, subject) = other_block(i);
    let restore = i.scene.route_to_block_of(i.other_node());
    claim_elsewhere(i, extra)?;
    let via = crate::scene::address_of(crate::scene::CALICO_NODE);
    // Both nodes may be at fault at once, and share it.
    i.on_node(
        format!("ip route replace {extra} via {via} dev eth0"),
        format!("ip route flush exact {extra}"),
    )?;
    i.on_node(format!("ip route flush exact {block}"), restore)?;
    i.expect(subject)
}

/// A black hole in the place of the route.
fn block_route_wrong(i: &mut Injection<'_>) -> Result<()> {
    let (block, subject) = other_block(i);
    let restore = i.scene.route_to_block_of(i.other_node());
    i.on_node(
        format!("ip route flush exact {block}; ip route add blackhole {block}"),
        format!("ip route flush exact {block}; {restore}"),
    )?;
    i.expect(subject)
}

/// A black hole for the pod on another node.
fn route_diverted(i: &mut Injection<'_>) -> Result<()> {
    let (other, address) = (i.other_node(), i.address());
    i.on(
        other,
        format!("ip route add blackhole {address}/32"),
        format!("ip route del blackhole {address}/32"),
    )?;
    i.expect(format!("route {address}/32 on {other}"))
}

/// A block of the node without pods, in a pool of its own; the nodes that are not at fault know the way.
fn claim_elsewhere(i: &mut Injection<'_>, block: &str) -> Result<()> {
    let owner = model::AffinityOwner::Host(crate::scene::CALICO_NODE.to_owned());
    let cidr: model::Cidr = block.parse()?;
    i.put_resource(Kind::IpPool, "elsewhere", json!({"cidr": cidr}))?;
    i.put(model::Key::Block(cidr), model::ipam::Block::new(cidr, Some(&owner), 1).encode())?;
    i.put(model::Key::Affinity { owner, block: cidr }, model::ipam::Affinity::default().encode())?;
    let (other, via) = (i.other_node(), crate::scene::address_of(crate::scene::CALICO_NODE));
    i.on(
        other,
        format!("ip route replace {block} via {via} dev eth0"),
        format!("ip route flush exact {block}"),
    )
}

/// The kernel takes routes and neighbours of a device that goes down.
fn device_down(i: &mut Injection<'_>) -> Result<()> {
    let device = i.device();
    let restore = format!("ip link set {device} up; {}; {}", route(i)?, neighbour(i)?);
    i.on_node(format!("ip link set {device} down"), restore)?;
    i.expect_symptom(FindingCode::RouteMissing, route_subject(i));
    i.expect_symptom(FindingCode::NeighbourMissing, neighbour_subject(i));
    i.expect(device_subject(i, device))
}

fn device_setting_wrong(i: &mut Injection<'_>) -> Result<()> {
    let path = plan::DeviceSetting::ProxyArp.path(i.device());
    i.on_node(format!("echo 0 > /proc/sys/{path}"), format!("echo 1 > /proc/sys/{path}"))?;
    i.expect(format!("{path} on {}", i.node))
}

fn device_without_endpoint(i: &mut Injection<'_>) -> Result<()> {
    let device = format!("cali000000000{:02x}", i.lot());
    let make = format!("ip link add {device} type veth peer name stray{}; ip link set {device} up", i.lot());
    i.on_node(make, format!("ip link del {device}"))?;
    let leftover = format!("ip route add 10.244.255.{}/32 dev {device}", i.lot());
    i.on_node(leftover, "true")?;
    i.expect_symptom(
        FindingCode::RouteWithoutEndpoint,
        format!("route 10.244.255.{}/32 on {}", i.lot(), i.node),
    );
    i.expect(device_subject(i, &device))
}

/// The node's end is moved away: to where the pod's own end is.
fn endpoint_without_device(i: &mut Injection<'_>) -> Result<()> {
    let (device, netns) = (i.device(), i.pod().netns.rsplit('/').next().unwrap_or_default().to_owned());
    // The first process of the node lives in the node's network.
    let back = format!("ip netns exec {netns} ip link set {device} netns 1; ip link set {device} up");
    let restore = format!("{back}; {}; {}; {}", settings(device), route(i)?, neighbour(i)?);
    i.on_node(format!("ip link set {device} netns {netns}"), restore)?;
    i.expect_symptom(FindingCode::RouteMissing, route_subject(i));
    i.expect_symptom(FindingCode::NeighbourMissing, neighbour_subject(i));
    i.expect(i.endpoint_subject())
}

fn mtu_differs(i: &mut Injection<'_>) -> Result<()> {
    let device = i.device();
    let mtu = i.scene.on(i.node, &format!("cat /sys/class/net/{device}/mtu || ip -o link show {device}"))?;
    let mtu: u32 = mtu.trim().parse().unwrap_or(1450);
    i.on_node(format!("ip link set {device} mtu {}", mtu - 50), format!("ip link set {device} mtu {mtu}"))?;
    i.expect(device_subject(i, device))
}

/// The card that a tunnel goes through is made smaller.
fn mtu_too_large(i: &mut Injection<'_>) -> Result<()> {
    i.put_resource(Kind::IpPool, "vxlan", json!({"cidr": "198.18.0.0/16", "vxlanMode": "Always"}))?;
    let add = "ip link add vxlan.calico type vxlan id 4096 dstport 4789 dev eth0; \
               ip link set vxlan.calico mtu 1450 up; ip link set eth0 mtu 1400";
    i.on_node(add, "ip link set eth0 mtu 1500; ip link del vxlan.calico")?;
    i.expect(device_subject(i, "vxlan.calico"))
}

fn neighbour_missing(i: &mut Injection<'_>) -> Result<()> {
    let restore = neighbour(i)?;
    i.on_node(format!("ip neigh del {} dev {}", i.address(), i.device()), restore)?;
    i.expect(neighbour_subject(i))
}

fn neighbour_without_endpoint(i: &mut Injection<'_>) -> Result<()> {
    let (address, device) = (format!("10.244.254.{}", i.lot()), i.device());
    let add = format!("ip neigh add {address} lladdr 02:00:00:00:00:07 dev {device} nud permanent");
    i.on_node(add, format!("ip neigh del {address} dev {device}"))?;
    i.expect(format!("neighbour {address} at {device} on {}", i.node))
}

fn neighbour_wrong(i: &mut Injection<'_>) -> Result<()> {
    let restore = neighbour(i)?;
    let (address, device) = (i.address(), i.device());
    i.on_node(
        format!("ip neigh replace {address} lladdr 02:00:00:00:00:08 dev {device} nud permanent"),
        restore,
    )?;
    i.expect(neighbour_subject(i))
}

/// Nobody answers for this gateway.
fn route_gateway_unreachable(i: &mut Injection<'_>) -> Result<()> {
    let (block, subject) = other_block(i);
    let gateway = format!("172.30.0.{}", 200 + i.lot());
    let inside = i.scene.pod(i.other_node(), 0).addresses[0].clone();
    let ask = format!("ping -c1 -W1 {inside} > /dev/null || true");
    let restore = i.scene.route_to_block_of(i.other_node());
    i.on_node(format!("ip route replace {block} via {gateway} dev eth0 proto bird"), restore)?;
    i.shows_by(ask)?;
    i.expect(subject)
}

fn route_missing(i: &mut Injection<'_>) -> Result<()> {
    let restore = route(i)?;
    i.on_node(format!("ip route del {}", i.address()), restore)?;
    i.expect(route_subject(i))
}

/// Of several routes of one metric the first is taken.
fn route_shadowed(i: &mut Injection<'_>) -> Result<()> {
    let address = i.address();
    let add = format!("ip route prepend {address} dev eth0 proto static scope link");
    i.on_node(add, format!("ip route del {address} dev eth0"))?;
    i.expect(route_subject(i))
}

fn route_to_wrong_device(i: &mut Injection<'_>) -> Result<()> {
    let restore = route(i)?;
    i.on_node(format!("ip route replace {} dev eth0 scope link", i.address()), restore)?;
    i.expect(route_subject(i))
}

fn route_via_wrong_node(i: &mut Injection<'_>) -> Result<()> {
    let (block, subject) = other_block(i);
    let wrong = crate::scene::address_of(crate::scene::CALICO_NODE);
    let restore = i.scene.route_to_block_of(i.other_node());
    i.on_node(format!("ip route replace {block} via {wrong} dev eth0 proto bird"), restore)?;
    i.expect(subject)
}

fn route_without_endpoint(i: &mut Injection<'_>) -> Result<()> {
    let destination = format!("10.244.253.{}/32", i.lot());
    let add = format!("ip route add {destination} dev {}", i.device());
    i.on_node(add, format!("ip route del {destination}"))?;
    i.expect(format!("route {destination} on {}", i.node))
}
