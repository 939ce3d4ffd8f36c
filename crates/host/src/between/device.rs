//! The devices that routes between nodes lead by: found, made, put right.

use std::net::IpAddr;

use ipnet::IpNet;
use model::{DeviceName, IpVersion, Mac};
use plan::between::{IPIP_DEVICE, IpipDevice, Uplink, Uplinks, VXLAN_DEVICES, VxlanDevice};
use plan::task::Tunnel;
use plan::{Link, Vxlan};
use rustix::io::Errno;

use crate::links::{find_link, find_link_by_index};
use crate::netlink::Request;
use crate::objects::read_address;
use crate::{Halfway, Host, HostError, messages};

use super::messages as own;

impl Host {
    /// The devices that have these addresses of the node, of either IP version. IPIP is for [`Host::ensure_ipip`] to say.
    pub fn find_uplinks(&mut self, v4: Option<IpAddr>, v6: Option<IpAddr>) -> Result<Uplinks, HostError> {
        let what = "list the node's addresses";
        let found = self.netlink.dump(what, &messages::list_addresses(0), |kind, body| {
            let (index, network) = read_address(kind, body)?;
            [v4, v6].contains(&Some(network.addr())).then_some((index, network.addr()))
        })?;
        let index_of = |address: Option<IpAddr>| {
            found.iter().find(|(_, found)| Some(*found) == address).map(|(index, _)| *index)
        };
        let (v4, v6) = (index_of(v4), index_of(v6));
        Ok(Uplinks { v4: self.uplink(v4)?, v6: self.uplink(v6)?, has_ipip: false })
    }

    fn uplink(&mut self, index: Option<u32>) -> Result<Option<Uplink>, HostError> {
        let Some(index) = index else { return Ok(None) };
        let link = find_link_by_index(&mut self.netlink, index)?;
        Ok(link.map(|link| Uplink { device: link.name, index, mtu: link.mtu }))
    }

    /// Sets up the device for IPIP, which the kernel makes when it is first asked for one. `None` if it has no IPIP.
    pub fn ensure_ipip(&mut self, wanted: &IpipDevice) -> Result<Option<u32>, HostError> {
        let name = DeviceName::new(IPIP_DEVICE).expect("a valid name");
        if self.find_device(IPIP_DEVICE)?.is_none() {
            match self.netlink.execute_all(vec![own::create_ipip()]) {
                Err(error) if is_unsupported(&error) => return Ok(None),
                Err(error) if !error.is_in_the_way() => return Err(error),
                _ => {}
            }
        }
        let Some(link) = find_link(&mut self.netlink, &name)? else { return Ok(None) };
        let mut requests: Vec<Request> = Vec::new();
        if link.mtu != wanted.mtu {
            requests.push(messages::set_mtu(&name, link.index, wanted.mtu));
        }
        if !link.up {
            requests.push(messages::set_up(&name, link.index));
        }
        requests.extend(self.address_requests(&name, link.index, IpVersion::V4, wanted.address)?);
        self.netlink.execute_all(requests)?;
        Ok(Some(link.index))
    }

    /// What gives a device this address of an IP version and no other; nothing if there is none to give.
    fn address_requests(
        &mut self,
        name: &DeviceName,
        index: u32,
        version: IpVersion,
        wanted: Option<IpAddr>,
    ) -> Result<Vec<Request>, HostError> {
        let Some(wanted) = wanted.map(IpNet::from) else { return Ok(Vec::new()) };
        let there = self.addresses_of(index, version)?;
        let mut requests = Vec::new();
        if !there.contains(&wanted) {
            requests.push(messages::add_address(name, index, wanted));
        }
        let others = there.into_iter().filter(|other| *other != wanted);
        requests.extend(others.map(|other| messages::delete_address(name.as_str(), index, other)));
        Ok(requests)
    }

    fn find_device(&mut self, name: &str) -> Result<Option<u32>, HostError> {
        let Ok(name) = DeviceName::new(name) else { return Ok(None) };
        Ok(find_link(&mut self.netlink, &name)?.map(|link| link.index))
    }

