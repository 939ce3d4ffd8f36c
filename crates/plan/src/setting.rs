//! Kernel settings of a pod's wiring: which ones, where they are, which value they need and why.
//!
//! Whoever writes, reads, checks or repairs a setting asks this table.

use std::net::IpAddr;

use model::IpVersion;

use crate::objects::Sysctl;
use crate::wiring::Side;

/// A setting that every device has of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceSetting {
    RouteLocalnet,
    ProxyDelay,
    ProxyArp,
    ForwardingV4,
    RpFilter,
    AcceptRa,
    DisableIpv6,
    AcceptDad,
    ProxyNdp,
    ForwardingV6,
}

/// Where the kernel keeps a setting.
struct Place {
    version: IpVersion,
    name: &'static str,
    /// Its position in the list of settings that a link message carries; the kernel never changes these. `None`: it belongs to
    /// the neighbour table.
    position: Option<usize>,
}

impl DeviceSetting {
    pub const ALL: [DeviceSetting; 10] = [
        DeviceSetting::RouteLocalnet,
        DeviceSetting::ProxyDelay,
        DeviceSetting::ProxyArp,
        DeviceSetting::ForwardingV4,
        DeviceSetting::RpFilter,
        DeviceSetting::AcceptRa,
        DeviceSetting::DisableIpv6,
        DeviceSetting::AcceptDad,
        DeviceSetting::ProxyNdp,
        DeviceSetting::ForwardingV6,
    ];

    const fn place(self) -> Place {
        const fn conf(version: IpVersion, name: &'static str, position: usize) -> Place {
            Place { version, name, position: Some(position) }
        }
        match self {
            DeviceSetting::RouteLocalnet => conf(IpVersion::V4, "route_localnet", 25),
            DeviceSetting::ProxyDelay => {
                Place { version: IpVersion::V4, name: "proxy_delay", position: None }
            }
            DeviceSetting::ProxyArp => conf(IpVersion::V4, "proxy_arp", 2),
            DeviceSetting::ForwardingV4 => conf(IpVersion::V4, "forwarding", 0),
            DeviceSetting::RpFilter => conf(IpVersion::V4, "rp_filter", 7),
            DeviceSetting::AcceptRa => conf(IpVersion::V6, "accept_ra", 3),
            DeviceSetting::DisableIpv6 => conf(IpVersion::V6, "disable_ipv6", 26),
            DeviceSetting::AcceptDad => conf(IpVersion::V6, "accept_dad", 27),
            DeviceSetting::ProxyNdp => conf(IpVersion::V6, "proxy_ndp", 22),
            DeviceSetting::ForwardingV6 => conf(IpVersion::V6, "forwarding", 0),
        }
    }

    pub const fn version(self) -> IpVersion {
        self.place().version
    }

    pub const fn name(self) -> &'static str {
        self.place().name
    }

    /// Its position in the list of settings of its IP version that a link message carries.
    pub const fn position(self) -> Option<usize> {
        self.place().position
    }

    /// Below `/proc/sys`. `all` and `default` are devices here, too.
    pub fn path(self, device: &str) -> String {
        format!("net/{}/{}/{device}/{}", self.family(), self.folder(), self.name())
    }

    /// The setting at a path below `/proc/sys`, and the device that it is of.
    pub fn at(path: &str) -> Option<(DeviceSetting, &str)> {
        let (family, rest) = path.strip_prefix("net/")?.split_once('/')?;
        let (folder, rest) = rest.split_once('/')?;
        let (device, name) = rest.rsplit_once('/')?;
        let is_it = |setting: &DeviceSetting| {
            (setting.family(), setting.folder(), setting.name()) == (family, folder, name)
        };
        DeviceSetting::ALL.into_iter().find(is_it).map(|setting| (setting, device))
    }

    fn family(self) -> &'static str {
        match self.version() {
            IpVersion::V4 => "ipv4",
            IpVersion::V6 => "ipv6",
        }
    }

    fn folder(self) -> &'static str {
        if self.position().is_some() { "conf" } else { "neigh" }
    }
}

/// The settings of one device, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSettings([Option<i32>; DeviceSetting::ALL.len()]);

impl DeviceSettings {
    pub fn set(&mut self, setting: DeviceSetting, value: Option<i32>) {
        self.0[setting as usize] = value;
    }

    /// The value of the setting at a path, if it is one of this device.
    pub fn at(&self, path: &str, device: &str) -> Option<i32> {
        let (setting, of) = DeviceSetting::at(path)?;
        self.0[setting as usize].filter(|_| of == device)
    }

    /// Under the paths that they have while the device is called `device`.
    pub fn all(&self, device: &str) -> Vec<Sysctl> {
        let known = DeviceSetting::ALL.into_iter().zip(self.0);
        let sysctl = |(setting, value): (DeviceSetting, Option<i32>)| {
            Some(Sysctl { path: setting.path(device), value: value?.to_string() })
        };
        known.filter_map(sysctl).collect()
    }
}

