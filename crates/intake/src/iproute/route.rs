//! `ip route`: `192.168.9.0/26 via 10.0.0.6 dev tunl0 proto bird onlink`.

use crate::words;
use evidence::kernel::{Route, RouteKind};

pub(super) fn read(text: &str) -> Option<Route> {
    let route = parse(text)?;
    let says_where = route.device.is_some() || route.via.is_some() || route.kind != RouteKind::Unicast;
    says_where.then_some(route)
}

/// `10.50.0.0/16 proto static metric 10`: the ways of a route that has several stand below it.
pub(super) fn head(text: &str) -> Option<Route> {
    let mut words = text.split_whitespace();
    let is_network = |word: &str| word == "default" || word.contains('/');
    let is_said = |word: &str| matches!(word, "proto" | "metric" | "src" | "scope" | "table");
    let is_head =
        !text.starts_with([' ', '\t']) && is_network(words.next()?) && words.next().is_none_or(is_said);
    parse(text).filter(|route| is_head && route.device.is_none() && route.via.is_none())
}

/// `nexthop via 10.0.0.2 dev eth0 weight 1`: one of those ways.
pub(super) fn next_hop(text: &str, head: &Route) -> Option<Route> {
    let way = text.trim_start().strip_prefix("nexthop ")?;
    let Route { via, device, is_onlink, is_dead, .. } = read(&format!("{} {way}", head.destination))?;
    // Without addresses in it, IPv6's default looks like IPv4's.
    let is_v6 = via.map_or(head.destination.addr().is_ipv6(), |via| via.is_ipv6());
    let is_default = head.destination.prefix_len() == 0;
    let destination = if is_default { words::destination("default", is_v6)? } else { head.destination };
    Some(Route { destination, via, device, is_onlink, is_dead, ..head.clone() })
}

fn parse(text: &str) -> Option<Route> {
    let mut rest = text.split_whitespace();
    let mut first = rest.next()?;
    let kind = kind(first);
    if kind != RouteKind::Unicast || first == "unicast" {
        first = rest.next()?;
    }
    let words: Vec<&str> = rest.collect();
    let is_v6 = words.iter().any(|word| word.contains("::"));
    let destination = words::destination(first, is_v6)?;
    let mut route = Route { kind, ..Route::to(destination) };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word {
            "via" => {
                let next = words.next()?;
                let next = if matches!(next, "inet" | "inet6") { words.next()? } else { next };
                route.via = Some(next.parse().ok()?);
            }
            "dev" => route.device = words.next().map(str::to_owned),
            "proto" => route.protocol = words.next().map(str::to_owned),
            "scope" => route.scope = words.next().map(str::to_owned),
            "src" => route.source = words.next().and_then(|word| word.parse().ok()),
            "metric" => route.metric = words.next().and_then(|word| word.parse().ok()),
            "table" => route.table = words.next().map(str::to_owned),
            "onlink" => route.is_onlink = true,
            "linkdown" | "dead" => route.is_dead = true,
            _ => {}
        }
    }
    Some(route)
}

pub(super) fn kind(word: &str) -> RouteKind {
    match word {
        "blackhole" => RouteKind::Blackhole,
        "unreachable" => RouteKind::Unreachable,
        "prohibit" => RouteKind::Prohibit,
        "local" => RouteKind::Local,
        "broadcast" => RouteKind::Broadcast,
        "multicast" | "anycast" | "throw" => RouteKind::Other,
        _ => RouteKind::Unicast,
    }
}
