//! A node's end that somebody moved into the pod's own namespace: it is brought back, because the pod's end leads nowhere without it.

use std::os::fd::AsRawFd as _;

use plan::{Link, PodWiring};

use crate::links::{find_link, find_link_by_index};
use crate::{Host, HostError, PodNamespace, messages};

impl Host {
    /// Whether there was one to bring back. It must be the other end of the pod's interface, and bear the device's name or the
    /// sandbox's alias. What it had on the node it has lost.
    pub(crate) fn bring_back(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
    ) -> Result<bool, HostError> {
        let Some(end) = find_link(&mut pod.netlink, &wiring.pod.device)? else { return Ok(false) };
        let Some(index) = end.peer_index.filter(|_| !end.peer_is_elsewhere) else { return Ok(false) };
        let is_its_own = |link: &Link| {
            link.name == wiring.host.device.as_str() || link.alias == Some(wiring.sandbox.alias())
        };
        let other = find_link_by_index(&mut pod.netlink, index)?;
        let Some(other) = other.filter(is_its_own) else { return Ok(false) };
        let home = self.home();
        let request = messages::move_link(&other.name, other.index, &wiring.host.device, home.as_raw_fd());
        pod.netlink.execute_all(vec![request])?;
        Ok(true)
    }
}
