//! What the kernel announces that may concern routes and tunnels between nodes, and whether it does.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{IpVersion, Mac};

use super::cluster::Between;
use super::tunnel::{BetweenDevices, VXLAN_DEVICES};

/// Something was touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BetweenNotice {
    /// `ours` by its protocol.
    Route {
        destination: IpNet,
        ours: bool,
        gone: bool,
    },
    /// The hardware address is there if the entry is permanent.
    Neighbour {
        index: u32,
        address: IpAddr,
        mac: Option<Mac>,
        gone: bool,
    },
    Forward {
        index: u32,
        mac: Mac,
        node: IpAddr,
        gone: bool,
    },
    Link {
        index: u32,
        name: String,
        gone: bool,
    },
    Address {
        index: u32,
        address: IpAddr,
    },
    /// Announcements were lost.
    Overrun,
}

impl Between {
    /// Whether it takes a look at everything to know that all is well. What we have just done ourselves does not.
    pub fn is_disturbed_by(&self, notice: &BetweenNotice, devices: &BetweenDevices) -> bool {
        match notice {
            BetweenNotice::Overrun => true,
            // Somebody else's may have taken the place of ours.
            BetweenNotice::Route { destination, ours: false, gone } => {
                !gone && self.route_to(destination).is_some()
            }
            BetweenNotice::Route { destination, ours: true, gone } => {
                *gone == self.route_to(destination).is_some()
            }
            BetweenNotice::Neighbour { index, address, mac, gone } => {
                let wanted = self.neighbour(address).filter(|_| devices.vxlan_version(*index).is_some());
                wanted.is_some_and(|wanted| *gone || *mac != Some(wanted))
            }
            BetweenNotice::Forward { index, mac, node, gone } => {
                let Some(version) = devices.vxlan_version(*index) else { return false };
                (self.forward(version, *mac) == Some(*node)) == *gone
            }
            BetweenNotice::Link { index, name, .. } => {
                VXLAN_DEVICES.contains(&name.as_str()) || devices.is_known(*index)
            }
            BetweenNotice::Address { index, address } => {
                devices.vxlan_version(*index).is_some() || self.is_own_address(*address)
            }
        }
    }

    fn is_own_address(&self, address: IpAddr) -> bool {
        let of = |version: IpVersion| self.own_node().and_then(|node| node.of(version).address);
        [IpVersion::V4, IpVersion::V6].into_iter().filter_map(of).any(|own| own.addr() == address)
    }
}
