//! Why something cannot be reached as the records want it.

use std::fmt;

use model::IpVersion;

/// What stands between this node and a part of a block. It may still be reached: directly instead of through a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// The other node has no address of that IP version, or no record.
    NoAddress,
    /// The other node has the very address of this one.
    OurAddress,
    NoOwnAddress {
        version: IpVersion,
    },
    /// No device of this node has the address that its record says.
    NoUplink {
        version: IpVersion,
    },
    /// The nodes share no network, and the pool has no tunnel.
    Apart,
    /// The other node has no tunnel address (yet).
    NoTunnel,
    /// This node has no tunnel address (yet).
    NoOwnTunnel {
        version: IpVersion,
    },
    /// The pool wants IPIP, which the kernel does not have.
    NoIpip,
    /// No pool holds the block: it is not routed.
    NoPool,
    /// The pool of the block is gone: what was routed stays.
    PoolGone,
    /// Its route would hide the address of a node: it is not routed, whatever pool it is in.
    HidesNode,
    /// The same with an address of services.
    HidesService,
    /// It lies inside a block of another node, and does not have the size of its pool's blocks: it is not newly routed.
    InsideAnother,
}

impl Trouble {
    /// It is about this node rather than about another.
    pub fn is_own(self) -> bool {
        matches!(
            self,
            Trouble::NoOwnAddress { .. }
                | Trouble::NoUplink { .. }
                | Trouble::NoOwnTunnel { .. }
                | Trouble::NoIpip
        )
    }

    /// The record itself is wrong, whatever the nodes are like.
    pub fn is_of_record(self) -> bool {
        matches!(
            self,
            Trouble::NoPool
                | Trouble::PoolGone
                | Trouble::HidesNode
                | Trouble::HidesService
                | Trouble::InsideAnother
        )
    }

    /// For metrics: stays the same when words change.
    pub fn code(self) -> &'static str {
        match self {
            Trouble::NoAddress => "node-without-address",
            Trouble::OurAddress => "node-with-our-address",
            Trouble::NoOwnAddress { .. } => "no-own-address",
            Trouble::NoUplink { .. } => "no-uplink",
            Trouble::Apart => "no-common-network",
            Trouble::NoTunnel => "node-without-tunnel",
            Trouble::NoOwnTunnel { .. } => "no-own-tunnel",
            Trouble::NoIpip => "ipip-not-in-kernel",
            Trouble::NoPool => "block-without-pool",
            Trouble::PoolGone => "pool-gone",
            Trouble::HidesNode => "block-hides-node",
            Trouble::HidesService => "block-hides-service",
            Trouble::InsideAnother => "block-inside-another",
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |version: &IpVersion| if *version == IpVersion::V4 { "IPv4" } else { "IPv6" };
        match self {
            Trouble::NoAddress => f.write_str("the node's record has no address of that IP version"),
            Trouble::OurAddress => f.write_str("the node's record has the address of this node"),
            Trouble::NoOwnAddress { version } => {
                write!(f, "this node's record has no {} address", number(version))
            }
            Trouble::NoUplink { version } => {
                write!(f, "no device of this node has its {} address", number(version))
            }
            Trouble::Apart => f.write_str("the nodes share no network, and the pool has no tunnel"),
            Trouble::NoTunnel => f.write_str("the node has no VXLAN tunnel address yet"),
            Trouble::NoOwnTunnel { version } => {
                write!(f, "this node has no {} VXLAN tunnel yet", number(version))
            }
            Trouble::NoIpip => f.write_str("the pool wants IPIP, which this kernel does not have"),
            Trouble::NoPool => f.write_str("no pool holds the block, so it is not routed"),
            Trouble::PoolGone => {
                f.write_str("no pool holds the block any more; it stays routed as it was before")
            }
            Trouble::HidesNode => {
                f.write_str("its route would hide the address of a node, so it is not routed")
            }
            Trouble::HidesService => {
                f.write_str("its route would hide addresses of services, so it is not routed")
            }
            Trouble::InsideAnother => {
                f.write_str("it lies inside a block of another node, so it is not newly routed")
            }
        }
    }
}
