//! Takes over a veth that another program made for a sandbox. From then on it is ours: its alias says so.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{DeviceName, Mac, Sandbox};
use plan::{Attachment, FORWARD_V4, Link};

use crate::links::{find_link, is_of_a_sandbox};
use crate::objects::{read_address, read_pod_route};
use crate::{Host, HostError, PodNamespace, messages, sysctl};

/// What the records say of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub sandbox: Sandbox,
    pub device: DeviceName,
    /// Not every record has it.
    pub mac: Option<Mac>,
    pub addresses: Vec<IpAddr>,
    /// Those of them that nothing confirms but the node's own routes to the device.
    pub unallocated: Vec<IpAddr>,
}

/// What came of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// The link carries the sandbox's alias now, if it did not before.
    Done(Attachment),
    /// What is there is not what the records speak of. Nothing was changed.
    Refused(&'static str),
}

/// The pod's end, as far as it matters here.
struct Inside {
    mac: Option<Mac>,
    forwards: bool,
}

impl Host {
    /// Compares what is there with a claim, at both ends if the pod's namespace is given, and makes the link ours.
    /// A link without our alias is taken only with its pod: the other end must be there, with the claimed addresses.
    pub fn adopt(&mut self, pod: Option<&mut PodNamespace>, claim: &Claim) -> Result<Adoption, HostError> {
        let Some(link) = self.claimed_link(claim)? else {
            return Ok(Adoption::Refused("its device is not there"));
        };
        let is_own = link.alias.as_ref() == Some(&claim.sandbox.alias());
        if !is_own && link.alias.as_deref().is_some_and(is_of_a_sandbox) {
            return Ok(Adoption::Refused("its device is another sandbox's"));
        }
        if !link.peer_is_elsewhere {
            return Ok(Adoption::Refused("its device leads into no pod"));
        }
        if !self.routes_to_link(link.index, &claim.unallocated)? {
            return Ok(Adoption::Refused(
                "its endpoint record has an address that IPAM has not allocated and the node does not route to it",
            ));
        }
        let inside = match pod {
            Some(pod) => match look_inside(pod, &link, claim, is_own)? {
                Ok(inside) => inside,
                Err(reason) => return Ok(Adoption::Refused(reason)),
            },
            None if is_own => Inside { mac: None, forwards: false },
            None => return Ok(Adoption::Refused("its namespace is not known")),
        };
        let Some(mac) = claim.mac.or(inside.mac) else {
            return Ok(Adoption::Refused("its hardware address is not known"));
        };
        if !is_own {
            self.netlink.execute_all(vec![messages::set_alias_of(link.index, &claim.sandbox.alias())])?;
        }
        Ok(Adoption::Done(Attachment {
            sandbox: claim.sandbox.clone(),
            device: claim.device.clone(),
            mac,
            mtu: link.mtu,
            addresses: claim.addresses.clone(),
            pod_forwards: inside.forwards,
            pod_routes: Vec::new(),
        }))
    }

    /// Whether the node routes all of these addresses to the link that carries the sandbox's alias.
    pub fn routes_to(&mut self, sandbox: &Sandbox, addresses: &[IpAddr]) -> Result<bool, HostError> {
        match self.owned_links()?.into_iter().find(|link| link.owner == *sandbox) {
            Some(link) => self.routes_to_link(link.index, addresses),
            None => Ok(false),
        }
    }

    fn routes_to_link(&mut self, index: u32, addresses: &[IpAddr]) -> Result<bool, HostError> {
        if addresses.is_empty() {
            return Ok(true);
        }
        let mut routed = Vec::new();
        for family in messages::families() {
            let what = "list the node's routes";
            routed.extend(self.netlink.dump(what, &messages::list_routes(family), |kind, body| {
                read_pod_route(kind, body)
                    .filter(|route| route.device == Some(index))
                    .map(|route| route.destination)
            })?);
        }
        Ok(addresses.iter().all(|address| routed.contains(&IpNet::from(*address))))
    }

    /// The sandbox's own, whatever it is called now; else the one of the claimed name.
    fn claimed_link(&mut self, claim: &Claim) -> Result<Option<Link>, HostError> {
        let own = self.owned_links()?.into_iter().find(|link| link.owner == claim.sandbox);
        match own.and_then(|link| DeviceName::new(&link.name).ok()) {
            Some(name) => find_link(&mut self.netlink, &name),
            None => find_link(&mut self.netlink, &claim.device),
        }
    }
}

fn look_inside(
    pod: &mut PodNamespace,
    link: &Link,
    claim: &Claim,
    is_own: bool,
) -> Result<Result<Inside, &'static str>, HostError> {
    let name = DeviceName::new(claim.sandbox.interface()).expect("a sandbox's interface is a device name");
    let Some(end) = find_link(&mut pod.netlink, &name)? else {
        return Ok(Err("its namespace has no such interface"));
    };
    if link.peer_index != Some(end.index) || end.peer_index != Some(link.index) {
        return Ok(Err("its interface is not the other end of its device"));
    }
    // A pod may change its own network; but what somebody else made must be what was recorded.
    if !is_own {
        let what = format!("list the addresses of {name}");
        let found = pod.netlink.dump(&what, &messages::list_addresses(end.index), |kind, body| {
            read_address(kind, body).filter(|(of, _)| *of == end.index).map(|(_, network)| network)
        })?;
        if !claim.addresses.iter().all(|claimed| found.iter().map(IpNet::addr).any(|one| one == *claimed)) {
            return Ok(Err("its interface has other addresses than were recorded"));
        }
    }
    let forwards = sysctl::ask(&mut pod.netlink, FORWARD_V4);
    Ok(Ok(Inside { mac: end.mac, forwards: forwards.is_ok_and(|value| value == "1") }))
}
