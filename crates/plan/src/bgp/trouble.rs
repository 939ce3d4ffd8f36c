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
    /// There can be one session per address: with the first of them.
    SameAddress {
        address: IpAddr,
        nodes: Vec<String>,
    },
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
                    "the password in key {key} of secret {name} has quotes or line breaks, so there is no session {session}"
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
