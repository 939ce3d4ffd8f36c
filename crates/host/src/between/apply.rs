//! Carries out steps, hundreds in one send.

use model::IpVersion;
use plan::Route;
use plan::between::{BetweenDevices, Step, Via};
use rustix::io::Errno;

use crate::netlink::Request;
use crate::netlink::numbers::{NLM_F_EXCL, NLM_F_REPLACE};
use crate::{Host, HostError};

use super::messages;

/// How many steps go into one send. The kernel holds a lock for all of them, for which others wait.
const STEPS_AT_ONCE: usize = 256;

impl Host {
    /// Takes the steps in their order; those that could not be done come back. One that fails does not stop the next.
    pub fn apply_between(
        &mut self,
        steps: &[Step],
        devices: &BetweenDevices,
    ) -> Result<Vec<(Step, HostError)>, HostError> {
        let mut failed = Vec::new();
        for part in steps.chunks(STEPS_AT_ONCE) {
            let mut requests: Vec<(Step, Request)> = Vec::with_capacity(part.len());
            for step in part {
                match requests_for(step, devices) {
                    Some(found) => requests.extend(found.into_iter().map(|request| (*step, request))),
                    None => failed.push((*step, no_device(step))),
                }
            }
            let (of, requests): (Vec<Step>, Vec<Request>) = requests.into_iter().unzip();
            let is_removal: Vec<bool> = requests.iter().map(is_removal).collect();
            let outcomes = self.netlink.transact(requests)?;
            for ((step, is_removal), outcome) in of.into_iter().zip(is_removal).zip(outcomes) {
                match outcome {
                    Err(error) if !is_done_already(&step, is_removal, &error) => failed.push((step, error)),
                    _ => {}
                }
            }
        }
        Ok(failed)
    }
}

/// `None` if the device that it takes is not there.
fn requests_for(step: &Step, devices: &BetweenDevices) -> Option<Vec<Request>> {
    let vxlan = |version: IpVersion| devices.index_of(version, Via::Vxlan);
    Some(match *step {
        Step::PutRoute { route, instead_of } => put_route(&devices.kernel_route(&route)?, instead_of),
        Step::DropRoute { route } => vec![messages::delete_route(&route)],
        Step::PutNeighbour { address, mac } => {
            vec![messages::put_neighbour(vxlan(IpVersion::of(address))?, address, mac)]
        }
        // With the device all entries are gone.
        Step::DropNeighbour { address } => {
            let index = vxlan(IpVersion::of(address));
            index.map(|index| messages::delete_neighbour(index, address)).into_iter().collect()
        }
        Step::PutForward { version, mac, node } => {
            vec![messages::put_forward(vxlan(version)?, mac, node)]
        }
        Step::DropForward { version, mac, node } => {
            vxlan(version).map(|index| messages::delete_forward(index, mac, node)).into_iter().collect()
        }
    })
}

/// Nobody else's route is ever replaced. Of IPv4 routes with one metric the first wins: the new one goes in front, then the
/// old one of ours goes. IPv6 would take two of one metric for two ways to share packets between: there ours is replaced
/// in one step, and where a stranger has the place we stay out.
fn put_route(route: &Route, old: Option<Route>) -> Vec<Request> {
    match (IpVersion::of(route.destination.addr()), old) {
        (IpVersion::V4, Some(old)) => {
            let mut requests = vec![messages::put_route(route, 0), messages::delete_route(&old)];
            // Not known well enough for the kernel to tell it from the new one.
            if messages::is_odd(&old) {
                requests.reverse();
            }
            requests
        }
        (IpVersion::V4, None) => vec![messages::put_route(route, 0)],
        (IpVersion::V6, Some(_)) => vec![messages::put_route(route, NLM_F_REPLACE)],
        (IpVersion::V6, None) => vec![messages::put_route(route, NLM_F_EXCL)],
    }
}

fn is_removal(request: &Request) -> bool {
    use crate::netlink::numbers::{RTM_DELNEIGH, RTM_DELROUTE};
    matches!(request.message.kind, RTM_DELROUTE | RTM_DELNEIGH)
}

/// It is there, and it is ours; or it is gone.
fn is_done_already(step: &Step, is_removal: bool, error: &HostError) -> bool {
    let is = |errno: Errno| error.errno() == Some(errno.raw_os_error());
    match step {
        _ if is_removal => is(Errno::SRCH) || is(Errno::NOENT) || is(Errno::NODEV),
        // For IPv4 the kernel says so of the very same route only.
        Step::PutRoute { route, .. } => route.version() == IpVersion::V4 && is(Errno::EXIST),
        _ => false,
    }
}

fn no_device(step: &Step) -> HostError {
    HostError::NoDevice { what: step.to_string() }
}
