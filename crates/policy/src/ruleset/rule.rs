//! One rule: what must be true of a packet, and what happens to it then.

use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use model::IpVersion;

use super::{Name, Need, PortRange};

/// Matches are tried in order; the first that does not hold ends the rule. Then the actions happen in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub matches: Vec<Match>,
    pub actions: Vec<Action>,
    /// For people; up to 128 bytes.
    pub comment: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// `meta iifname` or `meta oifname`.
    Device { end: Device, is: Pattern },
    /// `meta nfproto`. Stands before every match of an address.
    Family(IpVersion),
    /// `ip saddr @set`; the set is one of addresses or networks, of the family that an earlier match asks for.
    AddressInSet { side: Side, version: IpVersion, set: Name, negated: bool },
    /// `ip saddr 10.0.0.0/8`; a single address is a network, too.
    AddressInNetwork { side: Side, network: IpNet, negated: bool },
    /// `meta l4proto`.
    Protocol { protocol: u8, negated: bool },
    /// `th sport 80-90`: the first or second 16 bits of the transport header. An earlier match asks for a protocol with ports.
    Ports { side: Side, range: PortRange, negated: bool },
    /// `th sport @set`.
    PortInSet { side: Side, set: Name, negated: bool },
    /// `ip daddr . meta l4proto . th dport @set`.
    AddressPortInSet { side: Side, version: IpVersion, set: Name, negated: bool },
    /// Type, and code if given: the first one or two bytes of the transport header. Negated means "not both". An earlier match asks for
    /// the protocol.
    Icmp { icmp: Icmp, negated: bool },
    /// `ct state`: the packet's state is one of these.
    Connection(ConnectionStates),
    /// `ct status dnat`: whether the connection's destination was rewritten.
    Dnat(bool),
    /// `meta mark & mask == value`, or `!=`.
    Mark { mask: u32, value: u32, negated: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    Input,
    Output,
}

/// A device's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    Exactly(Name),
    /// `cali*`.
    StartsWith(Name),
}

impl Pattern {
    pub fn matches(&self, device: &str) -> bool {
        match self {
            Pattern::Exactly(name) => device == &**name,
            Pattern::StartsWith(start) => device.starts_with(&**start),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Source,
    Destination,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Icmp {
    pub kind: u8,
    pub code: Option<u8>,
}

/// Any of the states that are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionStates {
    pub established: bool,
    pub related: bool,
    pub new: bool,
    pub invalid: bool,
    pub untracked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// A named counter, which outlives the rule.
    Count(Name),
    /// `limit rate`: the actions after it happen only so often.
    Limit(Limit),
    Log {
        prefix: Arc<str>,
        level: LogLevel,
    },
    /// `meta mark set meta mark & ~mask | value`; the value lies within the mask.
    SetMark {
        mask: u32,
        value: u32,
    },
    /// `meta nftrace set 1`.
    Trace,
    /// `notrack`: only in base chains before connection tracking.
    NoTrack,
    /// `iifname vmap @map` or `oifname vmap @map`: the verdict of the device, and the next rule if the map does not have it.
    Lookup {
        end: Device,
        map: Name,
    },
    Verdict(Verdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit {
    pub packets: u64,
    pub per: LimitUnit,
    pub burst: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitUnit {
    Second,
    Minute,
    Hour,
    Day,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Info,
    Warn,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Accept,
    Drop,
    Return,
    Jump(Name),
    Goto(Name),
    /// Drops, and tells the sender.
    Reject(Rejection),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejection {
    /// ICMP or ICMPv6 "port unreachable", whatever the family: `icmpx port-unreachable`.
    PortUnreachable,
    /// `tcp reset`; an earlier match asks for TCP.
    TcpReset,
}

impl Verdict {
    /// The chain that it leads to.
    pub fn chain(&self) -> Option<&Name> {
        match self {
            Verdict::Jump(chain) | Verdict::Goto(chain) => Some(chain),
            _ => None,
        }
    }
}

impl Rule {
    pub fn new(matches: Vec<Match>, actions: Vec<Action>) -> Rule {
        Rule { matches, actions, comment: None }
    }

    /// The rule with nothing but a verdict.
    pub fn always(verdict: Verdict) -> Rule {
        Rule::new(Vec::new(), vec![Action::Verdict(verdict)])
    }

    pub fn commented(self, comment: impl fmt::Display) -> Rule {
        // Authors of policies choose parts of it, and programs print it between quotes.
        let harmful = |character: char| character.is_control() || character == '"';
        let mut text = comment.to_string().replace(harmful, "?");
        let end = (0..=COMMENT_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        Rule { comment: Some(text.into()), ..self }
    }

    /// What must exist before the rule can.
    pub fn needs(&self) -> Vec<Need<'_>> {
        let of_matches = self.matches.iter().filter_map(|found| match found {
            Match::AddressInSet { set, .. }
            | Match::PortInSet { set, .. }
            | Match::AddressPortInSet { set, .. } => Some(Need::Set(set)),
            _ => None,
        });
        let of_actions = self.actions.iter().filter_map(|action| match action {
            Action::Count(counter) => Some(Need::Counter(counter)),
            Action::Lookup { map, .. } => Some(Need::Map(map)),
            Action::Verdict(verdict) => verdict.chain().map(Need::Chain),
            _ => None,
        });
        of_matches.chain(of_actions).collect()
    }
}

/// The kernel keeps up to 256 bytes beside a rule; nft up to 128 characters.
const COMMENT_MAX: usize = 128;
