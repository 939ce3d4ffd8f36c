//! Reads what the kernel holds for one pod.

use ipnet::IpNet;
use plan::{
    End, Link, Neighbour, ObservedEnd, ObservedWiring, PartialEnd, PodWiring, Route, Sysctl,
    preferred_elsewhere,
};

use crate::links::{find_link, found};
use crate::netlink::numbers::{AF_INET, AF_INET6};
use crate::netlink::{Message, Netlink, Outcome, Request};
use crate::objects::{is_local_route, read_address, read_permanent_neighbour, read_pod_route};
use crate::{Host, HostError, PodNamespace, messages, sysctl};

/// What is read besides the link itself.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) addresses: Vec<IpNet>,
    /// Through the device, and through others to wanted destinations. In the kernel's order.
    pub(crate) routes: Vec<Route>,
    pub(crate) neighbours: Vec<Neighbour>,
    /// Settings that were told by the way.
    sysctls: Vec<Sysctl>,
}

/// How settings are read that no message tells.
type ReadFiles<'a> = &'a dyn Fn(&[&Sysctl]) -> Result<Vec<Sysctl>, HostError>;

impl Host {
    /// What is there under the names of a wiring. Whose it is, the difference tells.
    pub fn observe(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
    ) -> Result<ObservedWiring, HostError> {
        let host = list_end(&mut self.netlink, &wiring.host, &read_here)?;
        // A pod has few routes and neighbours, so that listing them is cheap.
        let pod = visit(pod, |netlink, read_files| list_end(netlink, &wiring.pod, read_files))?;
        Ok(ObservedWiring { host, pod })
    }

    /// The same at a cost that does not depend on how many routes and neighbours there are: only what is wanted is
    /// looked for, so that nothing superfluous is seen. `known` are the numbers that the two ends have, where they
    /// are known: it saves a look each.
    pub(crate) fn observe_wanted(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
        known: Option<(u32, u32)>,
    ) -> Result<ObservedWiring, HostError> {
        let (outside, inside) = known.unzip();
        let host = ask_end(&mut self.netlink, &wiring.host, outside, &read_here)?;
        let pod = visit(pod, |netlink, read_files| ask_end(netlink, &wiring.pod, inside, read_files))?;
        Ok(ObservedWiring { host, pod })
    }
}

impl Host {
    /// What is wanted inside the pod, asked for piece by piece; of the node's side, only the link.
    pub fn observe_inside(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
    ) -> Result<ObservedWiring, HostError> {
        let link = find_link(&mut self.netlink, &wiring.host.device)?;
        let bare = |link| observed_end(&wiring.host, link, Contents::default(), &|_| Ok(Vec::new()));
        let host = link.map(bare).transpose()?;
        let pod = visit(pod, |netlink, read_files| ask_end(netlink, &wiring.pod, None, read_files))?;
        Ok(ObservedWiring { host, pod })
    }
}