/// What one setting must be, at one end of a pod's veth.
struct Rule {
    side: Side,
    setting: Setting,
    when: When,
    value: Value,
    purpose: Purpose,
}

enum Setting {
    /// Of the end's own device.
    Own(DeviceSetting),
    /// Of a device that every namespace has, or of `all` or `default`.
    Of(&'static str, DeviceSetting),
    Namespace(&'static str),
}

enum When {
    Always,
    /// The kernel has IPv6, whether the pod uses it or not.
    KernelHasIpv6,
    PodHasIpv6,
}

enum Value {
    Fixed(u8),
    /// What the node has chosen for new devices.
    RpFilter,
    /// Whether the pod may forward.
    PodForwards,
}

enum Purpose {
    /// What the pod lacks without it.
    Needed(&'static str),
    /// The pod works without it.
    Precaution,
}

/// In the order in which they are written: with IPv6 off, none of its other settings has an effect.
const RULES: &[Rule] = &[
    // Node ports on the node's loopback address.
    host(DeviceSetting::RouteLocalnet, When::Always, Value::Fixed(1), Purpose::Precaution),
    // The node answers at once.
    host(DeviceSetting::ProxyDelay, When::Always, Value::Fixed(0), Purpose::Precaution),
    host(DeviceSetting::ProxyArp, When::Always, Value::Fixed(1), Purpose::Needed(NO_PROXY_ARP)),
    host(DeviceSetting::ForwardingV4, When::Always, Value::Fixed(1), Purpose::Needed(NO_FORWARDING)),
    // Named although a new device starts with it: a later change of one device is then a visible difference.
    host(DeviceSetting::RpFilter, When::Always, Value::RpFilter, Purpose::Precaution),
    // Else a pod could announce itself to its node as a router.
    host(DeviceSetting::AcceptRa, When::KernelHasIpv6, Value::Fixed(0), Purpose::Precaution),
    // A node may be set to have IPv6 off on new devices.
    host(DeviceSetting::DisableIpv6, When::PodHasIpv6, Value::Fixed(0), Purpose::Needed(NO_IPV6)),
    // The gateway's address is on every pod's device.
    host(DeviceSetting::AcceptDad, When::PodHasIpv6, Value::Fixed(0), Purpose::Precaution),
    host(DeviceSetting::ProxyNdp, When::PodHasIpv6, Value::Fixed(1), Purpose::Needed(NO_PROXY_NDP)),
    host(DeviceSetting::ForwardingV6, When::PodHasIpv6, Value::Fixed(1), Purpose::Needed(NO_FORWARDING)),
    pod(Setting::Namespace(FORWARD_V4), When::Always, Value::PodForwards),
    // Runtimes make namespaces with IPv6 off.
    pod(Setting::Of("all", DeviceSetting::DisableIpv6), When::PodHasIpv6, Value::Fixed(0)),
    pod(Setting::Of("default", DeviceSetting::DisableIpv6), When::PodHasIpv6, Value::Fixed(0)),
    pod(Setting::Of("lo", DeviceSetting::DisableIpv6), When::PodHasIpv6, Value::Fixed(0)),
    pod(Setting::Own(DeviceSetting::DisableIpv6), When::PodHasIpv6, Value::Fixed(0)),
    // The address is the pod's alone: it need not wait for the kernel to find that out.
    pod(Setting::Own(DeviceSetting::AcceptDad), When::PodHasIpv6, Value::Fixed(0)),
    pod(Setting::Namespace(FORWARD_V6), When::PodHasIpv6, Value::PodForwards),
];

const NO_PROXY_ARP: &str = "the node does not answer for the pod's gateway 169.254.1.1, which no device has";
const NO_PROXY_NDP: &str = "the node does not answer the pod's neighbour solicitations for other addresses";
const NO_FORWARDING: &str = "packets of the pod stop at the node";
const NO_IPV6: &str = "the device carries no IPv6";

const fn host(setting: DeviceSetting, when: When, value: Value, purpose: Purpose) -> Rule {
    Rule { side: Side::Host, setting: Setting::Own(setting), when, value, purpose }
}

const fn pod(setting: Setting, when: When, value: Value) -> Rule {
    Rule { side: Side::Pod, setting, when, value, purpose: Purpose::Precaution }
}

/// What decides the settings of an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SettingFacts {
    pub(crate) kernel_has_ipv6: bool,
    pub(crate) pod_has_ipv6: bool,
    pub(crate) rp_filter: u8,
    pub(crate) pod_forwards: bool,
}

/// The settings that an end must have, in the order in which they are written.
pub(crate) fn required(side: Side, device: &str, facts: SettingFacts) -> Vec<Sysctl> {
    let applies = |rule: &&Rule| {
        rule.side == side
            && match rule.when {
                When::Always => true,
                When::KernelHasIpv6 => facts.kernel_has_ipv6,
                When::PodHasIpv6 => facts.pod_has_ipv6,
            }
    };
    let sysctl = |rule: &Rule| {
        let path = match rule.setting {
            Setting::Own(setting) => setting.path(device),
            Setting::Of(other, setting) => setting.path(other),
            Setting::Namespace(path) => path.to_owned(),
        };
        let value = match rule.value {
            Value::Fixed(value) => value,
            Value::RpFilter => facts.rp_filter,
            Value::PodForwards => facts.pod_forwards.into(),
        };
        Sysctl::new(path, value)
    };
    RULES.iter().filter(applies).map(sysctl).collect()
}

/// A setting of a pod's device on the node that the pod needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededSetting {
    pub setting: DeviceSetting,
    pub value: u8,
    /// What happens without it.
    pub otherwise: &'static str,
}

/// The settings of a pod's device on the node without which the pod has no network, or not all of it.
pub fn needed_settings() -> impl Iterator<Item = NeededSetting> {
    RULES.iter().filter_map(|rule| match *rule {
        Rule {
            side: Side::Host,
            setting: Setting::Own(setting),
            value: Value::Fixed(value),
            purpose: Purpose::Needed(otherwise),
            ..
        } => Some(NeededSetting { setting, value, otherwise }),
        _ => None,
    })
}

/// The setting at a path, if a pod with these addresses needs it of its device on the node.
pub fn needed_at(path: &str, addresses: &[IpAddr]) -> Option<NeededSetting> {
    let (setting, _) = DeviceSetting::at(path)?;
    let is_used = addresses.iter().any(|address| IpVersion::of(*address) == setting.version());
    needed_settings().find(|needed| is_used && needed.setting == setting)
}

/// The value that a setting of a node must have, by its path below `/proc/sys`. `None`: that is the node's own choice.
pub fn required_on_node(path: &str) -> Option<u8> {
    if path == LOOSE_RP_FILTER || NODE_FORWARDING.iter().any(|(_, forwarding)| *forwarding == path) {
        return Some(1);
    }
    let (setting, _) = DeviceSetting::at(path)?;
    needed_settings().find(|needed| needed.setting == setting).map(|needed| needed.value)
}

/// Whether the node forwards at all, by IP version. A device's own setting is not enough: for IPv6 the kernel asks this one, too,
/// and packets to pods come in through other devices.
pub const NODE_FORWARDING: [(IpVersion, &str); 2] =
    [(IpVersion::V4, FORWARD_V4), (IpVersion::V6, FORWARD_V6)];
/// Whether a namespace forwards IPv4: the node's must, a pod's may.
pub const FORWARD_V4: &str = "net/ipv4/ip_forward";
const FORWARD_V6: &str = "net/ipv6/conf/all/forwarding";
/// Felix refuses to start where this is 2.
pub const LOOSE_RP_FILTER: &str = "net/ipv4/conf/all/rp_filter";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_in_the_order_of_their_numbers() {
        for (number, setting) in DeviceSetting::ALL.into_iter().enumerate() {
            assert_eq!(setting as usize, number);
        }
    }

