//! The rules by which packets of pods leave the cluster with the node's address, and the whole ruleset for `nft`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;

use model::IpVersion;

use super::records::PoolView;
use super::settings::NatSettings;

/// All that is ours in nftables is in this table; `delete table` removes it.
pub const TABLE: &str = "inet plumb";
/// The rules of network policy are apart, so that neither of the two tables can take the other along.
pub const POLICY_TABLE: &str = "inet plumb-policy";

/// Loading it replaces whatever the table held, in one step. `guards` are chains of others that belong into it.
pub(super) fn rules<'a>(
    pools: impl Iterator<Item = &'a PoolView> + Clone,
    settings: &NatSettings,
    nodes: impl FnOnce() -> BTreeSet<IpAddr>,
    guards: &str,
) -> String {
    let pools = pools.filter(|pool| !pool.is_of_services);
    let mut rules = String::new();
    if pools.clone().any(|pool| pool.nat_outgoing) {
        let nodes = if settings.excludes_nodes { nodes() } else { BTreeSet::new() };
        masquerading(&mut rules, pools, settings, &nodes);
    }
    // Naming the table first makes the deletion succeed where there is none.
    format!("table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n{rules}{guards}}}\n")
}

fn masquerading<'a>(
    text: &mut String,
    pools: impl Iterator<Item = &'a PoolView> + Clone,
    settings: &NatSettings,
    nodes: &BTreeSet<IpAddr>,
) {
    let mut chain = String::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        let of_version = || pools.clone().filter(move |pool| pool.cidr.version() == version);
        let networks = |is_meant: &dyn Fn(&PoolView) -> bool| -> BTreeSet<String> {
            of_version().filter(|pool| is_meant(pool)).map(|pool| pool.cidr.to_string()).collect()
        };
        let sources = networks(&|pool| pool.nat_outgoing);
        if sources.is_empty() {
            continue;
        }
        let nodes = nodes.iter().filter(|address| IpVersion::of(**address) == version);
        let mut kept = networks(&|_| true);
        kept.extend(nodes.map(ToString::to_string));
        let words = words(version);
        set(text, words, "outgoing", &sources);
        set(text, words, "cluster", &kept);
        rule(&mut chain, version, settings);
    }
    write!(
        text,
        "\tchain postrouting {{\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n{chain}\t}}\n"
    )
    .expect("a string takes any text");
}

/// How nftables calls addresses of a version, in matches and in sets.
pub(super) fn words(version: IpVersion) -> (&'static str, &'static str) {
    match version {
        IpVersion::V4 => ("ip", "ipv4_addr"),
        IpVersion::V6 => ("ip6", "ipv6_addr"),
    }
}

pub(super) fn set(text: &mut String, (family, sort): (&str, &str), name: &str, members: &BTreeSet<String>) {
    let members = members.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    // Pools do not overlap, but nodes may be in one.
    writeln!(
        text,
        "\tset {name}-{family} {{ type {sort}; flags interval; auto-merge; elements = {{ {members} }} }}"
    )
    .expect("a string takes any text");
}

fn rule(chain: &mut String, version: IpVersion, settings: &NatSettings) {
    let (family, _) = words(version);
    let address = settings.address.filter(|address| IpVersion::of(*address) == version);
    let device = settings.device.as_deref().map(device_match).unwrap_or_default();
    let ports = settings.ports.map(|(first, last)| format!(":{first}-{last}")).unwrap_or_default();
    // Ports can be named only for protocols that have some; the rest follows by a rule without.
    let protocols: &[&str] = if ports.is_empty() { &[""] } else { &["meta l4proto { tcp, udp } ", ""] };
    for protocol in protocols {
        let ports = if protocol.is_empty() { "" } else { &ports };
        let verdict = match (address, ports) {
            (Some(address), "") => format!("snat {family} to {address}"),
            (Some(address), ports) if version == IpVersion::V6 => {
                format!("snat {family} to [{address}]{ports}")
            }
            (Some(address), ports) => format!("snat {family} to {address}{ports}"),
            (None, "") => "masquerade".to_owned(),
            (None, ports) => format!("masquerade to {ports}"),
        };
        writeln!(
            chain,
            "\t\t{family} saddr @outgoing-{family} {family} daddr != @cluster-{family} {device}{protocol}{verdict}"
        )
        .expect("a string takes any text");
    }
}

/// iptables says `+` for whatever follows.
fn device_match(name: &str) -> String {
    let harmless = |letter: char| letter.is_ascii_alphanumeric() || "._-@".contains(letter);
    let (stem, rest) = name.strip_suffix('+').map_or((name, ""), |stem| (stem, "*"));
    let stem: String = stem.chars().filter(|letter| harmless(*letter)).collect();
    format!("oifname \"{stem}{rest}\" ")
}

#[cfg(test)]
mod tests {
    use super::super::records::Encapsulation;
    use super::*;

    fn pool(cidr: &str, nat_outgoing: bool) -> PoolView {
        let cidr = cidr.parse().unwrap();
        PoolView {
            cidr,
            encapsulation: Encapsulation::None,
            nat_outgoing,
            is_enabled: true,
            is_of_services: false,
            block_size: 26,
        }
    }

    fn rules_for(pools: &[PoolView], settings: &NatSettings) -> String {
        rules(pools.iter(), settings, || ["192.0.2.1".parse().unwrap()].into(), "\tchain guard {\n\t}\n")
    }

    #[test]
    fn packets_of_pools_that_want_it_are_masqueraded_unless_they_stay_in_a_pool() {
        let pools = [pool("10.1.0.0/16", true), pool("10.2.0.0/16", false), pool("fd00::/48", false)];
        let text = rules_for(&pools, &NatSettings::default());
        assert!(text.starts_with("table inet plumb\ndelete table inet plumb\ntable inet plumb {"), "{text}");
        assert!(text.contains(
            "set outgoing-ip { type ipv4_addr; flags interval; auto-merge; elements = { 10.1.0.0/16 } }"
        ));
        assert!(text.contains("elements = { 10.1.0.0/16, 10.2.0.0/16 }"), "{text}");
        assert!(text.contains("ip saddr @outgoing-ip ip daddr != @cluster-ip masquerade\n"), "{text}");
        assert!(!text.contains("ip6"), "{text}");
        let services = PoolView { is_of_services: true, ..pool("10.3.0.0/16", true) };
        for without in [&pools[1..], &[services]] {
            let text = rules_for(without, &NatSettings::default());
            assert!(!text.contains("postrouting") && text.contains("chain guard"), "{text}");
        }
    }

    #[test]
    fn settings_are_in_the_rules() {
        let settings = NatSettings {
            address: Some("192.0.2.9".parse().unwrap()),
            ports: Some((1000, 2000)),
            excludes_nodes: true,
            device: Some("eth\"; +".to_owned()),
        };
        let text = rules_for(&[pool("10.1.0.0/16", true)], &settings);
        assert!(text.contains("elements = { 10.1.0.0/16, 192.0.2.1 }"), "{text}");
        assert!(
            text.contains("oifname \"eth*\" meta l4proto { tcp, udp } snat ip to 192.0.2.9:1000-2000\n"),
            "{text}"
        );
        assert!(text.contains("oifname \"eth*\" snat ip to 192.0.2.9\n"), "{text}");
    }
}
