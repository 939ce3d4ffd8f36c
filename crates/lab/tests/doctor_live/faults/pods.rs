//! Faults inside pods, as whoever runs in them can make them.

use anyhow::{Context as _, Result};
use model::FindingCode;

use crate::injection::{Fault, Injection, Takes};

pub(crate) const FAULTS: &[Fault] = &[
    Fault { code: FindingCode::PodAddressMissing, takes: Takes::Pod, inject: pod_address_missing },
    Fault { code: FindingCode::PodDefaultRouteMissing, takes: Takes::Pod, inject: pod_default_route_missing },
    Fault { code: FindingCode::PodGatewayUnresolved, takes: Takes::Pod, inject: pod_gateway_unresolved },
    Fault { code: FindingCode::PodInterfaceMissing, takes: Takes::Pod, inject: pod_interface_missing },
    Fault { code: FindingCode::PodNetworkCrowded, takes: Takes::Pod, inject: pod_network_crowded },
];

const GATEWAY: &str = "169.254.1.1";

/// What makes the pod's routes anew, as they are now.
fn routes(i: &Injection<'_>) -> Result<String> {
    let shown = i.scene.inside(i.node, i.pod(), "ip route show")?;
    // Routes on the link come before those through it.
    let mut lines: Vec<&str> = shown.lines().map(str::trim).collect();
    lines.sort_by_key(|line| line.contains(" via "));
    Ok(lines.into_iter().map(|line| format!("ip route replace {line}")).collect::<Vec<_>>().join("; "))
}

fn gateway(i: &Injection<'_>) -> Result<String> {
    let shown = i.scene.inside(i.node, i.pod(), &format!("ip neigh show {GATEWAY} dev eth0"))?;
    let mac = shown.split_whitespace().skip_while(|word| *word != "lladdr").nth(1);
    let mac = mac.with_context(|| format!("no gateway in {shown:?}"))?;
    Ok(format!("ip neigh replace {GATEWAY} lladdr {mac} dev eth0 nud permanent"))
}

/// Another one in its place: a device without any loses its routes, too.
fn pod_address_missing(i: &mut Injection<'_>) -> Result<()> {
    let (own, other) = (i.address(), format!("10.0.202.{}/32", i.lot()));
    i.in_pod(format!("ip address add {other} dev eth0"), format!("ip address del {other} dev eth0"))?;
    i.in_pod(format!("ip address del {own}/32 dev eth0"), format!("ip address add {own}/32 dev eth0"))?;
    i.expect(i.pod_subject())
}

fn pod_default_route_missing(i: &mut Injection<'_>) -> Result<()> {
    let restore = routes(i)?;
    i.in_pod("ip route del default", restore)?;
    i.expect(i.pod_subject())
}

fn pod_gateway_unresolved(i: &mut Injection<'_>) -> Result<()> {
    let restore = gateway(i)?;
    i.in_pod(format!("ip neigh del {GATEWAY} dev eth0"), restore)?;
    i.expect(i.pod_subject())
}

/// More routes than anybody reads.
fn pod_network_crowded(i: &mut Injection<'_>) -> Result<()> {
    let routes = r#"seq 0 2999 | awk '{print "route add 10.77." int($1/250) "." $1%250 "/32 dev eth0"}'"#;
    i.in_pod(format!("{routes} | ip -batch -"), "ip route flush root 10.77.0.0/16")?;
    i.expect(i.pod_subject())
}

/// Somebody moves it out of the pod: address, routes and gateway go with it, and the node's end has nobody behind it.
fn pod_interface_missing(i: &mut Injection<'_>) -> Result<()> {
    let (netns, away) = (i.pod().netns.rsplit('/').next().unwrap_or_default(), format!("away{}", i.lot()));
    let address = format!("ip address add {}/32 dev eth0", i.address());
    let restore = format!("{address}; ip link set eth0 up; {}; {}", routes(i)?, gateway(i)?);
    i.in_pod("true", restore)?;
    // The first process of the node lives in the node's network.
    let take = format!("ip netns exec {netns} ip link set eth0 netns 1 name {away}");
    // The kernel tells the other end in its own time.
    let node_end = format!("ip link show dev {}", i.device());
    let wait =
        format!("for try in $(seq 1000); do {node_end} | grep -q 'state UP' || break; sleep 0.01; done");
    let take = format!("{take}; {wait}");
    i.on_node(take, format!("ip link set {away} netns {netns} name eth0"))?;
    for code in [
        FindingCode::PodDefaultRouteMissing,
        FindingCode::PodGatewayUnresolved,
        FindingCode::PodAddressMissing,
    ] {
        i.expect_symptom(code, i.pod_subject());
    }
    i.expect_symptom(FindingCode::DeviceDown, format!("device {} on {}", i.device(), i.node));
    i.expect(i.pod_subject())
}
