//! The rules by which only nodes get packets into tunnels, as chains for `nft`. Whoever could send what looks like a tunnel's packet
//! would be inside the cluster with any address they like. (That pods do not, see the rules for pods.)

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;
use model::IpVersion;

use super::nat::{set, words};
use super::settings::TunnelSettings;

/// Which tunnels this node has, and who may send into them.
#[derive(Clone, Debug)]
pub(super) struct Guard<'a> {
    /// IP versions with VXLAN.
    pub(super) vxlan: Vec<IpVersion>,
    pub(super) vxlan_port: u16,
    pub(super) has_ipip: bool,
    pub(super) nodes: BTreeSet<IpAddr>,
    pub(super) settings: &'a TunnelSettings,
}

impl Guard<'_> {
    /// Sets and chains; nothing without a tunnel.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut input = String::new();
        for version in [IpVersion::V4, IpVersion::V6] {
            let mut packets = Vec::new();
            if self.vxlan.contains(&version) {
                packets.push(format!("udp dport {}", self.vxlan_port));
            }
            if self.has_ipip && version == IpVersion::V4 {
                packets.push("ip protocol 4".to_owned());
            }
            let (addresses, networks) = self.senders(version);
            if packets.is_empty() || (addresses.is_empty() && networks.is_empty()) {
                continue;
            }
            let (family, sort) = words(version);
            let mut others = String::new();
            if !addresses.is_empty() {
                // No set of intervals: while such a set is replaced, the kernel misses members now and then, and a packet of a node is lost.
                let members = addresses.into_iter().collect::<Vec<_>>().join(", ");
                writeln!(text, "\tset nodes-{family} {{ type {sort}; elements = {{ {members} }} }}")
                    .expect("a string takes any text");
                others.push_str(&format!("{family} saddr != @nodes-{family} "));
            }
            if !networks.is_empty() {
                set(&mut text, words(version), "external", &networks);
                others.push_str(&format!("{family} saddr != @external-{family} "));
            }
            for packet in packets {
                writeln!(input, "\t\t{others}{packet} drop").expect("a string takes any text");
            }
        }
        if input.is_empty() {
            return text;
        }
        write!(
            text,
            "\tchain input {{\n\t\ttype filter hook input priority filter; policy accept;\n{input}\t}}\n"
        )
        .expect("a string takes any text");
        text
    }

    /// Single addresses, and networks.
    fn senders(&self, version: IpVersion) -> (BTreeSet<String>, BTreeSet<String>) {
        let nodes = self.nodes.iter().map(|address| IpNet::from(*address));
        let all = nodes.chain(self.settings.external_nodes.iter().copied());
        let of_version = all.filter(|network| IpVersion::of(network.addr()) == version);
        let is_single = |network: &IpNet| network.prefix_len() == network.max_prefix_len();
        let (single, networks): (Vec<IpNet>, Vec<IpNet>) = of_version.partition(is_single);
        let single = single.iter().map(|network| network.addr().to_string()).collect();
        (single, networks.iter().map(|network| network.trunc().to_string()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(settings: &TunnelSettings) -> Guard<'_> {
        let nodes = ["192.0.2.1", "192.0.2.2", "fd00::1"].map(|text| text.parse().unwrap());
        Guard { vxlan: vec![IpVersion::V4], vxlan_port: 4789, has_ipip: false, nodes: nodes.into(), settings }
    }

    #[test]
    fn only_nodes_get_into_a_tunnel() {
        let text = guard(&TunnelSettings::default()).text();
        assert!(
            text.contains("set nodes-ip { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 } }"),
            "{text}"
        );
        assert!(
            text.contains(
                "hook input priority filter; policy accept;\n\t\tip saddr != @nodes-ip udp dport 4789 drop\n"
            ),
            "{text}"
        );
        assert!(!text.contains("ip6") && !text.contains("protocol 4"), "{text}");
    }

    #[test]
    fn each_tunnel_has_its_rule() {
        let settings = TunnelSettings {
            external_nodes: vec!["198.51.100.7/24".parse().unwrap()],
            ..TunnelSettings::default()
        };
        let both = Guard { vxlan: vec![IpVersion::V4, IpVersion::V6], has_ipip: true, ..guard(&settings) };
        let text = both.text();
        assert!(text.contains("set external-ip { type ipv4_addr; flags interval; auto-merge; elements = { 198.51.100.0/24 } }"), "{text}");
        assert!(text.contains("ip6 saddr != @nodes-ip6 udp dport 4789 drop"), "{text}");
        assert!(text.contains("ip saddr != @nodes-ip ip saddr != @external-ip ip protocol 4 drop"), "{text}");
        let none = Guard { vxlan: Vec::new(), ..guard(&settings) };
        assert_eq!(none.text(), "");
    }
}
