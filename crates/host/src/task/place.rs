//! A namespace in which something is changed, and the changes that are of one kernel object each.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{DeviceName, Mac};
use plan::task::KernelChange;
use plan::{Link, Maker, Neighbour, Sysctl};

use super::{NotDone, Outcome, known, surprise};
use crate::links::find_link;
use crate::netlink::numbers::NUD_PERMANENT;
use crate::netlink::{Netlink, Request};
use crate::survey::read;
use crate::{HostError, PodNamespace, messages, sysctl};

/// Longer than any setting of the network.
const SETTING_BYTES_MAX: usize = 128;

/// The node's own namespace, or a pod's.
pub(super) enum Place<'a> {
    Node(&'a mut Netlink),
    Pod(&'a mut PodNamespace),
}

impl Place<'_> {
    pub(super) fn change(&mut self, change: &KernelChange, maker: Maker) -> Outcome {
        match change {
            KernelChange::Route { destination, from, to } => {
                self.change_route(*destination, from.as_ref(), to.as_ref(), maker)
            }
            KernelChange::Neighbour { address, device, from, to } => {
                self.change_neighbour(*address, &known(device)?, *from, *to)
            }
            KernelChange::Address { device, net, from, to } => {
                self.change_address(&known(device)?, *net, *from, *to)
            }
            KernelChange::Up { device, from, to } => self.change_up(&known(device)?, *from, *to),
            KernelChange::Mtu { device, from, to } => self.change_mtu(&known(device)?, *from, *to),
            KernelChange::Sysctl { path, from, to } => self.change_setting(path, from, to),
            KernelChange::Forward { device, mac, from, to } => {
                self.change_forward(&known(device)?, *mac, *from, *to)
            }
            KernelChange::Device { .. }
            | KernelChange::Wire(_)
            | KernelChange::Unwire(_)
            | KernelChange::Tunnel { .. } => {
                unreachable!("they take more than one namespace, and are told apart before")
            }
        }
    }

    pub(super) fn netlink(&mut self) -> &mut Netlink {
        match self {
            Place::Node(netlink) => netlink,
            Place::Pod(pod) => &mut pod.netlink,
        }
    }

    pub(super) fn is_inside(&self) -> bool {
        matches!(self, Place::Pod(_))
    }

    pub(super) fn do_it(&mut self, request: Request) -> Result<(), HostError> {
        self.netlink().execute_all(vec![request])
    }

    /// With the files of this namespace.
    fn with_files<T>(&self, act: impl FnOnce() -> Result<T, HostError>) -> Result<T, HostError> {
        match self {
            Place::Node(_) => act(),
            Place::Pod(pod) => pod.stay(act)?,
        }
    }

    pub(super) fn link(&mut self, device: &DeviceName) -> Result<Link, NotDone> {
        match find_link(self.netlink(), device)? {
            Some(link) => Ok(link),
            None => surprise(format!("there is no device {device}")),
        }
    }

    fn change_up(&mut self, device: &DeviceName, from: bool, to: bool) -> Outcome {
        let link = self.link(device)?;
        let word = |up: bool| if up { "up" } else { "down" };
        turn(&link.up, &from, &to, |up| format!("{device} is {}", word(*up)))?;
        let request = match to {
            true => messages::set_up(device, link.index),
            false => messages::set_down(device.as_str(), link.index),
        };
        self.do_it(request)?;
        let now = self.link(device)?.up;
        is_held(now == to, || format!("{device} is still {}", word(now)))?;
        Ok(Some(KernelChange::Up { device: device.to_string(), from: to, to: from }))
    }

    fn change_mtu(&mut self, device: &DeviceName, from: u32, to: u32) -> Outcome {
        let link = self.link(device)?;
        turn(&link.mtu, &from, &to, |mtu| format!("{device} has MTU {mtu}"))?;
        self.do_it(messages::set_mtu(device, link.index, to))?;
        let now = self.link(device)?.mtu;
        is_held(now == to, || format!("{device} still has MTU {now}"))?;
        Ok(Some(KernelChange::Mtu { device: device.to_string(), from: to, to: from }))
    }

    fn change_address(&mut self, device: &DeviceName, net: IpNet, from: bool, to: bool) -> Outcome {
        let link = self.link(device)?;
        let words = |is: &bool| match is {
            true => format!("{device} has the address {net}"),
            false => format!("{device} does not have the address {net}"),
        };
        turn(&self.has_address(&link, net)?, &from, &to, words)?;
        self.do_it(match to {
            true => messages::add_address(device, link.index, net),
            false => messages::delete_address(device.as_str(), link.index, net),
        })?;
        let now = self.has_address(&link, net)?;
        is_held(now == to, || format!("{} all the same", words(&now)))?;
        Ok(Some(KernelChange::Address { device: device.to_string(), net, from: to, to: from }))
    }

    fn has_address(&mut self, link: &Link, net: IpNet) -> Result<bool, HostError> {
        let what = format!("list the addresses of {}", link.name);
        let message = messages::list_addresses(link.index);
        let found = self.netlink().dump(&what, &message, read::address)?;
        Ok(found.iter().any(|held| held.index == link.index && held.net == net))
    }

    fn change_neighbour(
        &mut self,
        address: IpAddr,
        device: &DeviceName,
        from: Option<Mac>,
        to: Option<Mac>,
    ) -> Outcome {
        let link = self.link(device)?;
        let (found, is_permanent) = self.neighbour(&link, address)?;
        if found == to && (is_permanent || to.is_none()) {
            return Err(NotDone::Already);
        }
        // The kernel may have learned by itself in the meantime what is to be made permanent.
        let is_learned = found == to && !is_permanent;
        if found != from && !is_learned {
            return surprise(neighbour_words(address, device, found));
        }
        self.do_it(match to {
            Some(mac) => messages::set_neighbour(device, link.index, &Neighbour { address, mac }),
            None => messages::delete_neighbour(device, link.index, address),
        })?;
        let (now, is_now_permanent) = self.neighbour(&link, address)?;
        // The kernel may be asking for the address already, and learn it anew.
        let is_gone = now.is_none() || !is_now_permanent;
        let held = if to.is_some() { now == to && is_now_permanent } else { is_gone };
        is_held(held, || format!("{} all the same", neighbour_words(address, device, now)))?;
        // What the kernel had learned, it learns again.
        let before = found.filter(|_| is_permanent);
        Ok(Some(KernelChange::Neighbour { address, device: device.to_string(), from: to, to: before }))
    }

    /// What the kernel knows, and whether for good.
    fn neighbour(&mut self, link: &Link, address: IpAddr) -> Result<(Option<Mac>, bool), HostError> {
        let what = format!("list the neighbours on {}", link.name);
        let message = messages::list_neighbours(Some(link.index));
        let found = self.netlink().dump(&what, &message, read::neighbour)?;
        let known = found.iter().find(|found| found.index == link.index && found.address == address);
        Ok(known.map_or((None, false), |known| (known.mac, known.state & NUD_PERMANENT != 0)))
    }

    fn change_setting(&mut self, path: &str, from: &str, to: &str) -> Outcome {
        if !is_of_network(path) || to.len() > SETTING_BYTES_MAX || to.contains(['\n', '\0']) {
            return surprise(format!(
                "{path:?} cannot be set to {to:?} here: it is no setting of the network"
            ));
        }
        let found = match self.with_files(|| sysctl::read(path)) {
            Ok(found) => found,
            Err(error @ HostError::Sysctl { .. }) => return surprise(model::text::on_one_line(&error)),
            Err(error) => return Err(error.into()),
        };
        turn(&plain(&found), &plain(from), &plain(to), |_| format!("{path} is {found}"))?;
        let wanted = Sysctl { path: path.to_owned(), value: to.to_owned() };
        self.with_files(|| sysctl::write(&wanted))?;
        let now = self.with_files(|| sysctl::read(path))?;
        is_held(plain(&now) == plain(to), || format!("{path} is still {now}"))?;
        Ok(Some(KernelChange::Sysctl { path: path.to_owned(), from: to.to_owned(), to: found }))
    }
}

