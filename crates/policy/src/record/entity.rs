//! One rule of Calico's own kinds: what it says of a packet, and of either end.

use std::collections::BTreeSet;
use std::sync::Arc;

use ipnet::IpNet;
use model::validate::formats;
use model::{IpVersion, Selector};
use serde_json::Value;

use super::fields::{At, Fault, Read, shared};
use super::{
    ACCOUNT_PREFIX, Direction, Entity, LABEL_ACCOUNT, LABEL_NAMESPACE, NAMESPACE_PREFIX, Rule, RuleAction,
    SetSource,
};
use crate::ruleset::{Icmp, PortRange};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;
const SCTP: u8 = 132;

const RULE: [&str; 10] = [
    "action",
    "ipVersion",
    "protocol",
    "icmp",
    "notProtocol",
    "notICMP",
    "source",
    "destination",
    "http",
    "metadata",
];
const ENTITY: [&str; 9] = [
    "nets",
    "selector",
    "namespaceSelector",
    "services",
    "ports",
    "notNets",
    "notSelector",
    "notPorts",
    "serviceAccounts",
];

pub(super) fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP)
}

/// `namespace` is that of the policy, if it has one.
pub(super) fn read_rules(list: &At<'_>, direction: Direction, namespace: Option<&str>) -> Read<Vec<Rule>> {
    list.items()?.iter().map(|rule| read_rule(rule, direction, namespace)).collect()
}

fn read_rule(at: &At<'_>, direction: Direction, namespace: Option<&str>) -> Read<Rule> {
    at.only(&RULE)?;
    if at.field("http").exists() {
        let problem = "HTTP is not looked at, so the rule would allow more than it says: remove the match";
        return Err(at.field("http").fault(problem));
    }
    let mut rule = Rule::new(read_action(&at.field("action"))?);
    rule.name = at.field("metadata").field("annotations").field("name").word()?.map(shared);
    let named = read_protocol(&at.field("protocol"), &mut rule.protocol)?;
    let not_named = read_protocol(&at.field("notProtocol"), &mut rule.not_protocol)?;
    rule.version = match at.field("ipVersion").whole(4, 6)? {
        None => named.or(not_named),
        Some(4) => Some(IpVersion::V4),
        Some(6) => Some(IpVersion::V6),
        Some(_) => return Err(at.field("ipVersion").fault("must be 4 or 6")),
    };
    // By name the protocol belongs to one family, whatever else the rule says.
    if let (Some(named), Some(version)) = (named, rule.version)
        && named != version
    {
        return Err(at.field("ipVersion").fault("must be that of the protocol"));
    }
    rule.icmp = read_icmp(&at.field("icmp"))?;
    rule.not_icmp = read_icmp(&at.field("notICMP"))?;
    if rule.icmp.is_some() && !matches!(rule.protocol, Some(ICMP | ICMP_V6)) {
        return Err(at.field("icmp").fault("must not be set unless protocol is ICMP or ICMPv6"));
    }
    let far = if direction == Direction::Ingress { "source" } else { "destination" };
    for side in ["source", "destination"] {
        let reader = Reader { at: at.field(side), protocol: rule.protocol, namespace, is_far: side == far };
        let entity = reader.read(side == "destination")?;
        match side {
            "source" => rule.source = entity,
            _ => rule.destination = entity,
        }
    }
    Ok(rule)
}

fn read_action(at: &At<'_>) -> Read<RuleAction> {
    match at.text()? {
        Some("Allow") => Ok(RuleAction::Allow),
        Some("Deny") => Ok(RuleAction::Deny),
        Some("Pass") => Ok(RuleAction::Pass),
        Some("Log") => Ok(RuleAction::Log),
        _ => Err(at.fault("must be Allow, Deny, Log or Pass")),
    }
}

/// Sets the number. The family is that of a name which has one.
fn read_protocol(at: &At<'_>, number: &mut Option<u8>) -> Read<Option<IpVersion>> {
    let Some(value) = at.value() else { return Ok(None) };
    let (found, version) = match value {
        Value::String(text) => match text.as_str() {
            "" => return Ok(None),
            "TCP" => (Some(TCP), None),
            "UDP" => (Some(UDP), None),
            "SCTP" => (Some(SCTP), None),
            "UDPLite" => (Some(136), None),
            "ICMP" => (Some(ICMP), Some(IpVersion::V4)),
            "ICMPv6" => (Some(ICMP_V6), Some(IpVersion::V6)),
            number => (number.parse().ok().filter(|number| *number > 0), None),
        },
        value => {
            (value.as_u64().and_then(|number| u8::try_from(number).ok()).filter(|number| *number > 0), None)
        }
    };
    if found.is_none() {
        return Err(at.fault(
            "must be a protocol number from 1 to 255, or one of TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite",
        ));
    }
    *number = found;
    Ok(version)
}

