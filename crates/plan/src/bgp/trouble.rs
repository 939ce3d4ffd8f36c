//! What the records ask for and BIRD is not told, or not as it was asked for.

use std::fmt;
use std::net::IpAddr;

use super::records::SecretKey;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BgpTrouble {
    /// No session is made.
    SecretMissing {
        session: String,
        secret: SecretKey,
    },
    /// The text of the secret cannot be written into BIRD's configuration.
    PasswordUnfit {
        session: String,
        secret: SecretKey,
    },
    /// Nothing is exchanged.
    FilterMissing {
        session: String,
        filter: String,
    },
    PeerUnreadable {
        peer: String,
        reason: String,
    },
    /// The node has no address of the peer's IP version.
    NoAddressFor {
        peer: String,
        address: IpAddr,
    },
    AsNumberUnreadable {
        of: String,
        found: String,
    },
    /// The address of a node is none to have a session with.
    NodeAddressUnfit {
        node: String,
        address: IpAddr,
    },
    /// A rule rejects, because it cannot be understood, or BIRD would refuse it.
    FilterRuleUnfit {
        filter: String,
        rule: String,
    },
    /// A setting is left out.
    SettingUnfit {
        reason: String,
    },
    /// BIRD refuses whatever has this session in it.
    SessionRefused {
        session: String,
    },
    /// The same with a filter: sessions that name it exchange nothing.
    FilterRefused {
        filter: String,
    },
    /// The same with `prefixAdvertisements`, `ignoredInterfaces` and the ranges of services.
    SettingsRefused,
    /// There can be one session per address: with the first of them.
    SameAddress {
        address: IpAddr,
        nodes: Vec<String>,
    },
}

impl BgpTrouble {
    /// A record asks for something that BIRD would refuse, or refuses.
    pub fn is_of_record(&self) -> bool {
        matches!(
            self,
            BgpTrouble::PeerUnreadable { .. }
                | BgpTrouble::AsNumberUnreadable { .. }
                | BgpTrouble::NodeAddressUnfit { .. }
                | BgpTrouble::FilterRuleUnfit { .. }
                | BgpTrouble::SettingUnfit { .. }
                | BgpTrouble::SessionRefused { .. }
                | BgpTrouble::FilterRefused { .. }
                | BgpTrouble::SettingsRefused
        )
    }

    /// BIRD itself has refused it, although nobody foresaw that.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            BgpTrouble::SessionRefused { .. }
                | BgpTrouble::FilterRefused { .. }
                | BgpTrouble::SettingsRefused
        )
    }
}

impl fmt::Display for BgpTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BgpTrouble::SecretMissing { session, secret: SecretKey { name, key } } => {
                write!(f, "there is no key {key} in a secret {name}, so there is no session {session}")
            }
            BgpTrouble::PasswordUnfit { session, secret: SecretKey { name, key } } => {
                write!(
                    f,
                    "the password in key {key} of secret {name} has quotes or line breaks, or more than 80 bytes, so there is no session {session}"
                )
            }
            BgpTrouble::FilterMissing { session, filter } => {
                write!(f, "there is no BGPFilter {filter}, so no routes are exchanged with {session}")
            }
            BgpTrouble::PeerUnreadable { peer, reason } => write!(f, "BGPPeer {peer} is left out: {reason}"),
            BgpTrouble::NoAddressFor { peer, address } => {
                let version = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                write!(f, "BGPPeer {peer} has the address {address}, and this node has no {version} address")
            }
            BgpTrouble::AsNumberUnreadable { of, found } => {
                write!(f, "{found} of {of} is no AS number, so there are no sessions with it")
            }
            BgpTrouble::NodeAddressUnfit { node, address } => write!(
                f,
                "node {node} has the address {address}, with which there can be no session, so there is none"
            ),
            BgpTrouble::FilterRuleUnfit { filter, rule } => {
                write!(f, "BGPFilter {filter}: {rule} cannot be understood by BIRD, so it rejects everything")
            }
            BgpTrouble::SettingUnfit { reason } => {
                write!(f, "BGPConfiguration default: {reason}; it is left out")
            }
            BgpTrouble::SessionRefused { session } => {
                write!(f, "BIRD refuses the configuration of {session}, so this session is left out")
            }
            BgpTrouble::FilterRefused { filter } => write!(
                f,
                "BIRD refuses BGPFilter {filter}, so no routes are exchanged with peers that name it"
            ),
            BgpTrouble::SettingsRefused => f.write_str(
                "BIRD refuses prefixAdvertisements, ignoredInterfaces or ranges of services of \
                 BGPConfiguration default, so they are left out",
            ),
            BgpTrouble::SameAddress { address, nodes } => {
                write!(
                    f,
                    "nodes {} have the same address {address}: only the first is peered with",
                    nodes.join(", ")
                )
            }
        }
    }
}
