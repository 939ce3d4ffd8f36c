//! Makes a pod's wiring from nothing, in as few system calls as the kernel allows.
//!
//! The kernel does not take an alias at creation, and it goes on with the next request when one fails, so an alias that
//! is given by name could end up on a stranger's link. The link is therefore made under a number that nobody has, and
//! everything else in the same send goes by that number.
//!
//! ```text
//!   ahead   node   create, alias, settings, up                      one send, the answer holds both numbers
//!           node   settings that netlink does not take              one file each, only those that differ
//!           pod    up                                               one send
//!   then    node   addresses, routes, neighbours                    one send
//!           pod    addresses, routes, neighbours                    one send
//! ```
//!
//! A pod with IPv6 is started last: some of its settings are of use only before the device is up.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::AsRawFd as _;

use model::DeviceName;
use plan::{DeviceSetting, End, Link, PodWiring, Sysctl};

use crate::links::{get_link, is_no_device};
use crate::messages::NewPair;
use crate::netlink::{Message, Request};
use crate::objects::{read_link, setting_number};
use crate::observe::told_by;
use crate::{Halfway, Host, HostError, PodNamespace, messages, sysctl};

/// A veth that was made ahead of time, while its addresses were still being decided. To be given to
/// [`Host::finish`] or [`Host::abandon`]; if neither happens, the next ADD or DEL of the sandbox finds it.
#[derive(Debug)]
pub struct Prepared {
    link: Link,
    /// Both ends are up and set; only addresses and what goes with them are missing.
    is_started: bool,
}

/// How much is made ahead of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// Both ends up. Only for a pod that gets no IPv6 address.
    Started,
    /// The pair alone.
    Made,
}

impl Host {
    /// Makes the veth of a sandbox that has none, which is most of the kernel's work and needs no address: there is
    /// time for it while the records are being written. `bare` is the wiring without any address. `None`: something is
    /// there already, which [`Host::ensure`] will have to look at.
    pub fn prepare(
        &mut self,
        pod: &mut PodNamespace,
        bare: &PodWiring,
        ahead: Ahead,
    ) -> Result<Option<Prepared>, HostError> {
        let created = match ahead {
            Ahead::Started => self.create_started(pod, bare),
            Ahead::Made => self.create_pair(pod, bare, |_| Vec::new()),
        };
        match created {
            Err(error) if error.is_in_the_way() => Ok(None),
            link => link.map(|link| Some(Prepared { link, is_started: ahead == Ahead::Started })),
        }
    }

    /// Does the rest, and returns when the pod can exchange packets with the node. A failure leaves nothing behind.
    pub fn finish(
        &mut self,
        pod: &mut PodNamespace,
        prepared: Prepared,
        wiring: &PodWiring,
    ) -> Result<(), HostError> {
        self.finish_link(pod, &prepared, wiring)?;
        let Link { index, peer_index, .. } = prepared.link;
        self.await_ready(pod, wiring, peer_index.map(|inside| (index, inside)))
    }

    /// Takes back what was prepared, when there is no use for it.
    pub fn abandon(&mut self, prepared: Prepared) -> Result<(), HostError> {
        self.abandon_link(&prepared.link)
    }

    fn abandon_link(&mut self, link: &Link) -> Result<(), HostError> {
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
        match self.prepare(pod, wiring, Ahead::Made)? {
            Some(prepared) => self.finish_link(pod, &prepared, wiring).map(|()| true),
            None if self.is_name_taken(&wiring.host.device, &wiring.sandbox)? => {
                Err(HostError::NameTaken { device: wiring.host.device.clone() })
            }
            None => Ok(false),
        }
    }

    fn finish_link(
        &mut self,
        pod: &mut PodNamespace,
        prepared: &Prepared,
        wiring: &PodWiring,
    ) -> Result<(), HostError> {
        let wired = self.finish_host_end(wiring, prepared).and_then(|()| {
            (self.halfway)(Halfway::Wired);
            finish_pod_end(pod, wiring, prepared)
        });
        if wired.is_err() {
            self.abandon_link(&prepared.link)?;
        }
        wired
    }

