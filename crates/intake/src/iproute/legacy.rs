//! `route`, `route -n` and `netstat -rn`: `192.168.9.0 10.0.0.6 255.255.255.192 UG 0 0 0 tunl0`.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use evidence::kernel::{Route, RouteKind};

/// The columns of a table of routes.
#[derive(Debug)]
pub(super) struct Columns {
    /// `netstat` has none.
    has_metric: bool,
}

pub(super) enum Entry {
    Route(Route),
    /// A name in place of the destination.
    Named,
}

pub(super) fn is_title(text: &str) -> bool {
    text.trim() == "Kernel IP routing table"
}

pub(super) fn header(text: &str) -> Option<Columns> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_header = words.starts_with(&["Destination", "Gateway", "Genmask", "Flags"]);
    is_header.then(|| Columns { has_metric: words.contains(&"Metric") })
}

pub(super) fn read(text: &str, columns: &Columns) -> Option<Entry> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [destination, gateway, mask, flags, metric, _, _, device] = words.as_slice() else { return None };
    let mask: Ipv4Addr = mask.parse().ok()?;
    let length = ipnet::ipv4_mask_to_prefix(mask).ok()?;
    let destination = if *destination == "default" { "0.0.0.0" } else { *destination };
    let Ok(network) = destination.parse::<Ipv4Addr>() else { return Some(Entry::Named) };
    let destination = Ipv4Net::new(network, length).ok()?.into();
    let kind = match (*device, flags.contains('!')) {
        (_, true) => RouteKind::Unreachable,
        // The table has no word for it, and no device either.
        ("*", false) => RouteKind::Blackhole,
        _ => RouteKind::Unicast,
    };
    let via =
        gateway.parse::<Ipv4Addr>().ok().filter(|address| flags.contains('G') && !address.is_unspecified());
    Some(Entry::Route(Route {
        kind,
        via: via.map(Into::into),
        device: (!matches!(*device, "*" | "-")).then(|| (*device).to_owned()),
        metric: metric.parse().ok().filter(|metric| columns.has_metric && *metric > 0),
        ..Route::to(destination)
    }))
}
