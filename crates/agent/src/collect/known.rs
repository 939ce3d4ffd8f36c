//! What is known of a node's sandboxes: in its journal, in the kernel, in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use doctor::mended::Leftovers;
use host::OwnedLink;
use ipam::{INTERFACE_ATTRIBUTE, NODE_ATTRIBUTE, ROLE_ATTRIBUTE, TYPE_ATTRIBUTE};
use model::ipam::{Block, BlockAttribute};
use model::{Key, Sandbox};

use super::blocks::Blocks;
use crate::cni::{CniError, NetConf, Services};
use crate::endpoints::{LocalEndpoint, Vouched};
use crate::witness::Word;

/// The interface of an address that does not say one: Calico's own plugin knows only this.
const INTERFACE_UNSAID: &str = "eth0";

#[derive(Debug, Default)]
pub(super) struct Known {
    sandboxes: BTreeSet<Sandbox>,
    /// Those that lead into a pod's namespace.
    links: Vec<OwnedLink>,
    /// Names of all veths on the node that carry no alias of ours.
    foreign_devices: BTreeSet<String>,
    endpoints: BTreeMap<Sandbox, LocalEndpoint>,
    /// Those of which only addresses are ours: the kernel cannot tell whether they live.
    only_addresses: BTreeSet<Sandbox>,
    with_addresses: BTreeSet<Sandbox>,
    /// Devices by their sandboxes, wherever they lead.
    devices: BTreeMap<Sandbox, String>,
    /// Containers that use an address, by the journal and by endpoint records.
    users: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Endpoint records that name no sandbox, or that cannot be read.
    vouched: Vec<Vouched>,
}

impl Known {
    /// By the agent, with what it knows of the endpoints.
    pub(super) async fn gather(services: &Services, blocks: &mut Blocks) -> Result<Known, CniError> {
        let agent = services.agent().expect("only the agent collects");
        let book = agent.book.get().ok_or_else(|| CniError::broken("the store is not open"))?;
        let mut known = Known::of_kernel_and_journal(services).await?;
        let endpoints = agent.endpoints.all();
        for endpoint in &endpoints {
            known.add_user(&endpoint.container_id, &endpoint.addresses);
        }
        known.vouched = agent.endpoints.vouched();
        blocks.look(book, &agent.node, &mut known).await?;
        known.add_endpoints(endpoints);
        Ok(known)
    }

    /// For a single call.
    pub(super) async fn gather_for(netconf: &NetConf, services: &Services) -> Result<Known, CniError> {
        let mut blocks = Blocks::default();
        if services.agent().is_some() {
            return Known::gather(services, &mut blocks).await;
        }
        let mut known = Known::of_kernel_and_journal(services).await?;
        if let Some(book) = services.existing_book_if_any(netconf).await? {
            blocks.look(&book, &services.node_name(netconf)?, &mut known).await?;
        }
        Ok(known)
    }

    async fn of_kernel_and_journal(services: &Services) -> Result<Known, CniError> {
        let (owned, links, foreign_devices) = services
            .in_kernel(|host| Ok((host.owned_links()?, host.links_into_pods()?, host.foreign_veths()?)))
            .await?;
        let devices: BTreeMap<Sandbox, String> =
            owned.into_iter().map(|link| (link.owner, link.name)).collect();
        let mut sandboxes: BTreeSet<Sandbox> = devices.keys().cloned().collect();
        let mut known = Known { links, foreign_devices, devices, ..Known::default() };
        for entry in services.journal().map(|journal| journal.all()).unwrap_or_default() {
            known.add_user(entry.attachment.sandbox.container_id(), &entry.attachment.addresses);
            sandboxes.insert(entry.attachment.sandbox);
        }
        Ok(Known { sandboxes, ..known })
    }

    pub(super) fn sandboxes(&self) -> impl Iterator<Item = &Sandbox> {
        self.sandboxes.iter()
    }

    pub(super) fn endpoint_of(&self, sandbox: &Sandbox) -> Option<Key> {
        self.endpoints.get(sandbox).map(|endpoint| endpoint.record.key.clone())
    }

