//! What routes between nodes depend on, read from the records of the cluster: the little that matters of each.

use std::net::IpAddr;

use ipnet::IpNet;
use model::ipam::Block;
use model::validate::default_block_size;
use model::{AffinityOwner, Cidr, IpVersion, Mac, Resource};
use serde_json::Value;

/// A node, as the others see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    pub v4: Presence,
    pub v6: Presence,
    /// Of its device for IPIP.
    pub ipip_tunnel: Option<IpAddr>,
}

/// How a node is reached in one IP version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// With its network; a single address where that is not known.
    pub address: Option<IpNet>,
    /// Of its VXLAN device.
    pub tunnel: Option<IpAddr>,
    /// Of its VXLAN device, where it is not the one that follows from the node's name.
    pub mac: Option<Mac>,
}

impl NodeView {
    pub fn read(node: &Resource) -> NodeView {
        let ipip = node.spec("bgp").and_then(|bgp| bgp.get("ipv4IPIPTunnelAddr")).and_then(Value::as_str);
        NodeView {
            v4: presence(node, IpVersion::V4),
            v6: presence(node, IpVersion::V6),
            ipip_tunnel: ipip.and_then(|text| text.parse().ok()),
        }
    }

    pub fn of(&self, version: IpVersion) -> &Presence {
        match version {
            IpVersion::V4 => &self.v4,
            IpVersion::V6 => &self.v6,
        }
    }
}

fn presence(node: &Resource, version: IpVersion) -> Presence {
    let (address, tunnel, mac) = match version {
        IpVersion::V4 => ("ipv4Address", "ipv4VXLANTunnelAddr", "vxlanTunnelMACAddr"),
        IpVersion::V6 => ("ipv6Address", "ipv6VXLANTunnelAddr", "vxlanTunnelMACAddrV6"),
    };
    let of_bgp = node.spec("bgp").and_then(|bgp| bgp.get(address)).and_then(Value::as_str);
    let text = |field: &str| node.spec(field).and_then(Value::as_str);
    Presence {
        address: of_bgp.and_then(read_address).or_else(|| listed_address(node, version)),
        tunnel: text(tunnel).and_then(|text| text.parse().ok()),
        mac: text(mac).and_then(|text| text.parse().ok()),
    }
}

/// A cluster without BGP may have the addresses of its nodes in a list only. Those that Calico found itself come first.
fn listed_address(node: &Resource, version: IpVersion) -> Option<IpNet> {
    let listed = node.spec("addresses").and_then(Value::as_array)?;
    let of_type = |wanted: &str| {
        let texts = listed.iter().filter(|entry| entry["type"] == wanted);
        let mut addresses = texts.filter_map(|entry| read_address(entry["address"].as_str()?));
        addresses.find(|network| IpVersion::of(network.addr()) == version)
    };
    of_type("CalicoNodeIP").or_else(|| of_type("InternalIP"))
}

fn read_address(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()
}

/// A pool, as far as it decides how its addresses are reached. One that is disabled gives no new addresses; those that it
/// gave are reached as before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolView {
    pub cidr: Cidr,
    pub encapsulation: Encapsulation,
    pub nat_outgoing: bool,
    /// It gives new addresses.
    pub is_enabled: bool,
    /// Of services only: nothing in it is ever a source.
    pub is_of_services: bool,
    /// The prefix length of the blocks that it is divided into.
    pub block_size: u8,
}

/// How packets to a pool's addresses travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encapsulation {
    None,
    Vxlan(Extent),
    Ipip(Extent),
}

/// Between which nodes packets are encapsulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    Always,
    /// Between nodes that do not share a network.
    CrossSubnet,
}

impl PoolView {
    /// `None` if the pool cannot be understood.
    pub fn read(pool: &Resource) -> Option<PoolView> {
        let text = |field: &str| pool.spec(field).and_then(Value::as_str);
        let cidr = Cidr::parse_masked(text("cidr")?).ok()?;
        let encapsulation = match (extent(text("vxlanMode")), extent(text("ipipMode"))) {
            (Some(extent), _) => Encapsulation::Vxlan(extent),
            // It is for IPv4 alone.
            (None, Some(extent)) if cidr.version() == IpVersion::V4 => Encapsulation::Ipip(extent),
            _ => Encapsulation::None,
        };
        let uses = pool.spec("allowedUses").and_then(Value::as_array);
        Some(PoolView {
            cidr,
            encapsulation,
            nat_outgoing: pool.spec("natOutgoing").and_then(Value::as_bool).unwrap_or(false),
            is_enabled: !pool.spec("disabled").and_then(Value::as_bool).unwrap_or(false),
            is_of_services: uses
                .is_some_and(|uses| !uses.is_empty() && uses.iter().all(|word| word == "LoadBalancer")),
            block_size: block_size(pool, &cidr),
        })
    }
}

/// What the record says, or Calico's default.
fn block_size(pool: &Resource, cidr: &Cidr) -> u8 {
    let said = pool.spec("blockSize").and_then(Value::as_u64);
    u8::try_from(said.unwrap_or_else(|| default_block_size(*cidr))).unwrap_or(cidr.version().bits())
}

fn extent(mode: Option<&str>) -> Option<Extent> {
    match mode? {
        "Always" => Some(Extent::Always),
        "CrossSubnet" => Some(Extent::CrossSubnet),
        _ => None,
    }
}