    #[test]
    fn a_setting_is_found_by_its_path() {
        for setting in DeviceSetting::ALL {
            assert_eq!(DeviceSetting::at(&setting.path("eth0.5")), Some((setting, "eth0.5")));
        }
        assert_eq!(DeviceSetting::ProxyNdp.path("cali1"), "net/ipv6/conf/cali1/proxy_ndp");
        assert_eq!(DeviceSetting::ProxyDelay.path("cali1"), "net/ipv4/neigh/cali1/proxy_delay");
        for path in ["net/ipv4/ip_forward", "net/ipv4/conf/cali1/proxy_delay", "net/ipv4/conf/cali1/mtu", ""]
        {
            assert_eq!(DeviceSetting::at(path), None, "{path}");
        }
    }

    #[test]
    fn what_a_node_must_have_is_known_by_path() {
        for (path, value) in [
            ("net/ipv4/conf/cali1/proxy_arp", Some(1)),
            ("net/ipv6/conf/cali1/proxy_ndp", Some(1)),
            ("net/ipv6/conf/cali1/disable_ipv6", Some(0)),
            ("net/ipv4/ip_forward", Some(1)),
            ("net/ipv6/conf/all/forwarding", Some(1)),
            ("net/ipv4/conf/all/rp_filter", Some(1)),
            ("net/ipv4/conf/cali1/rp_filter", None),
            ("net/ipv4/tcp_ecn", None),
        ] {
            assert_eq!(required_on_node(path), value, "{path}");
        }
    }
}
