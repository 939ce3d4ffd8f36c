//! What may be stored, as Calico stores it, and what BIRD would not take all the same. A text that BIRD refuses is refused as a whole, so one
//! such record would keep every node from all that changes later. Nodes leave out what is named here, and go on with the rest.

use std::net::IpAddr;

use super::fields::Fields;
use super::{Report, Violation, formats, shown};
use crate::{Kind, Resource};

/// Seconds that fit into BGP's fields: 16 bits for the times of a session, 12 bits for a restart.
const KEEPALIVE_MAX: u64 = 65_535;
const RESTART_MAX: u64 = 4_095;
/// How often a node's own AS number may stand in a path; Calico's field has 32 bits with a sign.
const LOCAL_AS_MAX: u64 = i32::MAX as u64;
/// The kernel's longest name of a device.
const DEVICE_MAX: usize = 15;

const DIRECTIONS: [&str; 4] = ["exportV4", "importV4", "exportV6", "importV6"];

/// Why BIRD would refuse a configuration made from this record; nothing for most records.
pub fn unfit_for_bird(resource: &Resource) -> Vec<Violation> {
    let mut report = Report::default();
    let spec = Fields::of_spec(resource);
    match resource.kind {
        Kind::BgpPeer => check_peer(&spec, &mut report),
        Kind::BgpFilter => check_filter(&spec, &mut report),
        Kind::BgpConfiguration => check_configuration(&spec, &mut report),
        Kind::Node => check_node(&spec, &mut report),
        _ => {}
    }
    report.violations
}

fn check_peer(spec: &Fields<'_>, report: &mut Report) {
    check_time(spec, "keepaliveTime", KEEPALIVE_MAX, report);
    check_time(spec, "maxRestartTime", RESTART_MAX, report);
    if let Some(value) = spec.value("numAllowedLocalASNumbers") {
        let fits = value.as_u64().is_some_and(|count| count <= LOCAL_AS_MAX);
        let rule = || format!("must be between 0 and {LOCAL_AS_MAX}");
        report.require(fits, &spec.path("numAllowedLocalASNumbers"), value, rule);
    }
    if let Some((address, _)) = formats::parse_ip_with_port(spec.text("peerIP"))
        && let Err(rule) = fits_session(address)
    {
        report.broken(&spec.path("peerIP"), address.to_string(), rule);
    }
    if spec.has("reachableBy") && spec.text("reachableBy").parse::<IpAddr>().is_err() {
        report.broken(&spec.path("reachableBy"), spec.text("reachableBy"), "must be an address");
    }
}

fn check_configuration(spec: &Fields<'_>, report: &mut Report) {
    check_time(spec, "nodeMeshMaxRestartTime", RESTART_MAX, report);
    for (path, item) in spec.items("ignoredInterfaces") {
        if !item.as_str().is_some_and(is_device_pattern) {
            let rule = "must be a device name of up to 15 letters, digits and _.-, with * and ? as wildcards";
            report.broken(&path, shown(item), rule);
        }
    }
}

fn check_filter(spec: &Fields<'_>, report: &mut Report) {
    for rule in DIRECTIONS.into_iter().flat_map(|direction| spec.objects(direction)) {
        let Ok(cidr) = crate::Cidr::parse_masked(rule.text("cidr")) else { continue };
        let lengths = rule.object("prefixLength");
        if prefix_lengths(&cidr, lengths.value("min"), lengths.value("max")).is_none() {
            let value = rule.value("prefixLength").map(shown).unwrap_or_default();
            let words = format!("must have a min up to its max, and a max up to {}", cidr.version().bits());
            report.broken(&rule.path("prefixLength"), value, words);
        }
        if rule.has("interface") && !is_device_pattern(rule.text("interface")) {
            let words =
                "must be a device name of up to 15 letters, digits and _.-, with * and ? as wildcards";
            report.broken(&rule.path("interface"), rule.text("interface"), words);
        }
    }
}

fn check_node(spec: &Fields<'_>, report: &mut Report) {
    let bgp = spec.object("bgp");
    for field in ["ipv4Address", "ipv6Address"] {
        let text = bgp.text(field);
        let address = text.split('/').next().and_then(|text| text.parse::<IpAddr>().ok());
        if let Some(Err(rule)) = address.map(fits_session) {
            report.broken(&bgp.path(field), text, rule);
        }
    }
}

fn check_time(spec: &Fields<'_>, field: &str, most: u64, report: &mut Report) {
    let Some(value) = spec.value(field) else { return };
    let seconds = value.as_str().and_then(formats::whole_seconds);
    let holds = seconds.is_some_and(|seconds| (1..=most).contains(&seconds));
    report.require(holds, &spec.path(field), value, || format!("must be between 1 and {most} seconds"));
}

