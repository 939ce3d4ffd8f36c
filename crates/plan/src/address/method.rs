//! What an operator may say about the address of a node, in Calico's words.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use model::IpVersion;
use regex_lite::Regex;

/// What `IP` or `IP6` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing: the address is looked for once, and kept. For IPv6 Calico looks for none then.
    Unsaid,
    /// `autodetect`: looked for again and again.
    Detect,
    /// `none`: whatever is recorded stays.
    Keep,
    /// This one. With its network, or alone.
    Address(IpNet),
}

/// Where to look for an address.
#[derive(Clone, Debug)]
pub enum Method {
    /// Nothing was said: see [`super::choose_address`].
    Ours,
    FirstFound,
    Interface(Vec<Regex>),
    SkipInterface(Vec<Regex>),
    Cidr(Vec<IpNet>),
    /// Whoever asks connects a socket to that host, and tells its local address.
    CanReach(String),
    KubernetesInternalIp,
}

/// A setting that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    #[error(
        "{0:?} is no method to find an address by: first-found, interface=…, skip-interface=…, cidr=…, can-reach=… or kubernetes-internal-ip"
    )]
    Unknown(String),
    #[error("{0:?} is no regular expression")]
    Expression(String),
    #[error("{0:?} is no network")]
    Network(String),
    #[error("nothing is said after {0:?}")]
    Empty(String),
    #[error("{0:?} is no {1} address")]
    Address(String, &'static str),
}

/// Devices that Calico never looks at unless it is told to.
const EXCLUDED: [&str; 19] = [
    "^docker.*",
    "^cbr.*",
    "^dummy.*",
    "^podman.*",
    "^virbr.*",
    "^lxcbr.*",
    "^veth.*",
    "^lo",
    "^br-.*",
    "^cali.*",
    "^tunl.*",
    "^flannel.*",
    "^kube-ipvs.*",
    "^cni.*",
    r"^vxlan\.calico.*",
    r"^vxlan-v6\.calico.*",
    r"^wireguard\.cali.*",
    r"^wg-v6\.cali.*",
    "^nodelocaldns.*",
];

/// Whether Calico leaves a device of this name out by default.
pub(super) fn is_excluded(name: &str) -> bool {
    // The list has prefixes only: no need for expressions.
    EXCLUDED.iter().any(|pattern| {
        let prefix = pattern.trim_start_matches('^').trim_end_matches(".*").replace('\\', "");
        name.starts_with(&prefix)
    })
}

impl Wish {
    /// What the setting says; nothing at all and an empty text are the same.
    pub fn read(text: Option<&str>, version: IpVersion) -> Result<Wish, MethodError> {
        let text = text.unwrap_or_default().trim();
        match text {
            "" => Ok(Wish::Unsaid),
            "autodetect" => Ok(Wish::Detect),
            "none" => Ok(Wish::Keep),
            text => {
                let network = text.parse::<IpNet>().ok();
                let network = network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
                let network = network.filter(|network| IpVersion::of(network.addr()) == version);
                let word = if version == IpVersion::V4 { "IPv4" } else { "IPv6" };
                network.map(Wish::Address).ok_or_else(|| MethodError::Address(text.to_owned(), word))
            }
        }
    }
}

impl Method {
    /// What `IP_AUTODETECTION_METHOD` says.
    pub fn read(text: Option<&str>) -> Result<Method, MethodError> {
        let text = text.unwrap_or_default().trim();
        let (word, rest) = text.split_once('=').map_or((text, None), |(word, rest)| (word, Some(rest)));
        let rest = || match rest.map(str::trim) {
            Some(rest) if !rest.is_empty() => Ok(rest),
            _ => Err(MethodError::Empty(format!("{word}="))),
        };
        match word {
            "" => Ok(Method::Ours),
            "first-found" => Ok(Method::FirstFound),
            "kubernetes-internal-ip" => Ok(Method::KubernetesInternalIp),
            "interface" => Ok(Method::Interface(expressions(rest()?)?)),
            "skip-interface" => Ok(Method::SkipInterface(expressions(rest()?)?)),
            "cidr" => Ok(Method::Cidr(networks(rest()?)?)),
            "can-reach" => Ok(Method::CanReach(rest()?.to_owned())),
            _ => Err(MethodError::Unknown(text.to_owned())),
        }
    }
}

fn expressions(list: &str) -> Result<Vec<Regex>, MethodError> {
    let read = |text: &str| Regex::new(text).map_err(|_| MethodError::Expression(text.to_owned()));
    list.split(',').map(str::trim).filter(|text| !text.is_empty()).map(read).collect()
}

fn networks(list: &str) -> Result<Vec<IpNet>, MethodError> {
    let read = |text: &str| text.parse::<IpNet>().map_err(|_| MethodError::Network(text.to_owned()));
    list.split(',').map(str::trim).filter(|text| !text.is_empty()).map(read).collect()
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: Vec<String>| items.join(",");
        match self {
            Method::Ours => f.write_str("the default"),
            Method::FirstFound => f.write_str("first-found"),
            Method::Interface(names) => {
                write!(f, "interface={}", list(names.iter().map(ToString::to_string).collect()))
            }
            Method::SkipInterface(names) => {
                write!(f, "skip-interface={}", list(names.iter().map(ToString::to_string).collect()))
            }
            Method::Cidr(networks) => {
                write!(f, "cidr={}", list(networks.iter().map(ToString::to_string).collect()))
            }
            Method::CanReach(host) => write!(f, "can-reach={host}"),
            Method::KubernetesInternalIp => f.write_str("kubernetes-internal-ip"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn calicos_methods_are_read() {
        for text in [
            "first-found",
            "interface=eth.*,en.*",
            "skip-interface=wlan0",
            "cidr=10.0.0.0/8,fd00::/8",
            "can-reach=192.0.2.1",
            "kubernetes-internal-ip",
        ] {
            assert_eq!(Method::read(Some(text)).unwrap().to_string(), text);
        }
        assert!(matches!(Method::read(None), Ok(Method::Ours)));
        for wrong in ["last-found", "interface=", "interface", "interface=(", "cidr=x", "can-reach="] {
            assert!(Method::read(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wishes_are_read() {
        let read = |text| Wish::read(Some(text), IpVersion::V4);
        assert_eq!(read(""), Ok(Wish::Unsaid));
        assert_eq!(read("autodetect"), Ok(Wish::Detect));
        assert_eq!(read("none"), Ok(Wish::Keep));
        assert_eq!(read("192.0.2.1"), Ok(Wish::Address("192.0.2.1/32".parse().unwrap())));
        assert_eq!(read("192.0.2.1/24"), Ok(Wish::Address("192.0.2.1/24".parse().unwrap())));
        for wrong in ["fd00::1", "10.0.0.1/33", "x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn calicos_list_of_devices_is_left_out() {
        for name in
            ["docker0", "lo", "lo1", "cali123", "vxlan.calico", "br-1", "nodelocaldns", "wireguard.cali"]
        {
            assert!(is_excluded(name), "{name}");
        }
        for name in ["eth0", "bond0", "br0", "vxlan0", "tailscale0", "vxlanXcalico"] {
            assert!(!is_excluded(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in "\\PC{0,60}") {
            let _ = Method::read(Some(&text));
            let _ = Wish::read(Some(&text), IpVersion::V6);
        }
    }
}
