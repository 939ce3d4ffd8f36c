//! How packets get from this node to the pods of others: routes, tunnels, and the address with which they leave the cluster.
//!
//! ```text
//!   records ─▶ NodeView, PoolView, BlockView, BetweenSettings ─▶ Between ─▶ settle() ─▶ Changed: what is wanted otherwise now
//!   the node's own devices ─▶ Uplinks ────────────────────────────┘  │
//!                                                                    └▶ the whole, for a look at everything (differences())
//! ```
//!
//! By block, as its pool says:
//! * A block of this node is a black hole: its pods have routes of their own, and a packet to nobody must not wander.
//! * A block of another node is reached directly if the two share a network and the pool is not always encapsulated; through the
//!   tunnel if the pool has one; else not at all, which is said ([`Trouble`]).
//! * An address of a block that is at another node than its block has a route of its own, wherever the block is.
//! * A block outside of pools, or one that would take from others, is not newly routed (`lawful`).
//!
//! A change of one record costs what depends on that record, not what the cluster has: blocks are known by the nodes that they
//! depend on. Only what concerns this node, the pools or the settings makes everything be thought over; and where there are tunnels, the
//! list of who may send into them is of all nodes.
//!
//! Who writes routes that need no tunnel is [`BetweenSettings::writer`]'s to say, for us and for BIRD.

mod blocks;
mod claims;
mod cluster;
mod environment;
mod guard;
mod held;
mod kernel;
mod lawful;
mod mtu;
mod nat;
mod notice;
mod pods;
mod protected;
mod records;
mod repair;
mod settings;
mod trouble;
mod troubles;
mod tunnel;
mod way;

pub use cluster::{Between, Changed};
pub use environment::{felix_variable_names, felix_variables, joined_settings};
pub use kernel::{BetweenObserved, RouteFault, Step, changes_of, differences as between_differences};
pub use mtu::tunnel_overhead;
pub use nat::{POLICY_TABLE, TABLE as NAT_TABLE};
pub use notice::BetweenNotice;
pub use pods::{AllowedSource, ChainUses, POD_CHAIN, PodGuard};
pub use protected::Protected;
pub use records::{BlockView, Encapsulation, Extent, NodeView, PoolView, Presence};
pub use settings::{BetweenSettings, NatSettings, TunnelSettings, Writer};
pub use trouble::Trouble;
pub use tunnel::{
    BetweenDevices, IPIP_DEVICE, IpipDevice, Uplink, Uplinks, VXLAN_DEVICES, Vtep, VxlanDevice,
};
pub use way::{BETWEEN_PROTOCOL, NodeRoute, Via, Way};
