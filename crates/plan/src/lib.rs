//! Desired and observed state of a node, and the difference. Decides; touches nothing.
//!
//! * [`PodWiring`]: what the kernel must hold for one attachment, on both ends of its veth.
//! * [`ObservedWiring`]: what it does hold.
//! * [`Maker`]: what of it depends on whether the network is ours or Calico's.
//! * [`differences`]: what stands between the two. An empty list means that the pod has its network; every entry
//!   is also the smallest repair, so that making, checking and mending a pod's network are one piece of logic.
//! * [`NodeDesired`], [`NodeObserved`], [`node_differences`]: the same for the node's side of all pods at once.
//! * [`inside_pod`]: what of the differences inside a pod may be put right, since a pod may change its own network.
//! * [`DeviceSetting`], [`needed_settings`]: the kernel's settings among it, in one table.
//! * [`between`]: routes and tunnels to other nodes.
//! * [`task`]: single changes of the kernel that a repair asks for, with their undo.
//! * [`witness`]: when something has no owner any more.
//! * [`Notice`], [`Watched`]: what the kernel announces, and which pod it concerns.

pub mod address;
pub mod between;
pub mod bgp;
mod difference;
mod inside;
mod maker;
mod named;
mod node;
mod notice;
mod objects;
mod setting;
pub mod task;
mod wiring;
pub mod witness;

pub use difference::{
    Difference, DifferenceKind, ObservedEnd, ObservedWiring, PartialEnd, differences, end_differences,
};
pub use inside::{InsidePod, inside_pod};
pub use maker::Maker;
pub use named::{NamedRoute, RouteKind, protocol_name, protocol_number, scope_name, scope_number};
pub use node::{
    NodeDesired, NodeDifference, NodeObserved, StrayNeighbour, node_differences, preferred_elsewhere,
};
pub use notice::{Affected, Notice, Watched};
pub use objects::{Link, Neighbour, ROUTE_PROTOCOL, Route, Sysctl, Vxlan};
pub use setting::{
    DeviceSetting, DeviceSettings, FORWARD_V4, LOOSE_RP_FILTER, NODE_FORWARDING, NeededSetting, needed_at,
    needed_settings, required_on_node,
};
pub use wiring::{
    Attachment, End, NodeFacts, PodWiring, Side, USUAL_INTERFACE, UnsupportedAddress, V4_GATEWAY, V6_GATEWAY,
};
