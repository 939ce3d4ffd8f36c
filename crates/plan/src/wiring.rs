//! What the kernel must hold for one attachment, computed from its endpoint.
//!
//! ```text
//!   pod                                      node
//!   eth0  10.244.0.5/32, fd00::5/128         caliXXXXXXXXXXX  ee:ee:ee:ee:ee:ee  alias = sandbox
//!                                              fe80::ecee:eeff:feee:eeee/64
//!     169.254.1.1 dev eth0 link                10.244.0.5/32 and fd00::5/128 dev caliXXXXXXXXXXX
//!     default via 169.254.1.1                  10.244.0.5 at <pod's MAC> permanent
//!     default via fe80::ecee:eeff:feee:eeee    fd00::5 at <pod's MAC> permanent
//!     169.254.1.1 at ee:… permanent            proxy_arp, proxy_ndp, forwarding, …
//!     fe80::ecee:… at ee:… permanent
//! ```
//!
//! 169.254.1.1 is assigned nowhere. The neighbours are permanent on both sides, so no packet waits for ARP or
//! neighbour discovery and nobody can answer for either; proxy ARP stays on for pods that drop their entry, and
//! because Calico has it. The node's link-local address is what the kernel derives from the hardware address; it is
//! asked for all the same, because a node may be set to derive others.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use model::{DeviceName, Mac, Sandbox};

use crate::objects::{Neighbour, Route, Sysctl};
use crate::setting::{SettingFacts, required};

/// The gateway that every pod sees, as with Calico.
pub const V4_GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// The same for IPv6: the link-local address that belongs to [`Mac::HOST_END`].
pub const V6_GATEWAY: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xecee, 0xeeff, 0xfeee, 0xeeee);
const V6_GATEWAY_PREFIX: u8 = 64;

/// What runtimes call the one interface that every pod has.
pub const USUAL_INTERFACE: &str = "eth0";

/// One end of a pod's veth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Host,
    Pod,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Host => "node",
            Side::Pod => "pod",
        })
    }
}

/// What decides the wiring of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub sandbox: Sandbox,
    /// The host end's name.
    pub device: DeviceName,
    /// The pod end's hardware address.
    pub mac: Mac,
    pub mtu: u32,
    pub addresses: Vec<IpAddr>,
    /// Whether the pod may forward packets itself.
    pub pod_forwards: bool,
    /// What the pod reaches through its gateway. Empty: everything.
    pub pod_routes: Vec<IpNet>,
}

/// What the node already decided for all its devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// `net.ipv4.conf.default.rp_filter`.
    pub rp_filter: u8,
    /// Whether the kernel speaks IPv6 at all.
    pub has_ipv6: bool,
}

/// What the kernel must hold for one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodWiring {
    pub sandbox: Sandbox,
    pub host: End,
    pub pod: End,
}

/// What one end must look like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub device: DeviceName,
    pub mac: Mac,
    pub mtu: u32,
    pub addresses: Vec<IpNet>,
    pub routes: Vec<Route>,
    pub neighbours: Vec<Neighbour>,
    pub sysctls: Vec<Sysctl>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} cannot be given to a pod: {problem}")]
pub struct UnsupportedAddress {
    pub address: IpAddr,
    pub problem: &'static str,
}

impl PodWiring {
    pub fn new(attachment: &Attachment, node: &NodeFacts) -> Result<PodWiring, UnsupportedAddress> {
        for &address in &attachment.addresses {
            if let Some(problem) = problem_with(address, node) {
                return Err(UnsupportedAddress { address, problem });
            }
        }
        let Attachment { sandbox, device, mac, mtu, addresses, pod_forwards, pod_routes } = attachment;
        let inside = DeviceName::new(sandbox.interface()).expect("a sandbox's interface is a device name");
        Ok(PodWiring {
            sandbox: sandbox.clone(),
            host: End::on_node(device.clone(), *mac, *mtu, addresses, node),
            pod: End::in_pod_through(pod_routes, inside, *mac, *mtu, addresses, *pod_forwards),
        })
    }

