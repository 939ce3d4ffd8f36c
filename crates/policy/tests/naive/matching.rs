//! Whether a rule is about a packet.

use std::net::IpAddr;

use serde_json::Value;

use super::labels::nets;
use super::{Member, Packet, World, list, text};

pub(crate) fn rule(world: &World, namespace: &str, rule: &Value, packet: &Packet) -> bool {
    let is_v6 = packet.source.is_ipv6();
    family_fits(rule, is_v6)
        && protocol_fits(rule, packet.protocol, is_v6)
        && icmp_fits(&rule["icmp"], packet, true)
        && icmp_fits(&rule["notICMP"], packet, false)
        && side(world, namespace, &rule["source"], packet, packet.source, packet.source_port)
        && side(world, namespace, &rule["destination"], packet, packet.destination, packet.destination_port)
}

fn family_fits(rule: &Value, is_v6: bool) -> bool {
    match rule["ipVersion"].as_u64() {
        Some(6) => is_v6,
        Some(4) => !is_v6,
        _ => true,
    }
}

/// ICMP by name is of one family, by number of both.
fn protocol_fits(rule: &Value, actual: u8, is_v6: bool) -> bool {
    let named = |field: &Value, name: &str| field.as_str() == Some(name);
    for field in [&rule["protocol"], &rule["notProtocol"]] {
        if named(field, "ICMP") && is_v6 || named(field, "ICMPv6") && !is_v6 {
            return false;
        }
    }
    protocol(&rule["protocol"]).is_none_or(|wanted| wanted == actual)
        && protocol(&rule["notProtocol"]).is_none_or(|unwanted| unwanted != actual)
}

pub(crate) fn protocol(value: &Value) -> Option<u8> {
    if let Some(number) = value.as_u64() {
        return u8::try_from(number).ok();
    }
    match value.as_str()? {
        "TCP" => Some(6),
        "UDP" => Some(17),
        "ICMP" => Some(1),
        "ICMPv6" => Some(58),
        "SCTP" => Some(132),
        "UDPLite" => Some(136),
        _ => None,
    }
}

/// A negated type is one of another ICMP packet: packets of other protocols have none.
fn icmp_fits(wanted: &Value, packet: &Packet, is_wanted: bool) -> bool {
    let Some(kind) = wanted["type"].as_u64() else { return true };
    let is_icmp = packet.protocol == if packet.source.is_ipv6() { 58 } else { 1 };
    let code_fits = wanted["code"].as_u64().is_none_or(|code| code == u64::from(packet.icmp_code));
    is_icmp && (kind == u64::from(packet.icmp_type) && code_fits) == is_wanted
}

fn side(world: &World, namespace: &str, entity: &Value, packet: &Packet, address: IpAddr, port: u16) -> bool {
    let owners: Vec<&Member> =
        world.members.iter().filter(|member| member.nets.iter().any(|net| net.contains(&address))).collect();
    nets_fit(entity, address)
        && selectors_fit(namespace, entity, &owners)
        && ports_fit(namespace, entity, &owners, packet.protocol, port)
}

/// A list that has no net of the packet's family takes the rule out of that family, a negated list as well.
fn nets_fit(entity: &Value, address: IpAddr) -> bool {
    let of_family = |field: &str| -> Option<Vec<ipnet::IpNet>> {
        let all = nets(&entity[field]);
        (!all.is_empty())
            .then(|| all.into_iter().filter(|net| net.addr().is_ipv6() == address.is_ipv6()).collect())
    };
    let inside = of_family("nets").is_none_or(|nets| nets.iter().any(|net| net.contains(&address)));
    let outside = of_family("notNets")
        .is_none_or(|nets| !nets.is_empty() && !nets.iter().any(|net| net.contains(&address)));
    inside && outside
}

