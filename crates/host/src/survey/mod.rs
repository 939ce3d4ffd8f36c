//! Everything that one network namespace holds, whoever made it: for those who look for what is wrong.
//!
//! Unlike [`crate::Host::observe_node`], which reads what decisions are made of, this leaves nothing out but what the kernel keeps
//! for itself: the tables of local addresses and what other tables than the main one hold.

pub(crate) mod read;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use model::Mac;
use plan::{Link, Route};

use crate::between::messages::list_forwards;
use crate::between::read::forward;
use crate::netlink::{Message, Netlink};
use crate::objects::{read_link, read_proxy_delay, set_proxy_delay};
use crate::{HostError, messages, sysctl};

/// One namespace at (nearly) one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub links: Vec<Link>,
    pub addresses: Vec<SurveyedAddress>,
    /// Of the main table.
    pub routes: Vec<Route>,
    pub neighbours: Vec<SurveyedNeighbour>,
    /// By path below `/proc/sys`. What cannot be read is not there.
    pub sysctls: BTreeMap<String, String>,
    pub cut: Cut,
}

/// Which lists have more than was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Settings are told with links.
    pub links: bool,
    pub addresses: bool,
    pub routes: bool,
    pub neighbours: bool,
}

/// How many of each sort are read at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Each with some twenty settings.
    pub links: usize,
    /// Addresses, routes of each family, and neighbours.
    pub others: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedAddress {
    pub index: u32,
    pub net: IpNet,
    pub scope: u8,
    pub is_secondary: bool,
    /// Another machine has it, as the kernel noticed.
    pub is_duplicate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurveyedNeighbour {
    pub address: IpAddr,
    pub index: u32,
    pub mac: Option<Mac>,
    /// The kernel's bits: 0x80 is permanent.
    pub state: u16,
    pub is_proxy: bool,
}

/// A permanent entry of a VXLAN device: a hardware address, and the node that it is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveyedForward {
    pub index: u32,
    pub mac: Mac,
    pub node: IpAddr,
}

/// Settings that are no device's.
const SETTINGS: &[&str] = &[
    "net/ipv4/ip_forward",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/all/forwarding",
    "net/ipv4/conf/all/arp_ignore",
    "net/ipv4/conf/all/arp_announce",
    "net/ipv4/conf/default/rp_filter",
    "net/ipv4/neigh/default/gc_thresh1",
    "net/ipv4/neigh/default/gc_thresh2",
    "net/ipv4/neigh/default/gc_thresh3",
    "net/ipv6/conf/all/forwarding",
    "net/ipv6/conf/all/disable_ipv6",
    "net/ipv6/conf/default/disable_ipv6",
    "net/ipv6/neigh/default/gc_thresh3",
    "net/bridge/bridge-nf-call-iptables",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_count",
];

impl Survey {
    /// Looks at the namespace that the calling thread is in. For a pod's, see [`Survey::within`].
    pub fn here() -> Result<Survey, HostError> {
        Survey::within(Bounds { links: usize::MAX, others: usize::MAX })
    }

    /// Looks at a namespace that somebody else fills: `NetNs::open(path)?.visit(|| Survey::within(bounds))`. Lists are read up
    /// to their bounds, not further.
    pub fn within(bounds: Bounds) -> Result<Survey, HostError> {
        let mut look = Look { netlink: Netlink::open()?, is_spent: false };
        let mut survey = Survey::default();
        list_links(&mut look, bounds.links, &mut survey)?;
        let (others, cut) = (bounds.others, &mut survey.cut);
        survey.addresses = look.list(
            others,
            "list addresses",
            &messages::list_addresses(0),
            read::address,
            &mut cut.addresses,
        )?;
        for family in messages::families() {
            let message = messages::list_routes(family);
            survey.routes.extend(look.list(others, "list routes", &message, read::route, &mut cut.routes)?);
        }
        for (what, message) in [
            ("list neighbours", messages::list_neighbours(None)),
            ("list proxied neighbours", messages::list_proxies()),
        ] {
            let found = look.list(others, what, &message, read::neighbour, &mut cut.neighbours)?;
            survey.neighbours.extend(found);
        }
        for path in SETTINGS {
            if let Ok(value) = sysctl::read(path) {
                survey.sysctls.insert((*path).to_owned(), value);
            }
        }
        Ok(survey)
    }

