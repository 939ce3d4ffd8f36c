//! Changes of one route of the main table.
//!
//! There may be several routes to a destination. The one that the plan means must be the only one that fits its description. What
//! cannot be put back as it was (several next hops, encapsulation, metrics of its own) fits none.

use ipnet::IpNet;
use plan::task::{KernelChange, NextHop};
use plan::{Maker, Route, RouteKind, protocol_name, protocol_number, scope_name, scope_number};

use super::place::{Place, is_held};
use super::{NotDone, Outcome, known, surprise};
use crate::HostError;
use crate::links::find_link_by_index;
use crate::messages::{family, list_routes, route_message};
use crate::netlink::Request;
use crate::netlink::numbers::*;
use crate::survey::read;

/// A route that is there.
struct Found {
    route: Route,
    device: Option<String>,
}

impl Place<'_> {
    pub(super) fn change_route(
        &mut self,
        destination: IpNet,
        from: Option<&NextHop>,
        to: Option<&NextHop>,
        maker: Maker,
    ) -> Outcome {
        let destination = destination.trunc();
        let found = self.routes_to(destination)?;
        let there = |way: Option<&NextHop>| {
            let way = way?;
            found.iter().position(|found| found.fits(way))
        };
        match (from, to) {
            (from, None) => self.remove_route(destination, from, &found),
            (None, Some(to)) => {
                if there(Some(to)).is_some() {
                    return Err(NotDone::Already);
                }
                if !to.is_beside_others && !found.is_empty() {
                    return surprise(format!("there is {}", all_in_words(&found)));
                }
                self.put_route(destination, to, maker)?;
                let now = self.way_to(destination, to)?;
                Ok(Some(KernelChange::Route { destination, from: Some(now), to: None }))
            }
            (Some(from), Some(to)) => match (there(Some(from)), there(Some(to))) {
                (None, Some(_)) => Err(NotDone::Already),
                (Some(old), new) if new.is_none_or(|new| new == old) && only(&found, from) => {
                    self.replace_route(destination, &found[old], to, maker)
                }
                _ if found.is_empty() => surprise(format!("there is no route to {destination}")),
                _ => surprise(format!("there is {}", all_in_words(&found))),
            },
        }
    }

    fn remove_route(&mut self, destination: IpNet, from: Option<&NextHop>, found: &[Found]) -> Outcome {
        let Some(from) = from else {
            return match found {
                [] => Err(NotDone::Already),
                found => surprise(format!("there is {}", all_in_words(found))),
            };
        };
        let Some(position) = found.iter().position(|found| found.fits(from)) else {
            // One through the same device is the same one, changed. Others are somebody else's.
            let is_changed = |found: &&Found| from.device.is_some() && found.device == from.device;
            return match found.iter().find(is_changed) {
                Some(changed) => surprise(format!("there is {}", changed.in_words())),
                None => Err(NotDone::Already),
            };
        };
        if !only(found, from) {
            return surprise(format!("there is {}", all_in_words(found)));
        }
        let old = &found[position];
        self.do_it(old.request(RTM_DELROUTE, 0))?;
        let is_gone = !self.routes_to(destination)?.iter().any(|now| now.route == old.route);
        is_held(is_gone, || format!("there is still {}", old.in_words()))?;
        // Behind another of its metric it led nowhere, and put back it would come first.
        let is_behind = found[..position].iter().any(|other| other.route.metric == old.route.metric);
        let way = NextHop { is_beside_others: found.len() > 1, ..old.way() };
        Ok((!is_behind).then_some(KernelChange::Route { destination, from: None, to: Some(way) }))
    }

    /// The new one first, so that there is one at any moment.
    fn replace_route(&mut self, destination: IpNet, old: &Found, to: &NextHop, maker: Maker) -> Outcome {
        if old.fits(to) {
            return Err(NotDone::Already);
        }
        self.put_route(destination, to, maker)?;
        self.do_it(old.request(RTM_DELROUTE, 0))?;
        let now = self.way_to(destination, to)?;
        Ok(Some(KernelChange::Route { destination, from: Some(now), to: Some(old.way()) }))
    }

    fn put_route(&mut self, destination: IpNet, to: &NextHop, maker: Maker) -> Result<(), NotDone> {
        let index = match &to.device {
            Some(device) => Some(self.link(&known(device)?)?.index),
            None => None,
        };
        let protocol = match &to.protocol {
            Some(name) => protocol_number(name),
            None => Some(maker.protocol(to.device.as_deref(), self.is_inside())),
        };
        let scope = match &to.scope {
            Some(name) => scope_number(name),
            None => Some(usual_scope(destination, to)),
        };
        let (Some(protocol), Some(scope)) = (protocol, scope) else {
            return surprise(format!("nobody knows what a route {} means", words(destination, to)));
        };
        let is_hole = to.is_blackhole;
        let route = Route {
            kind: if is_hole { RouteKind::Blackhole } else { RouteKind::Unicast },
            gateway: to.via,
            // A black hole is on no device, whatever the kernel says.
            device: index.filter(|_| !is_hole),
            protocol,
            scope: if destination.addr().is_ipv4() { scope } else { RT_SCOPE_UNIVERSE },
            source: to.source,
            metric: to.metric.unwrap_or(0),
            is_onlink: to.is_onlink,
            ..Route::to(destination)
        };
        // Without more flags, one of IPv4 goes in front of others of its metric.
        Ok(self.do_it(request(&route, RTM_NEWROUTE, NLM_F_CREATE))?)
    }

    /// A route that must be there now, as the kernel has it.
    fn way_to(&mut self, destination: IpNet, to: &NextHop) -> Result<NextHop, NotDone> {
        let found = self.routes_to(destination)?;
        match found.iter().find(|found| found.fits(to)) {
            Some(found) => Ok(found.way()),
            None => Err(NotDone::NotHeld(format!("the kernel has no route {}", words(destination, to)))),
        }
    }

    /// In the kernel's order.
    fn routes_to(&mut self, destination: IpNet) -> Result<Vec<Found>, HostError> {
        let what = format!("list the routes to {destination}");
        let message = list_routes(family(destination.addr()));
        let found = self.netlink().dump(&what, &message, |kind, body| {
            read::route(kind, body).filter(|route| route.destination == destination)
        })?;
        let found = found.into_iter().map(|route| Ok(Found { device: self.name_of(route.device)?, route }));
        found.collect()
    }

    fn name_of(&mut self, index: Option<u32>) -> Result<Option<String>, HostError> {
        let Some(index) = index else { return Ok(None) };
        Ok(find_link_by_index(self.netlink(), index)?.map(|link| link.name))
    }
}

