//! With whom this node speaks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::records::{BgpNode, BgpPeer, PeerTarget, Scope, SecretKey};
use super::session::{Options, Password, Session, SessionKind};
use super::trouble::BgpTrouble;
use super::{BgpView, text};

const PORT: u16 = 179;

/// Sessions sorted by the peer's address, and what is not as it was asked for.
pub(super) fn decide(view: &BgpView, own: &BgpNode) -> (Vec<Session>, Vec<BgpTrouble>) {
    let mut deciding = Deciding { view, own, sessions: BTreeMap::new(), troubles: BTreeSet::new() };
    if let Some(own_as) = deciding.as_number_of(&view.node, own) {
        deciding.explicit_peers(own_as);
        deciding.mesh(own_as);
    }
    deciding.same_addresses();
    deciding.unfit_records();
    (deciding.sessions.into_values().collect(), deciding.troubles.into_iter().collect())
}

struct Deciding<'v> {
    view: &'v BgpView,
    own: &'v BgpNode,
    /// One per address and port: BIRD could not tell two apart.
    sessions: BTreeMap<(IpAddr, Option<u16>), Session>,
    troubles: BTreeSet<BgpTrouble>,
}

impl Deciding<'_> {
    fn as_number_of(&mut self, name: &str, node: &BgpNode) -> Option<u32> {
        let (said, of) = match &node.as_number {
            Some(said) => (said, format!("node {name}")),
            None => (&self.view.settings.as_number, "BGPConfiguration default".to_owned()),
        };
        match said {
            Ok(number) => Some(*number),
            Err(found) => {
                self.troubles.insert(BgpTrouble::AsNumberUnreadable { of, found: found.clone() });
                None
            }
        }
    }

    fn explicit_peers(&mut self, own_as: u32) {
        let view = self.view;
        for (name, peer) in &view.peers {
            let kind = if peer.scope == Scope::All { SessionKind::Global } else { SessionKind::Node };
            let is_ours = is_in_scope(&peer.scope, &view.node, self.own);
            if let Scope::Unreadable(text) = &peer.scope {
                let reason = format!("{text:?} is no selector");
                self.troubles.insert(BgpTrouble::PeerUnreadable { peer: name.clone(), reason });
            }
            let local_as = match &peer.local_as {
                None => own_as,
                Some(Ok(number)) => *number,
                Some(Err(found)) => {
                    let of = format!("BGPPeer {name}");
                    self.troubles.insert(BgpTrouble::AsNumberUnreadable { of, found: found.clone() });
                    continue;
                }
            };
            match &peer.target {
                Err(reason) if is_ours => {
                    self.troubles
                        .insert(BgpTrouble::PeerUnreadable { peer: name.clone(), reason: reason.clone() });
                }
                Ok(PeerTarget::Address { address, port, as_number }) if is_ours => {
                    self.peer_by_address(name, peer, kind, local_as, (*address, *port, *as_number));
                }
                Ok(PeerTarget::Nodes(selector)) => {
                    let is_peer = |other: &BgpNode| is_ours && selector.matches(&other.labels);
                    let is_back = peer.peers_back && selector.matches(&self.own.labels);
                    let others = view.nodes.iter().filter(|(other, _)| **other != view.node);
                    let wanted = others.filter(|(other, node)| {
                        is_peer(node) || (is_back && is_in_scope(&peer.scope, other, node))
                    });
                    for (other, node) in wanted {
                        self.peer_with_node(peer, kind, local_as, other, node);
                    }
                }
                _ => {}
            }
        }
    }

    fn peer_by_address(
        &mut self,
        name: &str,
        peer: &BgpPeer,
        kind: SessionKind,
        local_as: u32,
        (address, port, peer_as): (IpAddr, Option<u16>, u32),
    ) {
        // A peer of all nodes may be one of them.
        if self.own.addresses().any(|own| own == address) {
            return;
        }
        let Some(own) = self.own.address_like(address) else {
            self.troubles.insert(BgpTrouble::NoAddressFor { peer: name.to_owned(), address });
            return;
        };
        let node = self.view.nodes.iter().find(|(_, node)| node.addresses().any(|held| held == address));
        let session = Session {
            kind,
            peer: address,
            port: port.filter(|port| *port != PORT),
            peer_as,
            local_as,
            own,
            node: node.map(|(name, _)| name.clone()),
            is_passive: false,
            is_refused: false,
            is_client: self.is_client(node.map(|(_, node)| node), peer_as == local_as),
            password: Password::None,
            options: Options::of_peer(peer),
            filters: Some(peer.filters.clone()),
        };
        self.add(session, peer.password.as_ref());
    }

    fn peer_with_node(
        &mut self,
        peer: &BgpPeer,
        kind: SessionKind,
        local_as: u32,
        name: &str,
        node: &BgpNode,
    ) {
        let Some(peer_as) = self.as_number_of(name, node) else { return };
        for (own, address) in common_addresses(self.own, node) {
            let session = Session {
                // Without a way back the other side may not connect.
                is_passive: peer.peers_back && own.to_string() < address.to_string(),
                options: Options::of_peer(peer),
                filters: Some(peer.filters.clone()),
                ..self.with_node(kind, name, node, (own, address), (local_as, peer_as))
            };
            self.add(session, peer.password.as_ref());
        }
    }

    /// Everybody with everybody; but a route reflector has its own peers.
    fn mesh(&mut self, own_as: u32) {
        let view = self.view;
        if !view.settings.is_mesh || self.own.cluster_id.is_some() {
            return;
        }
        let others =
            view.nodes.iter().filter(|(name, node)| **name != view.node && node.cluster_id.is_none());
        for (name, node) in others {
            let addresses: Vec<(IpAddr, IpAddr)> = common_addresses(self.own, node).collect();
            let Some(peer_as) = self.as_number_of(name, node) else { continue };
            for (own, address) in addresses {
                // Whoever was named as a peer is not peered with twice.
                if !self.sessions.keys().any(|(known, _)| *known == address) {
                    let session =
                        self.with_node(SessionKind::Mesh, name, node, (own, address), (own_as, peer_as));
                    self.add(session, view.settings.mesh_password.as_ref());
                }
            }
        }
    }

    fn with_node(
        &self,
        kind: SessionKind,
        name: &str,
        node: &BgpNode,
        (own, peer): (IpAddr, IpAddr),
        (local_as, peer_as): (u32, u32),
    ) -> Session {
        Session {
            kind,
            peer,
            port: Some(self.view.settings.port_of(name)).filter(|port| *port != PORT),
            peer_as,
            local_as,
            own,
            node: Some(name.to_owned()),
            // As texts, as Calico compares them: both sides must agree on who connects.
            is_passive: own.to_string() < peer.to_string(),
            is_refused: false,
            is_client: self.is_client(Some(node), peer_as == local_as),
            password: Password::None,
            options: Options::of_mesh(self.view.settings.mesh_restart_seconds),
            filters: Some(Vec::new()),
        }
    }

    /// Peers inside, other than route reflectors of the same cluster.
    fn is_client(&self, peer: Option<&BgpNode>, is_internal: bool) -> bool {
        let of_peer = peer.and_then(|peer| peer.cluster_id);
        is_internal && self.own.cluster_id.is_some() && of_peer != self.own.cluster_id
    }

    fn add(&mut self, mut session: Session, password: Option<&SecretKey>) {
        let key = (session.peer, session.port);
        let is_settled = self.sessions.get(&key).is_some_and(|known| known.kind <= session.kind);
        if is_settled {
            return;
        }
        let name = session.name();
        if let Some(secret) = password {
            session.password = self.password(&name, secret);
        }
        if self.view.left_out.sessions.contains(&name) {
            session.is_refused = true;
            self.troubles.insert(BgpTrouble::SessionRefused { session: name.clone() });
        }
        let filters = session.filters.take().unwrap_or_default();
        if filters.iter().any(|filter| self.view.left_out.filters.contains(filter)) {
            self.sessions.insert(key, session);
            return;
        }
        match filters.iter().find(|filter| !self.view.filters.contains_key(*filter)) {
            Some(missing) => {
                self.troubles.insert(BgpTrouble::FilterMissing { session: name, filter: missing.clone() });
            }
            None => session.filters = Some(filters),
        }
        self.sessions.insert(key, session);
    }

    fn password(&mut self, session: &str, secret: &SecretKey) -> Password {
        let (session, secret) = (session.to_owned(), secret.clone());
        match self.view.secrets.get(&secret) {
            Some(text) if text::is_password(text) => return Password::Known(secret),
            Some(_) => self.troubles.insert(BgpTrouble::PasswordUnfit { session, secret: secret.clone() }),
            None => self.troubles.insert(BgpTrouble::SecretMissing { session, secret: secret.clone() }),
        };
        Password::Missing(secret)
    }

    /// What is left out of records, or refused by BIRD itself.
    fn unfit_records(&mut self) {
        let view = self.view;
        for (name, node) in &view.nodes {
            for address in &node.unfit {
                self.troubles.insert(BgpTrouble::NodeAddressUnfit { node: name.clone(), address: *address });
            }
        }
        for (name, filter) in &view.filters {
            for rule in &filter.unfit {
                let (filter, rule) = (name.clone(), rule.clone());
                self.troubles.insert(BgpTrouble::FilterRuleUnfit { filter, rule });
            }
        }
        for reason in &view.settings.unfit {
            self.troubles.insert(BgpTrouble::SettingUnfit { reason: reason.clone() });
        }
        for filter in view.left_out.filters.iter().filter(|filter| view.filters.contains_key(*filter)) {
            self.troubles.insert(BgpTrouble::FilterRefused { filter: filter.clone() });
        }
        if view.left_out.settings {
            self.troubles.insert(BgpTrouble::SettingsRefused);
        }
    }

    fn same_addresses(&mut self) {
        let mut holders: BTreeMap<IpAddr, Vec<String>> = BTreeMap::new();
        for (name, node) in &self.view.nodes {
            for address in node.addresses() {
                holders.entry(address).or_default().push(name.clone());
            }
        }
        for (address, nodes) in holders.into_iter().filter(|(_, nodes)| nodes.len() > 1) {
            self.troubles.insert(BgpTrouble::SameAddress { address, nodes });
        }
    }
}

fn is_in_scope(scope: &Scope, name: &str, node: &BgpNode) -> bool {
    match scope {
        Scope::All => true,
        Scope::Node(only) => only == name,
        Scope::Selected(selector) => selector.matches(&node.labels),
        Scope::Unreadable(_) => false,
    }
}

/// Ours and theirs, in each IP version that both have. An address that is ours, too, is nobody to speak to.
fn common_addresses(own: &BgpNode, other: &BgpNode) -> impl Iterator<Item = (IpAddr, IpAddr)> {
    let pairs = [own.v4.zip(other.v4), own.v6.zip(other.v6)];
    pairs.into_iter().flatten().filter(|(own, other)| own != other)
}