    /// The same kernel objects without fence, observation or read-back: the least that the kernel needs, for benches. The namespace must be
    /// new, and the device's name free.
    #[cfg(feature = "bench")]
    pub fn wire_unchecked(&mut self, pod: &mut PodNamespace, wiring: &PodWiring) -> Result<(), HostError> {
        let device = &wiring.host.device;
        let link = self.create_pair(pod, wiring, |_| Vec::new())?;
        for wanted in wiring.host.sysctls.iter().filter(|wanted| needs_file(wanted, device)) {
            sysctl::write(wanted)?;
        }
        let mut requests = start(&wiring.host, link.index);
        requests.extend(contents(&wiring.host, link.index));
        self.netlink.execute_all(requests)?;
        pod.stay(|| wiring.pod.sysctls.iter().try_for_each(sysctl::write))??;
        let index = pod_index(pod, wiring, &link)?;
        let mut requests = vec![messages::set_up(&wiring.pod.device, index)];
        requests.extend(contents(&wiring.pod, index));
        pod.netlink.execute_all(requests)
    }

    /// The link and its other end, down, with whatever else is to be done to it in the same send.
    pub(crate) fn create_pair(
        &mut self,
        pod: &PodNamespace,
        wiring: &PodWiring,
        further: impl FnOnce(u32) -> Vec<Request>,
    ) -> Result<Link, HostError> {
        let PodWiring { sandbox, host, pod: inside } = wiring;
        let index = self.free_number()?;
        let pair = NewPair {
            index,
            pod_device: sandbox.interface(),
            pod_mac: inside.mac,
            mtu: host.mtu,
            pod_namespace: pod.ns.as_raw_fd(),
        };
        let mut requests =
            vec![messages::create_pair(&host.device, &pair), messages::set_alias_of(index, &sandbox.alias())];
        requests.extend(further(index));
        let mut outcomes = self.netlink.transact(requests)?.into_iter();
        let created = outcomes.next().unwrap_or(Ok(None))?;
        let link = created.and_then(|Message { kind, body }| read_link(kind, &body));
        // An older kernel does not show what it made.
        let link = link.map_or_else(|| get_link(&mut self.netlink, &host.device), Ok)?;
        match outcomes.try_for_each(|outcome| outcome.map(|_| ())) {
            Ok(()) => Ok(link),
            Err(error) => {
                self.abandon_link(&link)?;
                Err(error)
            }
        }
    }

    /// Both ends up, and everything set that needs no address.
    fn create_started(&mut self, pod: &mut PodNamespace, bare: &PodWiring) -> Result<Link, HostError> {
        let link = self.create_pair(pod, bare, |index| start(&bare.host, index))?;
        // Nothing can arrive before the other end is up.
        let started = write_files(&bare.host, &link).and_then(|()| {
            let index = pod_index(pod, bare, &link)?;
            set_pod(pod, bare)?;
            pod.netlink.execute_all(vec![messages::set_up(&bare.pod.device, index)])
        });
        match started {
            Ok(()) => Ok(link),
            Err(error) => {
                self.abandon_link(&link)?;
                Err(error)
            }
        }
    }

    fn finish_host_end(&mut self, wiring: &PodWiring, prepared: &Prepared) -> Result<(), HostError> {
        let (end, link) = (&wiring.host, &prepared.link);
        let mut requests = Vec::new();
        if !prepared.is_started {
            write_files(end, link)?;
            requests.extend(start(end, link.index));
        }
        requests.extend(contents(end, link.index));
        self.netlink.execute_all(requests)
    }

    /// A number for a new link that no link has.
    pub(crate) fn free_number(&mut self) -> Result<u32, HostError> {
        if let Some(number) = self.numbers.free.take() {
            return Ok(number);
        }
        loop {
            let number = self.numbers.next();
            match self.netlink.get(messages::get_link_by_index(number)) {
                Err(error) if is_no_device(&error) => return Ok(number),
                taken => drop(taken?),
            }
        }
    }
}

/// Numbers for new links. The kernel counts up from one, and nobody else chooses any: so it takes a great coincidence
/// for two to meet, and each is looked up before it is used all the same.
#[derive(Debug)]
pub(crate) struct Numbers {
    last: u32,
    /// Was looked up a moment ago, and nobody had it.
    pub(crate) free: Option<u32>,
}

impl Numbers {
    const FIRST: u32 = 0x1000_0000;
    const COUNT: u32 = 0x6000_0000;

