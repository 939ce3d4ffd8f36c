//! Blocks that stay routed although nobody would route them anew: "no new route" must not become "no route" for pods that live.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use model::Cidr;

use super::cluster::{Between, network};
use super::records::{Encapsulation, Extent, PoolView};
use super::trouble::Trouble;
use super::way::{Via, slot};
use crate::named::RouteKind;
use crate::objects::Route;

/// How packets to a block that is held travel, and to which nodes they may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) encapsulation: Encapsulation,
    pub(super) nodes: BTreeSet<String>,
}

impl Between {
    /// A pool is gone: what it held stays routed as it is, if no other pool holds it.
    pub(super) fn hold_blocks_of(&mut self, pool: &PoolView) {
        let was_routed = |cidr: &&Cidr| {
            pool.cidr.contains_cidr(cidr) && !self.troubles.is_of_record(cidr) && !self.is_in_pool(cidr)
        };
        let left: Vec<Cidr> = self.blocks.cidrs().filter(was_routed).copied().collect();
        for cidr in left {
            self.hold(cidr, pool.encapsulation);
        }
    }

    /// Who was routed before somebody came whose block holds theirs, or before a node or services took an address there, stays routed:
    /// no record of others cuts off pods that live.
    pub(super) fn hold_disputed(&mut self, touched: &BTreeSet<Cidr>) {
        for cidr in touched {
            let is_known = self.routes_of.contains_key(cidr) && !self.troubles.is_of_record(cidr);
            let pool = self.ground.pool_of(cidr).filter(|_| is_known);
            let Some(encapsulation) = pool.map(|pool| pool.encapsulation) else { continue };
            if self.objections(cidr).next().is_some() {
                self.hold(*cidr, encapsulation);
            }
        }
    }

    pub(super) fn is_in_pool(&self, cidr: &Cidr) -> bool {
        self.pools.values().any(|pool| pool.cidr.contains_cidr(cidr))
    }

    /// A block stays routed to where it led until now, and to nobody else.
    fn hold(&mut self, cidr: Cidr, encapsulation: Encapsulation) {
        let nodes: BTreeSet<String> = match (self.new_blocks.get(&cidr), self.blocks.get(&cidr)) {
            (Some(before), _) => before.clone(),
            (None, Some(block)) => block.nodes().map(str::to_owned).collect(),
            (None, None) => return,
        };
        if !nodes.is_empty() {
            self.held.entry(cidr).or_insert(Held { encapsulation, nodes });
        }
    }

    /// Blocks whose pool is gone, which stay routed, and how their packets travel.
    pub fn held(&self) -> impl Iterator<Item = (Cidr, Encapsulation)> {
        let without_pool = self.held.iter().filter(|(cidr, _)| !self.is_in_pool(cidr));
        without_pool.map(|(cidr, held)| (*cidr, held.encapsulation))
    }

    /// Blocks that are routed to nobody, because their records are wrong.
    pub fn refused(&self) -> impl Iterator<Item = Cidr> {
        let wrong = self.troubles.iter().filter(|(_, _, trouble)| trouble.is_of_record());
        wrong.map(|(cidr, ..)| *cidr).filter(|cidr| !self.held.contains_key(cidr))
    }

    /// Holds whatever another one holds, as if it had seen the same past.
    pub fn hold_as(&mut self, other: &Between) {
        self.held.clone_from(&other.held);
        self.is_ground_touched = true;
        self.is_nat_touched = true;
    }

    /// Whether there are blocks that nobody would route anew: then what the kernel holds decides whether they stay routed.
    pub fn has_outlaws(&self) -> bool {
        self.blocks.cidrs().any(|cidr| self.is_outlaw(cidr))
    }

    /// What speaks against the routes that a block would have.
    fn objections(&self, cidr: &Cidr) -> impl Iterator<Item = Trouble> {
        let law = self.law();
        self.destinations(cidr).filter_map(move |(destination, node)| law.objection(destination, node, cidr))
    }

    /// Where routes of a block lead, and to which nodes.
    fn destinations(&self, cidr: &Cidr) -> impl Iterator<Item = (IpNet, &str)> {
        let network = network(cidr);
        self.blocks.get(cidr).into_iter().flat_map(move |block| {
            let own = block.owner.as_deref().map(|owner| (network, owner));
            let lent = block.lent.iter().map(|(address, node)| (IpNet::from(*address), node.as_str()));
            own.into_iter().chain(lent)
        })
    }

    fn is_outlaw(&self, cidr: &Cidr) -> bool {
        !self.held.contains_key(cidr) && (!self.is_in_pool(cidr) || self.objections(cidr).next().is_some())
    }

    /// Takes over what an agent before this one has routed: `found` are its routes, those to pods that are here, and BIRD's, as the kernel
    /// holds them, each with what its device is for; `has_vxlan` says whether there is a VXLAN device of either IP version. To be called
    /// once, when everything is known.
    pub fn adopt(&mut self, found: &[(Route, Option<Via>)], has_vxlan: [bool; 2]) {
        let by_destination: BTreeMap<IpNet, &(Route, Option<Via>)> =
            found.iter().map(|found| (found.0.destination, found)).collect();
        let outlaws: Vec<Cidr> = self.blocks.cidrs().filter(|cidr| self.is_outlaw(cidr)).copied().collect();
        for cidr in outlaws {
            if let Some(held) = self.way_found(&cidr, &by_destination, has_vxlan) {
                self.held.insert(cidr, held);
                self.touched_blocks.insert(cidr);
                self.is_ground_touched = true;
                self.is_nat_touched = true;
            }
        }
    }

    /// How packets to a block travel now, and to whom, if they get to where its addresses are.
    fn way_found(
        &self,
        cidr: &Cidr,
        found: &BTreeMap<IpNet, &(Route, Option<Via>)>,
        has_vxlan: [bool; 2],
    ) -> Option<Held> {
        let ways = self.destinations(cidr).filter_map(|(destination, node)| {
            let (route, via) = found.get(&destination)?;
            let via = match route.kind {
                // The pods are here: how others get to them is to be seen from the devices alone.
                _ if node == self.own && has_vxlan[slot(cidr.version())] => Some(Via::Vxlan),
                _ if node == self.own => Some(Via::Uplink),
                RouteKind::Unicast => {
                    let presence = self.nodes.get(node)?.of(cidr.version());
                    let ends = [presence.address.map(|network| network.addr()), presence.tunnel];
                    // The end of a tunnel is its own gateway.
                    let gateway = route.gateway.unwrap_or(destination.addr());
                    via.filter(|_| ends.contains(&Some(gateway)))
                }
                _ => None,
            };
            Some((via?, node.to_owned()))
        });
        let ways: Vec<(Via, String)> = ways.collect();
        let encapsulation = match ways.first()?.0 {
            Via::Vxlan => Encapsulation::Vxlan(Extent::Always),
            Via::Ipip => Encapsulation::Ipip(Extent::Always),
            Via::Uplink => Encapsulation::None,
        };
        Some(Held { encapsulation, nodes: ways.into_iter().map(|(_, node)| node).collect() })
    }
}