fn read_icmp(at: &At<'_>) -> Read<Option<Icmp>> {
    at.only(&["type", "code"])?;
    if !at.exists() {
        return Ok(None);
    }
    let byte = |at: At<'_>, last| -> Read<Option<u8>> {
        Ok(at.whole(0, last)?.and_then(|number| u8::try_from(number).ok()))
    };
    let (kind, code) = (byte(at.field("type"), 254)?, byte(at.field("code"), 255)?);
    match (kind, code) {
        (Some(kind), code) => Ok(Some(Icmp { kind, code })),
        (None, Some(_)) => Err(at.field("type").fault("must be set together with code")),
        (None, None) => Ok(None),
    }
}

/// One side of a rule while it is read.
struct Reader<'a> {
    at: At<'a>,
    protocol: Option<u8>,
    namespace: Option<&'a str>,
    /// The source of ingress, the destination of egress: where services may stand.
    is_far: bool,
}

impl Reader<'_> {
    fn read(&self, is_destination: bool) -> Read<Entity> {
        self.at.only(&ENTITY)?;
        let mut entity = Entity {
            nets: read_nets(&self.at.field("nets"))?,
            not_nets: read_nets(&self.at.field("notNets"))?,
            ..Entity::default()
        };
        let selector = self.members(&mut entity)?;
        if self.at.field("services").exists() {
            self.service(&mut entity, is_destination)?;
        }
        let of = selector.map_or_else(|| shared("all()"), |selector| selector.to_string().into());
        let (ports, names) = self.ports("ports")?;
        let (not_ports, not_names) = self.ports("notPorts")?;
        let named = |names: BTreeSet<Arc<str>>| {
            let protocol = self.protocol;
            (!names.is_empty())
                .then(|| Arc::new(SetSource::NamedPorts { selector: Arc::clone(&of), protocol, names }))
        };
        (entity.ports, entity.not_ports) = (ports, not_ports);
        if let Some(names) = named(names) {
            entity.named_ports = Some(names);
        }
        entity.not_named_ports = named(not_names);
        Ok(entity)
    }

    /// Sets whom the entity speaks of, and gives what it selects, if it selects at all.
    fn members(&self, entity: &mut Entity) -> Read<Option<Selector>> {
        let selector = self.at.field("selector").selector()?;
        let not_selector = self.at.field("notSelector").selector()?;
        let namespaces = self.at.field("namespaceSelector").selector()?;
        let accounts = self.accounts()?;
        let speaks_of_members = selector.is_some() || not_selector.is_some() || accounts.is_some();
        let within = match (namespaces, self.namespace) {
            (Some(namespaces), _) => Some(in_namespaces(&namespaces)),
            (None, Some(own)) if speaks_of_members => Some(Selector::equals(LABEL_NAMESPACE, own)),
            _ => None,
        };
        if selector.is_none() && accounts.is_none() && within.is_none() {
            entity.not_members = not_selector.map(|not| set_of(&not));
            return Ok(None);
        }
        let parts = [within, accounts, selector, not_selector.map(Selector::negated)];
        let all = Selector::all_of(parts.into_iter().flatten());
        entity.members = Some(set_of(&all));
        Ok(Some(all))
    }

    fn accounts(&self) -> Read<Option<Selector>> {
        let at = self.at.field("serviceAccounts");
        at.only(&["names", "selector"])?;
        if !at.exists() {
            return Ok(None);
        }
        let names = at.field("names").texts()?;
        let selector = at.field("selector").selector()?;
        if names.is_empty() && selector.is_none() {
            return Ok(None);
        }
        let of_names =
            (!names.is_empty()).then(|| Selector::is_in(LABEL_ACCOUNT, names.into_iter().map(str::to_owned)));
        Ok(Some(Selector::all_of(
            [of_names, selector.map(|selector| of_accounts(&selector))].into_iter().flatten(),
        )))
    }

    fn service(&self, entity: &mut Entity, is_destination: bool) -> Read<()> {
        let at = self.at.field("services");
        at.only(&["name", "namespace"])?;
        if !self.is_far {
            return Err(at.fault("must be on the far side: the source of ingress, the destination of egress"));
        }
        let besides = ["selector", "notSelector", "namespaceSelector", "serviceAccounts", "nets", "notNets"];
        if besides.iter().any(|field| self.at.field(field).exists()) {
            return Err(at.fault("must not be set together with selectors or nets of the same side"));
        }
        let Some(name) = at.field("name").word()? else {
            return Err(at.field("name").fault("must be set"));
        };
        let Some(namespace) = at.field("namespace").word()?.or(self.namespace) else {
            return Err(at.field("namespace").fault("must be set in a global policy"));
        };
        let (namespace, name) = (shared(namespace), shared(name));
        if !is_destination {
            entity.members = Some(Arc::new(SetSource::Service { namespace, name }));
            return Ok(());
        }
        if self.at.field("ports").exists() || self.at.field("notPorts").exists() {
            return Err(at.fault("must not be set together with ports: a service has its own"));
        }
        entity.named_ports = Some(Arc::new(SetSource::ServicePorts { namespace, name }));
        Ok(())
    }

    fn ports(&self, field: &str) -> Read<(Vec<PortRange>, BTreeSet<Arc<str>>)> {
        let (mut ranges, mut names) = (Vec::new(), BTreeSet::new());
        for item in self.at.field(field).items()? {
            match read_port(&item)? {
                Port::Range(range) => ranges.push(range),
                Port::Name(name) => drop(names.insert(name)),
            }
        }
        let fits = match self.protocol {
            Some(protocol) => has_ports(protocol) || (ranges.is_empty() && names.is_empty()),
            None => ranges.is_empty(),
        };
        if !fits {
            return Err(self.at.field(field).fault("must not be set unless protocol is TCP, UDP or SCTP"));
        }
        Ok((merged(ranges), names))
    }
}