    /// Makes a VXLAN device, or puts right what is wrong with the one that is there. Its index, and whether it was made anew:
    /// then nothing leads through it yet.
    pub fn ensure_vxlan(&mut self, wanted: &VxlanDevice) -> Result<(u32, bool), HostError> {
        let found = self.look_at_vxlan(wanted.name())?;
        if let Some(found) = &found
            && found.vxlan.is_none()
        {
            return Err(HostError::NameTaken {
                device: DeviceName::new(wanted.name()).expect("a valid name"),
            });
        }
        let kept = found.filter(|found| found.vxlan.as_ref().is_some_and(|vxlan| is_same(vxlan, wanted)));
        let is_new = kept.is_none();
        if is_new {
            self.remake_vxlan(wanted)?;
            (self.halfway)(Halfway::TunnelMade);
        }
        let link = match kept {
            Some(link) => link,
            None => self.look_at_vxlan(wanted.name())?.ok_or_else(|| HostError::Malformed {
                what: format!("create {}", wanted.name()),
                problem: "the device is not there".to_owned(),
            })?,
        };
        self.adjust_vxlan(wanted, &link)?;
        Ok((link.index, is_new))
    }

    /// Takes the addresses from the VXLAN device of an IP version, if it is ours: they may be a pod's soon. What others still
    /// send through it arrives nevertheless. Whether there is one.
    pub fn retire_vxlan(&mut self, version: IpVersion) -> Result<bool, HostError> {
        let Some(link) = self.own_vxlan(version)? else { return Ok(false) };
        let addresses = self.addresses_of(link.index, version)?;
        let delete = |address: IpNet| messages::delete_address(&link.name, link.index, address);
        self.netlink.execute_all(addresses.into_iter().map(delete).collect())?;
        Ok(true)
    }

    /// Removes the VXLAN device of an IP version, if it is ours. Whether there was one.
    pub fn remove_vxlan(&mut self, version: IpVersion) -> Result<bool, HostError> {
        let Some(link) = self.own_vxlan(version)? else { return Ok(false) };
        self.netlink.execute_all(vec![messages::delete_link(&link.name, link.index)])?;
        Ok(true)
    }

    /// A VXLAN device as it is; `None` if there is none of that name. One of that name that is no VXLAN device is in the way.
    pub(crate) fn find_tunnel(&mut self, name: &str) -> Result<Option<Tunnel>, HostError> {
        let Some(link) = self.look_at_vxlan(name)? else { return Ok(None) };
        let Some((vxlan, version)) = link.vxlan.as_ref().zip(version_of(name)) else {
            return Err(HostError::NameTaken {
                device: DeviceName::new(name).expect("it is a device's name"),
            });
        };
        let parent = self.uplink(vxlan.parent)?.map(|parent| parent.device);
        let unspecified = match version {
            IpVersion::V4 => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            IpVersion::V6 => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        };
        Ok(Some(Tunnel {
            vni: vxlan.vni.unwrap_or_default(),
            port: vxlan.port.unwrap_or_default(),
            local: vxlan.local.unwrap_or(unspecified),
            parent: parent.unwrap_or_default(),
            mac: link.mac.unwrap_or(Mac([0; 6])),
            mtu: link.mtu,
            address: self.addresses_of(link.index, version)?.first().map(IpNet::addr),
            is_up: link.up,
        }))
    }

    /// Makes a VXLAN device like this, or changes the one that is there.
    pub(crate) fn put_tunnel(&mut self, name: &str, wanted: &Tunnel) -> Result<(), HostError> {
        let (parent, version) = (self.find_device(&wanted.parent)?, version_of(name));
        let (Some(parent), Some(version)) = (parent, version) else {
            return Err(HostError::NoDevice { what: format!("make {name} on {}", wanted.parent) });
        };
        let device = VxlanDevice {
            version,
            vni: wanted.vni,
            port: wanted.port,
            mac: wanted.mac,
            local: wanted.local,
            parent,
            // What it has for the moment; the address that it is to have is given below.
            address: Some(wanted.address.unwrap_or(wanted.local)),
            mtu: wanted.mtu,
        };
        if wanted.address.is_some() && wanted.is_up {
            return self.ensure_vxlan(&device).map(drop);
        }
        let found = self.look_at_vxlan(name)?.and_then(|link| link.vxlan);
        if !found.is_some_and(|found| is_same(&found, &device)) {
            self.remake_vxlan(&device)?;
        }
        let Some(link) = self.look_at_vxlan(name)? else {
            return Err(HostError::NoDevice { what: format!("change {name}") });
        };
        let known = DeviceName::new(name).expect("it is a device's name");
        let mut requests = vec![messages::set_mac(&known, link.index, wanted.mac)];
        requests.push(messages::set_mtu(&known, link.index, wanted.mtu));
        requests.push(match wanted.is_up {
            true => messages::set_up(&known, link.index),
            false => messages::set_down(name, link.index),
        });
        let held = self.addresses_of(link.index, version)?;
        let delete = |address: IpNet| messages::delete_address(name, link.index, address);
        match wanted.address {
            None => requests.extend(held.into_iter().map(delete)),
            address => requests.extend(self.address_requests(&known, link.index, version, address)?),
        }
        self.netlink.execute_all(requests)
    }