    /// What there is of a sandbox besides its entry in the journal.
    pub(super) fn leftovers_of(&self, sandbox: &Sandbox) -> Leftovers<'_> {
        Leftovers {
            has_endpoint: self.endpoints.contains_key(sandbox),
            has_addresses: self.with_addresses.contains(sandbox),
            device: self.devices.get(sandbox).map(String::as_str),
        }
    }

    /// Sandboxes with an endpoint record and a device, and whether that carries their alias. Not those of which
    /// nothing says the network.
    pub(super) fn with_device(&self) -> impl Iterator<Item = (&Sandbox, &LocalEndpoint, bool)> {
        self.endpoints.iter().filter_map(|(sandbox, endpoint)| {
            let is_own = self.links.iter().any(|link| link.owner == *sandbox);
            let is_there = is_own || self.has_foreign_device(endpoint);
            (is_there && sandbox.network() != UNKNOWN_NETWORK).then_some((sandbox, endpoint, is_own))
        })
    }

    fn has_foreign_device(&self, endpoint: &LocalEndpoint) -> bool {
        endpoint.device.as_ref().is_some_and(|device| self.foreign_devices.contains(device.as_str()))
    }

    /// A device that carries the sandbox's alias and whose other end lies in another namespace means that this
    /// namespace is there: a veth goes away with either end. One whose other end came back to the node says nothing.
    pub(super) fn kernel_says(&self, sandbox: &Sandbox) -> Word {
        if self.links.iter().any(|link| link.owner == *sandbox) {
            return Word::Alive;
        }
        if self.only_addresses.contains(sandbox) {
            return Word::Nothing;
        }
        // A device under the recorded name that is not ours may be what Calico's plugin made for it.
        if self.endpoints.get(sandbox).is_some_and(|endpoint| self.has_foreign_device(endpoint)) {
            Word::Alive
        } else {
            Word::Gone
        }
    }

    /// Addresses in a block that are this node's pods'. Whether there are any.
    pub(super) fn add_block(&mut self, block: &Block, node: &str) -> bool {
        let mut has_some = false;
        for ordinal in 0..block.capacity() {
            let Some(attribute) = block.attribute(ordinal) else { continue };
            let Some(sandbox) = sandbox_of(attribute, node) else { continue };
            // Whatever the handle is called: an address that somebody else uses is not given back with it. Handles by pod names
            // look like those of sandboxes that do not exist.
            if block.address(ordinal).is_some_and(|address| self.is_of_another(address, &sandbox)) {
                continue;
            }
            // What only its address tells of may be what such a record is about.
            let is_known = self.sandboxes.contains(&sandbox);
            if !is_known && block.address(ordinal).is_some_and(|address| self.is_vouched(address)) {
                continue;
            }
            if attribute.secondary.contains_key(ROLE_ATTRIBUTE) {
                self.only_addresses.insert(sandbox.clone());
            }
            self.with_addresses.insert(sandbox.clone());
            self.sandboxes.insert(sandbox);
            has_some = true;
        }
        has_some
    }

    fn add_user(&mut self, container_id: &str, addresses: &[IpAddr]) {
        for address in addresses {
            self.users.entry(*address).or_default().insert(container_id.to_owned());
        }
    }

    fn is_of_another(&self, address: IpAddr, sandbox: &Sandbox) -> bool {
        self.users.get(&address).is_some_and(|users| !users.contains(sandbox.container_id()))
    }

    /// Whether a record that names no sandbox has this address, or one that cannot be read may have it.
    fn is_vouched(&self, address: IpAddr) -> bool {
        self.vouched.iter().any(|vouched| match vouched {
            Vouched::AnyAddress => true,
            Vouched::Addresses(addresses) => addresses.contains(&address),
        })
    }

    /// An endpoint says its container and interface; whoever else knows that container says the network. One that
    /// nothing else speaks of belongs to some network: whose, does not matter for removing its record.
    fn add_endpoints(&mut self, endpoints: Vec<LocalEndpoint>) {
        for endpoint in endpoints {
            let is_same = |sandbox: &&Sandbox| {
                sandbox.container_id() == endpoint.container_id && sandbox.interface() == endpoint.interface
            };
            let known = self.sandboxes.iter().find(is_same).cloned();
            let sandbox = known
                .or_else(|| Sandbox::new(UNKNOWN_NETWORK, &endpoint.container_id, &endpoint.interface).ok());
            let Some(sandbox) = sandbox else { continue };
            self.sandboxes.insert(sandbox.clone());
            self.endpoints.insert(sandbox, endpoint);
        }
    }
}

/// Stands for the network of an endpoint that has neither an address nor a device nor a journal entry.
const UNKNOWN_NETWORK: &str = "unknown";

