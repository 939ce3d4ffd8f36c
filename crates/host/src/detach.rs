//! Takes a sandbox's links out of service at once, and removes them later, many together.
//!
//! The kernel needs tens of milliseconds to remove a veth, nearly all of it waiting for its own readers, and removes
//! a hundred in hardly more time than one. What a DEL owes its caller is less: no route leads to the pod, nothing
//! passes, both names are free. That takes well under a millisecond.
//!
//! A link that waits carries the sandbox's other alias ([`Sandbox::detached_alias`]) and a name of no meaning, so that
//! any process can find it and finish the work.

use model::{DeviceName, Sandbox};
use plan::Link;

use crate::links::{find_link, find_link_by_index, is_no_device};
use crate::netlink::Request;
use crate::objects::read_link;
use crate::{Halfway, Host, HostError, OwnedLink, PodNamespace, messages};

/// The kernel removes the links of a group together. This one is `plmb`; links are in it for the moment of their
/// removal. If a stranger's is in it, it is not used.
const REMOVAL_GROUP: u32 = 0x706c_6d62;
/// So that others get their turn with the kernel in between.
const SWEEP_TOGETHER: usize = 64;

/// What [`Host::detach`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detached {
    /// Links that were in service until now, under the names they had.
    pub links: Vec<OwnedLink>,
    /// Why the name inside the pod could not be freed, if so. It comes free with [`Host::sweep`].
    pub left_inside: Option<String>,
}

/// What [`Host::sweep`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Links that waited for removal and are gone.
    pub links: Vec<OwnedLink>,
}

/// What [`Host::pod_interface`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodInterface {
    None,
    /// It leads to a link of the sandbox's own, or to one that waits for removal.
    Own,
    /// Somebody else's.
    Foreign,
}

impl Host {
    /// Takes the links of this sandbox, and of no other, out of service: no route or neighbour is left, nothing
    /// passes, and the names of both ends are free. Repeating it is harmless. What is left for [`Host::sweep`] is
    /// no longer among [`Host::owned_links`].
    ///
    /// `device` is where the link is expected; without it, or if it is not there, all links are looked through.
    /// `pod` is needed to free the name inside. A pod that is gone has taken its end along, and the other, too.
    pub fn detach(
        &mut self,
        sandbox: &Sandbox,
        device: Option<&DeviceName>,
        pod: Option<&mut PodNamespace>,
    ) -> Result<Detached, HostError> {
        let links = self.links_to_detach(sandbox, device)?;
        let requests = links.iter().flat_map(|link| out_of_service(link, Some(sandbox))).collect();
        for (position, outcome) in self.netlink.transact(requests)?.into_iter().enumerate() {
            match outcome {
                // Its pod's namespace went away in the meantime, and took the link along.
                Err(error) if is_no_device(&error) => {}
                // The name for waiting is taken. Then there is no waiting.
                Err(error) if error.is_in_the_way() => {
                    let link = &links[position / REQUESTS_EACH];
                    self.netlink.execute_all(vec![messages::delete_link(&link.name, link.index)])?;
                }
                outcome => drop(outcome?),
            }
        }
        (self.halfway)(Halfway::Detached);
        // Nothing passes any more, whatever is in the way inside: a pod must not be able to keep its DEL from ending.
        let freed = pod.map_or(Ok(false), |pod| self.free_name_in_pod(sandbox, pod));
        let owned = |link: Link| OwnedLink { name: link.name, index: link.index, owner: sandbox.clone() };
        let links = links.into_iter().map(owned).collect();
        Ok(Detached { links, left_inside: freed.err().map(|error| error.to_string()) })
    }

    /// Removes everything that waits for it, many at a time where nothing of a stranger is in the way.
    ///
    /// Takes from some 15 ms (a few links) to 60 ms (a hundred), and the kernel serves others only now and then in
    /// the meantime. So call it when nothing else is going on, with a `Host` (or [`crate::Worker`]) of its own, and
    /// not right after a DEL: most runtimes remove the pod's namespace then, and the kernel removes the link with it.
    pub fn sweep(&mut self) -> Result<Swept, HostError> {
        let all = self.netlink.dump("list the node's links", &messages::list_links(), read_link)?;
        let found: Vec<OwnedLink> = all.iter().filter_map(waiting).collect();
        let is_strange = |link: &Link| link.group == REMOVAL_GROUP && waiting(link).is_none();
        let together = if all.iter().any(is_strange) { 1 } else { SWEEP_TOGETHER };
        for links in found.chunks(together) {
            for outcome in self.netlink.transact(removal(links))? {
                match outcome {
                    // The pod's namespace, or another sweep, was faster.
                    Err(error) if is_no_device(&error) => {}
                    outcome => drop(outcome?),
                }
            }
        }
        Ok(Swept { links: found })
    }

    /// What waits for removal.
    pub fn detached_links(&mut self) -> Result<Vec<OwnedLink>, HostError> {
        self.veths(waiting)
    }

