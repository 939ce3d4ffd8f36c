//! What can be typed after `plumb install --print` about the cluster.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use model::{Cidr, IpVersion};

/// What the printed workloads are made of.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Kubernetes: DaemonSet, Deployment and settings")]
pub(crate) struct ClusterOptions {
    /// Container image of the agents and controllers; `cargo xtask image` makes one of the default name
    #[arg(long, value_name = "IMAGE", default_value = concat!("localhost/plumbline:", env!("CARGO_PKG_VERSION")))]
    pub(crate) image: String,
    /// How packets reach other nodes
    #[arg(long, value_enum, default_value_t = Mode::Vxlan)]
    pub(crate) mode: Mode,
    /// Network of the pods: one, or one of each IP version [default: an unused IPv4 network, chosen by the first agent]
    #[arg(long, value_name = "CIDR", value_delimiter = ',', value_parser = parse_network)]
    pub(crate) pod_cidr: Vec<Cidr>,
    /// Prefix length of a node's blocks, one for each --pod-cidr [default: 26 for IPv4, 122 for IPv6]
    #[arg(long, value_name = "N", value_delimiter = ',', requires = "pod_cidr")]
    pub(crate) block_size: Vec<u8>,
    /// Do not masquerade packets that leave the pods' networks
    #[arg(long)]
    pub(crate) no_nat_outgoing: bool,
    /// MTU of pods [default: that of the node's NIC, minus what the tunnel needs]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1280..=65_536))]
    pub(crate) mtu: Option<u32>,
    /// How a node finds its IPv4 address: first-found, kubernetes-internal-ip, can-reach=ADDRESS, interface=REGEX, cidr=CIDR …
    /// [default: the kubelet's --node-ip, else as docs/network.md describes]
    #[arg(long, value_name = "METHOD", value_parser = parse_method)]
    pub(crate) ip_autodetection: Option<String>,
    /// The same for IPv6
    #[arg(long, value_name = "METHOD", value_parser = parse_method)]
    pub(crate) ip6_autodetection: Option<String>,
    /// Where agents reach the API server, as HOST:PORT; needed where nothing makes the service `kubernetes` reachable before
    /// pods have a network [default: that service]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_endpoint)]
    pub(crate) api_server: Option<Endpoint>,
    /// Socket of the container runtime
    #[arg(long, value_name = "PATH", default_value = "/run/containerd/containerd.sock", value_parser = parse_socket)]
    pub(crate) cri_socket: PathBuf,
    /// Secret with BGP passwords; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = super::install::parse_name)]
    pub(crate) bgp_secret: Vec<String>,
    /// How many agents a rolling update replaces at the same time: a number, or a share such as 10%
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_share)]
    pub(crate) max_unavailable: String,
    /// With --print=uninstall: uninstall although pods use the network or DELs wait
    #[arg(long, requires = "print")]
    pub(crate) force: bool,
    /// Number of controllers; one works, the others wait
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) controllers: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Routes through the other nodes, which share a network
    Direct,
    /// VXLAN between all nodes
    Vxlan,
    /// VXLAN between nodes of different networks, else direct
    Crosssubnet,
    /// BGP through BIRD, to routers or route reflectors
    Bgp,
}

