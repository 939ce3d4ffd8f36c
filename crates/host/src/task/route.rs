//! Changes of one route of the main table.
//!
//! There may be several routes to a destination. The one that the plan means must be the only one that fits its description. What
//! cannot be put back as it was (several next hops, encapsulation, metrics of its own) fits none.

use std::net::IpAddr;

use ipnet::IpNet;
use plan::Maker;
use plan::task::{KernelChange, NextHop};

use super::place::{Place, is_held};
use super::{NotDone, Outcome, known, surprise};
use crate::HostError;
use crate::links::is_no_device;
use crate::messages::{RouteHeader, family, get_link_by_index, list_routes, octets};
use crate::netlink::Request;
use crate::netlink::message::Attributes;
use crate::netlink::numbers::*;
use crate::objects::{ROUTE_HEADER, read_link};
use crate::survey::{SurveyedRoute, protocol_name, protocol_number, read, scope_name, scope_number};

/// A route that is there.
struct Found {
    route: SurveyedRoute,
    device: Option<String>,
    /// All that makes it up is known.
    is_plain: bool,
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
        let is_behind = found[..position].iter().any(|other| other.metric() == old.metric());
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
        let route = SurveyedRoute {
            destination,
            kind: if to.is_blackhole { RTN_BLACKHOLE } else { RTN_UNICAST },
            gateway: to.via,
            index,
            protocol,
            scope: if destination.addr().is_ipv4() { scope } else { RT_SCOPE_UNIVERSE },
            source: to.source,
            metric: to.metric,
            is_onlink: to.is_onlink,
            is_dead: false,
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
            let route = read::route(kind, body).filter(|route| route.destination == destination)?;
            Some((route, is_plain(body)))
        })?;
        let found = found.into_iter().map(|(route, is_plain)| {
            let is_hole = route.kind != RTN_UNICAST;
            // Of a black hole the kernel says lo, which means nothing.
            let index = route.index.filter(|_| !is_hole);
            Ok(Found { device: self.name_of(index)?, route, is_plain })
        });
        found.collect()
    }

    fn name_of(&mut self, index: Option<u32>) -> Result<Option<String>, HostError> {
        let Some(index) = index else { return Ok(None) };
        match self.netlink().get(get_link_by_index(index)) {
            Err(error) if is_no_device(&error) => Ok(None),
            found => found.map(|found| read_link(found.kind, &found.body).map(|link| link.name)),
        }
    }
}

impl Found {
    /// Whether it is the one described. What the description does not say may be anything, but for the gateway.
    fn fits(&self, way: &NextHop) -> bool {
        let route = &self.route;
        let is = |said: bool, is_so: bool| !said || is_so;
        let protocol = way.protocol.as_deref().map(protocol_number);
        let scope = way.scope.as_deref().map(scope_number);
        self.is_plain
            && way.is_blackhole == (route.kind == RTN_BLACKHOLE)
            && way.via == route.gateway
            && is(way.device.is_some(), way.device == self.device)
            && is(protocol.is_some(), protocol == Some(Some(route.protocol)))
            // The kernel knows no scopes for IPv6.
            && is(scope.is_some() && route.destination.addr().is_ipv4(), scope == Some(Some(route.scope)))
            && is(way.source.is_some(), way.source == route.source)
            && is(way.metric.is_some(), way.metric == Some(self.metric()))
            && is(way.is_onlink, route.is_onlink)
    }

    fn metric(&self) -> u32 {
        self.route.metric.unwrap_or(0)
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
            metric: Some(self.metric()),
            is_onlink: route.is_onlink,
            is_blackhole: route.kind == RTN_BLACKHOLE,
            is_beside_others: false,
        }
    }

    fn in_words(&self) -> String {
        let words = words(self.route.destination, &self.way());
        if self.is_plain { words } else { format!("{words}, and more than that") }
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

/// Whether nothing but what a [`SurveyedRoute`] holds makes up a route.
fn is_plain(body: &[u8]) -> bool {
    const MORE: [u16; 5] = [RTA_METRICS, RTA_MULTIPATH, RTA_VIA, RTA_ENCAP, RTA_NH_ID];
    let kind = body.get(7).copied().unwrap_or_default();
    let has_more = Attributes::after(body, ROUTE_HEADER).any(|(kind, _)| MORE.contains(&kind));
    matches!(kind, RTN_UNICAST | RTN_BLACKHOLE) && !has_more
}

fn request(route: &SurveyedRoute, message: u16, flags: u16) -> Request {
    let SurveyedRoute { destination, kind, protocol, scope, .. } = *route;
    let (address, prefix) = (destination.addr(), destination.prefix_len());
    let header = RouteHeader {
        family: family(address),
        prefix,
        kind,
        protocol,
        scope,
        flags: if route.is_onlink { RTNH_F_ONLINK } else { 0 },
    };
    let verb = if message == RTM_DELROUTE { "delete" } else { "add" };
    let mut message = header.message(message);
    if prefix > 0 {
        message = message.with(RTA_DST, &octets(address));
    }
    let with = |message: crate::netlink::Message, kind: u16, address: Option<IpAddr>| match address {
        Some(address) => message.with(kind, &octets(address)),
        None => message,
    };
    message = with(message, RTA_GATEWAY, route.gateway);
    message = with(message, RTA_PREFSRC, route.source);
    if let Some(metric) = route.metric.filter(|metric| *metric != 0) {
        message = message.with_u32(RTA_PRIORITY, metric);
    }
    // A black hole is on no device, whatever the kernel says.
    if let Some(index) = route.index.filter(|_| kind == RTN_UNICAST) {
        message = message.with_u32(RTA_OIF, index);
    }
    Request::new(format!("{verb} the route to {destination}"), message, flags)
}
