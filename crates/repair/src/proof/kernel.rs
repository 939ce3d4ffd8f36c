//! What work on a node does to a kernel that is only evidence.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{DeviceName, Mac, NodeName};
use plan::task::{KernelChange, NextHop, PodNetwork, RepairTask, Tunnel};
use plan::{End, NodeFacts};

use evidence::kernel::{Address, Forward, Kernel, Link, Neighbour, NeighbourState, PodView, Route, Vxlan};
use evidence::sample::kernel_route;
use evidence::{Evidence, Origin, Sighted, same_id};

type Outcome = Result<(), String>;

fn sighted<T>(seen: T) -> Sighted<T> {
    Sighted::new(seen, Origin::probe("here", "after the repair"))
}

/// Does one piece of work, or says what is not as it should be.
pub(super) fn work(evidence: &mut Evidence, node: &NodeName, work: &RepairTask) -> Outcome {
    let node = evidence.nodes.get_mut(node).ok_or("there is no such node")?;
    let kernel = match &work.inside {
        None => &mut node.kernel,
        Some(id) => &mut view(node.pod_views.as_mut(), id).ok_or("there is no such sandbox")?.kernel,
    };
    match &work.change {
        KernelChange::Route { destination, from, to } => {
            route(kernel, *destination, from.as_ref(), to.as_ref())
        }
        KernelChange::Neighbour { address, device, from, to } => {
            neighbour(kernel, *address, device, *from, *to)
        }
        KernelChange::Address { device, net, to, .. } => {
            let addresses = kernel.addresses.get_or_insert_default();
            addresses.retain(|held| held.seen.net != *net);
            if *to {
                addresses.push(sighted(address(device, *net)));
            }
            Ok(())
        }
        KernelChange::Up { device, from, to } => {
            let link = link(kernel, device)?;
            (link.is_up == Some(*from)).then_some(()).ok_or("it is not as planned")?;
            (link.is_up, link.is_running) = (Some(*to), Some(*to));
            Ok(())
        }
        KernelChange::Mtu { device, from, to } => {
            let link = link(kernel, device)?;
            (link.mtu == Some(*from)).then_some(()).ok_or("it is not as planned")?;
            link.mtu = Some(*to);
            Ok(())
        }
        KernelChange::Sysctl { path, from, to } => sysctl(kernel, path, from, to),
        KernelChange::Device { device, from: Some(_), to: None } => {
            kernel.links.get_or_insert_default().retain(|link| link.seen.name != *device);
            let routes = kernel.routes.get_or_insert_default();
            routes.retain(|route| route.seen.device.as_deref() != Some(device));
            kernel.neighbours.get_or_insert_default().retain(|known| known.seen.device != *device);
            Ok(())
        }
        KernelChange::Forward { device, mac, from, to } => forward(kernel, device, *mac, *from, *to),
        KernelChange::Tunnel { device, from, to } => tunnel(kernel, device, from.as_ref(), to.as_ref()),
        KernelChange::Device { .. } | KernelChange::Unwire(_) => Err("nobody plans that".to_owned()),
        KernelChange::Wire(wire) => {
            make(kernel, wire);
            let view = view(node.pod_views.as_mut(), &wire.container_id).ok_or("there is no such sandbox")?;
            make_inside(&mut view.kernel, wire);
            Ok(())
        }
    }
}

fn view<'v>(views: Option<&'v mut Vec<PodView>>, id: &str) -> Option<&'v mut PodView> {
    views?.iter_mut().find(|view| view.container_id.as_deref().is_some_and(|known| same_id(known, id)))
}

fn link<'k>(kernel: &'k mut Kernel, device: &str) -> Result<&'k mut Link, String> {
    let links = kernel.links.iter_mut().flatten().map(|link| &mut link.seen);
    links.into_iter().find(|link| link.name == device).ok_or_else(|| format!("there is no {device}"))
}

fn address(device: &str, net: IpNet) -> Address {
    let (device, scope) = (device.to_owned(), "global".to_owned());
    Address { device, net, scope, is_secondary: false, is_duplicate: false }
}

fn route(kernel: &mut Kernel, destination: IpNet, from: Option<&NextHop>, to: Option<&NextHop>) -> Outcome {
    let routes = kernel.routes.get_or_insert_default();
    let leads_there = |route: &Route, way: &NextHop| {
        route.destination == destination && (&route.device, route.via) == (&way.device, way.via)
    };
    if to.is_some_and(|to| routes.iter().any(|route| leads_there(&route.seen, to))) {
        return Ok(());
    }
    let is_from = |route: &Route| from.is_some_and(|from| leads_there(route, from));
    match from {
        Some(_) => {
            let place = routes.iter().position(|route| is_from(&route.seen)).ok_or("it is not as planned")?;
            routes.remove(place);
        }
        None if routes.iter().any(|route| route.seen.destination == destination) => {
            return Err("there is one".to_owned());
        }
        None => {}
    }
    if let Some(to) = to {
        let protocol = to.protocol.as_deref().unwrap_or("80");
        let mut route = kernel_route(destination, to.via, to.device.as_deref(), protocol);
        route.is_onlink = to.is_onlink;
        routes.push(sighted(route));
    }
    Ok(())
}