    pub(crate) fn delete_tunnel(&mut self, name: &str) -> Result<(), HostError> {
        match self.find_device(name)? {
            Some(index) => self.netlink.execute_all(vec![messages::delete_link(name, index)]),
            None => Ok(()),
        }
    }

    fn own_vxlan(&mut self, version: IpVersion) -> Result<Option<Link>, HostError> {
        let found = self.look_at_vxlan(VxlanDevice::name_of(version))?;
        Ok(found.filter(|link| link.alias.as_deref() == Some(VxlanDevice::ALIAS)))
    }

    fn look_at_vxlan(&mut self, name: &str) -> Result<Option<Link>, HostError> {
        let name = DeviceName::new(name).expect("a valid name");
        find_link(&mut self.netlink, &name)
    }

    /// One that was there under this name goes: the kernel cannot change most of what a tunnel is.
    fn remake_vxlan(&mut self, wanted: &VxlanDevice) -> Result<(), HostError> {
        if let Some(index) = self.find_device(wanted.name())? {
            self.netlink.execute_all(vec![messages::delete_link(wanted.name(), index)])?;
        }
        let name = DeviceName::new(wanted.name()).expect("a valid name");
        let requests = vec![own::create_vxlan(wanted), messages::set_alias(&name, VxlanDevice::ALIAS)];
        self.netlink.execute_all(requests)
    }

    fn adjust_vxlan(&mut self, wanted: &VxlanDevice, link: &Link) -> Result<(), HostError> {
        let name = DeviceName::new(wanted.name()).expect("a valid name");
        let mut requests: Vec<Request> = Vec::new();
        if link.alias.as_deref() != Some(VxlanDevice::ALIAS) {
            requests.push(messages::set_alias(&name, VxlanDevice::ALIAS));
        }
        if link.mac != Some(wanted.mac) {
            requests.push(messages::set_mac(&name, link.index, wanted.mac));
        }
        if link.mtu != wanted.mtu {
            requests.push(messages::set_mtu(&name, link.index, wanted.mtu));
        }
        if !link.up {
            requests.push(messages::set_up(&name, link.index));
        }
        if wanted.address.is_some() {
            requests.extend(self.address_requests(&name, link.index, wanted.version, wanted.address)?);
        } else {
            // What it had before may be a pod's by now.
            let there = self.addresses_of(link.index, wanted.version)?;
            let delete = |address: IpNet| messages::delete_address(name.as_str(), link.index, address);
            requests.extend(there.into_iter().map(delete));
        }
        self.netlink.execute_all(requests)
    }

    /// Those of one IP version that somebody gave it: the kernel gives IPv6 devices one of their own.
    fn addresses_of(&mut self, index: u32, version: IpVersion) -> Result<Vec<IpNet>, HostError> {
        let is_of_kernel =
            |address: IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        self.netlink.dump("list a tunnel's addresses", &messages::list_addresses(index), |kind, body| {
            let (of, network) = read_address(kind, body)?;
            let is_meant = of == index && IpVersion::of(network.addr()) == version;
            (is_meant && !is_of_kernel(network.addr())).then_some(network)
        })
    }
}

/// Only the tunnels' own names are known here.
fn version_of(name: &str) -> Option<IpVersion> {
    let versions = VXLAN_DEVICES.into_iter().zip([IpVersion::V4, IpVersion::V6]);
    versions.into_iter().find(|(known, _)| *known == name).map(|(_, version)| version)
}

fn is_unsupported(error: &HostError) -> bool {
    [Errno::OPNOTSUPP, Errno::NOSYS].iter().any(|errno| error.errno() == Some(errno.raw_os_error()))
}

/// Whether the kernel's tunnel is the one that is wanted, as far as it cannot be changed in place.
fn is_same(found: &Vxlan, wanted: &VxlanDevice) -> bool {
    found.vni == Some(wanted.vni)
        && found.port == Some(wanted.port)
        && found.local == Some(wanted.local)
        && found.parent == Some(wanted.parent)
        && !found.learns
}
