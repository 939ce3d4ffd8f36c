//! Reads what the kernel holds for one pod.

use ipnet::IpNet;
use plan::{
    End, Neighbour, ObservedEnd, ObservedRoute, ObservedWiring, PodWiring, Route, Sysctl, preferred_elsewhere,
};

use crate::links::find_link;
use crate::netlink::numbers::{AF_INET, AF_INET6};
use crate::netlink::{Message, Netlink, Outcome};
use crate::objects::{Link, is_local_route, read_address, read_permanent_neighbour, read_route};
use crate::{Host, HostError, NetNs, PodNamespace, messages, sysctl};

/// What is read besides the link itself.
pub(crate) struct Contents {
    pub(crate) addresses: Vec<IpNet>,
    /// Through the device, and through others to wanted destinations. In the kernel's order.
    pub(crate) routes: Vec<ObservedRoute>,
    pub(crate) neighbours: Vec<Neighbour>,
}

impl Host {
    /// What is there under the names of a wiring. Whose it is, the difference tells.
    pub fn observe(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
    ) -> Result<ObservedWiring, HostError> {
        let host = observe_end(&mut self.netlink, &wiring.host, list_contents, read_here)?;
        Ok(ObservedWiring { host, pod: observe_pod_end(pod, &wiring.pod)? })
    }

    /// The same at a cost that does not depend on how many routes and neighbours the node has: on the node's side
    /// only what is wanted is looked for, so that nothing superfluous is seen.
    pub fn observe_wanted(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
    ) -> Result<ObservedWiring, HostError> {
        let host = self.observe_host_end(&wiring.host)?;
        Ok(ObservedWiring { host, pod: observe_pod_end(pod, &wiring.pod)? })
    }

    /// The node's side alone, likewise.
    pub(crate) fn observe_host_end(&mut self, end: &End) -> Result<Option<ObservedEnd>, HostError> {
        observe_end(&mut self.netlink, end, look_up_contents, read_here)
    }
}

/// A pod has few routes and neighbours, so that listing them is cheap.
fn observe_pod_end(pod: &mut PodNamespace, end: &End) -> Result<Option<ObservedEnd>, HostError> {
    let PodNamespace { ns, netlink } = pod;
    let read_inside = |wanted: &[&Sysctl]| ns.stay(&NetNs::current()?, || sysctl::read_all(wanted));
    observe_end(netlink, end, list_contents, read_inside)
}

fn observe_end(
    netlink: &mut Netlink,
    end: &End,
    look: impl FnOnce(&mut Netlink, &End, u32) -> Result<Contents, HostError>,
    read_files: impl FnOnce(&[&Sysctl]) -> Result<Vec<Sysctl>, HostError>,
) -> Result<Option<ObservedEnd>, HostError> {
    let Some(link) = find_link(netlink, &end.device)? else { return Ok(None) };
    let Contents { addresses, routes: found, neighbours } = look(netlink, end, link.index)?;
    let preferred = preferred_elsewhere(&end.routes, found.iter(), link.index);
    let (routes, rivals) = by_device(found, link.index);
    let mut sysctls: Vec<Sysctl> =
        end.sysctls.iter().filter_map(|wanted| told_by(&link, end, wanted)).collect();
    let rest: Vec<&Sysctl> =
        end.sysctls.iter().filter(|wanted| told_by(&link, end, wanted).is_none()).collect();
    if !rest.is_empty() {
        sysctls.extend(read_files(&rest)?);
    }
    Ok(Some(ObservedEnd {
        index: link.index,
        peer_index: link.peer_index,
        alias: link.alias,
        mac: link.mac,
        mtu: link.mtu,
        up: link.up,
        running: link.running,
        addresses,
        routes,
        rivals,
        preferred,
        neighbours,
        sysctls,
    }))
}

fn read_here(wanted: &[&Sysctl]) -> Result<Vec<Sysctl>, HostError> {
    Ok(sysctl::read_all(wanted))
}

/// The setting as it is, if the link message told it.
pub(crate) fn told_by(link: &Link, end: &End, wanted: &Sysctl) -> Option<Sysctl> {
    let value = link.settings.get(&wanted.path, end.device.as_str())?.to_string();
    Some(Sysctl { path: wanted.path.clone(), value })
}

