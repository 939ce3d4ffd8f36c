//! Ways between nodes that were tried with packets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::{Kind, NodeName};

use super::{Case, Host};
use evidence::kernel::RouteKind;
use evidence::probe::Echo;
use evidence::{NodeEvidence, Sighted};

/// What became of packets from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tried<'e> {
    Arrived,
    /// Somebody answers there, but not to this node: the addresses, with what came back.
    Lost(Vec<(IpAddr, &'e Sighted<Echo>)>),
}

impl<'e> Case<'e> {
    /// Whether any node has sent packets to see whether they arrive.
    pub fn has_probes(&self) -> bool {
        self.evidence
            .nodes
            .values()
            .any(|node| node.setup.probed.as_ref().is_some_and(|probed| !probed.is_empty()))
    }

    /// `None`: not tried, or it cannot be told. Whoever does not answer anybody may have reasons of its own, so others must have had
    /// answers from the same address; and where a route is missing, that is the trouble.
    pub fn way(&self, from: &NodeName, to: &NodeName) -> Option<Tried<'e>> {
        let (host, probed) = (self.host(from)?, self.evidence.node(from)?.setup.probed.as_ref()?);
        let mut lost = Vec::new();
        for address in self.witnessed_on(to) {
            match probed.get(&address) {
                Some(echo) if echo.seen == Echo::Answered => return Some(Tried::Arrived),
                Some(echo) if self.is_routed_to(host, to, address) => lost.push((address, echo)),
                _ => {}
            }
        }
        (!lost.is_empty()).then_some(Tried::Lost(lost))
    }

    fn host(&self, name: &NodeName) -> Option<&Host<'e>> {
        self.hosts().iter().find(|host| host.name() == name)
    }

    /// Addresses of pods of a node that answer to it, or without any, of the node itself that answer to another.
    fn witnessed_on(&self, node: &NodeName) -> Vec<IpAddr> {
        let answers_to = |witness: &NodeEvidence, address: &IpAddr| {
            let probed = witness.setup.probed.as_ref();
            probed.and_then(|probed| probed.get(address)).is_some_and(|echo| echo.seen == Echo::Answered)
        };
        let own = self.evidence.node(node);
        if self.lets_packets_in(node)
            && let Some(own) = own
        {
            let pods = self.endpoints_on(node).flat_map(|endpoint| endpoint.seen.addresses.iter().copied());
            let pods: Vec<IpAddr> = pods.filter(|address| answers_to(own, address)).collect();
            if !pods.is_empty() {
                return pods;
            }
        }
        let others = || self.evidence.nodes.values().filter(|other| other.name != *node);
        let recorded = self.node_view(node).into_iter().flat_map(|view| &view.addresses);
        let addresses = recorded.map(|recorded| recorded.address());
        addresses.filter(|address| others().any(|other| answers_to(other, address))).collect()
    }

    /// No policy keeps other nodes' packets from its pods: our agent enforces none, and elsewhere there must be none.
    fn lets_packets_in(&self, node: &NodeName) -> bool {
        let records = &self.evidence.records;
        let is_free = [Kind::NetworkPolicy, Kind::GlobalNetworkPolicy].into_iter().all(|kind| {
            records.of(kind).is_some_and(|policies| !policies.iter().any(|policy| policy.seen.would_deny()))
        });
        is_free || self.evidence.node(node).is_some_and(|node| node.attachments.is_some())
    }

    /// The route to there looks right: it leads to the node itself, or to its network.
    fn is_routed_to(&self, host: &Host<'e>, to: &NodeName, address: IpAddr) -> bool {
        let Some(route) = host.route_for(address).map(|route| &route.seen) else { return false };
        let view = self.node_view(to);
        let mut known: BTreeSet<IpAddr> =
            view.iter().flat_map(|view| view.addresses.iter().map(|recorded| recorded.address())).collect();
        known.extend(view.iter().flat_map(|view| view.tunnels.iter().map(|(_, address)| *address)));
        let is_there = match route.via {
            Some(via) => known.contains(&via),
            None => known.contains(&address),
        };
        route.kind == RouteKind::Unicast && !route.is_dead && is_there
    }
}