impl Mode {
    /// As pools call it.
    pub(crate) fn vxlan_mode(self) -> &'static str {
        match self {
            Mode::Direct | Mode::Bgp => "Never",
            Mode::Vxlan => "Always",
            Mode::Crosssubnet => "CrossSubnet",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl ClusterOptions {
    /// The network of this version with its block size, if both are given.
    pub(crate) fn network(&self, version: IpVersion) -> Option<(Cidr, Option<u8>)> {
        let at = self.pod_cidr.iter().position(|network| network.version() == version)?;
        Some((*self.pod_cidr.get(at)?, self.block_size.get(at).copied()))
    }

    /// Whether pods get addresses of this version.
    pub(crate) fn has(&self, version: IpVersion) -> bool {
        match self.pod_cidr.is_empty() {
            true => version == IpVersion::V4,
            false => self.network(version).is_some(),
        }
    }

    /// What no single flag can tell.
    pub(crate) fn fault(&self) -> Option<String> {
        let of = |version| self.pod_cidr.iter().filter(|network| network.version() == version).count();
        if of(IpVersion::V4) > 1 || of(IpVersion::V6) > 1 {
            return Some("--pod-cidr names two networks of the same IP version".to_owned());
        }
        if !self.block_size.is_empty() && self.block_size.len() != self.pod_cidr.len() {
            return Some("--block-size needs one number for each --pod-cidr".to_owned());
        }
        let is_v6_only = self.has(IpVersion::V6) && !self.has(IpVersion::V4);
        (is_v6_only && self.ip_autodetection.is_some()).then(|| {
            "--ip-autodetection is for IPv4, but --pod-cidr has only IPv6; use --ip6-autodetection".to_owned()
        })
    }
}

fn parse_network(text: &str) -> Result<Cidr, String> {
    text.parse::<Cidr>().map_err(|error| error.to_string())
}

/// It becomes the value of a variable. What it means the agents know.
fn parse_method(text: &str) -> Result<String, String> {
    const BARE: [&str; 2] = ["first-found", "kubernetes-internal-ip"];
    const NAMED: [&str; 4] = ["can-reach=", "interface=", "skip-interface=", "cidr="];
    let has_value = NAMED.iter().any(|name| text.strip_prefix(name).is_some_and(|value| !value.is_empty()));
    if BARE.contains(&text) || has_value {
        return Ok(text.to_owned());
    }
    Err("expected first-found, kubernetes-internal-ip, can-reach=…, interface=…, skip-interface=… or cidr=…"
        .to_owned())
}

fn parse_endpoint(text: &str) -> Result<Endpoint, String> {
    let wrong = || "expected HOST:PORT, such as 10.0.0.1:6443 or [fd00::1]:6443".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let is_address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match is_address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?.to_string(),
        None => host.to_owned(),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    if host.is_empty() || (is_address.is_none() && !host.chars().all(is_plain)) {
        return Err(wrong());
    }
    Ok(Endpoint { host, port: port.parse().map_err(|_| wrong())? })
}

/// Its directory is what a pod mounts, so that a socket that the runtime makes anew is seen.
fn parse_socket(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(text));
    let is_deep = path.is_absolute() && path.parent().is_some_and(|parent| parent.components().count() > 2);
    is_deep.then_some(path).ok_or_else(|| {
        "expected the path of a socket in a directory of its own, such as /run/containerd/containerd.sock"
            .to_owned()
    })
}

fn parse_share(text: &str) -> Result<String, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let most = if text.ends_with('%') { 100 } else { u32::MAX };
    let is_fit = number.parse::<u32>().is_ok_and(|number| number > 0 && number <= most);
    is_fit
        .then(|| text.to_owned())
        .ok_or_else(|| "expected a number from 1, or a share from 1% to 100%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_and_sockets_are_checked() {
        let endpoint = |host: &str, port| Ok(Endpoint { host: host.to_owned(), port });
        assert_eq!(parse_endpoint("10.0.0.1:6443"), endpoint("10.0.0.1", 6443));
        assert_eq!(parse_endpoint("[fd00::1]:443"), endpoint("fd00::1", 443));
        assert_eq!(parse_endpoint("api.example:6443"), endpoint("api.example", 6443));
        for bad in ["", "10.0.0.1", ":6443", "fd00::1:6443", "https://a:1", "a:70000", "[x]:1", "a b:1"] {
            assert!(parse_endpoint(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_socket("unix:///run/crio/crio.sock"), Ok("/run/crio/crio.sock".into()));
        // The whole of /run is not for a pod.
        for bad in ["/run/x.sock", "containerd.sock", "/x.sock", ""] {
            assert!(parse_socket(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn shares_and_methods_are_checked() {
        for good in ["1", "25%", "100%"] {
            assert!(parse_share(good).is_ok(), "{good}");
        }
        for bad in ["0", "0%", "101%", "", "%", "-1"] {
            assert!(parse_share(bad).is_err(), "{bad}");
        }
        assert!(parse_method("interface=eth.*").is_ok() && parse_method("first-found").is_ok());
        for bad in ["", "interface=", "interface", "second-found"] {
            assert!(parse_method(bad).is_err(), "{bad}");
        }
    }
}