/// With the pod's socket, and with its files.
fn visit<T>(pod: &mut PodNamespace, look: impl FnOnce(&mut Netlink, ReadFiles<'_>) -> T) -> T {
    let PodNamespace { ns, netlink, home } = pod;
    look(netlink, &|wanted| ns.stay(home, || sysctl::read_all(wanted)))
}

fn read_here(wanted: &[&Sysctl]) -> Result<Vec<Sysctl>, HostError> {
    Ok(sysctl::read_all(wanted))
}

/// By lists: everything on the device.
fn list_end(
    netlink: &mut Netlink,
    end: &End,
    read_files: ReadFiles<'_>,
) -> Result<Option<ObservedEnd>, HostError> {
    let Some(link) = find_link(netlink, &end.device)? else { return Ok(None) };
    let contents = list_contents(netlink, end, link.index)?;
    observed_end(end, link, contents, read_files).map(Some)
}

/// By questions, in one send if the device's number is known. Should it have another one by now, nothing is found on it.
fn ask_end(
    netlink: &mut Netlink,
    end: &End,
    known: Option<u32>,
    read_files: ReadFiles<'_>,
) -> Result<Option<ObservedEnd>, HostError> {
    let Some(index) = known else {
        let Some(link) = find_link(netlink, &end.device)? else { return Ok(None) };
        let contents = look_up_contents(netlink, end, link.index)?;
        return observed_end(end, link, contents, read_files).map(Some);
    };
    let mut asked = vec![messages::get_link(&end.device)];
    asked.extend(questions(end, index));
    let mut outcomes = netlink.transact(asked)?.into_iter();
    let Some(link) = found(outcomes.next().unwrap_or(Ok(None)))? else { return Ok(None) };
    let contents = answers(end, index, outcomes.collect());
    observed_end(end, link, contents, read_files).map(Some)
}

fn observed_end(
    end: &End,
    link: Link,
    contents: Contents,
    read_files: ReadFiles<'_>,
) -> Result<ObservedEnd, HostError> {
    let Contents { addresses, routes: found, neighbours, mut sysctls } = contents;
    let preferred = preferred_elsewhere(&end.routes, found.iter(), link.index);
    let (routes, rivals) = found.into_iter().partition(|found| found.device == Some(link.index));
    sysctls.extend(end.sysctls.iter().filter_map(|wanted| told_by(&link, end, wanted)));
    let is_told = |wanted: &Sysctl| sysctls.iter().any(|told| told.path == wanted.path);
    let rest: Vec<&Sysctl> = end.sysctls.iter().filter(|wanted| !is_told(wanted)).collect();
    if !rest.is_empty() {
        let read = read_files(&rest)?;
        sysctls.extend(read);
    }
    Ok(ObservedEnd {
        index: link.index,
        peer_index: link.peer_index,
        alias: link.alias,
        mac: link.mac,
        mtu: Some(link.mtu),
        up: Some(link.up),
        running: Some(link.running),
        addresses,
        routes,
        rivals,
        preferred,
        neighbours,
        unresolved: Vec::new(),
        sysctls,
        partial: PartialEnd::default(),
    })
}

/// The setting as it is, if the link message told it.
pub(crate) fn told_by(link: &Link, end: &End, wanted: &Sysctl) -> Option<Sysctl> {
    let value = link.settings.at(&wanted.path, end.device.as_str())?.to_string();
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
            read_pod_route(kind, body).filter(|found| found.device == Some(index) || is_wanted(end, found))
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
    Ok(Contents { addresses, routes, neighbours, sysctls: Vec::new() })
}

/// Those wanted addresses that packets can be sent to. The kernel lists an IPv6 address as soon as it was asked for,
/// but takes it into use a little later, in the background.
fn usable_addresses(netlink: &mut Netlink, end: &End, index: u32) -> Result<Vec<IpNet>, HostError> {
    let requests = end.addresses.iter().map(|address| messages::match_local(address.addr(), index)).collect();
    Ok(usable_of(end, &netlink.transact(requests)?))
}

fn usable_of(end: &End, outcomes: &[Outcome]) -> Vec<IpNet> {
    let is_local = |outcome: &Outcome| {
        outcome.as_ref().is_ok_and(|found| found.as_ref().is_some_and(|route| is_local_route(&route.body)))
    };
    let both = end.addresses.iter().zip(outcomes);
    both.filter(|(_, outcome)| is_local(outcome)).map(|(address, _)| *address).collect()
}

/// What is wanted of the device, asked for piece by piece in one send.
pub(crate) fn look_up_contents(netlink: &mut Netlink, end: &End, index: u32) -> Result<Contents, HostError> {
    Ok(answers(end, index, netlink.transact(questions(end, index))?))
}

/// In the order in which [`answers`] expects them.
fn questions(end: &End, index: u32) -> Vec<Request> {
    let device = &end.device;
    let addresses = end.addresses.iter().map(|address| messages::match_local(address.addr(), index));
    let settings = end.sysctls.iter().filter_map(|wanted| sysctl::question(&wanted.path));
    let routes = end.routes.iter().map(|route| messages::match_route(route.destination));
    let neighbours =
        end.neighbours.iter().map(|wanted| messages::get_neighbour(device, index, wanted.address));
    addresses.chain(settings).chain(routes).chain(neighbours).collect()
}

fn answers(end: &End, index: u32, mut outcomes: Vec<Outcome>) -> Contents {
    let rest = outcomes.split_off(end.addresses.len().min(outcomes.len()));
    let addresses = usable_of(end, &outcomes);
    // A refusal is the kernel's way to say that there is none.
    let found: Vec<Message> = rest.into_iter().filter_map(Result::ok).flatten().collect();
    let told = |wanted: &Sysctl| found.iter().find_map(|message| sysctl::told(&wanted.path, message));
    let neighbour = |message: &Message| {
        read_permanent_neighbour(message.kind, &message.body)
            .filter(|(of, _)| *of == index)
            .map(|(_, found)| found)
    };
    let routes = found.iter().filter_map(|message| read_pod_route(message.kind, &message.body));
    Contents {
        addresses,
        routes: routes.filter(|found| is_wanted(end, found)).collect(),
        neighbours: found.iter().filter_map(neighbour).collect(),
        sysctls: end.sysctls.iter().filter_map(told).collect(),
    }
}

fn is_wanted(end: &End, route: &Route) -> bool {
    end.routes.iter().any(|wanted| wanted.destination == route.destination)
}
