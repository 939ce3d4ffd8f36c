//! All sandboxes of a node, from its journal, the kernel and the store.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use doctor::mended::Leftovers;
use host::OwnedLink;
use ipam::{
    INTERFACE_ATTRIBUTE, NAMESPACE_ATTRIBUTE, NODE_ATTRIBUTE, POD_ATTRIBUTE, POD_UID_ATTRIBUTE,
    ROLE_ATTRIBUTE, ReleaseItem, TYPE_ATTRIBUTE,
};
use model::ipam::{Block, BlockAttribute};
use model::{DeviceName, Key, Sandbox};

use super::blocks;
use super::orchestrator::PodOwner;
use crate::endpoints::{LocalEndpoint, Vouched};
use crate::journal::Journal;
use crate::services::{Agent, Services};
use crate::verbs::{CniError, NetConf};
use crate::witness::Word;

/// The interface of an address that names none: Calico's plugin has only this one.
const INTERFACE_DEFAULT: &str = "eth0";

#[derive(Debug, Default)]
pub(super) struct Inventory {
    sandboxes: BTreeSet<Sandbox>,
    /// Links of ours that lead into a pod's namespace.
    links: Vec<OwnedLink>,
    /// Names of all veths on the node without our alias.
    foreign_devices: BTreeSet<String>,
    endpoints: BTreeMap<Sandbox, LocalEndpoint>,
    /// Sandboxes of other plugins, of which only the addresses are ours: the kernel cannot tell whether they live.
    only_addresses: BTreeSet<Sandbox>,
    /// Addresses by sandbox, as the blocks say.
    addresses: BTreeMap<Sandbox, Vec<ReleaseItem>>,
    /// Devices by sandbox, wherever their other end is.
    devices: BTreeMap<Sandbox, String>,
    /// Containers that use an address, by the journal and by endpoint records.
    users: BTreeMap<IpAddr, BTreeSet<String>>,
    /// Addresses of endpoint records that name no sandbox, or cannot be read.
    vouched: Vec<Vouched>,
    /// The pods that sandboxes were made for.
    owners: BTreeMap<Sandbox, PodOwner>,
}

impl Inventory {
    /// With the endpoints that the agent has cached.
    pub(super) async fn of_agent(agent: &Agent) -> Result<Inventory, CniError> {
        let book = agent.book.get_or_fail()?;
        let mut inventory = Inventory::of_kernel_and_journal(Services::Agent(agent)).await?;
        let endpoints = agent.endpoints.all();
        for endpoint in &endpoints {
            inventory.add_user(&endpoint.container_id, &endpoint.addresses);
        }
        inventory.vouched = agent.endpoints.vouched();
        let followed = agent.routes.get().and_then(|routes| routes.blocks_of_node());
        blocks::read(book, &agent.node, followed, &mut inventory).await?;
        inventory.add_endpoints(endpoints);
        Ok(inventory)
    }

    /// Without an agent.
    pub(super) async fn of_call(netconf: &NetConf, services: Services<'_>) -> Result<Inventory, CniError> {
        let mut inventory = Inventory::of_kernel_and_journal(services).await?;
        if let Some(book) = services.existing_book_if_any(netconf).await? {
            let node = services.node_name(netconf)?;
            blocks::read(&book, &node, None, &mut inventory).await?;
        }
        Ok(inventory)
    }

    async fn of_kernel_and_journal(services: Services<'_>) -> Result<Inventory, CniError> {
        let (owned, links, foreign_devices) = services
            .in_kernel(|host| Ok((host.owned_links()?, host.links_into_pods()?, host.foreign_veths()?)))
            .await?;
        let devices: BTreeMap<Sandbox, String> =
            owned.into_iter().map(|link| (link.owner, link.name)).collect();
        let mut sandboxes: BTreeSet<Sandbox> = devices.keys().cloned().collect();
        let mut inventory = Inventory { links, foreign_devices, devices, ..Inventory::default() };
        for entry in services.journal().map(Journal::all).unwrap_or_default() {
            let sandbox = entry.attachment.sandbox;
            inventory.add_user(sandbox.container_id(), &entry.attachment.addresses);
            inventory.owners.extend(
                entry.pod.map(|(namespace, name)| (sandbox.clone(), PodOwner { namespace, name, uid: None })),
            );
            sandboxes.insert(sandbox);
        }
        Ok(Inventory { sandboxes, ..inventory })
    }

