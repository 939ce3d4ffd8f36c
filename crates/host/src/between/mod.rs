//! Routes, tunnels and masquerading between nodes, in the kernel.
//!
//! Ours are routes by [`plan::between::BETWEEN_PROTOCOL`], VXLAN devices by their alias, and one table of nftables.

mod apply;
mod device;
pub(crate) mod guard;
pub(crate) mod messages;
pub mod nft;
mod observe;
pub(crate) mod read;
