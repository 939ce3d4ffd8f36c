//! Lists what the kernel holds of ours between nodes.

use model::IpVersion;
use plan::between::{BETWEEN_PROTOCOL, BetweenDevices, BetweenObserved};

use crate::messages::{families, list_neighbours};
use crate::objects::{read_permanent_neighbour, read_route};
use crate::{Host, HostError};

use super::{messages, read};

impl Host {
    /// Routes by their protocol, and what is on the VXLAN devices. Nobody else's routes are listed.
    pub fn observe_between(&mut self, devices: &BetweenDevices) -> Result<BetweenObserved, HostError> {
        let mut observed = BetweenObserved { devices: *devices, ..BetweenObserved::default() };
        for family in families() {
            let what = "list routes to other nodes";
            let routes = self.netlink.dump(what, &messages::list_routes(family), |kind, body| {
                read_route(kind, body).filter(|route| route.protocol == BETWEEN_PROTOCOL)
            })?;
            observed.routes.extend(routes);
        }
        for (version, index) in [IpVersion::V4, IpVersion::V6].into_iter().zip(devices.vxlan) {
            let Some(index) = index else { continue };
            let what = "list the ends of tunnels";
            let neighbours = self.netlink.dump(what, &list_neighbours(Some(index)), |kind, body| {
                let (of, neighbour) = read_permanent_neighbour(kind, body)?;
                let is_meant = of == index && IpVersion::of(neighbour.address) == version;
                is_meant.then_some((neighbour.address, neighbour.mac))
            })?;
            observed.neighbours.extend(neighbours);
            let forwards = self.netlink.dump(what, &messages::list_forwards(index), |kind, body| {
                let (of, mac, node) = read::forward(kind, body)?;
                (of == index).then_some((version, mac, node))
            })?;
            observed.forwards.extend(forwards);
        }
        Ok(observed)
    }
}
