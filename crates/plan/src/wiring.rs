//! What the kernel must hold for one attachment, computed from its endpoint.
//!
//! ```text
//!   pod                                node
//!   eth0  10.244.0.5/32                caliXXXXXXXXXXX  ee:ee:ee:ee:ee:ee  alias = sandbox
//!     169.254.1.1 dev eth0 link          10.244.0.5/32 dev caliXXXXXXXXXXX link
//!     default via 169.254.1.1            10.244.0.5 at <pod's MAC> permanent
//!     169.254.1.1 at ee:… permanent      proxy_arp, forwarding, …
//! ```
//!
//! 169.254.1.1 is assigned nowhere. The neighbours are permanent on both sides, so no packet waits for ARP and
//! nobody can answer for either; proxy ARP stays on for pods that drop their entry, and because Calico has it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use model::{DeviceName, Mac, Sandbox};

/// Marks every route of ours (`ip route` prints the number). Not one of the kernel's or iproute2's list, and not
/// one that is known to be claimed elsewhere: 80 (Felix), 84 (OVN), 186 to 196 (FRR).
pub const ROUTE_PROTOCOL: u8 = 112;

/// The gateway that every pod sees, as with Calico.
pub const V4_GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

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

/// A unicast route in the main table through the end's own device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub destination: IpNet,
    pub gateway: Option<IpAddr>,
    pub scope: RouteScope,
    pub protocol: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteScope {
    Universe,
    Link,
    Other(u8),
}

/// A permanent neighbour entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    pub address: IpAddr,
    pub mac: Mac,
}

/// A kernel setting, by its path below `/proc/sys`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sysctl {
    pub path: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} cannot be given to a pod: only IPv4 addresses are wired so far")]
pub struct UnsupportedAddress {
    pub address: IpAddr,
}

impl PodWiring {
    pub fn new(attachment: &Attachment, node: &NodeFacts) -> Result<PodWiring, UnsupportedAddress> {
        if let Some(&address) = attachment.addresses.iter().find(|address| address.is_ipv6()) {
            return Err(UnsupportedAddress { address });
        }
        Ok(PodWiring {
            sandbox: attachment.sandbox.clone(),
            host: host_end(attachment, node),
            pod: pod_end(attachment),
        })
    }

    pub fn end(&self, side: Side) -> &End {
        match side {
            Side::Host => &self.host,
            Side::Pod => &self.pod,
        }
    }
}

fn host_end(attachment: &Attachment, node: &NodeFacts) -> End {
    let route = |&address: &IpAddr| Route {
        destination: IpNet::from(address),
        gateway: None,
        scope: RouteScope::Link,
        protocol: ROUTE_PROTOCOL,
    };
    let neighbour = |&address: &IpAddr| Neighbour { address, mac: attachment.mac };
    End {
        device: attachment.device.clone(),
        mac: Mac::HOST_END,
        mtu: attachment.mtu,
        addresses: Vec::new(),
        routes: attachment.addresses.iter().map(route).collect(),
        neighbours: attachment.addresses.iter().map(neighbour).collect(),
        sysctls: host_sysctls(&attachment.device, node),
    }
}

fn host_sysctls(device: &DeviceName, node: &NodeFacts) -> Vec<Sysctl> {
    let conf = |name: &str, value: u8| Sysctl {
        path: format!("net/ipv4/conf/{device}/{name}"),
        value: value.to_string(),
    };
    let mut sysctls = vec![
        conf("route_localnet", 1),
        Sysctl { path: format!("net/ipv4/neigh/{device}/proxy_delay"), value: "0".to_owned() },
        conf("proxy_arp", 1),
        conf("forwarding", 1),
        // Written although a new device starts with it: a later change of one device is then a visible difference.
        conf("rp_filter", node.rp_filter),
    ];
    if node.has_ipv6 {
        // Else a pod could announce itself to its node as a router.
        let path = format!("net/ipv6/conf/{device}/accept_ra");
        sysctls.push(Sysctl { path, value: "0".to_owned() });
    }
    sysctls
}

