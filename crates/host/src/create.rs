//! Makes a pod's wiring from nothing, in as few system calls as the kernel allows.
//!
//! The kernel does not take an alias at creation, and it goes on with the next request when one fails, so creating
//! under the final name could put our alias on a stranger's link. The link is therefore made under a name that only
//! this sandbox can have, aliased in the same send, and renamed when it is known to be ours.
//!
//! ```text
//!   node   create + alias                                   one send, the answer holds both indices
//!   node   settings that netlink does not take              one file each, only those that differ
//!   node   name, settings, up, address, routes, neighbours  one send
//!   pod    settings                                         one file each, only those that differ
//!   pod    up, addresses, routes, neighbours                one send
//! ```

use std::os::fd::AsRawFd as _;

use model::{DeviceName, Mac, Sandbox};
use plan::{End, PodWiring, Sysctl};

use crate::detach::own_name;
use crate::links::{get_link, is_no_device};
use crate::messages::NewPair;
use crate::netlink::{Message, Outcome, Request};
use crate::objects::{Link, Settings, read_link};
use crate::observe::told_by;
use crate::{Halfway, Host, HostError, NetNs, PodNamespace, messages, sysctl};

/// A veth that was made ahead of time, while its addresses were still being decided. To be given to
/// [`Host::finish`] or [`Host::abandon`]; if neither happens, the next ADD or DEL of the sandbox finds it.
#[derive(Debug)]
pub struct Prepared {
    link: Link,
}

impl Host {
    /// Makes the veth of a sandbox that has none, which is half of the kernel's work and needs no address: there is
    /// time for it while the records are being written. `None`: something is there already, which
    /// [`Host::ensure`] will have to look at.
    pub fn prepare(
        &mut self,
        pod: &PodNamespace,
        sandbox: &Sandbox,
        mac: Mac,
        mtu: u32,
    ) -> Result<Option<Prepared>, HostError> {
        match self.create_pair(pod, sandbox, mac, mtu) {
            Err(error) if error.is_in_the_way() => Ok(None),
            link => link.map(|link| Some(Prepared { link })),
        }
    }

    /// Does the rest, and returns when the pod can exchange packets with the node. A failure leaves nothing behind.
    pub fn finish(
        &mut self,
        pod: &mut PodNamespace,
        prepared: Prepared,
        wiring: &PodWiring,
    ) -> Result<(), HostError> {
        self.finish_link(pod, &prepared.link, wiring)?;
        self.await_ready(pod, wiring)
    }

    /// Takes back what was prepared, when there is no use for it.
    pub fn abandon(&mut self, prepared: Prepared) -> Result<(), HostError> {
        let Prepared { link } = prepared;
        match self.netlink.execute_all(vec![messages::delete_link(&link.name, link.index)]) {
            Err(error) if is_no_device(&error) => Ok(()),
            outcome => outcome,
        }
    }

    /// Gives a sandbox that has nothing yet all of its wiring. `false`: one of the names is in use, and nothing was
    /// done. A failure leaves nothing behind.
    pub(crate) fn wire_afresh(
        &mut self,
        pod: &mut PodNamespace,
        wiring: &PodWiring,
    ) -> Result<bool, HostError> {
        match self.prepare(pod, &wiring.sandbox, wiring.pod.mac, wiring.host.mtu)? {
            Some(Prepared { link }) => self.finish_link(pod, &link, wiring).map(|()| true),
            None => Ok(false),
        }
    }

    fn finish_link(
        &mut self,
        pod: &mut PodNamespace,
        link: &Link,
        wiring: &PodWiring,
    ) -> Result<(), HostError> {
        let wired = self.finish_host_end(wiring, link).and_then(|()| {
            (self.halfway)(Halfway::Wired);
            finish_pod_end(pod, wiring, link)
        });
        if wired.is_err() {
            self.abandon(Prepared { link: link.clone() })?;
        }
        wired
    }

    /// The same kernel objects without any fence, look or read-back: what the kernel itself needs, for benches.
    /// The namespace must be new, and the device's name free.
    pub fn wire_blindly(&mut self, pod: &mut PodNamespace, wiring: &PodWiring) -> Result<(), HostError> {
        let device = &wiring.host.device;
        let link = self.create_named(device, pod, &wiring.sandbox, wiring.pod.mac, wiring.host.mtu)?;
        for wanted in wiring.host.sysctls.iter().filter(|wanted| needs_file(wanted, device)) {
            sysctl::write(wanted)?;
        }
        let settings = v4_settings(&wiring.host, &Settings::default());
        let mut requests = vec![messages::start(&link.name, link.index, None, &settings)];
        requests.extend(proxy_delay(&wiring.host, link.index));
        requests.extend(contents(&wiring.host, link.index));
        self.netlink.execute_all(requests)?;
        let home = NetNs::current()?;
        pod.ns.stay(&home, || wiring.pod.sysctls.iter().try_for_each(sysctl::write))??;
        start_pod_end(pod, wiring, &link)
    }

    /// The link and its other end, down, under the sandbox's own name.
    pub(crate) fn create_pair(
        &mut self,
        pod: &PodNamespace,
        sandbox: &Sandbox,
        mac: Mac,
        mtu: u32,
    ) -> Result<Link, HostError> {
        self.create_named(&own_name(sandbox), pod, sandbox, mac, mtu)
    }

