//! A survey of a namespace, in the words of evidence.

use model::NodeName;

use evidence::kernel::{
    Address, Forward, Kernel, Link, Neighbour, NeighbourState, PartialKernel, Route, Vxlan,
};
use evidence::{Origin, Sighted};
use host::survey::{Survey, SurveyedForward, SurveyedNeighbour};
use plan::scope_name;

/// `inside` says whose namespace it is, if not the node's own: ` of pod shop/cart-0`.
pub(super) fn of_survey(survey: &Survey, node: &NodeName, inside: &str) -> Kernel {
    let origin = |what: &str| Origin::probe(node, format!("{what}{inside}"));
    let device = |index: u32| survey.device(index).map_or_else(|| format!("if{index}"), str::to_owned);
    let (links, addresses, routes, neighbours) =
        (origin("links"), origin("addresses"), origin("routes"), origin("neighbours"));
    let sighted_sysctl = |(path, value): (&String, &String)| {
        (path.clone(), Sighted::new(value.clone(), origin(&format!("sysctl {path}"))))
    };
    Kernel {
        links: Some(
            survey.links.iter().map(|link| Sighted::new(of_link(link, &device), links.clone())).collect(),
        ),
        addresses: Some(
            survey
                .addresses
                .iter()
                .map(|held| {
                    let address = Address {
                        device: device(held.index),
                        net: held.net,
                        scope: scope_name(held.scope).unwrap_or("global").to_owned(),
                        is_secondary: held.is_secondary,
                        is_duplicate: held.is_duplicate,
                    };
                    Sighted::new(address, addresses.clone())
                })
                .collect(),
        ),
        routes: Some(
            survey
                .routes
                .iter()
                .map(|route| Sighted::new(Route::of(route, device), routes.clone()))
                .collect(),
        ),
        neighbours: Some(
            survey
                .neighbours
                .iter()
                // What needs no asking (multicast, loopback) is no neighbour; `ip neigh` does not show it either.
                .filter(|neighbour| neighbour.state & NO_ARP == 0)
                .map(|neighbour| Sighted::new(of_neighbour(neighbour, &device), neighbours.clone()))
                .collect(),
        ),
        forwards: None,
        sysctls: Some(survey.sysctls.iter().map(sighted_sysctl).collect()),
        // Only texts have them: a survey asks for the main table.
        rules: None,
        other_routes: None,
        partial: PartialKernel {
            links: survey.cut.links,
            addresses: survey.cut.addresses,
            routes: survey.cut.routes,
            neighbours: survey.cut.neighbours,
        },
    }
}

/// What the node's tunnels know of their ends.
pub(super) fn of_forwards(
    forwards: &[SurveyedForward],
    survey: &Survey,
    node: &NodeName,
) -> Vec<Sighted<Forward>> {
    let origin = Origin::probe(node, "ends of tunnels");
    let sighted = |found: &SurveyedForward| {
        let device = survey.device(found.index)?.to_owned();
        Some(Sighted::new(Forward { device, mac: found.mac, node: found.node }, origin.clone()))
    };
    forwards.iter().filter_map(sighted).collect()
}

fn of_link(link: &plan::Link, device: &impl Fn(u32) -> String) -> Link {
    Link {
        name: link.name.clone(),
        index: Some(link.index),
        kind: link.kind.clone(),
        peer_index: link.peer_index,
        has_peer_elsewhere: Some(link.peer_is_elsewhere),
        alias: link.alias.clone(),
        mac: link.mac,
        mtu: Some(link.mtu),
        is_up: Some(link.up),
        is_running: Some(link.running),
        master: link.master.map(device),
        vxlan: link.vxlan.as_ref().map(|vxlan| Vxlan {
            vni: vxlan.vni,
            port: vxlan.port,
            local: vxlan.local,
            parent: vxlan.parent.map(device),
        }),
    }
}

/// The kernel's bit for addresses that it never asks for.
const NO_ARP: u16 = 0x40;

fn of_neighbour(neighbour: &SurveyedNeighbour, device: &impl Fn(u32) -> String) -> Neighbour {
    let has = |bits: u16| neighbour.state & bits != 0;
    let state = match () {
        () if has(0x80) => NeighbourState::Permanent,
        () if has(0x02) => NeighbourState::Reachable,
        () if has(0x04 | 0x08 | 0x10) => NeighbourState::Stale,
        () if has(0x01 | 0x20) => NeighbourState::Missing,
        () => NeighbourState::Known,
    };
    Neighbour {
        address: neighbour.address,
        device: device(neighbour.index),
        mac: neighbour.mac,
        state,
        is_proxy: neighbour.is_proxy,
    }
}

#[cfg(test)]
mod tests {
    use host::survey::SurveyedAddress;
    use plan::{Link, Route, RouteKind};

    use super::*;