    pub fn end(&self, side: Side) -> &End {
        match side {
            Side::Host => &self.host,
            Side::Pod => &self.pod,
        }
    }
}

fn problem_with(address: IpAddr, node: &NodeFacts) -> Option<&'static str> {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    if address.is_ipv6() && !node.has_ipv6 {
        Some("this node's kernel has no IPv6")
    } else if address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        Some("it is not the address of one machine")
    } else if is_link_local {
        Some("link-local addresses are the gateway's")
    } else {
        None
    }
}

impl End {
    /// The node's end. `mac` is the pod's.
    pub fn on_node(device: DeviceName, mac: Mac, mtu: u32, addresses: &[IpAddr], node: &NodeFacts) -> End {
        let has_ipv6 = addresses.iter().any(IpAddr::is_ipv6);
        let gateway = IpNet::new(V6_GATEWAY.into(), V6_GATEWAY_PREFIX).expect("a prefix length");
        let facts = SettingFacts {
            kernel_has_ipv6: node.has_ipv6,
            pod_has_ipv6: has_ipv6,
            rp_filter: node.rp_filter,
            pod_forwards: false,
        };
        End {
            sysctls: required(Side::Host, device.as_str(), facts),
            device,
            mac: Mac::HOST_END,
            mtu,
            addresses: if has_ipv6 { vec![gateway] } else { Vec::new() },
            routes: addresses.iter().copied().map(Route::to_neighbour).collect(),
            neighbours: addresses.iter().map(|&address| Neighbour { address, mac }).collect(),
        }
    }

    pub fn in_pod(device: DeviceName, mac: Mac, mtu: u32, addresses: &[IpAddr], forwards: bool) -> End {
        End::in_pod_through(&[], device, mac, mtu, addresses, forwards)
    }

    /// The pod's end, which reaches these networks through its gateway. None means every network.
    fn in_pod_through(
        through: &[IpNet],
        device: DeviceName,
        mac: Mac,
        mtu: u32,
        addresses: &[IpAddr],
        forwards: bool,
    ) -> End {
        let (mut routes, mut neighbours) = (Vec::new(), Vec::new());
        if addresses.iter().any(IpAddr::is_ipv4) {
            let gateway = IpAddr::V4(V4_GATEWAY);
            routes.push(Route::to_neighbour(gateway));
            routes.extend(routes_via(gateway, through));
            neighbours.push(Neighbour { address: gateway, mac: Mac::HOST_END });
        }
        let has_ipv6 = addresses.iter().any(IpAddr::is_ipv6);
        if has_ipv6 {
            let gateway = IpAddr::V6(V6_GATEWAY);
            // The kernel knows without a route where a link-local gateway is.
            routes.extend(routes_via(gateway, through));
            neighbours.push(Neighbour { address: gateway, mac: Mac::HOST_END });
        }
        let extra = extra_metric(&device);
        routes.iter_mut().for_each(|route| route.metric += extra);
        let facts = SettingFacts {
            kernel_has_ipv6: has_ipv6,
            pod_has_ipv6: has_ipv6,
            rp_filter: 0,
            pod_forwards: forwards,
        };
        End {
            sysctls: required(Side::Pod, device.as_str(), facts),
            device,
            mac,
            mtu,
            addresses: addresses.iter().copied().map(IpNet::from).collect(),
            routes,
            neighbours,
        }
    }
}

fn routes_via(gateway: IpAddr, through: &[IpNet]) -> Vec<Route> {
    let default = Route::default_via(gateway);
    if through.is_empty() {
        return vec![default];
    }
    let is_reached_by = |network: &&IpNet| network.addr().is_ipv4() == gateway.is_ipv4();
    let mut wanted: Vec<IpNet> = through.iter().filter(is_reached_by).map(IpNet::trunc).collect();
    wanted.sort_unstable();
    wanted.dedup();
    wanted.into_iter().map(|destination| Route { destination, ..default }).collect()
}

