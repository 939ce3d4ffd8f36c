//! Addresses that no pod may have: its own route on its node would hide a node, or a service.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use model::Cidr;

use super::cluster::Between;
use super::trouble::Trouble;

/// What is known of nodes and services, for whoever gives addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protected {
    nodes: BTreeSet<IpAddr>,
    services: Vec<IpNet>,
    pools: Vec<Cidr>,
}

impl Protected {
    /// Whose address it is, if a pod must not have it.
    pub fn hidden_by(&self, address: IpAddr) -> Option<Trouble> {
        if self.nodes.contains(&address) {
            return Some(Trouble::HidesNode);
        }
        // A range around the whole pool was meant so.
        let is_meant = |range: &IpNet| {
            let pools = self.pools.iter().filter(|pool| pool.contains(address));
            pools
                .into_iter()
                .any(|pool| range.contains(&pool.network()) && range.prefix_len() <= pool.prefix_len())
        };
        let hides = self.services.iter().any(|range| range.contains(&address) && !is_meant(range));
        hides.then_some(Trouble::HidesService)
    }
}

impl Between {
    pub fn protected(&self) -> Protected {
        Protected {
            nodes: self.names_at.keys().copied().collect(),
            services: self.settings().services.clone(),
            pools: self.pools.values().map(|pool| pool.cidr).collect(),
        }
    }

    /// A number that changes whenever [`Between::protected`] may.
    pub fn protected_version(&self) -> u64 {
        self.protected_version
    }
}
