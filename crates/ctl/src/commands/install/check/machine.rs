//! What this machine has.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::path::Path;

use host::cri::RuntimeClient;
use host::survey::Survey;
use plan::Link;

use super::firewall;
use super::line::Line;
use crate::cli::install::Check;
use crate::cli::install_cluster::Mode;
use crate::commands::install::{CONFLIST, configurations};
use crate::commands::node::checksystem;

/// The agent's health pages.
const HEALTH: &str = "127.0.0.1:9099";
const BGP_PORT: u16 = 179;
/// What a tunnel of IPv6 takes of a packet.
const OVERHEAD: u32 = 70;
/// The least that IPv6 lets a link have.
const MTU_MIN: u32 = 1280;
const VXLAN_PORT: u16 = 4789;
/// The oldest containerd that was tried.
const CONTAINERD_MIN: (u32, u32) = (1, 6);

pub(super) async fn lines(check: &Check) -> Vec<Line> {
    let mut lines = kernel(check.mode);
    lines.push(forwarding());
    lines.push(ipv6());
    lines.extend(Survey::here().map_or_else(
        |error| vec![Line::fail("links", error.to_string(), "this needs the node's network namespace")],
        |survey| vec![mtu(&survey.links, check.mode), tunnels(&survey.links)],
    ));
    lines.extend(programs(check.mode));
    lines.push(firewall::line());
    lines.extend(ports(check.mode));
    lines.push(network_configurations(&check.cni_conf_dir));
    lines.push(runtime(check.cri_socket.as_deref()).await);
    lines
}

fn kernel(mode: Mode) -> Vec<Line> {
    let kernel = match checksystem::running_kernel() {
        Ok(kernel) => kernel,
        Err(failure) => return vec![Line::fail("kernel", failure.words(), "run this on a Linux machine")],
    };
    let version = match kernel.is_new_enough {
        true => Line::ok("kernel", &kernel.release),
        false => {
            let advice = format!("install {} or later", checksystem::oldest_kernel());
            Line::fail("kernel", format!("{} is too old", kernel.release), advice)
        }
    };
    let needs_vxlan = matches!(mode, Mode::Vxlan | Mode::Crosssubnet);
    let mut lines = vec![version];
    for (module, without) in &kernel.missing {
        let found = format!("the kernel has no {module}");
        lines.push(match without {
            None => Line::fail(
                "modules",
                found,
                "load or build it; no pod gets a network without it (run this as root to be sure)",
            ),
            Some("vxlanMode") if needs_vxlan => {
                Line::fail("modules", found, "load or build it, or choose --mode direct or bgp")
            }
            Some(what) => Line::warn("modules", found, format!("{what} will not work")),
        });
    }
    if kernel.missing.is_empty() {
        lines.push(Line::ok("modules", "all there"));
    }
    lines
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The agent turns it on. A program that turns it off again is what is to be found.
fn forwarding() -> Line {
    match read("/proc/sys/net/ipv4/ip_forward").as_deref() {
        Some("0") => Line::ok("forwarding", "off; the agent turns it on while there are pods"),
        Some(_) => Line::ok("forwarding", "on"),
        None => Line::fail("forwarding", "net.ipv4.ip_forward cannot be read", "mount /proc"),
    }
}

fn ipv6() -> Line {
    match read("/proc/sys/net/ipv6/conf/all/disable_ipv6").as_deref() {
        None => Line::ok("IPv6", "the kernel has none; use IPv4 only"),
        Some("0") => Line::ok("IPv6", "on"),
        Some(_) => Line::warn(
            "IPv6",
            "disabled on this machine",
            "for IPv6 pods, set net.ipv6.conf.all.disable_ipv6 to 0",
        ),
    }
}

/// Hardware, and what stands for it on virtual machines and in containers that are nodes. Of veths, runtimes name those of pods so.
fn is_uplink(link: &Link) -> bool {
    let is_of_pods = ["cali", "veth"].iter().any(|prefix| link.name.starts_with(prefix));
    let is_made = matches!(link.kind.as_deref(), Some("vxlan" | "bridge" | "ipip" | "dummy" | "tun"));
    link.up && link.name != "lo" && !is_of_pods && !is_made
}

fn mtu(links: &[Link], mode: Mode) -> Line {
    let uplinks: Vec<&Link> = links.iter().filter(|link| is_uplink(link)).collect();
    let shown: Vec<String> = uplinks.iter().map(|link| format!("{} {}", link.name, link.mtu)).collect();
    let overhead = if matches!(mode, Mode::Vxlan | Mode::Crosssubnet) { OVERHEAD } else { 0 };
    let Some(least) = uplinks.iter().map(|link| link.mtu).min() else {
        return Line::warn("MTU", "there is no network interface that is up", "check the node's links");
    };
    if least < MTU_MIN + overhead {
        let advice = format!("IPv6 needs {} here; raise the MTU, or use IPv4 only", MTU_MIN + overhead);
        return Line::warn("MTU", shown.join(", "), advice);
    }
    match uplinks.iter().all(|link| link.mtu == least) {
        true => Line::ok("MTU", shown.join(", ")),
        false => Line::warn(
            "MTU",
            shown.join(", "),
            "pods get the smallest; set --mtu if the nodes use another network interface",
        ),
    }
}

fn tunnels(links: &[Link]) -> Line {
    let ours = |link: &Link| link.alias.as_deref().is_some_and(|alias| alias.starts_with("plumb:"));
    let rivals =
        links.iter().filter(|link| !ours(link)).filter_map(|link| Some((link, link.vxlan.as_ref()?)));
    let on_our_port: Vec<&str> = rivals
        .filter(|(_, vxlan)| vxlan.port == Some(VXLAN_PORT))
        .map(|(link, _)| link.name.as_str())
        .collect();
    match on_our_port.as_slice() {
        [] => Line::ok("tunnels", "no other VXLAN device uses port 4789"),
        names => Line::warn(
            "tunnels",
            format!("{} uses port {VXLAN_PORT}, too", names.join(", ")),
            "remove it if it is left over, or set vxlanPort and vxlanVNI in FelixConfiguration",
        ),
    }
}

/// In a pod, the image brings nft and BIRD.
fn programs(mode: Mode) -> Vec<Line> {
    let has = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let usual = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
        std::env::split_paths(&path).chain(usual).any(|folder| folder.join(name).is_file())
    };
    let mut wanted = vec![
        ("nft", "without the DaemonSet, install nftables"),
        ("iptables", "the plugin portmap needs it for hostPort: install iptables"),
    ];
    if mode == Mode::Bgp {
        wanted.push(("bird", "without the DaemonSet, install bird2"));
    }
    let line = |(name, advice): (&'static str, &str)| match has(name) {
        true => Line::ok(name, "installed"),
        false => Line::warn(name, "not installed", advice),
    };
    wanted.into_iter().map(line).collect()
}