    #[test]
    fn only_those_who_can_be_asked_are_neighbours() {
        let neighbour = |address: &str, state: u16| SurveyedNeighbour {
            address: address.parse().unwrap(),
            index: 2,
            mac: None,
            state,
            is_proxy: false,
        };
        let neighbours =
            vec![neighbour("10.0.0.1", 0x80), neighbour("ff02::16", 0x40), neighbour("10.0.0.2", 0x20)];
        let kernel = of_survey(&Survey { neighbours, ..Survey::default() }, &"node-a".into(), "");
        let states: Vec<NeighbourState> =
            kernel.neighbours.iter().flatten().map(|found| found.seen.state).collect();
        assert_eq!(states, [NeighbourState::Permanent, NeighbourState::Missing]);
    }

    #[test]
    fn nothing_of_a_link_or_a_neighbour_is_lost() {
        let eth0 = Link { index: 2, name: "eth0".to_owned(), ..Link::default() };
        let vxlan = Link {
            index: 5,
            name: "vxlan.calico".to_owned(),
            kind: Some("vxlan".to_owned()),
            peer_index: Some(7),
            peer_is_elsewhere: true,
            alias: Some("plumb/a".to_owned()),
            mac: Some("ee:ee:ee:ee:ee:ee".parse().unwrap()),
            mtu: 1450,
            up: true,
            running: false,
            master: Some(2),
            vxlan: Some(plan::Vxlan {
                vni: Some(4096),
                port: Some(4789),
                local: Some([192, 0, 2, 1].into()),
                parent: Some(2),
                learns: false,
            }),
            ..Link::default()
        };
        let neighbour = |state: u16| SurveyedNeighbour {
            address: [192, 0, 2, 9].into(),
            index: 9,
            mac: vxlan.mac,
            state,
            is_proxy: true,
        };
        let neighbours = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x80, 0].map(neighbour).to_vec();
        let survey = Survey { links: vec![eth0, vxlan], neighbours, ..Survey::default() };
        let kernel = of_survey(&survey, &"node-a".into(), " of pod shop/a");
        let link = &kernel.links.as_ref().unwrap()[1];
        assert_eq!(
            serde_json::to_value(&link.seen).unwrap(),
            serde_json::json!({"name": "vxlan.calico", "index": 5, "kind": "vxlan", "peer_index": 7, "has_peer_elsewhere": true,
                "alias": "plumb/a", "mac": "ee:ee:ee:ee:ee:ee", "mtu": 1450, "is_up": true, "is_running": false, "master": "eth0",
                "vxlan": {"vni": 4096, "port": 4789, "local": "192.0.2.1", "parent": "eth0"}})
        );
        assert_eq!(link.exhibit("").file, "node-a: links of pod shop/a");
        use NeighbourState::{Known, Missing, Permanent, Reachable, Stale};
        let found: Vec<&Neighbour> = kernel.neighbours.iter().flatten().map(|found| &found.seen).collect();
        let states: Vec<NeighbourState> = found.iter().map(|found| found.state).collect();
        assert_eq!(states, [Missing, Reachable, Stale, Stale, Stale, Missing, Permanent, Known]);
        assert_eq!(
            (found[0].device.as_str(), found[0].is_proxy),
            ("if9", true),
            "a device that is gone has a number"
        );
    }

    #[test]
    fn a_survey_speaks_the_words_of_ip() {
        let link = Link { index: 2, name: "eth0".to_owned(), up: true, ..Link::default() };
        let address = SurveyedAddress {
            index: 2,
            net: "192.0.2.1/24".parse().unwrap(),
            scope: 253,
            is_secondary: false,
            is_duplicate: false,
        };
        let route =
            Route { kind: RouteKind::Blackhole, protocol: 12, ..Route::to("10.0.0.0/26".parse().unwrap()) };
        let via = Route {
            kind: RouteKind::Unicast,
            gateway: Some([192, 0, 2, 9].into()),
            device: Some(2),
            protocol: 80,
            ..route
        };
        let survey = Survey {
            links: vec![link],
            addresses: vec![address],
            routes: vec![route, via, Route { protocol: 3, ..via }],
            ..Survey::default()
        };
        let kernel = of_survey(&survey, &"node-a".into(), "");
        let routes: Vec<String> =
            kernel.routes.iter().flatten().map(|route| route.seen.to_string()).collect();
        let leads = "10.0.0.0/26 via 192.0.2.9 dev eth0";
        assert_eq!(routes, ["blackhole 10.0.0.0/26", leads, leads]);
        let protocols: Vec<Option<String>> =
            kernel.routes.unwrap().into_iter().map(|route| route.seen.protocol).collect();
        assert_eq!(protocols, [Some("bird".to_owned()), Some("80".to_owned()), None], "boot is not said");
        let addresses = kernel.addresses.unwrap();
        assert_eq!((addresses[0].seen.device.as_str(), addresses[0].seen.scope.as_str()), ("eth0", "link"));
        assert_eq!(addresses[0].exhibit("").file, "node-a: addresses");
    }
}
