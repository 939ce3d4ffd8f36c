//! BIRD's routing table, as `show route` prints it.
//!
//! ```text
//! Table master4:
//! 10.244.1.0/26        unicast [Mesh_10_0_0_2 10:00:00.123] * (100) [i]
//!         via 10.0.0.2 on eth0
//!                      unicast [Global_10_0_0_9 10:00:00.123 from 10.0.0.3] (100) [AS65000i]
//!         via 10.0.0.9 on eth0
//! ```

use std::net::IpAddr;

use ipnet::IpNet;

/// One route to a network. BIRD may have several, and uses one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RibRoute {
    pub(super) destination: IpNet,
    /// The protocol in BIRD's configuration that it comes from.
    pub(super) protocol: String,
    pub(super) gateway: Option<IpAddr>,
    pub(super) device: Option<String>,
    /// The one that BIRD uses.
    pub(super) is_best: bool,
}

/// Lines that cannot be parsed are skipped.
pub(super) fn parse(text: &str) -> Vec<RibRoute> {
    let mut routes: Vec<RibRoute> = Vec::new();
    let mut destination = None;
    // Whether next hop lines belong to the last route.
    let mut is_open = false;
    for line in text.lines() {
        if line.starts_with('\t') {
            if let Some(route) = routes.last_mut().filter(|_| is_open) {
                add_next_hop(route, line);
            }
            continue;
        }
        is_open = false;
        if !line.starts_with(' ') {
            // Any other line ends the destination of the lines before it.
            destination = line.split_whitespace().next().and_then(|word| word.parse().ok());
        }
        if let Some(route) = destination.and_then(|destination| read(destination, line)) {
            routes.push(route);
            is_open = true;
        }
    }
    routes
}

fn read(destination: IpNet, line: &str) -> Option<RibRoute> {
    let (_, rest) = line.split_once('[')?;
    let (source, rest) = rest.split_once(']')?;
    Some(RibRoute {
        destination,
        protocol: source.split_whitespace().next()?.to_owned(),
        gateway: None,
        device: None,
        is_best: rest.trim_start().starts_with('*'),
    })
}

/// `via 10.0.0.2 on eth0`, `dev eth0`. Of several the first counts.
fn add_next_hop(route: &mut RibRoute, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let after =
        |word: &str| words.iter().position(|found| *found == word).and_then(|place| words.get(place + 1));
    if route.gateway.is_none() && route.device.is_none() {
        route.gateway = after("via").and_then(|text| text.parse().ok());
        route.device = after("on").or_else(|| after("dev")).map(|name| (*name).to_owned());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn next_hops_belong_to_their_routes() {
        let text = "Table master4:\n\
            10.244.1.0/26        unicast [Mesh_10_0_0_2 10:00:00.123] * (100) [i]\n\
            \tvia 10.0.0.2 on eth0\n                     \
            unicast [Global_10_0_0_9 10:00:00.123 from 10.0.0.3] (100) [AS65000i]\n\
            \tvia 10.0.0.9 on eth1 weight 1\n\
            \tvia 10.0.0.8 on eth2 weight 1\n\
            10.96.0.0/12         blackhole [services_v4 10:00:00.123] * (200)\n\
            10.0.0.0/24          unicast [direct1 10:00:00.123] * (240)\n\
            \tdev eth0\n\
            \n\
            Table master6:\n\
            fd00:1::/122         unreachable [own_v6 10:00:00.123] (200)\n";
        let route = |destination: &str, protocol: &str, gateway: &str, device: &str, is_best| RibRoute {
            destination: destination.parse().unwrap(),
            protocol: protocol.to_owned(),
            gateway: gateway.parse().ok(),
            device: Some(device.to_owned()).filter(|name| !name.is_empty()),
            is_best,
        };
        let expected = [
            route("10.244.1.0/26", "Mesh_10_0_0_2", "10.0.0.2", "eth0", true),
            route("10.244.1.0/26", "Global_10_0_0_9", "10.0.0.9", "eth1", false),
            route("10.96.0.0/12", "services_v4", "", "", true),
            route("10.0.0.0/24", "direct1", "", "eth0", true),
            route("fd00:1::/122", "own_v6", "", "", false),
        ];
        assert_eq!(parse(text), expected);
    }

    #[test]
    fn next_hops_without_a_route_are_skipped() {
        assert_eq!(parse("\tvia 10.0.0.2 on eth0\n   unicast [x] *\nwhat [x]\n\tvia 10.0.0.2 on eth0\n"), []);
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(
            text in "(([ \t]|Table|10\\.0\\.0\\.0/8|unicast|\\[|\\]|via|on|dev|\\*|[a-z0-9.]{0,4})[ \n\t]?){0,40}",
        ) {
            parse(&text);
        }

        #[test]
        fn anything_can_be_read(text: String) {
            parse(&text);
        }
    }
}