fn ports(mode: Mode) -> Vec<Line> {
    let agent_answers = std::os::unix::net::UnixStream::connect(wire::AGENT_SOCKET).is_ok();
    let mut lines = vec![match TcpListener::bind(HEALTH).err().map(|error| error.kind()) {
        Some(ErrorKind::AddrInUse) if !agent_answers => Line::fail(
            "ports",
            format!("another program listens on {HEALTH}"),
            "stop it (Calico's node agent uses this port), or set PLUMB_HEALTH_ADDRESS for the agents",
        ),
        Some(ErrorKind::AddrInUse) => Line::ok("ports", format!("the agent listens on {HEALTH}")),
        _ => Line::ok("ports", format!("{HEALTH} is unused")),
    }];
    if matches!(mode, Mode::Vxlan | Mode::Crosssubnet)
        && UdpSocket::bind(("0.0.0.0", VXLAN_PORT)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
        && !agent_answers
    {
        lines.push(Line::warn(
            "ports",
            format!("UDP port {VXLAN_PORT} is in use"),
            "see which tunnel it is: ip -d link show type vxlan",
        ));
    }
    if mode == Mode::Bgp
        && TcpListener::bind(("0.0.0.0", BGP_PORT)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
        && !agent_answers
    {
        lines.push(Line::fail(
            "ports",
            format!("another program listens on TCP port {BGP_PORT}"),
            "stop the other BGP daemon",
        ));
    }
    lines
}

fn network_configurations(folder: &Path) -> Line {
    let others = configurations(folder);
    let listed = others.join(", ");
    match others.first() {
        None => Line::ok("CNI", format!("no other network configuration in {}", folder.display())),
        Some(first) if first.as_str() < CONFLIST => Line::warn(
            "CNI",
            format!("{} has {listed}", folder.display()),
            format!("container runtimes use {first} before {CONFLIST}: move it away to use Plumbline"),
        ),
        Some(_) => Line::ok("CNI", format!("sorted after {CONFLIST}, so not used: {listed}")),
    }
}

async fn runtime(socket: Option<&str>) -> Line {
    let client = match socket.map(RuntimeClient::from_endpoint) {
        Some(Err(error)) => return Line::fail("runtime", error.to_string(), "correct --cri-socket"),
        Some(Ok(client)) => Some(client),
        None => RuntimeClient::usual(),
    };
    let Some(client) = client else {
        return Line::warn(
            "runtime",
            "no socket of a container runtime in the usual places",
            "install containerd or CRI-O, or use --cri-socket",
        );
    };
    match client.version().await {
        Ok(found) if is_too_old(&found.name, &found.version) => {
            let advice =
                format!("containerd {}.{} is the oldest that was tried", CONTAINERD_MIN.0, CONTAINERD_MIN.1);
            Line::warn("runtime", format!("{} {}", found.name, found.version), advice)
        }
        Ok(found) => {
            Line::ok("runtime", format!("{} {} at {}", found.name, found.version, client.socket().display()))
        }
        Err(error) => {
            Line::fail("runtime", error.to_string(), "start the container runtime, or run this as root")
        }
    }
}

fn is_too_old(name: &str, version: &str) -> bool {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    let found = (numbers.next(), numbers.next());
    matches!((name, found), ("containerd", (Some(Ok(major)), Some(Ok(minor)))) if (major, minor) < CONTAINERD_MIN)
}

#[cfg(test)]
mod tests {
    use super::super::line::Verdict;
    use super::*;

    fn link(name: &str, kind: Option<&str>, mtu: u32) -> Link {
        Link { name: name.into(), kind: kind.map(str::to_owned), mtu, up: true, ..Link::default() }
    }

    #[test]
    fn only_uplinks_decide_the_mtu() {
        let verdict = |links: &[Link], mode| mtu(links, mode).verdict;
        let lo = link("lo", None, 65536);
        let pod = link("cali1", Some("veth"), 900);
        assert_eq!(verdict(&[lo.clone(), pod.clone(), link("eth0", None, 1500)], Mode::Vxlan), Verdict::Ok);
        assert_eq!(
            verdict(&[link("eth0", None, 1500), link("eth1", None, 9000)], Mode::Vxlan),
            Verdict::Warn
        );
        assert_eq!(
            verdict(&[link("eth0", Some("veth"), 1500), link("docker0", Some("bridge"), 1400)], Mode::Vxlan),
            Verdict::Ok
        );
        assert_eq!(verdict(&[link("eth0", None, 1300)], Mode::Direct), Verdict::Ok);
        assert_eq!(verdict(&[link("eth0", None, 1300)], Mode::Vxlan), Verdict::Warn);
        assert_eq!(verdict(&[lo, pod], Mode::Vxlan), Verdict::Warn);
    }

    #[test]
    fn a_tunnel_of_another_program_on_our_port_is_named() {
        let tunnel = |alias: Option<&str>, port| {
            let vxlan = Some(plan::Vxlan { port: Some(port), ..plan::Vxlan::default() });
            Link { alias: alias.map(str::to_owned), vxlan, ..link("flannel.1", Some("vxlan"), 1450) }
        };
        assert_eq!(tunnels(&[tunnel(None, 8472), tunnel(Some("plumb:vxlan"), 4789)]).verdict, Verdict::Ok);
        let line = tunnels(&[tunnel(None, 4789)]);
        assert!(line.verdict == Verdict::Warn && line.found.contains("flannel.1"), "{line:?}");
    }

    #[test]
    fn configurations_that_runtimes_use_first_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let verdict = || network_configurations(folder.path()).verdict;
        assert_eq!(verdict(), Verdict::Ok);
        std::fs::write(folder.path().join("87-podman.conflist"), "{}").unwrap();
        std::fs::write(folder.path().join("00-notes.txt"), "").unwrap();
        assert_eq!(verdict(), Verdict::Ok);
        std::fs::write(folder.path().join("10-calico.conflist"), "{}").unwrap();
        assert_eq!(verdict(), Verdict::Warn);
    }

    #[test]
    fn old_runtimes_are_named() {
        assert!(is_too_old("containerd", "1.5.9") && is_too_old("containerd", "v1.5"));
        assert!(!is_too_old("containerd", "1.6.20~ds1") && !is_too_old("containerd", "2.1.9"));
        assert!(!is_too_old("cri-o", "1.30.0") && !is_too_old("containerd", "unknown"));
    }
}
