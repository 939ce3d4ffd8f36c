//! One rule of a policy or profile.

use ipnet::IpNet;
use serde_json::Value;

use super::fields::Fields;
use super::metadata::check_annotations;
use super::{Report, formats, shown};

/// Every rule of a policy, and what a rule may say in one direction only.
pub(super) fn check_all(spec: &Fields<'_>, is_global: bool, report: &mut Report) {
    check_each(spec, report);
    // Services stand on the far side of a rule: the source of ingress, the destination of egress.
    for (direction, near, far) in [("ingress", "destination", "source"), ("egress", "source", "destination")]
    {
        for rule in spec.objects(direction) {
            let near_services = rule.object(near).object("services");
            if near_services.exists() {
                let problem = format!("must not be set in the {near} of an {direction} rule");
                report.broken(near_services.own_path(), "", problem);
            }
            let services = rule.object(far).object("services");
            if is_global && services.exists() && !services.has("namespace") {
                report.broken(&services.path("namespace"), "", "must be set in a global policy");
            }
            if direction == "egress" && rule.object("http").exists() {
                report.broken(&rule.path("http"), "", "must not be set in an egress rule");
            }
        }
    }
}

/// Every rule, whichever direction.
pub(super) fn check_each(spec: &Fields<'_>, report: &mut Report) {
    for rule in spec.objects("ingress").chain(spec.objects("egress")) {
        check_ports(&rule, report);
        check_version(&rule, report);
        check_icmp(&rule, report);
        check_http(&rule, report);
        check_networks(&rule, report);
        let annotations = rule.object("metadata").object("annotations");
        check_annotations(annotations.pairs(), annotations.own_path(), report);
        for side in ["source", "destination"] {
            check_entity(&rule.object(side), report);
        }
    }
}

fn check_ports(rule: &Fields<'_>, report: &mut Report) {
    let protocol = rule.value("protocol");
    let has_ports = protocol.is_some_and(|protocol| formats::protocol_with_ports(protocol).is_ok());
    for side in ["source", "destination"] {
        let entity = rule.object(side);
        for field in ["ports", "notPorts"] {
            let is_name =
                |item: &Value| item.as_str().is_some_and(|text| formats::parse_ports(text).is_none());
            let allowed = match protocol {
                Some(_) => has_ports || !entity.has(field),
                None => entity.items(field).all(|(_, item)| is_name(item)),
            };
            if !allowed {
                report.broken(&entity.path(field), "", "must not be set unless protocol is TCP, UDP or SCTP");
            }
        }
    }
    let destination = rule.object("destination");
    if destination.object("services").exists() && (destination.has("ports") || destination.has("notPorts")) {
        report.broken(&destination.path("ports"), "", "must not be set together with services");
    }
}

/// 1 and 58 are the numbers of ICMP and ICMPv6.
fn icmp_version(protocol: Option<&Value>) -> Option<u64> {
    match protocol? {
        Value::String(name) if name == "ICMP" => Some(4),
        Value::String(name) if name == "ICMPv6" => Some(6),
        Value::Number(number) if number.as_u64() == Some(1) => Some(4),
        Value::Number(number) if number.as_u64() == Some(58) => Some(6),
        _ => None,
    }
}

fn check_version(rule: &Fields<'_>, report: &mut Report) {
    let Some(value) = rule.value("ipVersion") else { return };
    let version = value.as_u64();
    if version == Some(5) {
        report.broken(&rule.path("ipVersion"), "5", "must be 4 or 6");
    }
    for field in ["protocol", "notProtocol"] {
        if let Some(needed) = icmp_version(rule.value(field)).filter(|needed| Some(*needed) != version) {
            let name = if needed == 4 { "ICMP" } else { "ICMPv6" };
            report.broken(
                &rule.path("ipVersion"),
                shown(value),
                format!("must be {needed} for {field} {name}"),
            );
        }
    }
}

fn check_icmp(rule: &Fields<'_>, report: &mut Report) {
    if rule.object("icmp").exists() && icmp_version(rule.value("protocol")).is_none() {
        report.broken(&rule.path("icmp"), "", "must not be set unless protocol is ICMP or ICMPv6");
    }
    for field in ["icmp", "notICMP"] {
        let icmp = rule.object(field);
        if icmp.value("code").is_some() && icmp.value("type").is_none() {
            report.broken(&icmp.path("type"), "", "must be set together with code");
        }
    }
}

fn check_http(rule: &Fields<'_>, report: &mut Report) {
    let http = rule.object("http");
    if !http.exists() {
        return;
    }
    let is_tcp = |protocol: &Value| protocol == "TCP" || protocol.as_u64() == Some(6);
    if !rule.value("protocol").is_none_or(is_tcp) {
        report.broken(http.own_path(), "", "must not be set unless protocol is TCP or absent");
    }
    if rule.text("action") != "Allow" {
        report.broken(http.own_path(), "", "must not be set unless action is Allow");
    }
    for path in http.objects("paths") {
        if path.has("exact") == path.has("prefix") {
            report.broken(path.own_path(), "", "must contain either exact or prefix");
        }
    }
}

/// All networks of one rule are of one family, and none of those that it excludes is everything.
fn check_networks(rule: &Fields<'_>, report: &mut Report) {
    let wanted = rule.value("ipVersion").and_then(Value::as_u64);
    let mut families = [false; 2];
    for side in ["source", "destination"] {
        let entity = rule.object(side);
        for field in ["nets", "notNets"] {
            for (path, item) in entity.items(field) {
                let Some(net) = item.as_str().and_then(formats::parse_network) else { continue };
                let is_v4 = net.addr().is_ipv4();
                families[usize::from(is_v4)] = true;
                if !item.as_str().is_some_and(|text| text.contains('/')) {
                    let rule =
                        format!("must have a prefix length: write {}/{}", net.addr(), net.prefix_len());
                    report.broken(&path, shown(item), rule);
                }
                if wanted.is_some_and(|wanted| wanted != if is_v4 { 4 } else { 6 }) {
                    report.broken(&path, shown(item), "must have the rule's ipVersion");
                }
                if field == "notNets" && is_everything(&net) {
                    report.broken(
                        &path,
                        shown(item),
                        "must not cover all addresses: the rule would match nothing",
                    );
                }
            }
        }
    }
    if families == [true, true] {
        report.broken(rule.own_path(), "", "must not contain both IPv4 and IPv6 networks");
    }
}

fn is_everything(net: &IpNet) -> bool {
    net.prefix_len() == 0
}

fn check_entity(entity: &Fields<'_>, report: &mut Report) {
    if entity.text("selector").contains("global(") {
        report.broken(&entity.path("selector"), entity.text("selector"), "must not use global()");
    }
    let namespaces = entity.text("namespaceSelector");
    if namespaces.contains("global(") && namespaces.trim() != "global()" {
        let rule = "must not combine global() with other selectors";
        report.broken(&entity.path("namespaceSelector"), namespaces, rule);
    }
    let services = entity.object("services");
    if !services.exists() {
        return;
    }
    if !services.has("name") {
        report.broken(&services.path("name"), "", "must be set");
    }
    let excluded = ["namespaceSelector", "serviceAccounts", "selector", "notSelector", "nets", "notNets"];
    for field in excluded.into_iter().filter(|field| entity.has(field)) {
        report.broken(&entity.path(field), "", "must not be set together with services");
    }
}
