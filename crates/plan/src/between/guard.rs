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
            let senders = self.senders(version);
            if packets.is_empty() || senders.is_empty() {
                continue;
            }
            let (family, _) = words(version);
            set(&mut text, words(version), "nodes", &senders);
            for packet in packets {
                writeln!(input, "\t\t{family} saddr != @nodes-{family} {packet} drop")
                    .expect("a string takes any text");
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

    fn senders(&self, version: IpVersion) -> BTreeSet<String> {
        let nodes = self.nodes.iter().map(|address| IpNet::from(*address));
        let all = nodes.chain(self.settings.external_nodes.iter().copied());
        let of_version = all.filter(|network| IpVersion::of(network.addr()) == version);
        let plain = |network: IpNet| match network.prefix_len() == network.max_prefix_len() {
            true => network.addr().to_string(),
            false => network.trunc().to_string(),
        };
        of_version.map(plain).collect()
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
        assert!(text.contains("set nodes-ip { type ipv4_addr; flags interval; auto-merge; elements = { 192.0.2.1, 192.0.2.2 } }"), "{text}");
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
        assert!(text.contains("192.0.2.2, 198.51.100.0/24 }"), "{text}");
        assert!(text.contains("ip6 saddr != @nodes-ip6 udp dport 4789 drop"), "{text}");
        assert!(text.contains("ip saddr != @nodes-ip ip protocol 4 drop"), "{text}");
        let none = Guard { vxlan: Vec::new(), ..guard(&settings) };
        assert_eq!(none.text(), "");
    }
}