    /// From anywhere on: several processes may be at work on one node.
    pub(crate) fn new() -> Numbers {
        let anywhere = RandomState::new().hash_one(std::process::id());
        Numbers { last: Numbers::FIRST + (anywhere % u64::from(Numbers::COUNT)) as u32, free: None }
    }

    pub(crate) fn next(&mut self) -> u32 {
        self.last = Numbers::FIRST + (self.last - Numbers::FIRST + 1) % Numbers::COUNT;
        self.last
    }
}

fn finish_pod_end(pod: &mut PodNamespace, wiring: &PodWiring, prepared: &Prepared) -> Result<(), HostError> {
    let index = pod_index(pod, wiring, &prepared.link)?;
    let mut requests = Vec::new();
    if !prepared.is_started {
        set_pod(pod, wiring)?;
        requests.push(messages::set_up(&wiring.pod.device, index));
    }
    requests.extend(contents(&wiring.pod, index));
    pod.netlink.execute_all(requests)
}

/// Settings inside the pod, where they differ.
fn set_pod(pod: &mut PodNamespace, wiring: &PodWiring) -> Result<(), HostError> {
    let (asked, read): (Vec<&Sysctl>, Vec<&Sysctl>) =
        wiring.pod.sysctls.iter().partition(|wanted| sysctl::question(&wanted.path).is_some());
    let mut different = Vec::new();
    for wanted in asked {
        if sysctl::ask(&mut pod.netlink, &wanted.path)? != wanted.value {
            different.push(wanted);
        }
    }
    if different.is_empty() && read.is_empty() {
        return Ok(());
    }
    pod.stay(|| {
        let is_set = |wanted: &&Sysctl| sysctl::read(&wanted.path).is_ok_and(|value| value == wanted.value);
        different.extend(read.into_iter().filter(|wanted| !is_set(wanted)));
        different.into_iter().try_for_each(sysctl::write)
    })?
}

fn pod_index(pod: &mut PodNamespace, wiring: &PodWiring, link: &Link) -> Result<u32, HostError> {
    match link.peer_index {
        Some(index) => Ok(index),
        None => Ok(get_link(&mut pod.netlink, &wiring.pod.device)?.index),
    }
}

/// Settings that no message takes, where they differ from what a new device has.
fn write_files(end: &End, link: &Link) -> Result<(), HostError> {
    let needs = |wanted: &&Sysctl| {
        needs_file(wanted, &end.device) && told_by(link, end, wanted).as_ref() != Some(*wanted)
    };
    end.sysctls.iter().filter(needs).try_for_each(sysctl::write)
}

/// Up, with all settings that a message can set.
fn start(end: &End, index: u32) -> Vec<Request> {
    let mut requests = vec![messages::start(&end.device, index, &v4_settings(end))];
    requests.extend(proxy_delay(end, index));
    requests
}

fn contents(end: &End, index: u32) -> Vec<Request> {
    let device = &end.device;
    let addresses = end.addresses.iter().map(|&address| messages::add_address(device, index, address));
    let routes = end.routes.iter().map(|route| messages::add_route(device, index, route));
    let neighbours = end.neighbours.iter().map(|found| messages::set_neighbour(device, index, found));
    addresses.chain(routes).chain(neighbours).collect()
}

/// What a link message can set. Without the side effects of the files: only for a device that is not yet in use.
fn v4_settings(end: &End) -> Vec<(u16, i32)> {
    let device = end.device.as_str();
    let setting = |wanted: &Sysctl| Some((setting_number(&wanted.path, device)?, wanted.value.parse().ok()?));
    end.sysctls.iter().filter_map(setting).collect()
}

fn proxy_delay(end: &End, index: u32) -> Option<Request> {
    let path = DeviceSetting::ProxyDelay.path(end.device.as_str());
    let wanted = end.sysctls.iter().find(|sysctl| sysctl.path == path)?;
    Some(messages::set_proxy_delay(&end.device, index, wanted.value.parse().ok()?))
}

fn needs_file(wanted: &Sysctl, device: &DeviceName) -> bool {
    let is_proxy_delay = wanted.path == DeviceSetting::ProxyDelay.path(device.as_str());
    setting_number(&wanted.path, device.as_str()).is_none() && !is_proxy_delay
}
