//! A node's rules for packets (nftables, and iptables where it is a face of nftables): as much of them as tells what becomes of
//! the packets of pods.

mod read;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Rules of a node, in the order in which packets meet them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Firewall {
    pub chains: Vec<Chain>,
    /// There are also rules of the old iptables, which nftables does not show: they may do whatever is not seen here.
    pub has_legacy_rules: bool,
}

/// A chain, with the hook it hangs on, if it does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Chain {
    /// `ip`, `ip6`, `inet`.
    pub family: String,
    pub table: String,
    pub name: String,
    pub hook: Option<Hook>,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    pub place: Place,
    /// Its chains decide about addresses, not about passing.
    #[serde(default)]
    pub is_nat: bool,
    #[serde(default)]
    pub priority: i64,
    #[serde(default)]
    pub drops_the_rest: bool,
}

/// Where on its way through the node a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Prerouting,
    /// To the node itself.
    Input,
    Forward,
    /// From the node itself.
    Output,
    Postrouting,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    pub handle: u64,
    /// All of them must hold.
    pub matches: Vec<Match>,
    pub act: Act,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Match {
    /// Names of devices; `*` at the end stands for anything.
    Device { is_incoming: bool, is_not: bool, names: Vec<String> },
    /// Where the packet comes from, or goes to.
    Address { is_source: bool, is_not: bool, ranges: Vec<Range> },
    /// The version of the packet.
    IsIpv4(bool),
    /// What the packet carries: `udp`, `tcp`.
    Protocol { is_not: bool, names: Vec<String> },
    /// A port of what the packet carries.
    Port {
        protocol: String,
        is_source: bool,
        is_not: bool,
        /// From one port to another, both included.
        ranges: Vec<(u16, u16)>,
    },
    /// States of the connection, as `established`.
    State { is_not: bool, states: Vec<String> },
    /// Bits of the packet's mark.
    Mark { is_not: bool, mask: u64, value: u64 },
    /// Whatever else: it may hold, or not.
    Unknown,
    /// It cannot hold for the first packet of a connection.
    NotForNew,
}

/// From one address to another, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range(pub IpAddr, pub IpAddr);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Act {
    /// It counts, or writes a log.
    #[default]
    Nothing,
    Accept,
    /// Or refuses, which says so.
    Drop,
    Return,
    Jump(String),
    Goto(String),
    /// The packet gets another source.
    NewSource,
    /// The packet gets another mark.
    NewMark,
    /// It depends on what is not known here.
    Anything,
}

impl Firewall {
    /// The families and names of its tables.
    pub fn tables(&self) -> BTreeSet<(String, String)> {
        self.chains.iter().map(|chain| (chain.family.clone(), chain.table.clone())).collect()
    }

    /// Takes in those chains of another that are wanted.
    pub fn absorb(&mut self, other: Firewall, is_wanted: impl FnMut(&Chain) -> bool) {
        self.chains.extend(other.chains.into_iter().filter(is_wanted));
        self.has_legacy_rules |= other.has_legacy_rules;
    }
}

impl Range {
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.is_ipv4() == address.is_ipv4() && (self.0..=self.1).contains(&address)
    }
}

impl From<IpNet> for Range {
    fn from(net: IpNet) -> Range {
        Range(net.network(), net.broadcast())
    }
}

impl std::fmt::Display for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "chain {} of table {} {}", self.name, self.family, self.table)
    }
}
