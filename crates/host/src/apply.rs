//! Puts differences right: devices, then settings, then everything else in one send per end.

use std::time::{Duration, Instant};

use plan::{Difference, DifferenceKind, PodWiring, Route, Side, differences};

use crate::links::get_link;
use crate::netlink::Request;
use crate::{Host, HostError, PodNamespace, messages, sysctl};

/// How long the kernel may take to start a device once both ends are up. It takes well under a millisecond.
const START_WAIT: Duration = Duration::from_secs(5);
const START_LOOK_EVERY: Duration = Duration::from_micros(100);

impl Host {
    /// Gives a pod its network, or what is missing of it, and reads it back: returns only when the pod can exchange
    /// packets with the node. Repeating it is harmless. If a new link cannot be finished, it is removed again; what
    /// was there before the call stays as it is then, for [`Host::detach`].
    pub fn ensure(&mut self, pod: &mut PodNamespace, wiring: &PodWiring) -> Result<(), HostError> {
        if !self.wire_afresh(pod, wiring)? {
            self.complete(pod, wiring)?;
        }
        self.await_ready(pod, wiring, None)
    }

    /// Adds what is missing to what is there.
    fn complete(&mut self, pod: &mut PodNamespace, wiring: &PodWiring) -> Result<(), HostError> {
        let mut observed = self.observe(pod, wiring)?;
        if observed.host.is_none() && observed.pod.is_some() && self.take_back_name(wiring)? {
            observed = self.observe(pod, wiring)?;
        }
        if observed.host.is_none() && observed.pod.is_some() && self.free_name_in_pod(&wiring.sandbox, pod)? {
            observed = self.observe(pod, wiring)?;
        }
        if observed.host.is_none() && observed.pod.is_some() && self.bring_back(pod, wiring)? {
            observed = self.observe(pod, wiring)?;
        }
        let is_half = observed.host.is_some() != observed.pod.is_some();
        let missing = differences(wiring, &observed);
        self.apply(pod, wiring, &missing)?;
        if is_half {
            // A pair that was made anew in the place of one end lacks what that end had.
            let missing = differences(wiring, &self.observe(pod, wiring)?);
            self.apply(pod, wiring, &missing)?;
        }
        Ok(())
    }

    /// `known` are the numbers of the two ends, where they are known.
    pub(crate) fn await_ready(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
        known: Option<(u32, u32)>,
    ) -> Result<(), HostError> {
        let deadline = Instant::now() + START_WAIT;
        loop {
            let mut left = differences(wiring, &self.observe_wanted(pod, wiring, known)?);
            if !left.iter().all(is_starting) {
                // Something else may take precedence over what is there: look at all there is.
                left = self.check(pod, wiring)?;
            }
            match left.into_iter().next() {
                None => return Ok(()),
                Some(difference) if is_starting(&difference) && Instant::now() < deadline => {
                    std::thread::sleep(START_LOOK_EVERY);
                }
                Some(difference) => return Err(HostError::ReadBack { difference }),
            }
        }
    }

    /// What is not as it should be, now.
    pub fn check(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
    ) -> Result<Vec<Difference>, HostError> {
        let observed = self.observe(pod, wiring)?;
        Ok(differences(wiring, &observed))
    }

    /// Puts each of these right. A stranger's device in the way is an error, before anything is touched.
    pub fn apply(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
        differences: &[Difference],
    ) -> Result<(), HostError> {
        if let Some(foreign) =
            differences.iter().find(|found| matches!(found.kind, DifferenceKind::Foreign { .. }))
        {
            return Err(HostError::Foreign { difference: foreign.clone() });
        }
        if differences.is_empty() {
            return Ok(());
        }
        if differences.iter().any(|found| found.kind == DifferenceKind::Missing) {
            self.create_anew(pod, wiring)?;
        }
        self.apply_sysctls(pod, differences)?;
        let host_index = get_link(&mut self.netlink, &wiring.host.device)?.index;
        let pod_index = get_link(&mut pod.netlink, &wiring.pod.device)?.index;
        self.netlink.execute_all(requests(Side::Host, host_index, differences))?;
        pod.netlink.execute_all(requests(Side::Pod, pod_index, differences))
    }

    fn apply_sysctls(&self, pod: &PodNamespace, differences: &[Difference]) -> Result<(), HostError> {
        let wanted = |wanted_side: Side| {
            differences.iter().filter_map(move |found| match &found.kind {
                DifferenceKind::Sysctl { wanted, .. } if found.side == wanted_side => Some(wanted),
                _ => None,
            })
        };
        wanted(Side::Host).try_for_each(sysctl::write)?;
        if wanted(Side::Pod).next().is_none() {
            return Ok(());
        }
        pod.stay(|| wanted(Side::Pod).try_for_each(sysctl::write))?
    }
}

/// The kernel is at it, in the background: a device that starts, an address that is taken into use.
fn is_starting(difference: &Difference) -> bool {
    matches!(difference.kind, DifferenceKind::NotRunning | DifferenceKind::AddressMissing { .. })
}

fn requests(side: Side, index: u32, differences: &[Difference]) -> Vec<Request> {
    let ours = differences.iter().filter(|found| found.side == side);
    ours.filter_map(|found| request(index, found)).collect()
}

pub(crate) fn request(index: u32, difference: &Difference) -> Option<Request> {
    let device = &difference.device;
    match &difference.kind {
        DifferenceKind::Missing | DifferenceKind::Foreign { .. } | DifferenceKind::Sysctl { .. } => None,
        DifferenceKind::RouteTaken { .. } | DifferenceKind::NeighbourUnresolved { .. } => None,
        // The kernel is at it; there is nothing to ask for.
        DifferenceKind::NotRunning => None,
        DifferenceKind::Down => Some(messages::set_up(device, index)),
        DifferenceKind::Mac { wanted, .. } => Some(messages::set_mac(device, index, *wanted)),
        DifferenceKind::Mtu { wanted, .. } => Some(messages::set_mtu(device, index, *wanted)),
        DifferenceKind::AddressMissing { address } => Some(messages::add_address(device, index, *address)),
        DifferenceKind::RouteMissing { route } => Some(messages::add_route(device, index, route)),
        DifferenceKind::RouteStray { route } => {
            Some(messages::delete_route(&Route { device: Some(index), ..*route }))
        }
        DifferenceKind::NeighbourMissing { neighbour, .. } => {
            Some(messages::set_neighbour(device, index, neighbour))
        }
    }
}
