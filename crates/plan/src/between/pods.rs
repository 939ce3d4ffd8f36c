//! The rules that hold a pod to what is its own, as chains for `nft`.
//!
//! ```text
//!   prerouting, before everything else     from a pod's device: to or from loopback            drop
//!                                          a source that no route leads back to by that device drop
//!   input, forward, after DNAT             from a pod's device: UDP to a VXLAN port, IPIP      drop
//! ```
//!
//! The route to a pod is its permission to send: nothing has to be added for a new pod, and before its route is there nothing of it
//! passes. Devices are matched by the beginning of their names, so the rules hold for pods of older versions and of Calico, too.
//!
//! Loopback is decided before DNAT and before conntrack translates answers back: `route_localnet` is on for pods, because node ports of
//! the `portmap` plugin are reached through 127.0.0.1 that way, and those packets have other addresses on the wire. Tunnel ports
//! are decided after DNAT: a Service may lead to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ipnet::IpNet;
use model::{DeviceName, IpVersion};

use super::nat::{TABLE, words};
use super::settings::{BetweenSettings, TunnelSettings, VXLAN_PORT};

/// The chain of the rules that hold in every mode.
pub const POD_CHAIN: &str = "pods";
const TUNNEL_CHAIN: &str = "pods-tunnels";
/// Rules that hold without exception.
const RULES: [&str; 5] = [
    "ip saddr 127.0.0.0/8 drop",
    "ip daddr 127.0.0.0/8 drop",
    "ip6 saddr ::1 drop",
    "ip6 daddr ::1 drop",
    "fib saddr . iif oif missing drop",
];

/// What pods of one node may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGuard {
    /// How names of pods' devices begin.
    prefixes: BTreeSet<String>,
    vxlan_ports: BTreeSet<u16>,
    lets_vxlan: bool,
    lets_ipip: bool,
}

/// A pod's device, and a network that it may send from besides the pod's own addresses.
pub type AllowedSource = (DeviceName, IpNet);