    /// What the VXLAN devices among these links know of the ends of their tunnels. Only a node has a use for it.
    pub fn forwards_here(&self) -> Result<Vec<SurveyedForward>, HostError> {
        let mut netlink = Netlink::open()?;
        let mut found = Vec::new();
        for link in self.links.iter().filter(|link| link.vxlan.is_some()) {
            let message = list_forwards(link.index);
            found.extend(netlink.dump("list the ends of tunnels", &message, |kind, body| {
                let (index, mac, node) = forward(kind, body)?;
                (index == link.index).then_some(SurveyedForward { index, mac, node })
            })?);
        }
        Ok(found)
    }

    /// The devices alone: a node of a large cluster has thousands of routes.
    pub fn links_here() -> Result<Vec<Link>, HostError> {
        let mut survey = Survey::default();
        list_links(&mut Look { netlink: Netlink::open()?, is_spent: false }, usize::MAX, &mut survey)?;
        Ok(survey.links)
    }

    /// The name of a device.
    pub fn device(&self, index: u32) -> Option<&str> {
        self.links.iter().find(|link| link.index == index).map(|link| link.name.as_str())
    }
}

/// A look under way.
struct Look {
    netlink: Netlink,
    /// A list was not read to its end, and the socket takes no other.
    is_spent: bool,
}

impl Look {
    fn list<T>(
        &mut self,
        max: usize,
        what: &str,
        message: &Message,
        read: impl FnMut(u16, &[u8]) -> Option<T>,
        is_cut: &mut bool,
    ) -> Result<Vec<T>, HostError> {
        if std::mem::take(&mut self.is_spent) {
            self.netlink = Netlink::open()?;
        }
        let list = self.netlink.dump_at_most(max, what, message, read)?;
        self.is_spent = list.is_cut;
        *is_cut |= list.is_cut;
        Ok(list.objects)
    }
}

/// Links, and the settings that the kernel tells with them.
fn list_links(look: &mut Look, max: usize, survey: &mut Survey) -> Result<(), HostError> {
    survey.links = look.list(max, "list links", &messages::list_links(), read_link, &mut survey.cut.links)?;
    let tables = messages::list_neighbour_tables();
    // Two for each link, one for each family, and those that are no link's.
    let max = max.saturating_mul(4);
    let delays =
        look.list(max, "list settings for neighbours", &tables, read_proxy_delay, &mut survey.cut.links)?;
    // The first of a link is that of IPv4.
    let mut of_links: BTreeMap<u32, u64> = BTreeMap::new();
    for (index, delay) in delays {
        of_links.entry(index).or_insert(delay);
    }
    for link in &mut survey.links {
        set_proxy_delay(&mut link.settings, of_links.get(&link.index).copied());
        let settings = link.settings.all(&link.name).into_iter();
        survey.sysctls.extend(settings.map(|sysctl| (sysctl.path, sysctl.value)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_surveyed_as_it_is() {
        let survey = Survey::here().unwrap();
        let lo = survey.links.iter().find(|link| link.name == "lo").expect("every namespace has one");
        assert_eq!(survey.device(lo.index), Some("lo"));
        assert!(survey.sysctls.contains_key("net/ipv4/ip_forward"));
        assert!(survey.sysctls.contains_key("net/ipv4/conf/lo/forwarding"));
        let has_loopback =
            |address: &SurveyedAddress| address.net.to_string() == "127.0.0.1/8" && address.index == lo.index;
        assert_eq!(lo.up, survey.addresses.iter().any(has_loopback));
        for route in &survey.routes {
            assert!(route.device.is_none_or(|index| survey.device(index).is_some()), "{route:?}");
        }
    }
}
