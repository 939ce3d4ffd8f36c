//! A node's end that somebody moved into the pod's own namespace: it is brought back, because the pod's end leads nowhere without it.

use std::os::fd::AsRawFd as _;

use plan::PodWiring;

use crate::links::{find_link, is_no_device};
use crate::objects::{Link, read_link};
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
        let other = match pod.netlink.get(messages::get_link_by_index(index)) {
            Err(error) if is_no_device(&error) => return Ok(false),
            found => found?,
        };
        let is_its_own = |link: &Link| {
            link.name == wiring.host.device.as_str() || link.alias == Some(wiring.sandbox.alias())
        };
        let Some(other) = read_link(other.kind, &other.body).filter(is_its_own) else { return Ok(false) };
        let home = self.home();
        let request = messages::move_link(&other.name, other.index, &wiring.host.device, home.as_raw_fd());
        pod.netlink.execute_all(vec![request])?;
        Ok(true)
    }
}