/// A chain, and how many rules are in it and jumps lead to it, at least and together. The kernel counts them without listing them.
pub type ChainUses = (&'static str, u32);

impl PodGuard {
    pub fn new(settings: &BetweenSettings) -> PodGuard {
        let named = settings.device_prefixes.iter().map(|prefix| plain(prefix));
        let calico = DeviceName::CALICO_PREFIX.to_owned();
        PodGuard {
            // Pods may have been made before the setting was.
            prefixes: named
                .chain([calico])
                .filter(|prefix| (1..DeviceName::MAX).contains(&prefix.len()))
                .collect(),
            // Another node may have another port, most likely the usual one.
            vxlan_ports: [VXLAN_PORT, settings.vxlan_port].into(),
            lets_vxlan: settings.tunnels.lets_vxlan_of_pods,
            lets_ipip: settings.tunnels.lets_ipip_of_pods,
        }
    }

    /// Whether all of it is loaded shows in these.
    pub fn uses(&self) -> Vec<ChainUses> {
        let chains = self.chains(Vec::new());
        let jumps_to = |name: &str| {
            let jump = format!(" jump {name}");
            chains.iter().flat_map(|chain| &chain.rules).filter(|rule| rule.ends_with(&jump)).count()
        };
        let uses =
            |chain: &Chain| u32::try_from(chain.rules.len() + jumps_to(chain.name)).unwrap_or(u32::MAX);
        chains.iter().map(|chain| (chain.name, uses(chain))).collect()
    }

    /// The same whatever the settings are: some may let pods into tunnels.
    pub fn least_uses() -> Vec<ChainUses> {
        let tunnels =
            TunnelSettings { lets_vxlan_of_pods: true, lets_ipip_of_pods: true, ..TunnelSettings::default() };
        PodGuard::new(&BetweenSettings { tunnels, ..BetweenSettings::default() }).uses()
    }

    /// Maps and chains, for a table.
    pub(super) fn text(&self, allowed: &BTreeSet<AllowedSource>) -> String {
        let mut text = String::new();
        let (mut devices, mut exceptions) = (Vec::new(), Vec::new());
        for (device, networks) in networks_of(allowed) {
            let chain = format!("from-{device}");
            devices.push(format!("\"{device}\" : jump {chain}"));
            writeln!(text, "\tchain {chain} {{").expect("a string takes any text");
            for rule in allowing(&networks) {
                writeln!(text, "\t\t{rule}").expect("a string takes any text");
            }
            text.push_str("\t}\n");
        }
        // One set of devices together with their networks would need Linux 5.6, and no rule at all would be loaded on older kernels.
        if !devices.is_empty() {
            let devices = devices.join(", ");
            writeln!(text, "\tmap allowed {{ type ifname : verdict; elements = {{ {devices} }} }}")
                .expect("a string takes any text");
            exceptions.push("iifname vmap @allowed".to_owned());
        }
        self.chains(exceptions).iter().for_each(|chain| chain.write(&mut text));
        text
    }

    /// A ruleset that adds the chains to our table, or puts them in place of those that are there, and leaves the rest alone.
    pub fn alone(&self) -> String {
        let (mut declared, mut rules, mut flushed) = (String::new(), String::new(), String::new());
        for chain in self.chains(Vec::new()) {
            chain.write(&mut rules);
            // What is not there cannot be flushed.
            Chain { rules: Vec::new(), ..chain.clone() }.write(&mut declared);
            writeln!(flushed, "flush chain {TABLE} {}", chain.name).expect("a string takes any text");
        }
        format!("table {TABLE} {{\n{declared}}}\n{flushed}table {TABLE} {{\n{rules}}}\n")
    }

    /// Those that are jumped to come first.
    fn chains(&self, exceptions: Vec<String>) -> [Chain; 5] {
        let (last, first) = RULES.split_last().expect("there are rules");
        let texts = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect::<Vec<_>>();
        let pods = [texts(first), exceptions, texts(&[last])].concat();
        let base = |name, hook, target: &str| {
            let jump = |prefix| format!("iifname \"{prefix}*\" jump {target}");
            Chain { name, hook, rules: self.prefixes.iter().map(jump).collect() }
        };
        [
            Chain { name: POD_CHAIN, hook: "", rules: pods },
            Chain { name: TUNNEL_CHAIN, hook: "", rules: self.tunnel_rules() },
            base("pods-prerouting", "prerouting priority raw", POD_CHAIN),
            base("pods-input", "input priority filter", TUNNEL_CHAIN),
            base("pods-forward", "forward priority filter", TUNNEL_CHAIN),
        ]
    }

    fn tunnel_rules(&self) -> Vec<String> {
        let ports: Vec<String> = self.vxlan_ports.iter().map(u16::to_string).collect();
        let vxlan = (!self.lets_vxlan).then(|| format!("udp dport {{ {} }} drop", ports.join(", ")));
        let ipip = (!self.lets_ipip).then(|| "ip protocol 4 drop".to_owned());
        vxlan.into_iter().chain(ipip).collect()
    }
}

#[derive(Clone, Debug)]
struct Chain {
    name: &'static str,
    /// Where it hangs; empty for one that is jumped to.
    hook: &'static str,
    rules: Vec<String>,
}

impl Chain {
    fn write(&self, text: &mut String) {
        let hook = match self.hook {
            "" => String::new(),
            hook => format!("\t\ttype filter hook {hook}; policy accept;\n"),
        };
        let rules: String = self.rules.iter().map(|rule| format!("\t\t{rule}\n")).collect();
        write!(text, "\tchain {} {{\n{hook}{rules}\t}}\n", self.name).expect("a string takes any text");
    }
}

/// Devices with their networks, none twice: nft takes no two that overlap.
fn networks_of(allowed: &BTreeSet<AllowedSource>) -> BTreeMap<&DeviceName, Vec<IpNet>> {
    let mut networks: BTreeMap<&DeviceName, Vec<IpNet>> = BTreeMap::new();
    for (device, network) in allowed {
        networks.entry(device).or_default().push(network.trunc());
    }
    // A record may name any device.
    networks.retain(|device, _| plain(device.as_str()) == device.as_str());
    networks.values_mut().for_each(|networks| *networks = IpNet::aggregate(networks));
    networks
}

/// A rule for each IP version that there are networks of. Nothing else of the hook is left to decide about such packets.
fn allowing(networks: &[IpNet]) -> impl Iterator<Item = String> {
    [IpVersion::V4, IpVersion::V6].into_iter().filter_map(|version| {
        let of_version = networks.iter().filter(|network| IpVersion::of(network.addr()) == version);
        let members: Vec<String> = of_version.map(IpNet::to_string).collect();
        let (family, _) = words(version);
        (!members.is_empty()).then(|| format!("{family} saddr {{ {} }} accept", members.join(", ")))
    })
}

/// Without what would mean something else to nft.
fn plain(prefix: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    prefix.trim().chars().filter(|letter| is_plain(*letter)).take(DeviceName::MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(settings: &BetweenSettings) -> String {
        PodGuard::new(settings).text(&BTreeSet::new())
    }

    #[test]
    fn pods_send_from_their_own_addresses_and_not_to_loopback() {
        let text = text(&BetweenSettings::default());
        assert!(
            text.contains(
                "chain pods-prerouting {\n\t\ttype filter hook prerouting priority raw; policy accept;\n\
                 \t\tiifname \"cali*\" jump pods\n\t}"
            ),
            "{text}"
        );
        assert!(text.contains("\t\tip daddr 127.0.0.0/8 drop\n"), "{text}");
        assert!(
            text.contains("\t\tfib saddr . iif oif missing drop\n\t}\n"),
            "nothing comes after it: {text}"
        );
        assert!(!text.contains("set "), "{text}");
    }

    #[test]
    fn pods_get_into_no_tunnel_unless_they_may() {
        let settings = BetweenSettings { vxlan_port: 8472, ..BetweenSettings::default() };
        let tunnels = |settings: &BetweenSettings| {
            let text = text(settings);
            let chain = text.split("chain pods-tunnels {\n").nth(1).unwrap();
            chain.split("\t}").next().unwrap().to_owned()
        };
        assert_eq!(tunnels(&settings), "\t\tudp dport { 4789, 8472 } drop\n\t\tip protocol 4 drop\n");
        let may = TunnelSettings { lets_vxlan_of_pods: true, ..TunnelSettings::default() };
        assert_eq!(
            tunnels(&BetweenSettings { tunnels: may, ..settings.clone() }),
            "\t\tip protocol 4 drop\n"
        );
        let may = TunnelSettings { lets_ipip_of_pods: true, ..TunnelSettings::default() };
        assert_eq!(
            tunnels(&BetweenSettings { tunnels: may, ..settings }),
            "\t\tudp dport { 4789, 8472 } drop\n"
        );
    }

    #[test]
    fn prefixes_are_devices_of_pods_and_nothing_else() {
        let prefixes = ["tap", " ens\"; drop", "*", ""].map(str::to_owned).into();
        let text = text(&BetweenSettings { device_prefixes: prefixes, ..BetweenSettings::default() });
        for expected in ["\"cali*\" jump pods\n", "\"tap*\" jump pods\n", "\"ensdrop*\" jump pods\n"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert_eq!(text.matches("jump pods\n").count(), 3, "{text}");
    }

    #[test]
    fn more_sources_are_of_one_device_each() {
        let device = DeviceName::new("cali1").unwrap();
        let allowed =
            ["10.9.0.0/16", "10.9.7.0/24", "fd00::7/128"].map(|net| (device.clone(), net.parse().unwrap()));
        let text = PodGuard::new(&BetweenSettings::default()).text(&allowed.into());
        assert!(
            text.contains(
                "map allowed { type ifname : verdict; elements = { \"cali1\" : jump from-cali1 } }"
            ),
            "{text}"
        );
        assert!(
            text.contains(
                "chain from-cali1 {\n\t\tip saddr { 10.9.0.0/16 } accept\n\t\tip6 saddr { fd00::7/128 } accept\n\t}\n"
            ),
            "{text}"
        );
        assert!(text.contains("\t\tiifname vmap @allowed\n\t\tfib "), "{text}");
        // Linux before 5.6 takes no such set, and then none of the rules.
        assert!(!text.contains("ifname ."), "{text}");
    }

    #[test]
    fn what_one_call_loads_has_every_rule_of_the_agent() {
        let spoofing =
            BetweenSettings { lets_pods_spoof: true, vxlan_port: 8472, ..BetweenSettings::default() };
        for settings in [BetweenSettings::default(), spoofing] {
            let guard = PodGuard::new(&settings);
            let (of_agent, of_call) = (guard.text(&BTreeSet::new()), guard.alone());
            let rules = of_agent.lines().filter(|line| line.starts_with("\t\t"));
            for rule in rules {
                assert_eq!(
                    of_agent.matches(rule).count(),
                    of_call.split("flush chain").last().unwrap().matches(rule).count(),
                    "{rule}"
                );
            }
            for rule in
                ["udp dport { 4789", "ip protocol 4 drop", "hook input", "hook forward", "hook prerouting"]
            {
                assert!(of_call.contains(rule), "{rule}: {of_call}");
            }
        }
    }

    #[test]
    fn a_rule_that_is_missing_shows_in_the_counts() {
        let prefixes = vec!["tap".to_owned()];
        let guard =
            PodGuard::new(&BetweenSettings { device_prefixes: prefixes, ..BetweenSettings::default() });
        let expected = [
            ("pods", 7),
            ("pods-tunnels", 6),
            ("pods-prerouting", 2),
            ("pods-input", 2),
            ("pods-forward", 2),
        ];
        assert_eq!(guard.uses(), expected);
        let least = [
            ("pods", 6),
            ("pods-tunnels", 2),
            ("pods-prerouting", 1),
            ("pods-input", 1),
            ("pods-forward", 1),
        ];
        assert_eq!(PodGuard::least_uses(), least);
    }
}
