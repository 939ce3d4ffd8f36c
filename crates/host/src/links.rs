//! The node's side: its veths, whose they are, and how they are made and removed.

use std::collections::BTreeSet;

use model::{DeviceName, Sandbox};
use plan::{NodeDesired, NodeFacts, PodWiring, Sysctl};
use rustix::io::Errno;

use crate::netlink::{Netlink, Request};
use crate::objects::{Link, read_link};
use crate::{HostError, PodNamespace, messages, sysctl};

/// The node: the namespace that the process lives in.
#[derive(Debug)]
pub struct Host {
    pub(crate) netlink: Netlink,
    pub(crate) halfway: fn(Halfway),
}

/// Moments at which the kernel holds half of a pod's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halfway {
    /// The node's end works, the pod's does not yet.
    Wired,
    /// The node's end is out of service, the pod's not yet.
    Detached,
}

/// A link that carries a sandbox's alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedLink {
    pub name: String,
    pub index: u32,
    pub owner: Sandbox,
}

impl Host {
    /// The node that the calling thread is on.
    pub fn here() -> Result<Host, HostError> {
        Ok(Host { netlink: Netlink::open()?, halfway: |_| {} })
    }

    /// Lets somebody know of the moments at which it would be bad to be killed.
    #[must_use]
    pub fn telling(self, halfway: fn(Halfway)) -> Host {
        Host { halfway, ..self }
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

    /// The index of this sandbox's link, if it has one of this name.
    pub fn link_index(&mut self, device: &DeviceName, sandbox: &Sandbox) -> Result<Option<u32>, HostError> {
        let link = find_link(&mut self.netlink, device)?;
        Ok(link.filter(|link| link.alias == Some(sandbox.alias())).map(|link| link.index))
    }

    /// Sets the node as a whole as a pod needs it, where it is not.
    pub fn ensure_node_settings(&self, wiring: &PodWiring) -> Result<(), HostError> {
        let desired: NodeDesired = [wiring.clone()].into_iter().collect();
        let ensure = |wanted: &Sysctl| match sysctl::read(&wanted.path)? == wanted.value {
            true => Ok(()),
            false => sysctl::write(wanted),
        };
        desired.sysctls().iter().try_for_each(ensure)
    }

    /// Every link of ours, whatever it is called now.
    pub fn owned_links(&mut self) -> Result<Vec<OwnedLink>, HostError> {
        let links = self.netlink.dump("list the node's veths", &messages::list_veths(), read_link)?;
        Ok(links.into_iter().filter_map(owned).collect())
    }

    /// Every link of ours whose other end is in a pod's namespace: proof that the namespace is there. The other end
    /// comes back to the node when somebody moves it there; it does not go away with the namespace then.
    pub fn links_into_pods(&mut self) -> Result<Vec<OwnedLink>, HostError> {
        let links = self.netlink.dump("list the node's veths", &messages::list_veths(), read_link)?;
        Ok(links.into_iter().filter(|link| link.peer_is_elsewhere).filter_map(owned).collect())
    }

    /// The names of all veths that carry no alias of ours: other programs' devices.
    pub fn foreign_veths(&mut self) -> Result<BTreeSet<String>, HostError> {
        let links = self.netlink.dump("list the node's veths", &messages::list_veths(), read_link)?;
        let is_foreign = |link: &Link| !link.alias.as_deref().is_some_and(is_of_a_sandbox);
        Ok(links.into_iter().filter(is_foreign).map(|link| link.name).collect())
    }

    /// Removes every link of this sandbox, and of no other. Says which there were.
    pub fn remove_links_of(&mut self, sandbox: &Sandbox) -> Result<Vec<OwnedLink>, HostError> {
        let mut links = self.owned_links()?;
        links.retain(|link| link.owner == *sandbox);
        let requests: Vec<Request> =
            links.iter().map(|link| messages::delete_link(&link.name, link.index)).collect();
        for outcome in self.netlink.transact(requests)? {
            match outcome {
                // Its pod's namespace went away in the meantime, and took the link along.
                Err(error) if is_no_device(&error) => {}
                outcome => drop(outcome?),
            }
        }
        Ok(links)
    }

    /// Makes the veth of a sandbox that has none, and gives it its name. On failure nothing is left behind.
    pub(crate) fn create_under_final_name(
        &mut self,
        pod: &PodNamespace,
        wiring: &PodWiring,
    ) -> Result<(), HostError> {
        let (sandbox, mac, mtu) = (&wiring.sandbox, wiring.pod.mac, wiring.host.mtu);
        let link = match self.create_pair(pod, sandbox, mac, mtu) {
            // A try of this same sandbox that was killed before it gave the link its final name.
            Err(error) if error.is_in_the_way() => {
                self.remove_links_of(sandbox)?;
                self.create_pair(pod, sandbox, mac, mtu)?
            }
            link => link?,
        };
        if link.name == wiring.host.device.as_str() {
            return Ok(());
        }
        let named = self.rename(link.index, &wiring.host.device);
        if named.is_err() {
            self.netlink.execute_all(vec![messages::delete_link(&link.name, link.index)])?;
        }
        named
    }

    pub(crate) fn rename(&mut self, index: u32, wanted: &DeviceName) -> Result<(), HostError> {
        match self.netlink.execute_all(vec![messages::rename(index, wanted)]) {
            Err(error) if error.is_in_the_way() => Err(HostError::NameTaken { device: wanted.clone() }),
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

/// Whether an alias is one of ours, in service or out of it.
pub(crate) fn is_of_a_sandbox(alias: &str) -> bool {
    Sandbox::from_alias(alias).is_some() || Sandbox::from_detached_alias(alias).is_some()
}

fn owned(link: Link) -> Option<OwnedLink> {
    let owner = Sandbox::from_alias(link.alias.as_deref()?)?;
    Some(OwnedLink { name: link.name, index: link.index, owner })
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
    read_link(object.kind, &object.body)
        .ok_or_else(|| HostError::Malformed { what, problem: "the answer is not about a link".to_owned() })
}

pub(crate) fn is_no_device(error: &HostError) -> bool {
    error.errno() == Some(Errno::NODEV.raw_os_error())
}