/// Everything on the device.
fn list_contents(netlink: &mut Netlink, end: &End, index: u32) -> Result<Contents, HostError> {
    let device = &end.device;
    let mut routes = Vec::new();
    let has_v6 = end.routes.iter().any(|route| route.destination.addr().is_ipv6());
    // Not asked for in vain: a kernel without IPv6 would refuse.
    for family in [AF_INET, AF_INET6].into_iter().take(if has_v6 { 2 } else { 1 }) {
        let what = format!("list the routes of {device}");
        routes.extend(netlink.dump(&what, &messages::list_routes(family), |kind, body| {
            read_route(kind, body).filter(|found| found.device == Some(index) || is_wanted(end, &found.route))
        })?);
    }
    let what = format!("list the addresses of {device}");
    let mut addresses = netlink.dump(&what, &messages::list_addresses(index), |kind, body| {
        read_address(kind, body).filter(|(of, _)| *of == index).map(|(_, address)| address)
    })?;
    let usable = usable_addresses(netlink, end, index)?;
    // The others of IPv6 are not wanted, so whether they are usable is not asked.
    addresses.retain(|address| usable.contains(address) || !end.addresses.contains(address));
    let what = format!("list the neighbours of {device}");
    let neighbours = netlink.dump(&what, &messages::list_neighbours(Some(index)), |kind, body| {
        read_permanent_neighbour(kind, body).filter(|(of, _)| *of == index).map(|(_, found)| found)
    })?;
    Ok(Contents { addresses, routes, neighbours })
}

/// Those wanted addresses that packets can be sent to. The kernel lists an IPv6 address as soon as it was asked for,
/// but takes it into use a little later, in the background.
fn usable_addresses(netlink: &mut Netlink, end: &End, index: u32) -> Result<Vec<IpNet>, HostError> {
    let requests = end.addresses.iter().map(|address| messages::match_local(address.addr(), index)).collect();
    let outcomes = netlink.transact(requests)?;
    let is_local = |outcome: &Outcome| {
        outcome.as_ref().is_ok_and(|found| found.as_ref().is_some_and(|route| is_local_route(&route.body)))
    };
    let both = end.addresses.iter().zip(&outcomes);
    Ok(both.filter(|(_, outcome)| is_local(outcome)).map(|(address, _)| *address).collect())
}

/// What is wanted of the device, asked for piece by piece in one send.
pub(crate) fn look_up_contents(netlink: &mut Netlink, end: &End, index: u32) -> Result<Contents, HostError> {
    let addresses = usable_addresses(netlink, end, index)?;
    let device = &end.device;
    let routes = end.routes.iter().map(|route| messages::match_route(route.destination.addr()));
    let neighbours =
        end.neighbours.iter().map(|wanted| messages::get_neighbour(device, index, wanted.address));
    let outcomes = netlink.transact(routes.chain(neighbours).collect())?;
    // A refusal is the kernel's way to say that there is none.
    let found: Vec<Message> = outcomes.into_iter().filter_map(Result::ok).flatten().collect();
    let neighbour = |message: &Message| {
        read_permanent_neighbour(message.kind, &message.body)
            .filter(|(of, _)| *of == index)
            .map(|(_, found)| found)
    };
    let neighbours = found.iter().filter_map(neighbour).collect();
    let routes = found.iter().filter_map(|message| read_route(message.kind, &message.body));
    let routes = routes.filter(|found| is_wanted(end, &found.route)).collect();
    Ok(Contents { addresses, routes, neighbours })
}

fn is_wanted(end: &End, route: &Route) -> bool {
    end.routes.iter().any(|wanted| wanted.destination == route.destination)
}

/// Those through the device, and those elsewhere.
fn by_device(routes: Vec<ObservedRoute>, index: u32) -> (Vec<Route>, Vec<Route>) {
    let (own, others): (Vec<_>, Vec<_>) = routes.into_iter().partition(|found| found.device == Some(index));
    let bare = |routes: Vec<ObservedRoute>| routes.into_iter().map(|found| found.route).collect();
    (bare(own), bare(others))
}