    pub(super) fn sandboxes(&self) -> impl Iterator<Item = &Sandbox> {
        self.sandboxes.iter()
    }

    pub(super) fn owner_of(&self, sandbox: &Sandbox) -> Option<&PodOwner> {
        self.owners.get(sandbox)
    }

    pub(super) fn endpoint_of(&self, sandbox: &Sandbox) -> Option<Key> {
        self.endpoints.get(sandbox).map(|endpoint| endpoint.record.key.clone())
    }

    /// What remains of a sandbox besides its journal entry.
    pub(super) fn leftovers_of(&self, sandbox: &Sandbox) -> Leftovers<'_> {
        Leftovers {
            has_endpoint: self.endpoints.contains_key(sandbox),
            has_addresses: self.addresses.contains_key(sandbox),
            device: self.devices.get(sandbox).map(String::as_str),
        }
    }

    /// Sandboxes with an endpoint record and a device, and whether the device has their alias. Not those of an unknown network.
    pub(super) fn with_device(&self) -> impl Iterator<Item = (&Sandbox, &LocalEndpoint, bool)> {
        self.endpoints.iter().filter_map(|(sandbox, endpoint)| {
            let is_own = self.links.iter().any(|link| link.owner == *sandbox);
            let is_there = is_own || self.has_foreign_device(endpoint);
            (is_there && sandbox.network() != UNKNOWN_NETWORK).then_some((sandbox, endpoint, is_own))
        })
    }

    /// What the blocks hold for it, to be released by address where its handle is missing.
    pub(super) fn addresses_of(&self, sandbox: &Sandbox) -> Vec<ReleaseItem> {
        self.addresses.get(sandbox).cloned().unwrap_or_default()
    }

    /// The device with the sandbox's alias.
    pub(super) fn own_device(&self, sandbox: &Sandbox) -> Option<DeviceName> {
        self.devices.get(sandbox).and_then(|name| DeviceName::new(name).ok())
    }

    fn has_foreign_device(&self, endpoint: &LocalEndpoint) -> bool {
        endpoint.device.as_ref().is_some_and(|device| self.foreign_devices.contains(device.as_str()))
    }

    /// A device with the sandbox's alias whose other end is in another namespace proves that this namespace exists: a veth disappears with
    /// either end. One whose other end came back to the node proves nothing.
    pub(super) fn kernel_word(&self, sandbox: &Sandbox) -> Word {
        if self.links.iter().any(|link| link.owner == *sandbox) {
            return Word::Alive;
        }
        if self.only_addresses.contains(sandbox) {
            return Word::Nothing;
        }
        // Calico's plugin may have made the device of the recorded name.
        if self.endpoints.get(sandbox).is_some_and(|endpoint| self.has_foreign_device(endpoint)) {
            Word::Alive
        } else {
            Word::Gone
        }
    }

    /// Adds the sandboxes of this node that hold addresses in a block.
    pub(super) fn add_block(&mut self, block: &Block, node: &str) {
        for ordinal in 0..block.capacity() {
            let Some(attribute) = block.attribute(ordinal) else { continue };
            let Some(sandbox) = sandbox_of(attribute, node) else { continue };
            // An address that another container uses must not be released with this handle: handles by pod name look like those of
            // sandboxes that do not exist.
            if block.address(ordinal).is_some_and(|address| self.is_of_another(address, &sandbox)) {
                continue;
            }
            // A sandbox that only this address names may be that of a record without a sandbox.
            let is_listed = self.sandboxes.contains(&sandbox);
            if !is_listed && block.address(ordinal).is_some_and(|address| self.is_vouched(address)) {
                continue;
            }
            if attribute.secondary.contains_key(ROLE_ATTRIBUTE) {
                self.only_addresses.insert(sandbox.clone());
            }
            let item = block.address(ordinal).map(|address| ReleaseItem {
                address,
                handle: Some(sandbox.handle()),
                sequence_number: Some(block.sequence_of(ordinal)),
            });
            self.addresses.entry(sandbox.clone()).or_default().extend(item);
            // The one record that has the pod's UID.
            self.owners.extend(owner_of(attribute).map(|owner| (sandbox.clone(), owner)));
            self.sandboxes.insert(sandbox);
        }
    }

    fn add_user(&mut self, container_id: &str, addresses: &[IpAddr]) {
        for address in addresses {
            self.users.entry(*address).or_default().insert(container_id.to_owned());
        }
    }

    fn is_of_another(&self, address: IpAddr, sandbox: &Sandbox) -> bool {
        self.users.get(&address).is_some_and(|users| !users.contains(sandbox.container_id()))
    }

    /// Whether a record that names no sandbox has this address, or an unreadable one may have it.
    fn is_vouched(&self, address: IpAddr) -> bool {
        self.vouched.iter().any(|vouched| match vouched {
            Vouched::AnyAddress => true,
            Vouched::Addresses(addresses) => addresses.contains(&address),
        })
    }

    /// An endpoint names its container and interface; the network comes from anything else that names the container. Without that the network
    /// is unknown, which does not matter for removing the record.
    fn add_endpoints(&mut self, endpoints: Vec<LocalEndpoint>) {
        for endpoint in endpoints {
            let is_same = |sandbox: &&Sandbox| {
                sandbox.container_id() == endpoint.container_id && sandbox.interface() == endpoint.interface
            };
            let listed = self.sandboxes.iter().find(is_same).cloned();
            let sandbox = listed
                .or_else(|| Sandbox::new(UNKNOWN_NETWORK, &endpoint.container_id, &endpoint.interface).ok());
            let Some(sandbox) = sandbox else { continue };
            self.sandboxes.insert(sandbox.clone());
            self.endpoints.insert(sandbox, endpoint);
        }
    }
}

