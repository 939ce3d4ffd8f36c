//! Changes of the tunnel to other nodes: its device, and behind which node the hardware addresses of its ends are.

use std::net::IpAddr;

use model::{DeviceName, Mac};
use plan::between::VXLAN_DEVICES;
use plan::task::{KernelChange, Tunnel};

use super::place::{Place, is_held, turn};
use super::{NotDone, Outcome, surprise};
use crate::between::messages::{delete_forward, list_forwards, put_forward};
use crate::between::read::forward;
use crate::{Host, HostError};

impl Host {
    pub(super) fn change_tunnel(
        &mut self,
        device: &str,
        from: Option<&Tunnel>,
        to: Option<&Tunnel>,
    ) -> Outcome {
        if !VXLAN_DEVICES.contains(&device) {
            return surprise(format!("{device:?} is not the name of a tunnel to other nodes"));
        }
        let found = match self.find_tunnel(device) {
            Err(HostError::NameTaken { .. }) => return surprise(format!("{device} is no VXLAN device")),
            found => found?,
        };
        turn(&found.as_ref(), &from, &to, |found| words(device, *found))?;
        match to {
            Some(tunnel) => self.put_tunnel(device, tunnel)?,
            None => self.delete_tunnel(device)?,
        }
        let now = self.find_tunnel(device)?;
        is_held(now.as_ref() == to, || format!("{} all the same", words(device, now.as_ref())))?;
        Ok(Some(KernelChange::Tunnel { device: device.to_owned(), from: to.cloned(), to: found }))
    }
}

impl Place<'_> {
    pub(super) fn change_forward(
        &mut self,
        device: &DeviceName,
        mac: Mac,
        from: Option<IpAddr>,
        to: Option<IpAddr>,
    ) -> Outcome {
        let index = self.link(device)?.index;
        let found = self.forwards(index, mac)?;
        let words = |found: &[IpAddr]| match found {
            [] => format!("{device} does not know behind which node {mac} is"),
            nodes => {
                let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
                format!("{device} has {mac} behind {}", nodes.join(" and "))
            }
        };
        let has = |node: Option<IpAddr>| match node {
            Some(node) => found == [node],
            None => found.is_empty(),
        };
        if has(to) {
            return Err(NotDone::Already);
        }
        if !has(from) {
            return surprise(words(&found));
        }
        if let Some(node) = to {
            self.do_it(put_forward(index, mac, node))?;
        }
        // One that is put in the place of another replaces it in one step.
        let left = self.forwards(index, mac)?;
        for node in left.into_iter().filter(|node| Some(*node) != to) {
            self.do_it(delete_forward(index, mac, node))?;
        }
        let now = self.forwards(index, mac)?;
        is_held(now.iter().copied().eq(to), || format!("{} all the same", words(&now)))?;
        Ok(Some(KernelChange::Forward { device: device.to_string(), mac, from: to, to: from }))
    }

    fn forwards(&mut self, index: u32, mac: Mac) -> Result<Vec<IpAddr>, HostError> {
        let what = "list the ends of tunnels";
        self.netlink().dump(what, &list_forwards(index), |kind, body| {
            let (of, found, node) = forward(kind, body)?;
            (of == index && found == mac).then_some(node)
        })
    }
}

fn words(device: &str, found: Option<&Tunnel>) -> String {
    match found {
        None => format!("there is no {device}"),
        Some(Tunnel { vni, port, local, parent, mac, mtu, address, is_up }) => {
            let address = address.map_or_else(|| "no address".to_owned(), |address| address.to_string());
            let state = if *is_up { "up" } else { "down" };
            format!(
                "{device} has VNI {vni}, port {port}, local address {local} on {parent}, MAC {mac}, MTU {mtu}, {address} and is {state}"
            )
        }
    }
}