enum Port {
    Range(PortRange),
    Name(Arc<str>),
}

fn read_port(at: &At<'_>) -> Read<Port> {
    let value = at.value().ok_or_else(|| at.fault("must be a port"))?;
    formats::port(value).map_err(|rule| at.fault(rule))?;
    let (first, last) = match value {
        Value::String(text) => match formats::parse_ports(text) {
            Some(range) => range,
            None => return Ok(Port::Name(shared(text))),
        },
        value => value.as_u64().map(|port| (port, port)).ok_or_else(|| at.fault("must be a port"))?,
    };
    let port = |number: u64| u16::try_from(number).map_err(|_| at.fault("must be a port from 1 to 65535"));
    Ok(Port::Range(PortRange { first: port(first)?, last: port(last)? }))
}

/// As few ranges as possible, in order.
pub(super) fn merged(mut ranges: Vec<PortRange>) -> Vec<PortRange> {
    ranges.sort();
    let mut merged: Vec<PortRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if u32::from(range.first) <= u32::from(last.last) + 1 => {
                last.last = last.last.max(range.last)
            }
            _ => merged.push(range),
        }
    }
    merged
}

fn read_nets(at: &At<'_>) -> Read<Vec<IpNet>> {
    let nets: Read<BTreeSet<IpNet>> = at
        .items()?
        .iter()
        .map(|item| read_net(item.text()?.unwrap_or_default()).ok_or_else(|| not_a_net(item)))
        .collect();
    Ok(nets?.into_iter().collect())
}

fn not_a_net(at: &At<'_>) -> Fault {
    at.fault("must be a network, such as 10.0.0.0/8, or an address")
}

/// A network or an address; host bits are cut off.
pub(super) fn read_net(text: &str) -> Option<IpNet> {
    let net = model::Cidr::parse_masked(text).ok().map(|net| IpNet::new(net.network(), net.prefix_len()));
    match net {
        Some(net) => net.ok(),
        None => text.parse::<std::net::IpAddr>().ok().map(IpNet::from),
    }
}

pub(super) fn set_of(selector: &Selector) -> Arc<SetSource> {
    Arc::new(SetSource::Selector(selector.to_string().into()))
}

/// A selector of namespaces, asked of the endpoints in them.
pub(super) fn in_namespaces(selector: &Selector) -> Selector {
    let namespaced = Selector::has(LABEL_NAMESPACE);
    selector.prefixed(NAMESPACE_PREFIX, &namespaced, &namespaced.clone().negated())
}

/// A selector of service accounts, asked of their endpoints.
pub(super) fn of_accounts(selector: &Selector) -> Selector {
    selector.prefixed(ACCOUNT_PREFIX, &Selector::all(), &Selector::all())
}
