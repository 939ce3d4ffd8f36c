//! A small cluster whose books agree, and ways to spoil it.

use std::net::IpAddr;

use ipam::{Owner, Reservations, Tunnel};
use jiff::Timestamp;
use model::ipam::{Affinity, AffinityState, Block, Handle};
use model::names::EndpointName;
use model::{AffinityOwner, Cidr, Key, Kind};
use serde_json::{Value, json};
use store::{Change, Record};

use crate::harness::{Desk, pool, runtime};

/// The cluster, and the desk of its operator.
///
/// | block | of | addresses |
/// |---|---|---|
/// | 10.65.0.0/29 | node-a | .0 web-0, .1 web-1, .2 borrowed by node-b: cart-0 |
/// | 10.65.0.8/29 | node-b | .8 its VXLAN tunnel |
/// | fd65::/125 | node-b | ::0 its IPv6 VXLAN tunnel |
pub(crate) struct Town {
    pub(crate) desk: Desk,
}

pub(crate) const BLOCK_A: &str = "10.65.0.0/29";
pub(crate) const BLOCK_B: &str = "10.65.0.8/29";
/// When everything was made: 2026-08-22T06:33:20Z.
const MADE_AT: i64 = 1_787_380_400;

impl Town {
    pub(crate) fn new(desk: Desk) -> Town {
        let pools = [("pods", "10.65.0.0/24", 29), ("six", "fd65::/120", 125)];
        let manifest: String = pools
            .iter()
            .map(|(name, cidr, size)| {
                let manifest = pool(name, &format!("{cidr}, blockSize: {size}"));
                format!("---\n{manifest}")
            })
            .collect();
        desk.apply(&manifest);
        let town = Town { desk };
        let mut changes = vec![
            node("node-a", json!({})),
            node("node-b", json!({"ipv4VXLANTunnelAddr": "10.65.0.8", "ipv6VXLANTunnelAddr": "fd65::"})),
        ];
        let mut block = block(BLOCK_A, "node-a");
        changes.extend(town.pod(&mut block, "node-a", "web-0"));
        changes.extend(town.pod(&mut block, "node-a", "web-1"));
        changes.extend(town.pod(&mut block, "node-b", "cart-0"));
        changes.extend(with_affinity(&block, "node-a"));
        for (cidr, tunnel) in [(BLOCK_B, Tunnel::Vxlan), ("fd65::/125", Tunnel::VxlanV6)] {
            let mut block = self::block(cidr, "node-b");
            ipam::take(&mut block, &tunnel.owner("node-b"), 1, &Reservations::default());
            changes.push(handle(tunnel.handle("node-b").as_str(), cidr, 1));
            changes.extend(with_affinity(&block, "node-b"));
        }
        town.desk.write(changes);
        town
    }

    /// A pod with the block's next address: its handle and its endpoint.
    pub(crate) fn pod(&self, block: &mut Block, node: &str, name: &str) -> Vec<Change> {
        let taken = ipam::take(block, &owner(node, name), 1, &Reservations::default());
        ipam::count_write(block);
        vec![handle(&format!("net.{name}"), &block.cidr.to_string(), 1), endpoint(node, name, taken[0])]
    }

    pub(crate) fn record(&self, key: &Key) -> Option<Record> {
        runtime().block_on(self.desk.open().unwrap().get(key)).unwrap()
    }

    pub(crate) fn has(&self, key: &Key) -> bool {
        self.record(key).is_some()
    }

    /// Puts a value in the place of a record, whatever was there.
    pub(crate) fn put(&self, key: Key, value: impl Into<Vec<u8>>) {
        let change = match self.record(&key) {
            Some(record) => Change::update(key, value.into(), record.revision),
            None => Change::create(key, value.into()),
        };
        self.desk.write(vec![change]);
    }

    pub(crate) fn remove(&self, key: &Key) {
        let record = self.record(key).unwrap();
        self.desk.write(vec![Change::delete(key.clone(), record.revision)]);
    }

    pub(crate) fn block(&self, cidr: &str) -> Block {
        let key = Key::Block(self::cidr(cidr));
        Block::decode(&self::cidr(cidr), &self.record(&key).unwrap().value).unwrap()
    }

    pub(crate) fn change_block(&self, cidr: &str, change: impl FnOnce(&mut Block)) {
        let mut block = self.block(cidr);
        change(&mut block);
        ipam::count_write(&mut block);
        self.put(Key::Block(block.cidr), block.encode());
    }

    /// Lets a pod's endpoint go, and nothing else.
    pub(crate) fn leak(&self, node: &str, name: &str) {
        self.remove(&endpoint_key(node, name));
    }

    pub(crate) fn set_spec(&self, key: Key, field: &str, value: Value) {
        let record = self.record(&key).unwrap();
        let mut document: Value = serde_json::from_slice(&record.value).unwrap();
        document["spec"][field] = value;
        self.put(key, document.to_string());
    }

    /// Whether an address is allocated.
    pub(crate) fn is_allocated(&self, address: &str) -> bool {
        let address: IpAddr = address.parse().unwrap();
        let cidr = Cidr::containing(address, if address.is_ipv4() { 29 } else { 125 }).unwrap();
        let block = self.block(&cidr.to_string());
        block.attribute(block.ordinal(address).unwrap()).is_some()
    }
}

pub(crate) fn cidr(text: &str) -> Cidr {
    text.parse().unwrap()
}

pub(crate) fn host(name: &str) -> AffinityOwner {
    AffinityOwner::Host(name.to_owned())
}

pub(crate) fn owner(node: &str, name: &str) -> Owner {
    Owner::on_node(format!("net.{name}"), node, made_at()).of_pod("shop", name, None)
}

pub(crate) fn block(cidr: &str, node: &str) -> Block {
    ipam::new_block(self::cidr(cidr), &host(node), None, made_at())
}

pub(crate) fn made_at() -> Timestamp {
    Timestamp::from_second(MADE_AT).unwrap()
}

pub(crate) fn with_affinity(block: &Block, node: &str) -> Vec<Change> {
    let key = Key::Affinity { owner: host(node), block: block.cidr };
    let affinity = Affinity::new(AffinityState::Confirmed).encode();
    vec![Change::create(block.key(), block.encode()), Change::create(key, affinity)]
}

pub(crate) fn handle_key(id: &str) -> Key {
    Key::Handle(id.into())
}

pub(crate) fn handle_value(block: &str, count: i64) -> Vec<u8> {
    Handle { block: [(block.to_owned(), count)].into(), ..Handle::default() }.encode()
}

fn handle(id: &str, block: &str, count: i64) -> Change {
    Change::create(handle_key(id), handle_value(block, count))
}

pub(crate) fn endpoint_key(node: &str, name: &str) -> Key {
    let name = EndpointName::of_pod(node, name, "eth0").compute().unwrap();
    Key::namespaced(Kind::WorkloadEndpoint, "shop", name)
}

pub(crate) fn endpoint(node: &str, name: &str, address: IpAddr) -> Change {
    let spec = json!({"node": node, "orchestrator": "k8s", "pod": name, "endpoint": "eth0",
        "ipNetworks": [Cidr::single(address)]});
    Change::create(endpoint_key(node, name), json!({"metadata": {}, "spec": spec}).to_string())
}

fn node(name: &str, spec: Value) -> Change {
    let document = json!({"kind": "Node", "metadata": {"name": name}, "spec": spec});
    Change::create(Key::cluster(Kind::Node, name), document.to_string())
}
