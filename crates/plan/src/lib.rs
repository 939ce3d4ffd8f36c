//! Desired and observed state of a node, and the difference. Decides; touches nothing.
//!
//! * [`PodWiring`]: what the kernel must hold for one attachment, on both ends of its veth.
//! * [`ObservedWiring`]: what it does hold.
//! * [`differences`]: what stands between the two. An empty list means that the pod has its network; every entry
//!   is also the smallest repair, so that making, checking and mending a pod's network are one piece of logic.
//! * [`NodeDesired`], [`NodeObserved`], [`node_differences`]: the same for the node's side of all pods at once.
//! * [`inside_pod`]: what of the differences inside a pod may be put right, since a pod may change its own network.
//! * [`between`]: routes and tunnels to other nodes.
//! * [`work`]: single changes that a repair asks for, with their undo.
//! * [`Notice`], [`Watched`]: what the kernel announces, and which pod it concerns.

pub mod address;
pub mod between;
pub mod bgp;
mod difference;
mod inside;
mod node;
mod notice;
mod objects;
mod wiring;
pub mod work;

pub use difference::{Difference, ObservedEnd, ObservedWiring, differences};
pub use inside::{InsidePod, inside_pod};
pub use node::{
    FORWARD_V4, NODE_SETTINGS, NodeDesired, NodeDifference, NodeObserved, ObservedLink, ObservedRoute,
    StrayNeighbour, node_differences, preferred_elsewhere,
};
pub use notice::{Affected, Notice, Watched};
pub use objects::{Neighbour, ROUTE_PROTOCOL, Route, RouteScope, Sysctl};
pub use wiring::{Attachment, End, NodeFacts, PodWiring, Side, UnsupportedAddress, V4_GATEWAY, V6_GATEWAY};
