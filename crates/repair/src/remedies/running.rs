//! What a running sandbox really has: the runtime's list, the view from inside, and the device that leads to it.

use std::net::IpAddr;

use model::{HandleId, Mac, Sandbox};
use plan::USUAL_INTERFACE;

use super::super::draft::Ground;
use evidence::kernel::{Link, PodView};
use evidence::node::RuntimeSandbox;
use evidence::{Endpoint, NodeEvidence, PodName, same_id};

/// A sandbox that runs, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct Running<'e> {
    pub(super) sandbox: &'e RuntimeSandbox,
    pub(super) node: &'e NodeEvidence,
    pub(super) inside: Option<&'e PodView>,
}

impl<'e> Running<'e> {
    /// The one ready sandbox of a pod, on whichever node was asked. `None` also if there are several.
    pub(super) fn of_pod(ground: &Ground<'e>, pod: &PodName) -> Option<Running<'e>> {
        let is_it = |sandbox: &RuntimeSandbox| sandbox.pod.may_be(pod);
        let mut found = all(ground).filter(|running| is_it(running.sandbox));
        found.next().filter(|_| found.next().is_none())
    }

    /// The sandbox with this ID, if it is ready.
    pub(super) fn by_id(ground: &Ground<'e>, container_id: &str) -> Option<Running<'e>> {
        all(ground).find(|running| same_id(&running.sandbox.id, container_id))
    }

    /// The sandbox that an endpoint's record names, if it is ready.
    pub(super) fn of(ground: &Ground<'e>, endpoint: &Endpoint) -> Option<Running<'e>> {
        Running::by_id(ground, endpoint.container_id.as_deref()?)
    }

    /// Inside the pod, without what the kernel makes itself. `None`: nobody looked.
    pub(super) fn addresses(&self) -> Option<Vec<IpAddr>> {
        let addresses = self.inside?.kernel.addresses.as_deref()?;
        let on_interface = addresses.iter().filter(|held| held.seen.device == USUAL_INTERFACE);
        let is_given = |address: &IpAddr| match address {
            IpAddr::V4(address) => !address.is_link_local(),
            IpAddr::V6(address) => !address.is_unicast_link_local(),
        };
        Some(on_interface.map(|held| held.seen.net.addr()).filter(is_given).collect())
    }

    /// Those of them that are the network's: Kubernetes shows them, or the books or the agent's journal gave them to this sandbox.
    /// What somebody added inside (a floating address) is theirs. Where nobody vouches for any: those of the network's blocks.
    pub(super) fn own_addresses(&self, ground: &Ground<'e>) -> Option<Vec<IpAddr>> {
        let inside = self.addresses()?;
        let is_shown = |address: &IpAddr| {
            let mut pods = ground.case.pods_at(*address).iter();
            pods.any(|pod| pod.seen.name.may_be(&self.sandbox.pod))
        };
        let is_given = |address: &IpAddr| {
            let allocation = ground.case.allocation(*address);
            let handle = allocation.and_then(|allocation| allocation.attribute.handle());
            let id = handle.and_then(HandleId::container);
            id.is_some_and(|id| same_id(id, &self.sandbox.id))
        };
        let is_noted = |address: &IpAddr| {
            let mut held = self.node.attachments.iter().flatten().map(|held| &held.seen);
            held.any(|held| same_id(&held.container_id, &self.sandbox.id) && held.addresses.contains(address))
        };
        let is_vouched = |address: &IpAddr| is_shown(address) || is_given(address) || is_noted(address);
        let vouched: Vec<IpAddr> = inside.iter().copied().filter(is_vouched).collect();
        if !vouched.is_empty() {
            return Some(vouched);
        }
        let in_blocks = |address: &IpAddr| super::addresses::block_of(ground, *address).is_some();
        let of_blocks: Vec<IpAddr> = inside.iter().copied().filter(in_blocks).collect();
        Some(if of_blocks.is_empty() { inside } else { of_blocks })
    }

    pub(super) fn interface(&self) -> Option<&'e Link> {
        self.inside?.kernel.link(USUAL_INTERFACE).map(|link| &link.seen)
    }

    pub(super) fn mac(&self) -> Option<Mac> {
        self.interface()?.mac
    }

    /// The device on the node that leads to it: by its alias, by the agent's journal, or by the number of the other end.
    pub(super) fn device(&self) -> Option<&'e Link> {
        let links = || self.node.kernel.links.iter().flatten().map(|link| &link.seen);
        let by_alias = |link: &&Link| {
            let sandbox = link.alias.as_deref().and_then(Sandbox::from_alias);
            sandbox.is_some_and(|sandbox| same_id(sandbox.container_id(), &self.sandbox.id))
        };
        let peer = self.interface().and_then(|interface| interface.peer_index);
        let by_number = |link: &&Link| peer.is_some() && link.index == peer && link.is_workload();
        links().find(by_alias).or_else(|| links().find(by_number))
    }
}

fn all<'g, 'e>(ground: &'g Ground<'e>) -> impl Iterator<Item = Running<'e>> + use<'g, 'e> {
    ground.case.all_nodes().flat_map(|node| {
        let ready = node.sandboxes.iter().flatten().map(|sandbox| &sandbox.seen);
        ready.filter(|sandbox| sandbox.is_ready == Some(true)).map(move |sandbox| {
            let mut views = node.pod_views.iter().flatten();
            let is_its =
                |view: &&PodView| view.container_id.as_deref().is_some_and(|id| same_id(id, &sandbox.id));
            Running { sandbox, node, inside: views.find(is_its) }
        })
    })
}
