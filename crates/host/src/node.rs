//! The node's side of all pods: read in a few lists, one pod of it by a few questions, and put right.

use model::{DeviceName, Sandbox};
use plan::{
    DeviceSetting, DifferenceKind, Link, NODE_FORWARDING, Neighbour, NodeDesired, NodeDifference,
    NodeObserved, PodWiring, Route, Side, Sysctl, node_differences,
};
use rustix::io::Errno;

use crate::links::{find_link, find_link_by_index};
use crate::netlink::Request;
use crate::objects::{
    read_address, read_link, read_permanent_neighbour, read_pod_route, read_proxy_delay, set_proxy_delay,
};
use crate::{Host, HostError, apply, messages, sysctl};

/// Something that could not be put right.
#[derive(Debug)]
pub struct Unmended {
    pub difference: NodeDifference,
    pub error: HostError,
}

impl Host {
    /// Everything of ours, and what could be in its way. Costs about as much as `ip link` and `ip route` together.
    pub fn observe_node(&mut self) -> Result<NodeObserved, HostError> {
        let mut links = self.netlink.dump("list the node's links", &messages::list_links(), read_link)?;
        let delays = self.netlink.dump(
            "list the node's settings for neighbours",
            &messages::list_neighbour_tables(),
            read_proxy_delay,
        )?;
        let delay_of = |index: u32| delays.iter().find(|(of, _)| *of == index).map(|(_, delay)| *delay);
        links.iter_mut().for_each(|link| set_proxy_delay(&mut link.settings, delay_of(link.index)));
        let is_ours = |index: u32| links.iter().any(|link| link.index == index && link.owner().is_some());
        let routes = self.observe_routes(&is_ours)?;
        let what = "list the node's addresses";
        let addresses = self.netlink.dump(what, &messages::list_addresses(0), |kind, body| {
            read_address(kind, body).filter(|(index, _)| is_ours(*index))
        })?;
        let what = "list the node's neighbours";
        let neighbours = self.netlink.dump(what, &messages::list_neighbours(None), |kind, body| {
            read_permanent_neighbour(kind, body).filter(|(index, _)| is_ours(*index))
        })?;
        let sysctls = NODE_FORWARDING.iter().filter_map(|(_, path)| {
            Some(Sysctl { path: (*path).to_owned(), value: sysctl::read(path).ok()? })
        });
        Ok(NodeObserved { links, routes, addresses, neighbours, sysctls: sysctls.collect() })
    }

    fn observe_routes(&mut self, is_ours: &impl Fn(u32) -> bool) -> Result<Vec<Route>, HostError> {
        let mut routes = Vec::new();
        for family in messages::families() {
            let what = "list the node's routes";
            routes.extend(self.netlink.dump(what, &messages::list_routes(family), |kind, body| {
                let found = read_pod_route(kind, body)?;
                let destination = found.destination;
                let is_host_route = destination.prefix_len() == destination.max_prefix_len();
                let matters = found.is_ours() || is_host_route || found.device.is_some_and(is_ours);
                matters.then_some(found)
            })?);
        }
        Ok(routes)
    }

    /// What is wrong with the host end of one pod, at a cost that does not depend on the number of pods, links or
    /// routes. `index` is where its link was last seen, if that is known. If [`Host::mend`] fails on what is found,
    /// something else may be in the way: then look at the whole node.
    pub fn check_host_end(
        &mut self,
        wiring: &PodWiring,
        index: Option<u32>,
    ) -> Result<Vec<NodeDifference>, HostError> {
        let observed = self.observe_part(wiring, index)?;
        let desired: NodeDesired = [wiring.clone()].into_iter().collect();
        let mut found = node_differences(&desired, &observed);
        // Whether something else of ours is superfluous cannot be told from the wiring of one pod: it may be
        // another's. A look at the whole node tells.
        found.retain(|found| matches!(found, NodeDifference::Renamed { .. } | NodeDifference::OfPod { .. }));
        Ok(found)
    }

    fn observe_part(&mut self, wiring: &PodWiring, index: Option<u32>) -> Result<NodeObserved, HostError> {
        let mut observed = NodeObserved::default();
        let holder = find_link(&mut self.netlink, &wiring.host.device)?;
        let is_own = |link: &Link| link.alias.as_ref() == Some(&wiring.sandbox.alias());
        let link = match holder {
            Some(link) if is_own(&link) => Some(link),
            holder => {
                observed.links.extend(holder);
                self.find_renamed(&wiring.sandbox, index)?
            }
        };
        let Some(mut link) = link else { return Ok(observed) };
        let contents = crate::observe::look_up_contents(&mut self.netlink, &wiring.host, link.index)?;
        let delay = sysctl::read(&DeviceSetting::ProxyDelay.path(&link.name)).ok();
        set_proxy_delay(&mut link.settings, delay.and_then(|delay| delay.parse().ok()));
        observed.routes = contents.routes;
        observed.addresses = contents.addresses.into_iter().map(|address| (link.index, address)).collect();
        let neighbour = |found: Neighbour| (link.index, found);
        observed.neighbours = contents.neighbours.into_iter().map(neighbour).collect();
        observed.links.push(link);
        Ok(observed)
    }

