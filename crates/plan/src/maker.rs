//! Whose network a node has: ours or Calico's. The two differ in how they mark routes and in which neighbours they keep.

use std::net::IpAddr;

use model::DeviceName;

use crate::between::BETWEEN_PROTOCOL;
use crate::objects::ROUTE_PROTOCOL;
use crate::wiring::Side;

/// Who makes and keeps the network of a node's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Maker {
    /// Our agent acts here.
    #[default]
    Ours,
    Calico,
}

/// Calico's Felix marks the routes to pods as `boot` and all others of its own as 80, unless it is told otherwise.
const FELIX_PODS: u8 = 3;
const FELIX: u8 = 80;

impl Maker {
    /// The protocol of a new route through `device`: the number by which its maker knows its own, so that it will look after it.
    pub fn protocol(self, device: Option<&str>, is_inside: bool) -> u8 {
        let is_pods = is_inside || device.is_some_and(|name| name.starts_with(DeviceName::CALICO_PREFIX));
        match (self, is_pods) {
            (Maker::Ours, true) => ROUTE_PROTOCOL,
            (Maker::Ours, false) => BETWEEN_PROTOCOL,
            (Maker::Calico, true) => FELIX_PODS,
            (Maker::Calico, false) => FELIX,
        }
    }

    /// Whether it keeps a permanent neighbour entry for an address. Other entries come and go with traffic.
    pub fn keeps_neighbour(self, side: Side, address: IpAddr) -> bool {
        match self {
            Maker::Ours => true,
            Maker::Calico => side == Side::Host && address.is_ipv4(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_routes_are_their_owners() {
        let protocol = |maker: Maker, device| maker.protocol(Some(device), false);
        assert_eq!(protocol(Maker::Ours, "cali1"), ROUTE_PROTOCOL);
        assert_eq!(protocol(Maker::Ours, "eth0"), BETWEEN_PROTOCOL);
        assert_eq!(protocol(Maker::Calico, "cali1"), 3);
        assert_eq!(protocol(Maker::Calico, "vxlan.calico"), 80);
        assert_eq!(Maker::Calico.protocol(None, false), 80, "a black hole");
        assert_eq!(Maker::Ours.protocol(Some("eth0"), true), ROUTE_PROTOCOL, "inside a pod");
    }
}
