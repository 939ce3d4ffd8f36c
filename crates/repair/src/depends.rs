//! Which steps rest on which: when one did not go, those that do not depend on it are done all the same.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::ipam::BlockAttribute;
use model::{HandleId, Key, NodeName};
use plan::task::{KernelChange, NextHop, RepairTask};

use super::edit::{Edit, Holding, Is};
use super::plan::Step;

/// What a step has to do with.
#[derive(Clone, Debug, Default)]
pub struct Footing {
    /// It makes or changes these.
    own: BTreeSet<String>,
    /// It takes these to be as they must be.
    leans_on: BTreeSet<String>,
}

impl Step {
    /// Whether it would rest on what another one makes.
    pub fn depends_on(&self, other: &Step) -> bool {
        Footing::of(self).rests_on(&Footing::of(other))
    }
}

impl Footing {
    /// Whether it takes for granted, or changes itself, what another one makes.
    pub fn rests_on(&self, other: &Footing) -> bool {
        self.own.iter().chain(&self.leans_on).any(|thing| other.own.contains(thing))
    }

    pub fn of(step: &Step) -> Footing {
        let mut things = Footing::default();
        step.edits.iter().for_each(|edit| things.edit(edit));
        if let Some(on_node) = &step.on_node {
            on_node.works.iter().for_each(|work| things.work(&on_node.node, work));
        }
        things
    }

    fn owns(&mut self, thing: impl Into<String>) {
        self.own.insert(thing.into());
    }

    fn leans(&mut self, thing: impl Into<String>) {
        self.leans_on.insert(thing.into());
    }

    fn edit(&mut self, edit: &Edit) {
        match edit {
            // Addresses of one block stand side by side; the block itself must be there.
            Edit::Allocation { block, address, from, to } => {
                self.leans(format!("block {block}"));
                self.owns(of_address(*address));
                from.iter().chain(to).for_each(|Holding { attribute, .. }| self.holder(attribute));
            }
            Edit::Count { handle, block, .. } => {
                self.leans(format!("block {block}"));
                self.handle(handle);
            }
            Edit::Owner { block, .. } => self.owns(format!("block {block}")),
            Edit::Lists { block, owners } => {
                self.owns(format!("block {block}"));
                owners.iter().for_each(|(address, _)| self.owns(of_address(*address)));
            }
            Edit::NewBlock { block, holds, .. } => {
                self.owns(format!("block {block}"));
                holds.iter().for_each(|(address, _)| self.owns(of_address(*address)));
            }
            Edit::Field { key, .. } => self.key(key),
            Edit::Record { key, from, to } => {
                self.key(key);
                if let Some(Is::Sandbox(Some(id))) = from {
                    self.owns(format!("sandbox {id}"));
                }
                to.iter().for_each(|text| self.record(text));
            }
        }
    }

    fn holder(&mut self, attribute: &BlockAttribute) {
        if let Some(handle) = attribute.handle() {
            self.handle(handle);
        }
    }

    /// `NETWORK.CONTAINER` is a sandbox's.
    fn handle(&mut self, handle: &HandleId) {
        self.owns(format!("handle {handle}"));
        if let Some(id) = handle.container() {
            self.owns(format!("sandbox {id}"));
        }
    }

    fn key(&mut self, key: &Key) {
        match key {
            Key::Handle(handle) => self.handle(handle),
            Key::Block(block) => self.owns(format!("block {block}")),
            Key::Affinity { block, .. } => {
                self.leans(format!("block {block}"));
                self.owns(key.etcd_text());
            }
            key => self.owns(key.etcd_text()),
        }
    }

    /// Addresses and sandbox of an endpoint's record.
    fn record(&mut self, text: &str) {
        let Ok(record) = serde_json::from_str::<serde_json::Value>(text) else { return };
        let spec = &record["spec"];
        if let Some(id) = spec["containerID"].as_str().filter(|id| !id.is_empty()) {
            self.owns(format!("sandbox {id}"));
        }
        let networks = spec["ipNetworks"].as_array().into_iter().flatten().filter_map(|text| text.as_str());
        let addresses = networks.filter_map(|text| text.split('/').next()?.parse().ok());
        addresses.for_each(|address: IpAddr| self.leans(of_address(address)));
    }

