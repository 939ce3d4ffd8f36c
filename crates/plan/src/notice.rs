//! What the kernel announces, and which pod it concerns.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::Sandbox;

use crate::node::NodeDesired;
use crate::objects::Route;
use crate::wiring::PodWiring;

/// Something on the node changed. It says what was touched, not how things are now: that is for looking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    Link {
        index: u32,
        name: String,
        alias: Option<String>,
        gone: bool,
    },
    Address {
        index: u32,
        address: IpNet,
    },
    Route {
        route: Route,
    },
    Neighbour {
        index: u32,
        address: IpAddr,
    },
    /// Some settings of the device. The kernel announces forwarding, proxy ARP and NDP, and `rp_filter`; the others
    /// change in silence.
    Setting {
        index: u32,
    },
    /// Settings of the node as a whole.
    NodeSetting,
    /// Announcements were lost.
    Overrun,
}

/// Whom a notice concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Affected {
    Nobody,
    Pod(Sandbox),
    /// There is no telling: look at everything.
    Node,
}

/// The pods whose wiring is to be kept, by what notices speak of.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    by_device: BTreeMap<String, Sandbox>,
    by_address: BTreeMap<IpAddr, Sandbox>,
    by_alias: BTreeMap<String, Sandbox>,
    /// Learned from what the kernel says of links.
    by_index: BTreeMap<u32, Sandbox>,
}

impl Watched {
    pub fn new(desired: &NodeDesired) -> Watched {
        let mut watched = Watched::default();
        desired.wirings().for_each(|wiring| watched.insert(wiring));
        watched
    }

    pub fn insert(&mut self, wiring: &PodWiring) {
        let sandbox = &wiring.sandbox;
        self.by_device.insert(wiring.host.device.to_string(), sandbox.clone());
        self.by_alias.insert(sandbox.alias(), sandbox.clone());
        for route in &wiring.host.routes {
            self.by_address.insert(route.destination.addr(), sandbox.clone());
        }
    }

    /// The index under which a sandbox's link was seen. Notices of addresses, neighbours and settings know no more.
    pub fn learn(&mut self, index: u32, sandbox: &Sandbox) {
        self.by_index.insert(index, sandbox.clone());
    }

    pub fn index_of(&self, sandbox: &Sandbox) -> Option<u32> {
        self.by_index.iter().find(|(_, known)| *known == sandbox).map(|(index, _)| *index)
    }

    pub fn remove(&mut self, wiring: &PodWiring) {
        let other = |known: &Sandbox| *known != wiring.sandbox;
        self.by_alias.remove(&wiring.sandbox.alias());
        self.by_index.retain(|_, known| other(known));
        let device = wiring.host.device.as_str();
        if self.by_device.get(device).is_some_and(|known| !other(known)) {
            self.by_device.remove(device);
        }
        for route in &wiring.host.routes {
            let address = route.destination.addr();
            if self.by_address.get(&address).is_some_and(|known| !other(known)) {
                self.by_address.remove(&address);
            }
        }
    }

    /// Whom a notice concerns. Learns the indices of links from it.
    pub fn affected(&mut self, notice: &Notice) -> Affected {
        let found = match notice {
            Notice::Overrun | Notice::NodeSetting => return Affected::Node,
            Notice::Link { index, name, alias, gone } => self.link(*index, name, alias.as_deref(), *gone),
            Notice::Address { index, .. } | Notice::Neighbour { index, .. } | Notice::Setting { index } => {
                self.by_index.get(index).cloned()
            }
            Notice::Route { route } => self.route(route),
        };
        found.map_or(Affected::Nobody, Affected::Pod)
    }

    fn link(&mut self, index: u32, name: &str, alias: Option<&str>, gone: bool) -> Option<Sandbox> {
        let by_alias = alias.and_then(|alias| self.by_alias.get(alias)).cloned();
        let before = if gone {
            self.by_index.remove(&index)
        } else {
            let before = self.by_index.get(&index).cloned();
            if let Some(sandbox) = &by_alias {
                self.by_index.insert(index, sandbox.clone());
            }
            before
        };
        // A stranger's device may have taken or given back the name that a pod's should have.
        by_alias.or(before).or_else(|| self.by_device.get(name).cloned())
    }

