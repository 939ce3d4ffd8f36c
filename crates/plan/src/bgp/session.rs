//! One session with one peer.

use std::fmt;
use std::net::IpAddr;

use super::records::{BgpPeer, NextHop, SecretKey};

/// A session as it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub kind: SessionKind,
    pub peer: IpAddr,
    /// Named only where it is not the usual one.
    pub port: Option<u16>,
    pub peer_as: u32,
    pub local_as: u32,
    /// The node's own address of the peer's IP version.
    pub own: IpAddr,
    /// The node at the other end, if it is one.
    pub node: Option<String>,
    pub is_passive: bool,
    /// BIRD takes no configuration that has it.
    pub(super) is_refused: bool,
    /// The peer is a client of this route reflector.
    pub is_client: bool,
    pub password: Password,
    pub(super) options: Options,
    /// `None`: one of them does not exist, so nothing is exchanged.
    pub(super) filters: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionKind {
    Mesh,
    Global,
    Node,
}

/// The password of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    None,
    Known(SecretKey),
    /// Then there is no session: one without would be open to anybody.
    Missing(SecretKey),
}

/// What a record may set, or what is usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) next_hop: NextHop,
    pub(super) uses_node_address: bool,
    pub(super) restart_seconds: Option<u64>,
    pub(super) keepalive_seconds: Option<u64>,
    pub(super) allowed_local_as: Option<u64>,
    pub(super) hops: Option<u8>,
    pub(super) reachable_by: Option<IpAddr>,
}

impl Options {
    pub(super) fn of_mesh(restart_seconds: Option<u64>) -> Options {
        Options {
            next_hop: NextHop::Auto,
            uses_node_address: true,
            restart_seconds,
            keepalive_seconds: None,
            allowed_local_as: None,
            hops: None,
            reachable_by: None,
        }
    }

    pub(super) fn of_peer(peer: &BgpPeer) -> Options {
        Options {
            next_hop: peer.next_hop,
            uses_node_address: peer.uses_node_address,
            restart_seconds: peer.restart_seconds,
            keepalive_seconds: peer.keepalive_seconds,
            allowed_local_as: peer.allowed_local_as,
            hops: peer.hops,
            reachable_by: peer.reachable_by,
        }
    }
}

impl Session {
    /// As Calico names it, so that its tools understand it: `Mesh_10_0_0_1`.
    pub fn name(&self) -> String {
        let kind = match self.kind {
            SessionKind::Mesh => "Mesh",
            SessionKind::Global => "Global",
            SessionKind::Node => "Node",
        };
        let address = self.peer.to_string().replace(['.', ':'], "_");
        match self.port.filter(|_| self.kind != SessionKind::Mesh) {
            Some(port) => format!("{kind}_{address}_port_{port}"),
            None => format!("{kind}_{address}"),
        }
    }

    pub fn is_internal(&self) -> bool {
        self.peer_as == self.local_as
    }

    /// Whether BIRD is told of it at all.
    pub fn is_made(&self) -> bool {
        !matches!(self.password, Password::Missing(_)) && !self.is_refused
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} (AS {})", self.name(), self.peer, self.peer_as)
    }
}
