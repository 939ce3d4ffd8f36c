//! nf_tables over netlink. The `nft` program reads whole sets back before each change, and an ADD cannot wait for a program.
//!
//! * [`Nftables::change`]: changes of a [`policy::ruleset`] as one transaction, which the kernel takes as a whole or not at all.
//! * [`Nftables::read_back`]: what the kernel holds, as a ruleset. [`Nftables::list`] shows it as the kernel has it.
//!
//! ```text
//!   object      tables, chains, sets, rules as the kernel has them
//!   change      a change ─▶ messages           transaction   messages ─▶ one batch, its refusals
//!   expression  steps of rules, both ways      list, read    what the kernel holds ─▶ objects
//!   ruleset     rulesets ─▶ changes, objects ─▶ rulesets
//! ```

mod change;
mod expression;
mod list;
mod numbers;
pub mod object;
mod read;
pub mod ruleset;
#[cfg(test)]
mod tests;
mod transaction;

use netlink_sys::protocols::NETLINK_NETFILTER;

pub use list::Table;
pub use transaction::{RefusedChange, TransactionError};

#[cfg(fuzzing)]
pub(crate) use read::read_anything;
pub(crate) use read::touched;

use crate::HostError;
use crate::netlink::Netlink;

/// A socket to nf_tables of the namespace of the thread that opened it. All tables are of the family `inet`.
#[derive(Debug)]
pub struct Nftables {
    netlink: Netlink,
    /// How large a transaction the socket takes.
    room: usize,
}

impl Nftables {
    pub fn open() -> Result<Nftables, HostError> {
        Ok(Nftables { netlink: Netlink::open_to(NETLINK_NETFILTER)?, room: 0 })
    }

    /// By which the kernel names this socket when it announces what was done through it.
    pub fn port(&self) -> Result<u32, HostError> {
        self.netlink.port()
    }
}

/// Whether a message is about nf_tables.
pub(crate) fn is_of_nftables(kind: u16) -> bool {
    kind >> 8 == numbers::NFNL_SUBSYS_NFTABLES
}
