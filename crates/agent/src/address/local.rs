//! This node's interfaces and routes, from which its address is chosen.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _, UdpSocket};

use host::HostError;
use host::survey::Survey;
use ipnet::IpNet;
use model::IpVersion;
use plan::address::{Interface, InterfaceAddress, Method, OtherNode, Surroundings};

/// The addresses of this node.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalAddresses {
    interfaces: Vec<Interface>,
    /// Kubernetes' InternalIP, from the kubelet's command line or the node's record.
    internal_addresses: Vec<IpAddr>,
}

impl LocalAddresses {
    /// In the network namespace of the calling thread. Blocks for a moment.
    pub(crate) fn read() -> Result<LocalAddresses, HostError> {
        let survey = Survey::here()?;
        let interfaces = survey.links.iter().map(|link| interface(&survey, link)).collect();
        Ok(LocalAddresses { interfaces, internal_addresses: host::kubelet::node_ips() })
    }

    /// Uses the InternalIP in the node's record if the kubelet names none.
    pub(crate) fn or_internal(mut self, recorded: Vec<IpAddr>) -> LocalAddresses {
        if self.internal_addresses.is_empty() {
            self.internal_addresses = recorded;
        }
        self
    }

    /// Asks the resolver if the method names a host.
    pub(super) fn surroundings(
        &self,
        version: IpVersion,
        method: &Method,
        recorded: Option<IpNet>,
        others: Vec<OtherNode>,
    ) -> Surroundings {
        let internal_addresses = self.internal_addresses.clone();
        let towards = match method {
            Method::CanReach(host) => resolve(host, version).and_then(source_towards),
            _ => None,
        };
        Surroundings {
            interfaces: self.interfaces.clone(),
            default_sources: source_of_default_route(version).into_iter().collect(),
            internal_addresses,
            towards,
            recorded,
            others,
            probes: Vec::new(),
        }
    }

    /// Whether a device has this address.
    #[cfg(test)]
    pub(super) fn has(&self, address: IpAddr) -> bool {
        let addresses = self.interfaces.iter().flat_map(|interface| &interface.addresses);
        addresses.into_iter().any(|own| own.network.addr() == address)
    }
}

fn interface(survey: &Survey, link: &plan::Link) -> Interface {
    let addresses = survey.addresses.iter().filter(|address| address.index == link.index);
    let address = |address: &host::survey::SurveyedAddress| InterfaceAddress {
        network: address.net,
        is_secondary: address.is_secondary,
        is_unfit: address.is_duplicate,
    };
    Interface {
        name: link.name.clone(),
        is_up: link.up && link.running,
        addresses: addresses.map(address).collect(),
    }
}

/// Sends nothing. The targets are reserved for documentation, so only the default route leads there.
fn source_of_default_route(version: IpVersion) -> Option<IpAddr> {
    source_towards(match version {
        IpVersion::V4 => Ipv4Addr::new(198, 51, 100, 1).into(),
        IpVersion::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    })
}

/// The source address of packets to this target.
fn source_towards(target: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match target {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((target, 80)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
}

fn resolve(host: &str, version: IpVersion) -> Option<IpAddr> {
    let found = (host, 80).to_socket_addrs().ok()?;
    found.map(|address| address.ip()).find(|address| IpVersion::of(*address) == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_own_addresses_are_read() {
        let local = LocalAddresses::read().unwrap();
        let Some(source) = source_of_default_route(IpVersion::V4) else { return };
        assert!(local.has(source), "{source} in {local:?}");
    }
}