impl Found {
    /// All that makes it up is known.
    fn is_plain(&self) -> bool {
        matches!(self.route.kind, RouteKind::Unicast | RouteKind::Blackhole) && !self.route.has_more
    }

    /// Whether it is the one described. What the description does not say may be anything, but for the gateway.
    fn fits(&self, way: &NextHop) -> bool {
        let route = &self.route;
        let is = |said: bool, is_so: bool| !said || is_so;
        let protocol = way.protocol.as_deref().map(protocol_number);
        let scope = way.scope.as_deref().map(scope_number);
        self.is_plain()
            && way.is_blackhole == (route.kind == RouteKind::Blackhole)
            && way.via == route.gateway
            && is(way.device.is_some(), way.device == self.device)
            && is(protocol.is_some(), protocol == Some(Some(route.protocol)))
            // The kernel knows no scopes for IPv6.
            && is(scope.is_some() && route.destination.addr().is_ipv4(), scope == Some(Some(route.scope)))
            && is(way.source.is_some(), way.source == route.source)
            && is(way.metric.is_some(), way.metric == Some(route.metric))
            && is(way.is_onlink, route.is_onlink)
    }

    /// All of it, so that it can be put back.
    fn way(&self) -> NextHop {
        let route = &self.route;
        NextHop {
            device: self.device.clone(),
            via: route.gateway,
            protocol: Some(protocol_name(route.protocol)),
            scope: scope_name(route.scope).map(str::to_owned).or_else(|| Some(route.scope.to_string())),
            source: route.source,
            metric: Some(route.metric),
            is_onlink: route.is_onlink,
            is_blackhole: route.kind == RouteKind::Blackhole,
            is_beside_others: false,
        }
    }

    fn in_words(&self) -> String {
        let words = words(self.route.destination, &self.way());
        if self.is_plain() { words } else { format!("{words}, and more than that") }
    }

    fn request(&self, kind: u16, flags: u16) -> Request {
        request(&self.route, kind, flags)
    }
}

/// Whether just one of these is described.
fn only(found: &[Found], way: &NextHop) -> bool {
    found.iter().filter(|found| found.fits(way)).count() == 1
}

fn all_in_words(found: &[Found]) -> String {
    found.iter().map(Found::in_words).collect::<Vec<_>>().join(", and ")
}

fn words(destination: IpNet, way: &NextHop) -> String {
    let hole = if way.is_blackhole { "blackhole " } else { "" };
    let via = way.via.map(|via| format!(" via {via}")).unwrap_or_default();
    let device = way.device.as_deref().map(|device| format!(" dev {device}")).unwrap_or_default();
    let protocol = way.protocol.as_deref().map(|name| format!(" proto {name}")).unwrap_or_default();
    let metric = way.metric.filter(|metric| *metric != 0);
    let metric = metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
    format!("{hole}{destination}{via}{device}{protocol}{metric}")
}

fn usual_scope(destination: IpNet, way: &NextHop) -> u8 {
    let is_direct = destination.addr().is_ipv4() && way.via.is_none() && !way.is_blackhole;
    if is_direct { RT_SCOPE_LINK } else { RT_SCOPE_UNIVERSE }
}

fn request(route: &Route, message: u16, flags: u16) -> Request {
    let verb = if message == RTM_DELROUTE { "delete" } else { "add" };
    let what = format!("{verb} the route to {}", route.destination);
    Request::new(what, route_message(message, route), flags)
}