    fn links_to_detach(
        &mut self,
        sandbox: &Sandbox,
        device: Option<&DeviceName>,
    ) -> Result<Vec<Link>, HostError> {
        let is_its_own = |link: &Link| link.alias.as_ref() == Some(&sandbox.alias());
        let mut found = Vec::new();
        // A call that was killed halfway left its link under the sandbox's own name.
        for name in device.cloned().into_iter().chain([own_name(sandbox)]) {
            let link = find_link(&mut self.netlink, &name)?.filter(is_its_own);
            found.extend(link.filter(|link| found.iter().all(|known: &Link| known.index != link.index)));
        }
        if found.is_empty() {
            found = self.veths(|link| is_its_own(link).then(|| link.clone()))?;
        }
        Ok(found)
    }

    /// Moves the pod's end out of the way if it is the other end of a link of this sandbox that waits for removal.
    pub(crate) fn free_name_in_pod(
        &mut self,
        sandbox: &Sandbox,
        pod: &mut PodNamespace,
    ) -> Result<bool, HostError> {
        let Some(inside) = interface_of(sandbox, pod)? else { return Ok(false) };
        if self.other_end(&inside)?.is_none_or(|outside| waiting(&outside).is_none()) {
            return Ok(false);
        }
        for outcome in pod.netlink.transact(out_of_service(&inside, None).into())? {
            match outcome {
                Err(error) if is_no_device(&error) => {}
                outcome => drop(outcome?),
            }
        }
        Ok(true)
    }

    /// Whose the pod's interface is, if it has one of the name that the sandbox wants.
    pub fn pod_interface(
        &mut self,
        sandbox: &Sandbox,
        pod: &mut PodNamespace,
    ) -> Result<PodInterface, HostError> {
        let Some(inside) = interface_of(sandbox, pod)? else { return Ok(PodInterface::None) };
        let is_own = |outside: Link| outside.alias == Some(sandbox.alias()) || waiting(&outside).is_some();
        let is_own = self.other_end(&inside)?.is_some_and(is_own);
        Ok(if is_own { PodInterface::Own } else { PodInterface::Foreign })
    }

    /// The link of another sandbox of ours to which the pod's interface leads, if it has one of the name that this sandbox wants.
    pub fn predecessor(
        &mut self,
        sandbox: &Sandbox,
        pod: &mut PodNamespace,
    ) -> Result<Option<OwnedLink>, HostError> {
        let Some(inside) = interface_of(sandbox, pod)? else { return Ok(None) };
        let Some(outside) = self.other_end(&inside)? else { return Ok(None) };
        let owner = outside.owner().filter(|owner| owner != sandbox);
        Ok(owner.map(|owner| OwnedLink { name: outside.name, index: outside.index, owner }))
    }

    /// Removes a veth of this name that leads nowhere: both of its ends are on this node, and nobody marked it. Calico's plugin leaves one
    /// behind if it is killed. `false`: there is none, or it may be somebody's.
    pub fn remove_leftover(&mut self, device: &DeviceName) -> Result<bool, HostError> {
        let found = find_link(&mut self.netlink, device)?.filter(|link| {
            let is_veth = link.kind.as_deref() == Some("veth") && !link.peer_is_elsewhere;
            is_veth && link.alias.is_none() && link.master.is_none()
        });
        let Some(link) = found else { return Ok(false) };
        match self.netlink.execute_all(vec![messages::delete_link(&link.name, link.index)]) {
            Err(error) if is_no_device(&error) => Ok(true),
            outcome => outcome.map(|()| true),
        }
    }

    /// The other end of a pod's device, if it is a veth to this node.
    fn other_end(&mut self, inside: &Link) -> Result<Option<Link>, HostError> {
        let Some(outside_index) = inside.peer_index else { return Ok(None) };
        let outside = find_link_by_index(&mut self.netlink, outside_index)?;
        Ok(outside.filter(|outside| outside.peer_index == Some(inside.index)))
    }
}

fn interface_of(sandbox: &Sandbox, pod: &mut PodNamespace) -> Result<Option<Link>, HostError> {
    let device = DeviceName::new(sandbox.interface()).expect("a sandbox's interface is a device name");
    find_link(&mut pod.netlink, &device)
}

/// The name under which a sandbox's link is made, and which it keeps if the pod's is taken. Nobody else's.
pub(crate) fn own_name(sandbox: &Sandbox) -> DeviceName {
    sandbox.device_name(DeviceName::CALICO_PREFIX).expect("`cali` leaves room for the hash")
}

const REQUESTS_EACH: usize = 2;

/// Down first: an older kernel does not rename a device that is up. Down takes addresses, routes and neighbours
/// along, permanent ones, too.
fn out_of_service(link: &Link, sandbox: Option<&Sandbox>) -> [Request; REQUESTS_EACH] {
    let name = DeviceName::new(&format!("plgone{:x}", link.index)).expect("15 bytes at most");
    let alias = sandbox.map(Sandbox::detached_alias);
    [
        messages::set_down(&link.name, link.index),
        messages::set_aside(&link.name, link.index, &name, alias.as_deref()),
    ]
}

fn removal(links: &[OwnedLink]) -> Vec<Request> {
    if let [link] = links {
        return vec![messages::delete_link(&link.name, link.index)];
    }
    let into_group = links.iter().map(|link| messages::set_group(&link.name, link.index, REMOVAL_GROUP));
    into_group.chain([messages::delete_group(REMOVAL_GROUP)]).collect()
}

fn waiting(link: &Link) -> Option<OwnedLink> {
    Some(OwnedLink { name: link.name.clone(), index: link.index, owner: link.former_owner()? })
}