/// The kernel keeps one route for each destination and metric, and every interface of a pod wants the same ones. The
/// usual interface comes first; the others stand behind it, each in its own place.
fn extra_metric(device: &DeviceName) -> u32 {
    let name = device.as_str();
    if name == USUAL_INTERFACE {
        return 0;
    }
    let letters = name.trim_end_matches(|last: char| last.is_ascii_digit());
    match name[letters.len()..].parse::<u32>() {
        Ok(number) if number < 800 => 100 + number,
        _ => 1000 + name.bytes().map(u32::from).sum::<u32>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODERN: NodeFacts = NodeFacts { rp_filter: 1, has_ipv6: true };

    fn attachment(addresses: &[&str]) -> Attachment {
        let sandbox = Sandbox::new("net", "c1", "eth0").unwrap();
        Attachment {
            device: DeviceName::of_pod("cali", "default", "web-0").unwrap(),
            mac: sandbox.mac(),
            sandbox,
            mtu: 1450,
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            pod_forwards: false,
            pod_routes: Vec::new(),
        }
    }

    fn wiring(addresses: &[&str]) -> PodWiring {
        PodWiring::new(&attachment(addresses), &MODERN).unwrap()
    }

    fn texts<T: ToString>(things: &[T]) -> Vec<String> {
        things.iter().map(ToString::to_string).collect()
    }

    fn sysctl<'a>(end: &'a End, path: &str) -> Option<&'a str> {
        end.sysctls.iter().find(|sysctl| sysctl.path == path).map(|sysctl| sysctl.value.as_str())
    }

    #[test]
    fn the_host_end_leads_to_the_pod() {
        let host = wiring(&["10.244.0.5"]).host;
        assert_eq!(host.device.as_str(), "cali0d7763386da");
        assert_eq!(host.mac.to_string(), "ee:ee:ee:ee:ee:ee");
        assert_eq!(texts(&host.routes), ["10.244.0.5/32"]);
        assert_eq!(host.routes[0].scope, Route::LINK);
        assert_eq!(host.neighbours[0].address.to_string(), "10.244.0.5");
        assert!(host.addresses.is_empty());
        assert_eq!(sysctl(&host, "net/ipv4/conf/cali0d7763386da/proxy_arp"), Some("1"));
        assert_eq!(sysctl(&host, "net/ipv4/conf/cali0d7763386da/rp_filter"), Some("1"));
        assert_eq!(sysctl(&host, "net/ipv4/neigh/cali0d7763386da/proxy_delay"), Some("0"));
        assert_eq!(sysctl(&host, "net/ipv6/conf/cali0d7763386da/accept_ra"), Some("0"));
        assert_eq!(sysctl(&host, "net/ipv6/conf/cali0d7763386da/disable_ipv6"), None);
    }

    #[test]
    fn interfaces_of_one_pod_do_not_want_the_same_routes() {
        let metric = |name: &str| extra_metric(&DeviceName::new(name).unwrap());
        assert_eq!(metric("eth0"), 0);
        assert!(metric("net1") != metric("net2") && metric("net1") > 0);
        assert!(metric("storage") != metric("backup") && metric("net999") > metric("net799"));
    }

    #[test]
    fn the_pod_end_leads_to_the_node() {
        let wiring = wiring(&["10.244.0.5"]);
        let pod = &wiring.pod;
        assert_eq!(texts(&pod.addresses), ["10.244.0.5/32"]);
        assert_eq!(texts(&pod.routes), ["169.254.1.1/32", "0.0.0.0/0 via 169.254.1.1"]);
        assert_eq!(texts(&pod.neighbours), ["169.254.1.1 at ee:ee:ee:ee:ee:ee"]);
        assert_eq!(pod.mac, wiring.host.neighbours[0].mac);
        assert!(pod.sysctls.iter().all(|sysctl| !sysctl.path.contains("ipv6")), "{:?}", pod.sysctls);
    }

    #[test]
    fn two_families_stand_side_by_side() {
        let wiring = wiring(&["10.244.0.5", "fd00::5"]);
        let host = &wiring.host;
        assert_eq!(texts(&host.addresses), ["fe80::ecee:eeff:feee:eeee/64"]);
        assert_eq!(texts(&host.routes), ["10.244.0.5/32", "fd00::5/128"]);
        assert_eq!(texts(&host.neighbours)[1], format!("fd00::5 at {}", wiring.pod.mac));
        assert_eq!(sysctl(host, "net/ipv6/conf/cali0d7763386da/proxy_ndp"), Some("1"));
        assert_eq!(sysctl(host, "net/ipv6/conf/cali0d7763386da/accept_dad"), Some("0"));
        let pod = &wiring.pod;
        assert_eq!(texts(&pod.addresses), ["10.244.0.5/32", "fd00::5/128"]);
        assert_eq!(texts(&pod.routes)[2], "::/0 via fe80::ecee:eeff:feee:eeee");
        assert_eq!(texts(&pod.neighbours)[1], "fe80::ecee:eeff:feee:eeee at ee:ee:ee:ee:ee:ee");
        assert_eq!(sysctl(pod, "net/ipv6/conf/all/forwarding"), Some("0"));
        assert_eq!(sysctl(pod, "net/ipv6/conf/eth0/accept_dad"), Some("0"));
    }

    #[test]
    fn a_pod_may_have_ipv6_alone() {
        let wiring = wiring(&["fd00::5"]);
        assert_eq!(texts(&wiring.host.routes), ["fd00::5/128"]);
        assert_eq!(texts(&wiring.pod.routes), ["::/0 via fe80::ecee:eeff:feee:eeee"]);
        assert_eq!(wiring.pod.neighbours.len(), 1);
    }

    #[test]
    fn a_pod_that_may_forward_forwards_both() {
        let attachment = Attachment { pod_forwards: true, ..attachment(&["10.244.0.5", "fd00::5"]) };
        let pod = PodWiring::new(&attachment, &MODERN).unwrap().pod;
        assert_eq!(sysctl(&pod, "net/ipv4/ip_forward"), Some("1"));
        assert_eq!(sysctl(&pod, "net/ipv6/conf/all/forwarding"), Some("1"));
    }

    #[test]
    fn a_pod_may_have_other_routes_than_the_default() {
        let routes = |listed: &[&str]| {
            let pod_routes = listed.iter().map(|text| text.parse().unwrap()).collect();
            let attachment = Attachment { pod_routes, ..attachment(&["10.244.0.5", "fd00::5"]) };
            texts(&PodWiring::new(&attachment, &MODERN).unwrap().pod.routes)
        };
        let gateways = ["169.254.1.1", "fe80::ecee:eeff:feee:eeee"];
        let [v4, v6] = gateways.map(|gateway| move |network: &str| format!("{network} via {gateway}"));
        let first = "169.254.1.1/32".to_owned();
        assert_eq!(routes(&["10.9.0.7/16", "10.9.0.0/16"]), [first.clone(), v4("10.9.0.0/16")]);
        assert_eq!(routes(&["fd09::/16", "::/0"]), [first, v6("::/0"), v6("fd09::/16")]);
    }

    #[test]
    fn the_gateway_is_what_the_kernel_derives_from_the_hardware_address() {
        let Mac([a, b, c, d, e, f]) = Mac::HOST_END;
        let mut expected = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        expected[8..].copy_from_slice(&[a ^ 0x02, b, c, 0xff, 0xfe, d, e, f]);
        assert_eq!(V6_GATEWAY.octets(), expected);
    }

    #[test]
    fn an_address_that_cannot_be_wired_is_refused() {
        let old = NodeFacts { rp_filter: 0, has_ipv6: false };
        for (addresses, node, expected) in [
            (["10.0.0.1", "fd00::1"], old, "fd00::1"),
            (["10.0.0.1", "::"], MODERN, "::"),
            (["10.0.0.1", "ff02::1"], MODERN, "ff02::1"),
            (["127.0.0.1", "fd00::1"], MODERN, "127.0.0.1"),
            (["169.254.1.1", "fd00::1"], MODERN, "169.254.1.1"),
            (["10.0.0.1", "fe80::1"], MODERN, "fe80::1"),
        ] {
            let error = PodWiring::new(&attachment(&addresses), &node).unwrap_err();
            assert_eq!(error.address.to_string(), expected);
        }
        assert!(PodWiring::new(&attachment(&["10.0.0.1"]), &old).is_ok());
    }
}