    /// A link of this sandbox that is not where it should be.
    fn find_renamed(&mut self, sandbox: &Sandbox, index: Option<u32>) -> Result<Option<Link>, HostError> {
        let is_own = |link: &Link| link.alias.as_ref() == Some(&sandbox.alias());
        if let Some(index) = index {
            let link = find_link_by_index(&mut self.netlink, index)?.filter(is_own);
            if link.is_some() {
                return Ok(link);
            }
        }
        Ok(self.veths(|link| is_own(link).then(|| link.clone()))?.into_iter().next())
    }

    /// Puts right what can be put right from the node's side, and says what could not be. Left alone, because it
    /// takes the pod or a decision: links that are missing, unexpected or detached, and whatever is a stranger's.
    pub fn mend(&mut self, differences: &[NodeDifference]) -> Result<Vec<Unmended>, HostError> {
        let mut unmended = Vec::new();
        let mut unnamed = Vec::new();
        for difference in differences {
            if let NodeDifference::Setting { wanted, .. } = difference
                && let Err(error) = sysctl::write(wanted)
            {
                unmended.push(Unmended { difference: difference.clone(), error });
            }
            if let NodeDifference::Renamed { sandbox, index, wanted, .. } = difference
                && let Err(error) = self.rename_in_service(*index, wanted)
            {
                unnamed.push(sandbox.clone());
                unmended.push(Unmended { difference: difference.clone(), error });
            }
        }
        for difference in differences {
            if let NodeDifference::OfPod { sandbox, difference: of_pod, .. } = difference
                && let DifferenceKind::Sysctl { wanted, .. } = &of_pod.kind
                // Under the name that it should have there may be a stranger's device.
                && !unnamed.contains(sandbox)
                && let Err(error) = sysctl::write(wanted)
            {
                unmended.push(Unmended { difference: difference.clone(), error });
            }
        }
        let requests: Vec<(&NodeDifference, Request)> =
            differences.iter().filter_map(|found| Some((found, request(found)?))).collect();
        let (found, requests): (Vec<_>, Vec<_>) = requests.into_iter().unzip();
        for (difference, outcome) in found.into_iter().zip(self.netlink.transact(requests)?) {
            if let Err(error) = outcome {
                unmended.push(Unmended { difference: difference.clone(), error });
            }
        }
        for difference in differences {
            if let NodeDifference::OfPod { index: Some(index), difference: taken, .. } = difference
                && let (Side::Host, DifferenceKind::RouteTaken { route, metric, .. }) =
                    (taken.side, &taken.kind)
                && let Err(error) = self.put_in_front(*index, &taken.device, route, *metric)
            {
                unmended.push(Unmended { difference: difference.clone(), error });
            }
        }
        Ok(unmended)
    }

    /// Gives packets our route instead of a stranger's with this metric, which stays where it is.
    fn put_in_front(
        &mut self,
        index: u32,
        device: &DeviceName,
        route: &Route,
        rival_metric: u32,
    ) -> Result<(), HostError> {
        let Some(ahead) = route.ahead_of(rival_metric) else {
            return Err(HostError::Outranked { destination: route.destination, metric: rival_metric });
        };
        // Ours may be there already, behind the stranger's.
        let requests = [
            messages::delete_route(&Route { device: Some(index), ..*route }),
            messages::prepend_route(device, index, &ahead),
        ];
        let mut outcomes = self.netlink.transact(requests.into())?.into_iter();
        match outcomes.next() {
            Some(Err(error)) if error.errno() != Some(Errno::SRCH.raw_os_error()) => return Err(error),
            _ => {}
        }
        outcomes.try_for_each(|outcome| outcome.map(|_| ()))
    }

    fn rename_in_service(&mut self, index: u32, to: &DeviceName) -> Result<(), HostError> {
        match self.rename(index, to) {
            // Before Linux 6.2 a device must be down. What that takes away is the next difference.
            Err(error) if error.errno() == Some(Errno::BUSY.raw_os_error()) => {
                self.netlink.execute_all(vec![messages::set_down(to.as_str(), index)])?;
                self.rename(index, to)
            }
            outcome => outcome,
        }
    }
}

fn request(difference: &NodeDifference) -> Option<Request> {
    match difference {
        NodeDifference::RouteStray { route } => Some(messages::delete_route(route)),
        NodeDifference::OfPod { index: Some(index), difference, .. } if difference.side == Side::Host => {
            apply::request(*index, difference)
        }
        _ => None,
    }
}