/// Whether BIRD can have a session with, or from, an address.
pub fn fits_session(address: IpAddr) -> Result<(), String> {
    let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    if address.is_unspecified() || address.is_multicast() {
        return Err("must be the address of a single host".to_owned());
    }
    if is_link_local {
        return Err("must not be link-local: BIRD would need the device as well".to_owned());
    }
    Ok(())
}

/// What BIRD matches devices with.
pub fn is_device_pattern(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-*?".contains(&byte);
    !text.is_empty() && text.len() <= DEVICE_MAX && text.bytes().all(fits)
}

/// The shortest and the longest prefix inside a network that a rule means; `None` if there can be none.
pub fn prefix_lengths(
    cidr: &crate::Cidr,
    min: Option<&serde_json::Value>,
    max: Option<&serde_json::Value>,
) -> Option<(u8, u8)> {
    let bits = cidr.version().bits();
    let limit = |value: Option<&serde_json::Value>, usual: u8| match value {
        None => Some(usual),
        Some(value) => value.as_u64().and_then(|length| u8::try_from(length).ok()),
    };
    let (min, max) = (limit(min, cidr.prefix_len())?, limit(max, bits)?);
    (min <= max && max <= bits).then_some((min, max))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn unfit(kind: Kind, spec: Value) -> Vec<String> {
        let mut resource = Resource::new(kind, "x");
        resource.body.insert("spec".to_owned(), spec);
        unfit_for_bird(&resource).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn times_that_bgp_has_no_room_for_are_named() {
        for fine in ["1s", "90s", "18h12m15s"] {
            assert_eq!(unfit(Kind::BgpPeer, json!({"keepaliveTime": fine})), [] as [&str; 0], "{fine}");
        }
        for wrong in ["24h", "18h12m16s", "25h", "-5s", "0", "many"] {
            assert_eq!(
                unfit(Kind::BgpPeer, json!({"keepaliveTime": wrong})),
                [format!("spec.keepaliveTime: {wrong}: must be between 1 and 65535 seconds")]
            );
        }
        assert_eq!(unfit(Kind::BgpPeer, json!({"maxRestartTime": "68m16s"})).len(), 1);
        assert_eq!(unfit(Kind::BgpConfiguration, json!({"nodeMeshMaxRestartTime": "2h"})).len(), 1);
    }

    #[test]
    fn a_count_that_bird_cannot_read_is_named() {
        let count = |count: Value| unfit(Kind::BgpPeer, json!({"numAllowedLocalASNumbers": count}));
        for fine in [0, 2, i64::from(i32::MAX)] {
            assert_eq!(count(json!(fine)), [] as [&str; 0], "{fine}");
        }
        for wrong in [json!(-1), json!(4_294_967_296_u64), json!("two")] {
            assert_eq!(count(wrong.clone()).len(), 1, "{wrong}");
        }
    }

    #[test]
    fn a_filter_that_cannot_match_is_named() {
        let rule = |lengths: Value| json!({"importV4": [{"cidr": "10.0.0.0/8", "matchOperator": "In", "action": "Accept", "prefixLength": lengths}]});
        assert_eq!(unfit(Kind::BgpFilter, rule(json!({"min": 16, "max": 24}))), [] as [&str; 0]);
        assert_eq!(
            unfit(Kind::BgpFilter, rule(json!({"min": 24, "max": 16}))),
            [
                "spec.importV4[0].prefixLength: {\"max\":16,\"min\":24}: must have a min up to its max, and a max up to 32"
            ]
        );
        // Shorter than the network, and no min: that is one, too.
        assert_eq!(unfit(Kind::BgpFilter, rule(json!({"max": 4}))).len(), 1);
        assert_eq!(unfit(Kind::BgpFilter, rule(json!({"max": 33}))).len(), 1);
    }

    #[test]
    fn addresses_that_nobody_can_speak_to_are_named() {
        for wrong in ["fe80::1", "::", "0.0.0.0", "224.0.0.1", "ff02::1"] {
            assert_eq!(unfit(Kind::BgpPeer, json!({"peerIP": wrong})).len(), 1, "{wrong}");
        }
        assert_eq!(unfit(Kind::BgpPeer, json!({"peerIP": "192.0.2.1:1790"})), [] as [&str; 0]);
        assert_eq!(unfit(Kind::Node, json!({"bgp": {"ipv6Address": "fe80::1/64"}})).len(), 1);
    }
}