fn pod_end(attachment: &Attachment) -> End {
    let device =
        DeviceName::new(attachment.sandbox.interface()).expect("a sandbox's interface is a device name");
    let gateway = IpAddr::V4(V4_GATEWAY);
    let to_gateway = Route {
        destination: IpNet::from(gateway),
        gateway: None,
        scope: RouteScope::Link,
        protocol: ROUTE_PROTOCOL,
    };
    let default = Route {
        destination: IpNet::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0).expect("0 is a prefix length"),
        gateway: Some(gateway),
        scope: RouteScope::Universe,
        protocol: ROUTE_PROTOCOL,
    };
    let forward = Sysctl {
        path: "net/ipv4/ip_forward".to_owned(),
        value: if attachment.pod_forwards { "1" } else { "0" }.to_owned(),
    };
    End {
        device,
        mac: attachment.mac,
        mtu: attachment.mtu,
        addresses: attachment.addresses.iter().copied().map(IpNet::from).collect(),
        routes: vec![to_gateway, default],
        neighbours: vec![Neighbour { address: gateway, mac: Mac::HOST_END }],
        sysctls: vec![forward],
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.destination)?;
        match self.gateway {
            Some(gateway) => write!(f, " via {gateway}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.address, self.mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wiring() -> PodWiring {
        let sandbox = Sandbox::new("net", "c1", "eth0").unwrap();
        let attachment = Attachment {
            device: DeviceName::of_pod("cali", "default", "web-0").unwrap(),
            mac: sandbox.mac(),
            sandbox,
            mtu: 1450,
            addresses: vec!["10.244.0.5".parse().unwrap()],
            pod_forwards: false,
        };
        PodWiring::new(&attachment, &NodeFacts { rp_filter: 1, has_ipv6: true }).unwrap()
    }

    #[test]
    fn the_host_end_leads_to_the_pod() {
        let host = wiring().host;
        assert_eq!(host.device.as_str(), "cali0d7763386da");
        assert_eq!(host.mac.to_string(), "ee:ee:ee:ee:ee:ee");
        assert_eq!(host.routes.len(), 1);
        assert_eq!(host.routes[0].to_string(), "10.244.0.5/32");
        assert_eq!(host.routes[0].scope, RouteScope::Link);
        assert_eq!(host.neighbours[0].address.to_string(), "10.244.0.5");
        assert!(host.addresses.is_empty());
        let sysctl = |path: &str| host.sysctls.iter().find(|sysctl| sysctl.path == path).unwrap();
        assert_eq!(sysctl("net/ipv4/conf/cali0d7763386da/proxy_arp").value, "1");
        assert_eq!(sysctl("net/ipv4/conf/cali0d7763386da/rp_filter").value, "1");
        assert_eq!(sysctl("net/ipv4/neigh/cali0d7763386da/proxy_delay").value, "0");
        assert_eq!(sysctl("net/ipv6/conf/cali0d7763386da/accept_ra").value, "0");
    }

    #[test]
    fn the_pod_end_leads_to_the_node() {
        let wiring = wiring();
        let pod = &wiring.pod;
        assert_eq!(pod.addresses[0].to_string(), "10.244.0.5/32");
        let routes: Vec<String> = pod.routes.iter().map(ToString::to_string).collect();
        assert_eq!(routes, ["169.254.1.1/32", "0.0.0.0/0 via 169.254.1.1"]);
        assert_eq!(pod.neighbours[0].to_string(), "169.254.1.1 at ee:ee:ee:ee:ee:ee");
        assert_eq!(pod.mac, wiring.host.neighbours[0].mac);
    }

    #[test]
    fn an_address_that_cannot_be_wired_is_refused() {
        let sandbox = Sandbox::new("net", "c1", "eth0").unwrap();
        let attachment = Attachment {
            device: sandbox.device_name("cali").unwrap(),
            mac: sandbox.mac(),
            sandbox,
            mtu: 1500,
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            pod_forwards: false,
        };
        let error = PodWiring::new(&attachment, &NodeFacts { rp_filter: 0, has_ipv6: false }).unwrap_err();
        assert_eq!(error.address.to_string(), "fd00::1");
    }
}
