//! BGP: with whom this node speaks, and the text that tells BIRD 2.
//!
//! ```text
//!   Node, BGPPeer, BGPConfiguration, BGPFilter ─▶ BgpNode, BgpPeer, BgpSettings, BgpFilter
//!                                                         │
//!   own blocks, pools, secrets ─▶ BgpView ─▶ sessions ────┼─▶ Bird { config, sessions, troubles }
//! ```
//!
//! Sessions are Calico's: the mesh of all nodes that are no route reflectors, peers by address or by selector, and the way back
//! of the latter. Only what this node has is announced: its blocks, addresses of its pods in blocks of others, ranges of services; a route
//! reflector passes on what nodes announced to it. Which routes BIRD writes into the kernel is settled by
//! [`crate::between::BetweenSettings::writer`]: routes into pools are the agent's, unless it is told to leave those without a tunnel to BIRD.
//!
//! What cannot be done as it was asked for is not done in part: a session whose password is missing is not made, one whose filter is
//! missing exchanges nothing. Both are said ([`BgpTrouble`]).
//!
//! BIRD takes a text or refuses it, as a whole. What it is known to refuse is left out beforehand, record by record; what nobody foresaw is
//! found by trying ([`find_refused`]).

mod filter;
mod left_out;
mod peers;
mod records;
mod session;
mod text;
mod trouble;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::Cidr;

pub use filter::{BgpFilter, Direction};
pub use left_out::{LeftOut, find_refused};
pub use records::{BgpNode, BgpPeer, BgpSettings, NextHop, PeerTarget, Scope, SecretKey, service_networks};
pub use session::{Password, Session, SessionKind};
pub use trouble::BgpTrouble;

/// Everything that decides about BGP on one node.
#[derive(Clone, Debug, Default)]
pub struct BgpView {
    /// This node.
    pub node: String,
    pub nodes: BTreeMap<String, BgpNode>,
    pub settings: BgpSettings,
    pub peers: BTreeMap<String, BgpPeer>,
    pub filters: BTreeMap<String, BgpFilter>,
    pub pools: Vec<BgpPool>,
    /// Of this node, confirmed.
    pub blocks: Vec<Cidr>,
    /// Of anybody, and to be believed of nobody: their records are wrong.
    pub refused: Vec<Cidr>,
    /// Of pods that are here, in blocks of other nodes.
    pub borrowed: Vec<IpAddr>,
    /// What is known of the secrets that the records name.
    pub secrets: BTreeMap<SecretKey, String>,
    /// Instead of the node's IPv4 address.
    pub router_id: Option<std::net::Ipv4Addr>,
    /// What BIRD refused, and is not told any more.
    pub left_out: LeftOut,
    /// Where BIRD writes its log, up to a megabyte and as much again; to its stderr if not said.
    pub log_file: Option<String>,
}

/// What matters of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BgpPool {
    pub cidr: Cidr,
    /// `disableBGPExport` is not set.
    pub is_exported: bool,
    /// Routes into it are BIRD's to write.
    pub is_birds: bool,
}

/// What BIRD is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bird {
    /// Holds passwords.
    pub config: String,
    /// Every session that the node is to have, also those that cannot be made.
    pub sessions: Vec<Session>,
    pub troubles: Vec<BgpTrouble>,
}

impl BgpView {
    /// `None`: the node has no address, so nothing can be said to anybody.
    pub fn decide(&self) -> Option<Bird> {
        let own = self.nodes.get(&self.node).filter(|own| own.has_address())?;
        let (sessions, troubles) = peers::decide(self, own);
        let config = match self.left_out.settings {
            true => text::render(&self.without_settings(), own, &sessions),
            false => text::render(self, own, &sessions),
        };
        Some(Bird { config, sessions, troubles })
    }

    /// The same without what only adds to sessions.
    fn without_settings(&self) -> BgpView {
        let mut view = self.clone();
        view.settings.advertisements.clear();
        view.settings.ignored_devices.clear();
        view.settings.services.clear();
        view
    }

    fn networks(&self, nets: &[IpNet], is_ipv4: bool) -> Vec<IpNet> {
        nets.iter().copied().filter(|net| net.addr().is_ipv4() == is_ipv4).collect()
    }
}