fn neighbour(
    kernel: &mut Kernel,
    address: IpAddr,
    device: &str,
    from: Option<Mac>,
    to: Option<Mac>,
) -> Outcome {
    let known = kernel.neighbours.get_or_insert_default();
    let is_it = |known: &Neighbour| known.address == address && known.device == device;
    let found = known.iter().find(|known| is_it(&known.seen)).and_then(|known| known.seen.mac);
    if found == to
        && known.iter().any(|known| is_it(&known.seen) && known.seen.state == NeighbourState::Permanent)
    {
        return Ok(());
    }
    (found == from).then_some(()).ok_or("it is not as planned")?;
    known.retain(|known| !is_it(&known.seen));
    known.extend(to.map(|mac| sighted(permanent(address, device, mac))));
    Ok(())
}

fn forward(kernel: &mut Kernel, device: &str, mac: Mac, from: Option<IpAddr>, to: Option<IpAddr>) -> Outcome {
    let known = kernel.forwards.get_or_insert_default();
    let is_it = |known: &Forward| known.device == device && known.mac == mac;
    let found = known.iter().find(|known| is_it(&known.seen)).map(|known| known.seen.node);
    if found == to {
        return Ok(());
    }
    (found == from).then_some(()).ok_or("it is not as planned")?;
    known.retain(|known| !is_it(&known.seen));
    known.extend(to.map(|node| sighted(Forward { device: device.to_owned(), mac, node })));
    Ok(())
}

/// Only what repairs plan: one that is put right in place, or made.
fn tunnel(kernel: &mut Kernel, device: &str, from: Option<&Tunnel>, to: Option<&Tunnel>) -> Outcome {
    let to = to.ok_or("nobody plans that")?;
    let links = kernel.links.get_or_insert_default();
    let is_there = links.iter().any(|link| link.seen.name == device);
    (is_there == from.is_some()).then_some(()).ok_or("it is not as planned")?;
    links.retain(|link| link.seen.name != device);
    let mut link = up(device, Some(to.mac), Some(to.mtu));
    let parent = Some(to.parent.clone());
    link.vxlan = Some(Vxlan { vni: Some(to.vni), port: Some(to.port), local: Some(to.local), parent });
    links.push(sighted(link));
    let addresses = kernel.addresses.get_or_insert_default();
    addresses.retain(|held| held.seen.device != device);
    addresses.extend(to.address.map(|held| sighted(address(device, IpNet::from(held)))));
    Ok(())
}

fn permanent(address: IpAddr, device: &str, mac: Mac) -> Neighbour {
    let (device, state) = (device.to_owned(), NeighbourState::Permanent);
    Neighbour { address, device, mac: Some(mac), state, is_proxy: false }
}

fn sysctl(kernel: &mut Kernel, path: &str, from: &str, to: &str) -> Outcome {
    let values = kernel.sysctls.get_or_insert_default();
    let value = values.get_mut(path).ok_or("there is no such setting")?;
    if value.seen == to {
        return Ok(());
    }
    (value.seen == from).then_some(()).ok_or("it is not as planned")?;
    value.seen = to.to_owned();
    if path == plan::FORWARD_V4 {
        let through = values.iter_mut().filter(|(path, _)| path.ends_with("/forwarding"));
        through.for_each(|(_, value)| value.seen = to.to_owned());
    }
    Ok(())
}

fn up(name: &str, mac: Option<Mac>, mtu: Option<u32>) -> Link {
    let (is_up, is_running) = (Some(true), Some(true));
    Link { name: name.to_owned(), mac, mtu: mtu.or(Some(1450)), is_up, is_running, ..Link::default() }
}

fn make(kernel: &mut Kernel, wire: &PodNetwork) {
    let mut link = up(&wire.device, Some(Mac::HOST_END), wire.mtu);
    (link.kind, link.has_peer_elsewhere) = (Some("veth".to_owned()), Some(true));
    let links = kernel.links.get_or_insert_default();
    links.retain(|known| known.seen.name != wire.device);
    links.push(sighted(link));
    let facts = NodeFacts { rp_filter: 0, has_ipv6: true };
    let device = DeviceName::new(&wire.device).expect("a device");
    let end = End::on_node(device, wire.mac.unwrap_or(Mac::HOST_END), 0, &wire.addresses, &facts);
    for net in end.routes.iter().map(|route| route.destination) {
        let routes = kernel.routes.get_or_insert_default();
        routes.retain(|known| known.seen.destination != net);
        routes.push(sighted(kernel_route(net, None, Some(&wire.device), "80")));
    }
    for plan::Neighbour { address, mac } in end.neighbours {
        let neighbours = kernel.neighbours.get_or_insert_default();
        neighbours.retain(|known| known.seen.address != address);
        neighbours.extend(wire.mac.map(|_| sighted(permanent(address, &wire.device, mac))));
    }
    for needed in plan::needed_settings() {
        let path = needed.setting.path(&wire.device);
        kernel.sysctls.get_or_insert_default().insert(path, sighted(needed.value.to_string()));
    }
}

fn make_inside(kernel: &mut Kernel, wire: &PodNetwork) {
    let device = wire.interface.as_str();
    let name = DeviceName::new(device).expect("an interface");
    let end = End::in_pod(name, wire.mac.unwrap_or(Mac::HOST_END), 0, &wire.addresses, false);
    kernel.links = Some(vec![sighted(up(device, wire.mac, wire.mtu))]);
    kernel.addresses = Some(end.addresses.into_iter().map(|net| sighted(address(device, net))).collect());
    let routes = end
        .routes
        .into_iter()
        .map(|route| sighted(kernel_route(route.destination, route.gateway, Some(device), "boot")));
    kernel.routes = Some(routes.collect());
    let neighbours = end.neighbours.into_iter();
    kernel.neighbours =
        Some(neighbours.map(|known| sighted(permanent(known.address, device, known.mac))).collect());
}
