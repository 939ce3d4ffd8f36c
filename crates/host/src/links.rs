//! The node's side: its veths, whose they are, and how they are made and removed.

use model::{DeviceName, Mac, Sandbox};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, State};
use plan::{NodeFacts, PodWiring};
use rustix::io::Errno;

use crate::netlink::{Netlink, Request};
use crate::{HostError, PodNamespace, messages, sysctl};

/// The node: the namespace that the process lives in.
#[derive(Debug)]
pub struct Host {
    pub(crate) netlink: Netlink,
}

/// A link that carries a sandbox's alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedLink {
    pub name: String,
    pub index: u32,
    pub owner: Sandbox,
}

/// What one link message says, as far as we care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) peer_index: Option<u32>,
    pub(crate) alias: Option<String>,
    pub(crate) mac: Option<Mac>,
    pub(crate) mtu: u32,
    pub(crate) up: bool,
    pub(crate) running: bool,
}

impl Host {
    /// The node that the calling thread is on.
    pub fn here() -> Result<Host, HostError> {
        Ok(Host { netlink: Netlink::open()? })
    }

    /// What the machine calls itself.
    pub fn machine_name() -> Result<String, HostError> {
        sysctl::read("kernel/hostname")
    }

    pub fn facts(&self) -> Result<NodeFacts, HostError> {
        let text = sysctl::read("net/ipv4/conf/default/rp_filter")?;
        let has_ipv6 = sysctl::read("net/ipv6/conf/default/accept_ra").is_ok();
        Ok(NodeFacts { rp_filter: text.parse().unwrap_or_default(), has_ipv6 })
    }

    /// Whether there is a device of this name that is not this sandbox's own.
    pub fn is_name_taken(&mut self, device: &DeviceName, sandbox: &Sandbox) -> Result<bool, HostError> {
        let link = find_link(&mut self.netlink, device)?;
        Ok(link.is_some_and(|link| link.alias != Some(sandbox.alias())))
    }

    /// Every link of ours, whatever it is called now.
    pub fn owned_links(&mut self) -> Result<Vec<OwnedLink>, HostError> {
        let objects = self.netlink.dump("list the node's veths", &messages::list_veths())?;
        let owned = |link: Link| {
            let owner = Sandbox::from_alias(link.alias.as_deref()?)?;
            Some(OwnedLink { name: link.name, index: link.index, owner })
        };
        Ok(objects.into_iter().filter_map(read_link).filter_map(owned).collect())
    }

    /// Removes every link of this sandbox, and of no other. Says which there were.
    pub fn remove_links_of(&mut self, sandbox: &Sandbox) -> Result<Vec<OwnedLink>, HostError> {
        let mut links = self.owned_links()?;
        links.retain(|link| link.owner == *sandbox);
        let requests: Vec<Request> =
            links.iter().map(|link| messages::delete_link(&link.name, link.index)).collect();
        for outcome in self.netlink.execute(requests)? {
            match outcome {
                // Its pod's namespace went away in the meantime, and took the link along.
                Err(error) if is_no_device(&error) => {}
                outcome => outcome?,
            }
        }
        Ok(links)
    }

    /// Makes the veth of a sandbox that has none. The pod's end appears right in the pod.
    ///
    /// The kernel does not take an alias at creation, and it goes on with the next request when one fails, so
    /// creating under the final name could put our alias on a stranger's link. The link is therefore made under
    /// a name that only this sandbox can have, aliased in the same send, and renamed when it is known to be ours.
    pub(crate) fn create_pair(&mut self, pod: &PodNamespace, wiring: &PodWiring) -> Result<(), HostError> {
        let own_name =
            wiring.sandbox.device_name(DeviceName::CALICO_PREFIX).expect("`cali` leaves room for the hash");
        let created = self.try_create_pair(&own_name, pod, wiring);
        let created = match created {
            // A try of this same sandbox that was killed before it gave the link its final name.
            Err(error) if error.errno() == Some(Errno::EXIST.raw_os_error()) => {
                self.remove_links_of(&wiring.sandbox)?;
                self.try_create_pair(&own_name, pod, wiring)
            }
            created => created,
        };
        let named = created.and_then(|()| self.give_final_name(&own_name, &wiring.host.device));
        if named.is_err() {
            self.remove_links_of(&wiring.sandbox)?;
        }
        named
    }

    fn try_create_pair(
        &mut self,
        name: &DeviceName,
        pod: &PodNamespace,
        wiring: &PodWiring,
    ) -> Result<(), HostError> {
        use std::os::fd::AsRawFd as _;
        self.netlink.execute_all(vec![
            messages::create_pair(name, &wiring.host, &wiring.pod, pod.ns.as_raw_fd()),
            messages::set_alias(name, &wiring.sandbox.alias()),
        ])
    }

    fn give_final_name(&mut self, own: &DeviceName, wanted: &DeviceName) -> Result<(), HostError> {
        if own == wanted {
            return Ok(());
        }
        let link = get_link(&mut self.netlink, own)?;
        self.rename(link.index, wanted)
    }

    fn rename(&mut self, index: u32, wanted: &DeviceName) -> Result<(), HostError> {
        match self.netlink.execute_all(vec![messages::rename(index, wanted)]) {
            Err(error) if error.errno() == Some(Errno::EXIST.raw_os_error()) => {
                Err(HostError::NameTaken { device: wanted.clone() })
            }
            outcome => outcome,
        }
    }

    /// The sandbox's link may be there under another name: a call was killed before it gave the final one, or a
    /// stranger renamed it. Whether there was one to rename.
    pub(crate) fn take_back_name(&mut self, wiring: &PodWiring) -> Result<bool, HostError> {
        let own = self.owned_links()?.into_iter().find(|link| link.owner == wiring.sandbox);
        let Some(own) = own else { return Ok(false) };
        self.rename(own.index, &wiring.host.device)?;
        Ok(true)
    }
}

pub(crate) fn find_link(netlink: &mut Netlink, device: &DeviceName) -> Result<Option<Link>, HostError> {
    match get_link(netlink, device) {
        Ok(link) => Ok(Some(link)),
        Err(error) if is_no_device(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn get_link(netlink: &mut Netlink, device: &DeviceName) -> Result<Link, HostError> {
    let request = messages::get_link(device);
    let what = request.what.clone();
    let object = netlink.get(request)?;
    read_link(object)
        .ok_or_else(|| HostError::Malformed { what, problem: "the answer is not about a link".to_owned() })
}

fn is_no_device(error: &HostError) -> bool {
    error.errno() == Some(Errno::NODEV.raw_os_error())
}

fn read_link(object: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(LinkMessage { header, attributes, .. }) = object else { return None };
    let mut link = Link {
        index: header.index,
        name: String::new(),
        peer_index: None,
        alias: None,
        mac: None,
        mtu: 0,
        up: header.flags.contains(LinkFlags::Up),
        running: false,
    };
    for attribute in attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Link(index) => link.peer_index = Some(index),
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
            LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok().map(Mac),
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            LinkAttribute::OperState(state) => link.running = state == State::Up,
            _ => {}
        }
    }
    Some(link)
}