    fn work(&mut self, node: &NodeName, work: &RepairTask) {
        // A sandbox is a place of its own, with devices of its own.
        let place = match &work.inside {
            None => node.folded().into_owned(),
            Some(id) => {
                self.leans(format!("sandbox {id}"));
                format!("sandbox {id}")
            }
        };
        let device = |name: &str| format!("{place} device {name}");
        match &work.change {
            KernelChange::Route { destination, to, .. } => {
                self.owns(format!("{place} route {destination}"));
                self.leans(of_address(destination.addr()));
                if let Some(NextHop { device: Some(name), .. }) = to {
                    self.leans(device(name));
                }
                // A gateway is found by the neighbour that it is.
                if let Some(NextHop { via: Some(via), .. }) = to {
                    self.leans(format!("{place} neighbour {via}"));
                    self.leans(format!("{place} route {}", ipnet::IpNet::from(*via)));
                }
            }
            KernelChange::Neighbour { address, device: name, .. } => {
                self.owns(format!("{place} neighbour {address}"));
                self.leans(device(name));
                self.leans(of_address(*address));
            }
            KernelChange::Forward { device: name, mac, .. } => {
                self.owns(format!("{place} forward {mac} at {name}"));
                self.leans(device(name));
            }
            KernelChange::Address { device: name, net, .. } => {
                self.owns(format!("{place} address {net}"));
                self.leans(device(name));
            }
            KernelChange::Tunnel { device: name, .. }
            | KernelChange::Up { device: name, .. }
            | KernelChange::Mtu { device: name, .. }
            | KernelChange::Device { device: name, .. } => self.owns(device(name)),
            KernelChange::Sysctl { path, .. } => self.owns(format!("{place} {path}")),
            KernelChange::Wire(wire) | KernelChange::Unwire(wire) => {
                self.owns(format!("sandbox {}", wire.container_id));
                self.owns(device(&wire.device));
                wire.addresses.iter().for_each(|address| self.leans(of_address(*address)));
            }
        }
    }
}

fn of_address(address: IpAddr) -> String {
    format!("address {address}")
}

#[cfg(test)]
mod tests {
    use model::FindingCode;

    use super::*;
    use crate::plan::OnNode;

    fn on(node: &NodeName, change: KernelChange) -> Step {
        let works = vec![RepairTask::here(change)];
        Step {
            on_node: Some(OnNode { node: node.clone(), works }),
            ..Step::new(FindingCode::DeviceDown, "", "")
        }
    }

    fn route(to: &str, device: &str) -> KernelChange {
        let to_device = NextHop { device: Some(device.to_owned()), ..NextHop::default() };
        KernelChange::Route { destination: to.parse().unwrap(), from: None, to: Some(to_device) }
    }

    fn give(address: &str, handle: &str) -> Step {
        let attribute = BlockAttribute { handle_id: Some(handle.into()), ..BlockAttribute::default() };
        let edit = Edit::Allocation {
            block: "10.0.0.0/26".parse().unwrap(),
            address: address.parse().unwrap(),
            from: None,
            to: Some(Holding { attribute, sequence: None }),
        };
        Step { edits: vec![edit], ..Step::new(FindingCode::DeviceDown, "", "") }
    }

    #[test]
    fn what_leads_by_a_device_depends_on_it_and_on_no_other() {
        let up = |node: &NodeName| {
            on(node, KernelChange::Up { device: "vxlan.calico".to_owned(), from: false, to: true })
        };
        let through = on(&"a".into(), route("10.1.0.0/26", "vxlan.calico"));
        assert!(through.depends_on(&up(&"A".into())), "names of nodes have no case");
        assert!(!through.depends_on(&up(&"b".into())) && !up(&"a".into()).depends_on(&through));
        assert!(!on(&"a".into(), route("10.1.0.0/26", "eth0")).depends_on(&up(&"a".into())));
        assert!(
            !on(&"a".into(), route("10.1.0.64/26", "eth0"))
                .depends_on(&on(&"a".into(), route("10.1.0.0/26", "eth0")))
        );
    }

    #[test]
    fn addresses_of_a_block_stand_side_by_side_but_need_the_block() {
        let (one, other) = (give("10.0.0.1", "net.c1"), give("10.0.0.2", "net.c2"));
        assert!(!one.depends_on(&other) && one.depends_on(&one));
        let cidr = "10.0.0.0/26".parse().unwrap();
        let block =
            Edit::NewBlock { block: cidr, owner: None, holds: Vec::new(), replaces_unreadable: false };
        let block = Step { edits: vec![block], ..Step::new(FindingCode::DeviceDown, "", "") };
        assert!(one.depends_on(&block) && !block.depends_on(&one));
    }

    #[test]
    fn a_sandboxs_network_needs_its_address() {
        let wire = |id: &str, address: &str| plan::task::PodNetwork {
            network: "net".to_owned(),
            container_id: id.to_owned(),
            interface: "eth0".to_owned(),
            device: format!("cali{id}"),
            addresses: vec![address.parse().unwrap()],
            mac: None,
            mtu: None,
        };
        let of = |id: &str, address: &str| on(&"a".into(), KernelChange::Wire(wire(id, address)));
        assert!(of("c1", "10.0.0.1").depends_on(&give("10.0.0.1", "net.c1")));
        assert!(!of("c2", "10.0.0.2").depends_on(&give("10.0.0.1", "net.c1")));
        let inside = KernelChange::Address {
            device: "eth0".to_owned(),
            net: "10.0.0.1/32".parse().unwrap(),
            from: false,
            to: true,
        };
        let inside = Step {
            on_node: Some(OnNode { node: "a".into(), works: vec![RepairTask::inside("c1", inside)] }),
            ..Step::new(FindingCode::DeviceDown, "", "")
        };
        assert!(inside.depends_on(&of("c1", "10.0.0.1")) && !inside.depends_on(&of("c2", "10.0.0.2")));
    }
}