/// Whether it is time to act: it is as the plan says.
pub(super) fn turn<T: PartialEq>(
    found: &T,
    from: &T,
    to: &T,
    words: impl FnOnce(&T) -> String,
) -> Result<(), NotDone> {
    if found == to {
        Err(NotDone::Already)
    } else if found == from {
        Ok(())
    } else {
        surprise(words(found))
    }
}

pub(super) fn is_held(held: bool, words: impl FnOnce() -> String) -> Result<(), NotDone> {
    if held { Ok(()) } else { Err(NotDone::NotHeld(words())) }
}

fn neighbour_words(address: IpAddr, device: &DeviceName, mac: Option<Mac>) -> String {
    match mac {
        Some(mac) => format!("{device} knows {address} at {mac}"),
        None => format!("{device} does not know {address}"),
    }
}

/// Settings of several numbers have any space between them.
fn plain(value: &str) -> Vec<&str> {
    value.split_whitespace().collect()
}

/// Nothing else is a repair's business, however the path is written.
fn is_of_network(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("net") && parts.all(|part| !part.is_empty() && part != "." && part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_of_the_network_are_set() {
        for path in ["net/ipv4/ip_forward", "net/ipv4/conf/eth0.5/rp_filter"] {
            assert!(is_of_network(path), "{path}");
        }
        for path in ["", "kernel/hostname", "net/../kernel/hostname", "/net/ipv4", "net//x", "net/./x"] {
            assert!(!is_of_network(path), "{path}");
        }
    }

    #[test]
    fn it_is_done_only_from_what_the_plan_found() {
        let turn = |found: u32| turn(&found, &1, &2, |found| format!("it is {found}"));
        assert!(turn(1).is_ok());
        assert!(matches!(turn(2), Err(NotDone::Already)));
        assert!(matches!(turn(3), Err(NotDone::Surprise(said)) if said == "it is 3"));
    }

    #[test]
    fn spaces_make_no_difference() {
        assert_eq!(plain("32768\t60999"), plain("32768 60999"));
        assert_ne!(plain("1 2"), plain("12"));
    }
}