    fn create_named(
        &mut self,
        name: &DeviceName,
        pod: &PodNamespace,
        sandbox: &Sandbox,
        mac: Mac,
        mtu: u32,
    ) -> Result<Link, HostError> {
        let pod_namespace = pod.ns.as_raw_fd();
        let pair = NewPair { pod_device: sandbox.interface(), pod_mac: mac, mtu, pod_namespace };
        let outcomes = self.netlink.transact(vec![
            messages::create_pair(name, &pair),
            messages::set_alias(name, &sandbox.alias()),
        ])?;
        self.created_link(name, outcomes)
    }

    fn created_link(&mut self, name: &DeviceName, outcomes: Vec<Outcome>) -> Result<Link, HostError> {
        let mut outcomes = outcomes.into_iter();
        let created = outcomes.next().unwrap_or(Ok(None))?;
        outcomes.try_for_each(|outcome| outcome.map(|_| ()))?;
        let link = created.and_then(|Message { kind, body }| read_link(kind, &body));
        // An older kernel does not show what it made.
        link.map_or_else(|| get_link(&mut self.netlink, name), Ok)
    }

    fn finish_host_end(&mut self, wiring: &PodWiring, link: &Link) -> Result<(), HostError> {
        let end = &wiring.host;
        for wanted in end.sysctls.iter().filter(|wanted| needs_file(wanted, &end.device)) {
            if told_by(link, end, wanted).as_ref() != Some(wanted) {
                sysctl::write(&under_name(wanted, &end.device, &link.name))?;
            }
        }
        let name = (link.name != end.device.as_str()).then_some(&end.device);
        let settings = v4_settings(end, &link.settings);
        let mut requests = vec![messages::start(&link.name, link.index, name, &settings)];
        requests.extend(proxy_delay(end, link.index));
        requests.extend(contents(end, link.index));
        let mut outcomes = self.netlink.transact(requests)?.into_iter();
        match outcomes.next() {
            Some(Err(error)) if error.is_in_the_way() => {
                return Err(HostError::NameTaken { device: end.device.clone() });
            }
            started => started.unwrap_or(Ok(None))?,
        };
        outcomes.try_for_each(|outcome| outcome.map(|_| ()))
    }
}

fn finish_pod_end(pod: &mut PodNamespace, wiring: &PodWiring, link: &Link) -> Result<(), HostError> {
    let write_if_different = |wanted: &Sysctl| {
        if sysctl::read(&wanted.path).is_ok_and(|value| value == wanted.value) {
            return Ok(());
        }
        sysctl::write(wanted)
    };
    let home = NetNs::current()?;
    pod.ns.stay(&home, || wiring.pod.sysctls.iter().try_for_each(write_if_different))??;
    start_pod_end(pod, wiring, link)
}

fn start_pod_end(pod: &mut PodNamespace, wiring: &PodWiring, link: &Link) -> Result<(), HostError> {
    let index = match link.peer_index {
        Some(index) => index,
        None => get_link(&mut pod.netlink, &wiring.pod.device)?.index,
    };
    let mut requests = vec![messages::set_up(&wiring.pod.device, index)];
    requests.extend(contents(&wiring.pod, index));
    pod.netlink.execute_all(requests)
}

fn contents(end: &End, index: u32) -> Vec<Request> {
    let device = &end.device;
    let addresses = end.addresses.iter().map(|&address| messages::add_address(device, index, address));
    let routes = end.routes.iter().map(|route| messages::add_route(device, index, route));
    let neighbours = end.neighbours.iter().map(|found| messages::set_neighbour(device, index, found));
    addresses.chain(routes).chain(neighbours).collect()
}

/// What a link message can set. Without the side effects of the files: only for a device that is not yet in use.
fn v4_settings(end: &End, now: &Settings) -> Vec<(u16, i32)> {
    let device = end.device.as_str();
    let setting = |wanted: &Sysctl| {
        let number = Settings::number(&wanted.path, device)?;
        let value = wanted.value.parse().ok()?;
        (now.get(&wanted.path, device) != Some(value)).then_some((number, value))
    };
    end.sysctls.iter().filter_map(setting).collect()
}

fn proxy_delay(end: &End, index: u32) -> Option<Request> {
    let path = format!("net/ipv4/neigh/{}/proxy_delay", end.device);
    let wanted = end.sysctls.iter().find(|sysctl| sysctl.path == path)?;
    Some(messages::set_proxy_delay(&end.device, index, wanted.value.parse().ok()?))
}

fn needs_file(wanted: &Sysctl, device: &DeviceName) -> bool {
    Settings::number(&wanted.path, device.as_str()).is_none() && !wanted.path.ends_with("/proxy_delay")
}

/// The same setting while the device still has another name.
fn under_name(sysctl: &Sysctl, device: &DeviceName, name: &str) -> Sysctl {
    let path = sysctl.path.replacen(&format!("/{device}/"), &format!("/{name}/"), 1);
    Sysctl { path, value: sysctl.value.clone() }
}
