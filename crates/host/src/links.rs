//! The node's side: its veths, whose they are, and how they are made and removed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{DeviceName, Sandbox};
use plan::{Link, NodeDesired, NodeFacts, PodWiring, Sysctl};
use rustix::io::Errno;

use crate::create::Numbers;
use crate::netlink::{Netlink, Outcome, Request};
use crate::objects::read_link;
use crate::{HostError, NetNs, PodNamespace, messages, sysctl};

/// The node: the namespace that the process lives in.
#[derive(Debug)]
pub struct Host {
    pub(crate) netlink: Netlink,
    /// To nftables; opened when it is first needed.
    pub(crate) rules: Option<Netlink>,
    pub(crate) numbers: Numbers,
    pub(crate) halfway: fn(Halfway),
    home: Arc<NetNs>,
}

/// Moments at which the kernel holds half of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halfway {
    /// The node's end works, the pod's does not yet.
    Wired,
    /// The node's end is out of service, the pod's not yet.
    Detached,
    /// A tunnel's device is there, without its address and maybe down.
    TunnelMade,
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
        let home = Arc::new(NetNs::current()?);
        Ok(Host { netlink: Netlink::open()?, rules: None, numbers: Numbers::new(), halfway: |_| {}, home })
    }

    /// By which the kernel names this node's socket when it announces what was done through it.
    pub fn port(&self) -> Result<u32, HostError> {
        self.netlink.port()
    }

    /// Opens a pod's namespace, for work on the thread on which this node's work is done.
    pub fn open_pod(&self, path: &Path) -> Result<PodNamespace, HostError> {
        PodNamespace::open_from(path, &self.home)
    }

    pub(crate) fn home(&self) -> Arc<NetNs> {
        Arc::clone(&self.home)
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

    pub fn facts(&mut self) -> Result<NodeFacts, HostError> {
        Ok(NodeFacts { rp_filter: sysctl::default_rp_filter(&mut self.netlink)?, has_ipv6: has_ipv6() })
    }

    /// Whether there is a device of this name that is not this sandbox's own.
    pub fn is_name_taken(&mut self, device: &DeviceName, sandbox: &Sandbox) -> Result<bool, HostError> {
        // Whoever asks is about to make one, and needs a number for it.
        let number = self.numbers.next();
        let questions = vec![messages::get_link(device), messages::get_link_by_index(number)];
        let mut outcomes = self.netlink.transact(questions)?.into_iter();
        let link = found(outcomes.next().unwrap_or(Ok(None)))?;
        self.numbers.free = found(outcomes.next().unwrap_or(Ok(None)))?.is_none().then_some(number);
        Ok(link.is_some_and(|link| link.alias != Some(sandbox.alias())))
    }

    /// The index of this sandbox's link, if it has one of this name.
    pub fn link_index(&mut self, device: &DeviceName, sandbox: &Sandbox) -> Result<Option<u32>, HostError> {
        let link = find_link(&mut self.netlink, device)?;
        Ok(link.filter(|link| link.alias == Some(sandbox.alias())).map(|link| link.index))
    }

    /// Sets the node as a whole as a pod needs it, where it is not.
    pub fn ensure_node_settings(&mut self, wiring: &PodWiring) -> Result<(), HostError> {
        let desired: NodeDesired = [wiring.clone()].into_iter().collect();
        let ensure = |wanted: &Sysctl| match sysctl::ask(&mut self.netlink, &wanted.path)? == wanted.value {
            true => Ok(()),
            false => sysctl::write(wanted),
        };
        desired.sysctls().iter().try_for_each(ensure)
    }

    /// Every link of ours, whatever it is called now.
    pub fn owned_links(&mut self) -> Result<Vec<OwnedLink>, HostError> {
        self.veths(owned)
    }

    /// Every link of ours whose other end is in a pod's namespace: proof that the namespace is there. The other end
    /// comes back to the node when somebody moves it there; it does not go away with the namespace then.
    pub fn links_into_pods(&mut self) -> Result<Vec<OwnedLink>, HostError> {
        self.veths(|link| owned(link).filter(|_| link.peer_is_elsewhere))
    }

    /// The names of all veths that carry no alias of ours: other programs' devices.
    pub fn foreign_veths(&mut self) -> Result<BTreeSet<String>, HostError> {
        let is_foreign = |link: &Link| !link.alias.as_deref().is_some_and(is_of_a_sandbox);
        let names = self.veths(|link| is_foreign(link).then(|| link.name.clone()))?;
        Ok(names.into_iter().collect())
    }

    /// What `each` makes of the veths of the node.
    pub(crate) fn veths<T>(&mut self, each: impl Fn(&Link) -> Option<T>) -> Result<Vec<T>, HostError> {
        let read = |kind, body: &[u8]| each(&read_link(kind, body)?);
        self.netlink.dump("list the node's veths", &messages::list_veths(), read)
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

    /// Makes the veth of a sandbox that has none. On failure nothing is left behind.
    pub(crate) fn create_anew(&mut self, pod: &PodNamespace, wiring: &PodWiring) -> Result<(), HostError> {
        let mut created = self.create_pair(pod, wiring, |_| Vec::new());
        if created.as_ref().is_err_and(HostError::is_in_the_way) {
            // What a try of this same sandbox left that was killed, under another name.
            self.remove_links_of(&wiring.sandbox)?;
            created = self.create_pair(pod, wiring, |_| Vec::new());
        }
        match created {
            Err(error)
                if error.is_in_the_way() && self.is_name_taken(&wiring.host.device, &wiring.sandbox)? =>
            {
                Err(HostError::NameTaken { device: wiring.host.device.clone() })
            }
            created => created.map(|_| ()),
        }
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

fn owned(link: &Link) -> Option<OwnedLink> {
    Some(OwnedLink { name: link.name.clone(), index: link.index, owner: link.owner()? })
}

fn has_ipv6() -> bool {
    // A kernel that has it keeps it.
    static HAS: AtomicBool = AtomicBool::new(false);
    if !HAS.load(Ordering::Relaxed) {
        HAS.store(sysctl::read("net/ipv6/conf/default/accept_ra").is_ok(), Ordering::Relaxed);
    }
    HAS.load(Ordering::Relaxed)
}

/// The link that was asked for, if there is one.
pub(crate) fn found(outcome: Outcome) -> Result<Option<Link>, HostError> {
    match outcome {
        Err(error) if is_no_device(&error) => Ok(None),
        outcome => Ok(outcome?.and_then(|object| read_link(object.kind, &object.body))),
    }
}

pub(crate) fn find_link(netlink: &mut Netlink, device: &DeviceName) -> Result<Option<Link>, HostError> {
    found(netlink.get(messages::get_link(device)).map(Some))
}

pub(crate) fn find_link_by_index(netlink: &mut Netlink, index: u32) -> Result<Option<Link>, HostError> {
    found(netlink.get(messages::get_link_by_index(index)).map(Some))
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