/// The sandbox on this node that an address was given to; `None` for addresses of nodes, tunnels, machines.
fn sandbox_of(attribute: &BlockAttribute, node: &str) -> Option<Sandbox> {
    let note = |key: &str| attribute.secondary.get(key).map(String::as_str);
    let is_of_something_else =
        note(TYPE_ATTRIBUTE).is_some() || attribute.secondary.keys().any(|key| key.starts_with("vm"));
    // What cools down is nobody's any more.
    if is_of_something_else || attribute.released_at.is_some() || note(NODE_ATTRIBUTE) != Some(node) {
        return None;
    }
    let (network, container) = attribute.handle()?.rsplit_once('.')?;
    Sandbox::new(network, container, note(INTERFACE_ATTRIBUTE).unwrap_or(INTERFACE_UNSAID)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(handle: &str, notes: &[(&str, &str)]) -> BlockAttribute {
        let secondary = notes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        BlockAttribute { handle_id: Some(handle.to_owned()), secondary, ..BlockAttribute::default() }
    }

    fn endpoint(container: &str, device: &str) -> LocalEndpoint {
        let key =
            Key::namespaced(model::Kind::WorkloadEndpoint, "shop", format!("node-k8s-{container}-eth0"));
        LocalEndpoint {
            record: store::Record { key, value: "{}".into(), revision: store::Revision::new("1") },
            container_id: container.to_owned(),
            interface: "eth0".to_owned(),
            device: model::DeviceName::new(device).ok(),
            mac: None,
            addresses: Vec::new(),
            more_sources: Vec::new(),
            pod: None,
        }
    }

    #[test]
    fn addresses_lead_to_their_sandboxes_and_only_those_of_this_node() {
        let own = attribute("k8s-pod-network.c1", &[("node", "a"), ("pod", "web-0")]);
        assert_eq!(sandbox_of(&own, "a"), Sandbox::new("k8s-pod-network", "c1", "eth0").ok());
        assert_eq!(sandbox_of(&own, "b"), None);
        let second = attribute("my.net.c1", &[("node", "a"), ("interface", "net1")]);
        assert_eq!(sandbox_of(&second, "a"), Sandbox::new("my.net", "c1", "net1").ok());
        let tunnel =
            attribute("vxlan-tunnel-addr-a.example.com", &[("node", "a"), ("type", "vxlanTunnelAddress")]);
        assert_eq!(sandbox_of(&tunnel, "a"), None);
        let machine = attribute("net.shop-vm1", &[("node", "a"), ("vmi-name", "vm1")]);
        assert_eq!(sandbox_of(&machine, "a"), None);
    }

    #[test]
    fn an_address_that_another_uses_is_not_taken_for_a_leak() {
        let mut block = Block::new("10.0.0.0/29".parse().unwrap(), None, 1);
        for (ordinal, handle) in [(0, "shop.web-0"), (1, "net.gone"), (2, "net.lives")] {
            ipam::set_allocation(&mut block, ordinal, Some(attribute(handle, &[("node", "a")])));
        }
        let mut known = Known::default();
        let address = |text: &str| [text.parse().unwrap()];
        known.add_user("runs", &address("10.0.0.0"));
        known.add_user("lives", &address("10.0.0.2"));
        known.add_block(&block, "a");
        let found: Vec<&str> = known.sandboxes().map(Sandbox::container_id).collect();
        assert_eq!(found, ["gone", "lives"]);
    }

    #[test]
    fn what_a_record_without_a_sandbox_may_use_is_no_leak() {
        let mut block = Block::new("10.0.0.0/29".parse().unwrap(), None, 1);
        for (ordinal, handle) in [(0, "shop.web-0"), (1, "net.gone"), (2, "net.noted")] {
            ipam::set_allocation(&mut block, ordinal, Some(attribute(handle, &[("node", "a")])));
        }
        let found = |vouched: Vec<Vouched>| {
            let noted = Sandbox::new("net", "noted", "eth0").unwrap();
            let mut known = Known { vouched, sandboxes: [noted].into(), ..Known::default() };
            known.add_block(&block, "a");
            known.sandboxes().map(|sandbox| sandbox.container_id().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(Vec::new()), ["gone", "noted", "web-0"]);
        let named = Vouched::Addresses(vec!["10.0.0.0".parse().unwrap()]);
        assert_eq!(found(vec![named]), ["gone", "noted"]);
        assert_eq!(found(vec![Vouched::AnyAddress]), ["noted"], "the journal knows this one by itself");
    }

    #[test]
    fn the_kernel_speaks_for_devices_of_ours_and_of_calicos() {
        let sandbox = |container: &str| Sandbox::new("net", container, "eth0").unwrap();
        let mut known = Known {
            sandboxes: ["linked", "calicos", "gone", "address"].map(sandbox).into(),
            links: vec![OwnedLink { name: "cali1".to_owned(), index: 7, owner: sandbox("linked") }],
            foreign_devices: BTreeSet::from(["cali2".to_owned()]),
            only_addresses: BTreeSet::from([sandbox("address")]),
            ..Known::default()
        };
        known.add_endpoints(vec![
            endpoint("calicos", "cali2"),
            endpoint("gone", "cali3"),
            endpoint("lost", "cali4"),
        ]);
        let says = |container: &str| known.kernel_says(&sandbox(container));
        assert_eq!(says("linked"), Word::Alive);
        assert_eq!(says("calicos"), Word::Alive);
        assert_eq!(says("gone"), Word::Gone);
        assert_eq!(says("address"), Word::Nothing);
        let with_device: Vec<_> =
            known.with_device().map(|(sandbox, _, is_own)| (sandbox.container_id(), is_own)).collect();
        assert_eq!(with_device, [("calicos", false)]);
        let lost = Sandbox::new(UNKNOWN_NETWORK, "lost", "eth0").unwrap();
        assert_eq!((known.kernel_says(&lost), known.endpoint_of(&lost).is_some()), (Word::Gone, true));
    }
}