/// The network of an endpoint that has neither an address nor a device nor a journal entry.
const UNKNOWN_NETWORK: &str = "unknown";

/// The pod that an address was allocated for.
fn owner_of(attribute: &BlockAttribute) -> Option<PodOwner> {
    let recorded = |key: &str| attribute.secondary.get(key).cloned();
    let (namespace, name) = (recorded(NAMESPACE_ATTRIBUTE)?, recorded(POD_ATTRIBUTE)?);
    Some(PodOwner { namespace, name, uid: recorded(POD_UID_ATTRIBUTE) })
}

/// The sandbox on this node that holds an address; `None` for addresses of nodes, tunnels and virtual machines.
fn sandbox_of(attribute: &BlockAttribute, node: &str) -> Option<Sandbox> {
    let recorded = |key: &str| attribute.secondary.get(key).map(String::as_str);
    let is_of_something_else =
        recorded(TYPE_ATTRIBUTE).is_some() || attribute.secondary.keys().any(|key| key.starts_with("vm"));
    // An address in its cooldown has no owner any more.
    if is_of_something_else || attribute.released_at.is_some() || recorded(NODE_ATTRIBUTE) != Some(node) {
        return None;
    }
    let (network, container) = attribute.handle()?.sandbox()?;
    Sandbox::new(network, container, recorded(INTERFACE_ATTRIBUTE).unwrap_or(INTERFACE_DEFAULT)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(handle: &str, notes: &[(&str, &str)]) -> BlockAttribute {
        let secondary = notes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        BlockAttribute { handle_id: Some(handle.into()), secondary, ..BlockAttribute::default() }
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
            uids: Vec::new(),
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
    fn an_address_that_another_container_uses_is_not_a_leak() {
        let mut block = Block::new("10.0.0.0/29".parse().unwrap(), None, 1);
        for (ordinal, handle) in [(0, "shop.web-0"), (1, "net.gone"), (2, "net.lives")] {
            ipam::set_allocation(&mut block, ordinal, Some(attribute(handle, &[("node", "a")])));
        }
        let mut inventory = Inventory::default();
        let address = |text: &str| [text.parse().unwrap()];
        inventory.add_user("runs", &address("10.0.0.0"));
        inventory.add_user("lives", &address("10.0.0.2"));
        inventory.add_block(&block, "a");
        let found: Vec<&str> = inventory.sandboxes().map(Sandbox::container_id).collect();
        assert_eq!(found, ["gone", "lives"]);
        let gone = Sandbox::new("net", "gone", "eth0").unwrap();
        let items = inventory.addresses_of(&gone);
        assert_eq!(items.iter().map(|item| item.address).collect::<Vec<_>>(), address("10.0.0.1"));
        assert!(
            items.iter().all(|item| item.handle == Some(gone.handle()) && item.sequence_number.is_some())
        );
    }

    #[test]
    fn an_address_that_a_record_without_a_sandbox_may_use_is_not_a_leak() {
        let mut block = Block::new("10.0.0.0/29".parse().unwrap(), None, 1);
        for (ordinal, handle) in [(0, "shop.web-0"), (1, "net.gone"), (2, "net.noted")] {
            ipam::set_allocation(&mut block, ordinal, Some(attribute(handle, &[("node", "a")])));
        }
        let found = |vouched: Vec<Vouched>| {
            let noted = Sandbox::new("net", "noted", "eth0").unwrap();
            let mut inventory = Inventory { vouched, sandboxes: [noted].into(), ..Inventory::default() };
            inventory.add_block(&block, "a");
            inventory.sandboxes().map(|sandbox| sandbox.container_id().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(Vec::new()), ["gone", "noted", "web-0"]);
        let named = Vouched::Addresses(vec!["10.0.0.0".parse().unwrap()]);
        assert_eq!(found(vec![named]), ["gone", "noted"]);
        assert_eq!(found(vec![Vouched::AnyAddress]), ["noted"], "this one is in the journal");
    }

    #[test]
    fn the_kernel_speaks_for_devices_of_ours_and_of_calicos() {
        let sandbox = |container: &str| Sandbox::new("net", container, "eth0").unwrap();
        let mut inventory = Inventory {
            sandboxes: ["linked", "calicos", "gone", "address"].map(sandbox).into(),
            links: vec![OwnedLink { name: "cali1".to_owned(), index: 7, owner: sandbox("linked") }],
            foreign_devices: BTreeSet::from(["cali2".to_owned()]),
            only_addresses: BTreeSet::from([sandbox("address")]),
            ..Inventory::default()
        };
        inventory.add_endpoints(vec![
            endpoint("calicos", "cali2"),
            endpoint("gone", "cali3"),
            endpoint("lost", "cali4"),
        ]);
        let word = |container: &str| inventory.kernel_word(&sandbox(container));
        assert_eq!(word("linked"), Word::Alive);
        assert_eq!(word("calicos"), Word::Alive);
        assert_eq!(word("gone"), Word::Gone);
        assert_eq!(word("address"), Word::Nothing);
        let with_device: Vec<_> =
            inventory.with_device().map(|(sandbox, _, is_own)| (sandbox.container_id(), is_own)).collect();
        assert_eq!(with_device, [("calicos", false)]);
        let lost = Sandbox::new(UNKNOWN_NETWORK, "lost", "eth0").unwrap();
        let word = inventory.kernel_word(&lost);
        assert_eq!((word, inventory.endpoint_of(&lost).is_some()), (Word::Gone, true));
    }
}
