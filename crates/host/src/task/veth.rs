//! Removes a pod's device that leads to nobody, and puts one back in its place.

use model::{DeviceName, Mac};
use plan::task::{KernelChange, Veth};

use super::place::is_held;
use super::{NotDone, Outcome, TaskContext, surprise};
use plan::Link;

use crate::links::{find_link, get_link};
use crate::messages::{self, NewPair};
use crate::netlink::Request;
use crate::objects::read_link;
use crate::{Host, HostError};

/// In the place of Calico's prefix: the far end of a pair that leads nowhere. As long, so that every name fits.
const NOWHERE_PREFIX: &str = "plno";

impl Host {
    pub(super) fn change_veth(
        &mut self,
        device: &DeviceName,
        from: Option<&Veth>,
        to: Option<&Veth>,
        context: &TaskContext,
    ) -> Outcome {
        let found = find_link(&mut self.netlink, device)?;
        match (from, to, found) {
            (_, None, None) => Err(NotDone::Already),
            (Some(from), None, Some(link)) => self.remove_veth(device, from, &link, context),
            (None, None, Some(_)) => surprise(format!("there is a device {device}")),
            (None, Some(to), None) => self.put_back_veth(device, to),
            (None, Some(to), Some(link)) if is_described(to, &link) => Err(NotDone::Already),
            (_, Some(_), Some(_)) => surprise(format!("there is another device {device}")),
            (Some(_), Some(_), None) => surprise(format!("there is no device {device}")),
        }
    }

    fn remove_veth(
        &mut self,
        device: &DeviceName,
        from: &Veth,
        link: &Link,
        context: &TaskContext,
    ) -> Outcome {
        if !device.as_str().starts_with(DeviceName::CALICO_PREFIX) || link.kind.as_deref() != Some("veth") {
            return surprise(format!("{device} is no pod's device"));
        }
        if from.index.is_none() && from.alias.is_none() {
            return surprise(format!("the plan does not say which {device} it means"));
        }
        let is_index = from.index.is_none_or(|index| index == link.index);
        if !is_index || !is_described(from, link) {
            return surprise(format!("{device} is another one: {}", in_words(link)));
        }
        if let Some(who) = self.who_lives_behind(link, context)? {
            return surprise(format!("{device} is left alone: {who}"));
        }
        let before = Veth {
            index: None,
            alias: link.alias.clone(),
            mac: link.mac,
            mtu: Some(link.mtu),
            is_up: link.up,
        };
        self.netlink.execute_all(vec![messages::delete_link(&link.name, link.index)])?;
        let is_gone = find_link(&mut self.netlink, device)?.is_none_or(|now| now.index != link.index);
        is_held(is_gone, || format!("there is still a device {device}"))?;
        Ok(Some(KernelChange::Device { device: device.to_string(), from: None, to: Some(before) }))
    }

    /// Both ends on the node: what was behind it is gone.
    fn put_back_veth(&mut self, device: &DeviceName, to: &Veth) -> Outcome {
        let Some(digits) = device.as_str().strip_prefix(DeviceName::CALICO_PREFIX) else {
            return surprise(format!("{device} is no pod's device"));
        };
        let nowhere =
            DeviceName::new(&format!("{NOWHERE_PREFIX}{digits}")).expect("as long as the other one");
        let home = self.home();
        let index = self.free_number()?;
        let pair = NewPair {
            index,
            pod_device: nowhere.as_str(),
            pod_mac: Mac([0x02, 0, 0, 0, 0, 1]),
            mtu: to.mtu.unwrap_or(1500),
            pod_namespace: std::os::fd::AsRawFd::as_raw_fd(&*home),
        };
        let mut requests = vec![messages::create_pair(device, &pair)];
        requests.extend(to.alias.as_deref().map(|alias| messages::set_alias_of(index, alias)));
        requests.extend(to.mac.map(|mac| messages::set_mac(device, index, mac)));
        requests.extend(to.is_up.then(|| messages::set_up(device, index)));
        self.put_all_or_nothing(device, requests)?;
        let link = get_link(&mut self.netlink, device)?;
        is_held(is_described(to, &link), || format!("{device} is another one: {}", in_words(&link)))?;
        let made = Veth { index: Some(link.index), ..to.clone() };
        Ok(Some(KernelChange::Device { device: device.to_string(), from: Some(made), to: None }))
    }

    fn put_all_or_nothing(&mut self, device: &DeviceName, requests: Vec<Request>) -> Result<(), HostError> {
        let mut outcomes = self.netlink.transact(requests)?.into_iter();
        let created = outcomes.next().unwrap_or(Ok(None))?;
        let outcome = outcomes.try_for_each(|outcome| outcome.map(|_| ()));
        if outcome.is_err() {
            let index = match created.and_then(|made| read_link(made.kind, &made.body)) {
                Some(link) => link.index,
                None => get_link(&mut self.netlink, device)?.index,
            };
            self.netlink.execute_all(vec![messages::delete_link(device.as_str(), index)])?;
        }
        outcome
    }
}

/// Whose it is and what it is known by. Not whether it is up, nor its MTU: anybody may have changed those.
fn is_described(veth: &Veth, link: &Link) -> bool {
    veth.alias == link.alias && veth.mac.is_none_or(|mac| Some(mac) == link.mac)
}

fn in_words(link: &Link) -> String {
    let alias = link.alias.as_deref().map_or_else(|| "no alias".to_owned(), |alias| format!("alias {alias}"));
    let mac = link.mac.map_or_else(String::new, |mac| format!(" and hardware address {mac}"));
    format!("number {} with {alias}{mac}", link.index)
}
