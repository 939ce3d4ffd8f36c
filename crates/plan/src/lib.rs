//! Desired and observed state of a node, and the difference. Decides; touches nothing.
//!
//! * [`PodWiring`]: what the kernel must hold for one attachment, on both ends of its veth.
//! * [`ObservedWiring`]: what it does hold.
//! * [`differences`]: what stands between the two. An empty list means that the pod has its network; every entry
//!   is also the smallest repair, so that making, checking and mending a pod's network are one piece of logic.

mod difference;
mod wiring;

pub use difference::{Difference, ObservedEnd, ObservedWiring, differences};
pub use wiring::{
    Attachment, End, Neighbour, NodeFacts, PodWiring, ROUTE_PROTOCOL, Route, RouteScope, Side, Sysctl,
    UnsupportedAddress, V4_GATEWAY, V6_GATEWAY,
};