/// The four criteria of a side that are about labels.
struct Criteria<'a> {
    /// The policy's namespace, if it restricts this side.
    own_namespace: Option<&'a str>,
    selector: String,
    namespace_selector: String,
    account_names: &'a [Value],
    account_selector: String,
}

impl<'a> Criteria<'a> {
    fn of(namespace: &'a str, entity: &'a Value) -> Criteria<'a> {
        let selector = text(&entity["selector"]);
        let namespace_selector = text(&entity["namespaceSelector"]);
        let account_names = list(&entity["serviceAccounts"]["names"]);
        let account_selector = text(&entity["serviceAccounts"]["selector"]);
        let speaks_of_labels = !selector.is_empty()
            || !text(&entity["notSelector"]).is_empty()
            || !account_names.is_empty()
            || !account_selector.is_empty();
        let confined = !namespace.is_empty() && namespace_selector.is_empty() && speaks_of_labels;
        Criteria {
            own_namespace: confined.then_some(namespace),
            selector,
            namespace_selector,
            account_names,
            account_selector,
        }
    }

    fn is_empty(&self) -> bool {
        self.own_namespace.is_none()
            && self.selector.is_empty()
            && self.namespace_selector.is_empty()
            && self.account_names.is_empty()
            && self.account_selector.is_empty()
    }

    fn fit(&self, member: &Member) -> bool {
        let labels = &member.labels;
        self.own_namespace.is_none_or(|own| labels.has_namespace() && labels.namespace() == own)
            && labels.matches(&self.selector)
            && labels.namespace_matches(&self.namespace_selector)
            && (self.account_names.is_empty()
                || labels
                    .account()
                    .is_some_and(|account| self.account_names.iter().any(|name| name == account)))
            && labels.account_matches(&self.account_selector)
    }
}

/// Beside a positive criterion, the negated selector is about the same owner of the address. Alone it is about all owners.
fn selectors_fit(namespace: &str, entity: &Value, owners: &[&Member]) -> bool {
    let criteria = Criteria::of(namespace, entity);
    let unwanted = text(&entity["notSelector"]);
    if criteria.is_empty() {
        return unwanted.is_empty() || !owners.iter().any(|owner| owner.labels.matches(&unwanted));
    }
    owners
        .iter()
        .any(|owner| criteria.fit(owner) && (unwanted.is_empty() || !owner.labels.matches(&unwanted)))
}

fn ports_fit(namespace: &str, entity: &Value, owners: &[&Member], protocol: u8, port: u16) -> bool {
    let has_ports = matches!(protocol, 6 | 17 | 132);
    let criteria = Criteria::of(namespace, entity);
    let unwanted = text(&entity["notSelector"]);
    let one_fits = |wanted: &Value| match PortText::of(wanted) {
        PortText::Range(first, last) => has_ports && (first..=last).contains(&port),
        // The set of a name holds the endpoints that the side's positive criteria select.
        PortText::Name(name) => owners.iter().filter(|owner| !owner.is_set).any(|owner| {
            let selected = criteria.is_empty()
                || criteria.fit(owner) && (unwanted.is_empty() || !owner.labels.matches(&unwanted));
            selected
                && owner
                    .ports
                    .iter()
                    .any(|(own, of, number)| *own == name && *of == protocol && *number == port)
        }),
    };
    let wanted = list(&entity["ports"]);
    (wanted.is_empty() || wanted.iter().any(one_fits)) && !list(&entity["notPorts"]).iter().any(one_fits)
}

enum PortText {
    Range(u16, u16),
    Name(String),
}

impl PortText {
    fn of(value: &Value) -> PortText {
        if let Some(number) = value.as_u64() {
            let number = number as u16;
            return PortText::Range(number, number);
        }
        let text = value.as_str().unwrap_or_default();
        let range = text.split_once(':').unwrap_or((text, text));
        match (range.0.parse(), range.1.parse()) {
            (Ok(first), Ok(last)) => PortText::Range(first, last),
            _ => PortText::Name(text.to_owned()),
        }
    }
}