    fn route(&self, route: &Route) -> Option<Sandbox> {
        let is_host_route = route.destination.prefix_len() == route.destination.max_prefix_len();
        let to_pod = is_host_route.then(|| self.by_address.get(&route.destination.addr())).flatten();
        let stray = || route.device.filter(|_| route.is_ours()).and_then(|device| self.by_index.get(&device));
        to_pod.or_else(stray).cloned()
    }
}

#[cfg(test)]
mod tests {
    use model::DeviceName;

    use super::*;
    use crate::objects::ROUTE_PROTOCOL;
    use crate::wiring::{Attachment, NodeFacts};

    fn wiring(container: &str, address: &str) -> PodWiring {
        let sandbox = Sandbox::new("net", container, "eth0").unwrap();
        let attachment = Attachment {
            device: DeviceName::of_pod("cali", "default", "web-0").unwrap(),
            mac: sandbox.mac(),
            sandbox,
            mtu: 1450,
            addresses: vec![address.parse().unwrap()],
            pod_forwards: false,
            pod_routes: Vec::new(),
        };
        PodWiring::new(&attachment, &NodeFacts { rp_filter: 1, has_ipv6: true }).unwrap()
    }

    fn route(destination: &str, protocol: u8) -> Route {
        Route { protocol, ..Route::to(destination.parse().unwrap()) }
    }

    fn link(index: u32, name: &str, alias: Option<&str>, gone: bool) -> Notice {
        Notice::Link { index, name: name.to_owned(), alias: alias.map(str::to_owned), gone }
    }

    #[test]
    fn a_notice_is_brought_home() {
        let pod = wiring("c1", "10.244.0.5");
        let (sandbox, alias) = (&pod.sandbox, pod.sandbox.alias());
        let mut watched = Watched::new(&[pod.clone()].into_iter().collect());
        let mut check = |notice: Notice, concerns_pod: bool| {
            let expected = if concerns_pod { Affected::Pod(sandbox.clone()) } else { Affected::Nobody };
            assert_eq!(watched.affected(&notice), expected, "{notice:?}");
        };
        check(Notice::Setting { index: 7 }, false);
        check(link(7, "renamed", Some(&alias), false), true);
        check(link(9, "eth0", None, false), false);
        check(link(9, "cali0d7763386da", None, false), true);
        check(Notice::Setting { index: 7 }, true);
        check(Notice::Neighbour { index: 7, address: [1, 2, 3, 4].into() }, true);
        check(Notice::Address { index: 8, address: "fe80::1/64".parse().unwrap() }, false);
        let via = |device, route| Notice::Route { route: Route { device, ..route } };
        check(via(None, route("10.244.0.5/32", 3)), true);
        check(via(Some(7), route("10.244.0.0/24", 3)), false);
        check(via(Some(7), route("10.244.0.0/24", ROUTE_PROTOCOL)), true);
        check(via(Some(8), route("10.244.0.0/24", ROUTE_PROTOCOL)), false);
        check(link(7, "renamed", None, true), true);
        check(Notice::Setting { index: 7 }, false);
    }

    #[test]
    fn lost_announcements_and_the_nodes_settings_concern_everybody() {
        assert_eq!(Watched::default().affected(&Notice::Overrun), Affected::Node);
        assert_eq!(Watched::default().affected(&Notice::NodeSetting), Affected::Node);
    }

    #[test]
    fn a_pod_that_goes_leaves_its_namesake_watched() {
        let (old, new) = (wiring("c1", "10.244.0.5"), wiring("c2", "10.244.0.6"));
        let mut watched = Watched::new(&[old.clone()].into_iter().collect());
        watched.learn(7, &old.sandbox);
        watched.insert(&new);
        watched.remove(&old);
        assert_eq!(watched.index_of(&old.sandbox), None);
        let name = watched.affected(&link(9, "cali0d7763386da", None, false));
        assert_eq!(name, Affected::Pod(new.sandbox.clone()));
        let old_route = Notice::Route { route: route("10.244.0.5/32", 3) };
        assert_eq!(watched.affected(&old_route), Affected::Nobody);
    }
}
