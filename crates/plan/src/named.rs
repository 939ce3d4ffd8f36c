//! Routes in the words that `ip route` prints and takes: what people paste and what evidence carries.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::objects::Route;

/// A route as it is printed, in the main table or another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedRoute {
    pub destination: IpNet,
    #[serde(default)]
    pub kind: RouteKind,
    #[serde(default)]
    pub via: Option<IpAddr>,
    #[serde(default)]
    pub device: Option<String>,
    /// As `ip route` prints it: `kernel`, `bird`, `static`, `80`. `None`: `boot`, or not said.
    #[serde(default)]
    pub protocol: Option<String>,
    #[serde(default)]
    pub scope: Option<String>,
    #[serde(default)]
    pub source: Option<IpAddr>,
    #[serde(default)]
    pub metric: Option<u32>,
    /// `None`: the main table.
    #[serde(default)]
    pub table: Option<String>,
    #[serde(default)]
    pub is_onlink: bool,
    /// The kernel says that its device or gateway does not work.
    #[serde(default)]
    pub is_dead: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteKind {
    #[default]
    Unicast,
    Blackhole,
    Unreachable,
    Prohibit,
    Local,
    Broadcast,
    Other,
}

/// The kernel's numbers. Those that have no name here are of kinds that we neither make nor judge.
const KINDS: [(u8, RouteKind); 6] = [
    (1, RouteKind::Unicast),
    (2, RouteKind::Local),
    (3, RouteKind::Broadcast),
    (6, RouteKind::Blackhole),
    (7, RouteKind::Unreachable),
    (8, RouteKind::Prohibit),
];
/// Those that everybody's `ip` knows. Any other number stands for itself.
const PROTOCOLS: [(u8, &str); 7] =
    [(1, "redirect"), (2, "kernel"), (3, "boot"), (4, "static"), (9, "ra"), (12, "bird"), (16, "dhcp")];
const SCOPES: [(u8, &str); 4] =
    [(Route::UNIVERSE, "global"), (200, "site"), (Route::LINK, "link"), (254, "host")];

impl RouteKind {
    pub fn of(number: u8) -> RouteKind {
        KINDS.iter().find(|(known, _)| *known == number).map_or(RouteKind::Other, |(_, kind)| *kind)
    }

    /// 0, which stands for any, if it has none.
    pub fn number(self) -> u8 {
        KINDS.iter().find(|(_, known)| *known == self).map_or(0, |(number, _)| *number)
    }

    /// Packets are thrown away or refused.
    pub fn leads_nowhere(self) -> bool {
        matches!(self, RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit)
    }
}

/// Who made a route.
pub fn protocol_name(number: u8) -> String {
    let known = PROTOCOLS.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

/// What [`protocol_name`] wrote, or the number itself.
pub fn protocol_number(name: &str) -> Option<u8> {
    let known = PROTOCOLS.iter().find(|(_, known)| *known == name);
    known.map(|(number, _)| *number).or_else(|| name.parse().ok())
}

/// `None` for those without a name.
pub fn scope_name(number: u8) -> Option<&'static str> {
    SCOPES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// What [`scope_name`] wrote, or the number itself.
pub fn scope_number(name: &str) -> Option<u8> {
    let known = SCOPES.iter().find(|(_, known)| *known == name);
    known.map(|(number, _)| *number).or_else(|| name.parse().ok())
}

impl NamedRoute {
    /// To a destination, with nothing else said.
    pub fn to(destination: IpNet) -> NamedRoute {
        NamedRoute {
            destination,
            kind: RouteKind::Unicast,
            via: None,
            device: None,
            protocol: None,
            scope: None,
            source: None,
            metric: None,
            table: None,
            is_onlink: false,
            is_dead: false,
        }
    }

    /// A route of the kernel, with the name of its device.
    pub fn of(route: &Route, device: impl Fn(u32) -> String) -> NamedRoute {
        NamedRoute {
            kind: route.kind,
            via: route.gateway,
            device: route.device.map(device),
            // `ip route` does not print `boot` either.
            protocol: (!matches!(route.protocol, 0 | 3)).then(|| protocol_name(route.protocol)),
            scope: scope_name(route.scope).map(str::to_owned),
            source: route.source,
            metric: Some(route.metric).filter(|metric| *metric != 0),
            is_onlink: route.is_onlink,
            is_dead: route.is_dead,
            ..NamedRoute::to(route.destination)
        }
    }

    pub fn is_in_main_table(&self) -> bool {
        matches!(self.table.as_deref(), None | Some("main" | "254"))
    }
}

impl fmt::Display for NamedRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind != RouteKind::Unicast {
            write!(f, "{} ", format!("{:?}", self.kind).to_lowercase())?;
        }
        write!(f, "{}", self.destination)?;
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        match &self.device {
            Some(device) => write!(f, " dev {device}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_survive_their_names(number: u8, text in "\\PC{0,8}") {
            prop_assert_eq!(protocol_number(&protocol_name(number)), Some(number));
            if let Some(name) = scope_name(number) {
                prop_assert_eq!(scope_number(name), Some(number));
            }
            let kind = RouteKind::of(number);
            prop_assert!(kind == RouteKind::Other || kind.number() == number);
            let _ = (protocol_number(&text), scope_number(&text));
        }
    }
}