/// A block: where its addresses are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockView {
    /// The node that has it.
    pub owner: Option<String>,
    /// Addresses that are at other nodes than the owner, and where.
    pub lent: Box<[(IpAddr, String)]>,
}

impl BlockView {
    /// `None` if the block is being removed, or belongs to something that is no node.
    pub fn read(block: &Block) -> Option<BlockView> {
        let owner = match block.owner() {
            _ if block.deleted => return None,
            Some(AffinityOwner::Virtual(_)) => return None,
            Some(AffinityOwner::Host(name)) => Some(name),
            None => None,
        };
        let lent = |ordinal: usize| {
            let attribute = block.attribute(ordinal).filter(|known| known.released_at.is_none())?;
            let node = attribute.secondary.get("node")?;
            (owner.as_ref() != Some(node)).then(|| Some((block.address(ordinal)?, node.clone())))?
        };
        let lent = (0..block.allocations.len()).filter_map(lent).collect();
        Some(BlockView { owner, lent })
    }

    /// The node that a part of the block belongs to: an address may be lent to another than the owner.
    pub(super) fn leads_to(&self, part: IpNet) -> Option<&str> {
        let lent = self.lent.iter().find(|(address, _)| IpNet::from(*address) == part);
        lent.map(|(_, node)| node).or(self.owner.as_ref()).map(String::as_str)
    }

    /// Every node that has something of it.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.owner.iter().chain(self.lent.iter().map(|(_, node)| node)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use model::Kind;
    use model::ipam::BlockAttribute;
    use serde_json::json;

    use super::*;

    fn resource(kind: Kind, spec: Value) -> Resource {
        let mut resource = Resource::new(kind, "x");
        resource.body.insert("spec".to_owned(), spec);
        resource
    }

    #[test]
    fn nodes_are_read() {
        let node = NodeView::read(&resource(
            Kind::Node,
            json!({
                "bgp": {"ipv4Address": "10.0.0.1/24"},
                "addresses": [{"address": "fd00::1/64", "type": "InternalIP"}, {"address": "fd00::2", "type": "CalicoNodeIP"}],
                "ipv4VXLANTunnelAddr": "10.244.0.0", "vxlanTunnelMACAddr": "66:00:00:00:00:01",
            }),
        ));
        assert_eq!(node.v4.address, "10.0.0.1/24".parse().ok());
        assert_eq!(node.v4.tunnel, "10.244.0.0".parse().ok());
        assert_eq!(node.v4.mac, "66:00:00:00:00:01".parse().ok());
        assert_eq!(node.v6.address, "fd00::2/128".parse().ok(), "Calico's own comes first");
        assert_eq!(node.v6.tunnel, None);
        assert_eq!(
            NodeView::read(&resource(Kind::Node, json!({"bgp": 1, "addresses": 2}))),
            NodeView::default()
        );
    }

    #[test]
    fn pools_are_read() {
        let read = |spec| PoolView::read(&resource(Kind::IpPool, spec));
        let pool =
            read(json!({"cidr": "10.0.0.0/16", "vxlanMode": "CrossSubnet", "natOutgoing": true})).unwrap();
        assert_eq!(pool.encapsulation, Encapsulation::Vxlan(Extent::CrossSubnet));
        assert!(pool.nat_outgoing && !pool.is_of_services);
        assert_eq!(pool.block_size, 26);
        assert_eq!(read(json!({"cidr": "fd00::/48"})).unwrap().block_size, 122);
        assert_eq!(read(json!({"cidr": "10.0.0.0/16", "blockSize": 28})).unwrap().block_size, 28);
        let ipip = |cidr: &str| read(json!({"cidr": cidr, "ipipMode": "Always"})).unwrap().encapsulation;
        assert_eq!(ipip("10.0.0.0/16"), Encapsulation::Ipip(Extent::Always));
        assert_eq!(ipip("fd00::/48"), Encapsulation::None);
        assert!(
            read(json!({"cidr": "10.0.0.0/24", "allowedUses": ["LoadBalancer"]})).unwrap().is_of_services
        );
        assert_eq!(read(json!({"cidr": "x"})), None);
    }

    #[test]
    fn blocks_say_where_their_addresses_are() {
        let cidr: Cidr = "10.0.0.0/30".parse().unwrap();
        let mut block = Block::new(cidr, Some(&AffinityOwner::Host("a".to_owned())), 1);
        let at = |node: &str, released: bool| BlockAttribute {
            secondary: [("node".to_owned(), node.to_owned())].into(),
            released_at: released.then(|| "2026-01-01T00:00:00Z".to_owned()),
            ..BlockAttribute::default()
        };
        block.attributes = vec![at("a", false), at("b", false), at("c", true)];
        block.allocations = vec![Some(0), Some(1), Some(2), None];
        let view = BlockView::read(&block).unwrap();
        assert_eq!(view.owner.as_deref(), Some("a"));
        assert_eq!(*view.lent, [("10.0.0.1".parse().unwrap(), "b".to_owned())]);
        block.set_owner(None);
        assert_eq!(BlockView::read(&block).unwrap().lent.len(), 2, "everything in a block without owner");
        block.set_owner(Some(&AffinityOwner::Virtual("load-balancer".to_owned())));
        assert_eq!(BlockView::read(&block), None);
    }
}
