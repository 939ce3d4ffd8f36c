//! The ports of Kubernetes' policies. They always stand on the destination's side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::validate::formats;
use serde_json::Value;

use super::entity::merged;
use super::fields::{At, Read, shared};
use super::{Rule, SetSource};
use crate::ruleset::PortRange;

/// One protocol, or any, with ports of it, or any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PortMatch {
    pub(super) protocol: Option<u8>,
    pub(super) ranges: Vec<PortRange>,
    pub(super) names: BTreeSet<Arc<str>>,
}

impl PortMatch {
    /// Names are those of the destination that the rule already has.
    pub(super) fn put_into(&self, rule: &mut Rule) {
        rule.protocol = self.protocol;
        rule.destination.ports.clone_from(&self.ranges);
        if !self.names.is_empty() {
            let selector = match rule.destination.members.as_deref() {
                Some(SetSource::Selector(text)) => Arc::clone(text),
                _ => shared("all()"),
            };
            let (protocol, names) = (self.protocol, self.names.clone());
            rule.destination.named_ports =
                Some(Arc::new(SetSource::NamedPorts { selector, protocol, names }));
        }
    }
}

/// One match for each protocol, in order of their names; without a list, one that matches every packet. A port that cannot be understood is left out, and never
/// widens the rest.
pub(super) fn read_ports(at: &At<'_>, remarks: &mut Vec<Arc<str>>) -> Read<Vec<PortMatch>> {
    let items = at.items()?;
    if items.is_empty() {
        return Ok(vec![PortMatch::default()]);
    }
    let mut found: BTreeMap<(&str, u8), Option<PortMatch>> = BTreeMap::new();
    for item in items {
        let (protocol, port) = match read_port(&item) {
            Ok(read) => read,
            Err(fault) => {
                remarks.push(format!("{fault}; the port allows nothing").into());
                continue;
            }
        };
        let of_protocol = found.entry(protocol).or_insert_with(|| Some(PortMatch::default()));
        match (of_protocol, port) {
            // All ports of the protocol swallow the others.
            (of_protocol, Port::All) => *of_protocol = None,
            (None, _) => {}
            (Some(ports), Port::Range(range)) => ports.ranges.push(range),
            (Some(ports), Port::Name(name)) => drop(ports.names.insert(name)),
        }
    }
    Ok(found
        .into_iter()
        .map(|((_, protocol), ports)| {
            let ports = ports.unwrap_or_default();
            PortMatch { protocol: Some(protocol), ranges: merged(ports.ranges), names: ports.names }
        })
        .collect())
}

enum Port {
    All,
    Range(PortRange),
    Name(Arc<str>),
}

/// A protocol by name and number, and the port.
fn read_port(at: &At<'_>) -> Read<((&'static str, u8), Port)> {
    at.only(&["protocol", "port", "endPort"])?;
    let protocol = match at.field("protocol").word()? {
        None | Some("TCP") => ("TCP", 6),
        Some("UDP") => ("UDP", 17),
        Some("SCTP") => ("SCTP", 132),
        Some(_) => return Err(at.field("protocol").fault("must be TCP, UDP or SCTP")),
    };
    let (port, end) = (at.field("port"), at.field("endPort"));
    let Some(value) = port.value() else {
        return if end.exists() {
            Err(end.fault("must be set together with port"))
        } else {
            Ok((protocol, Port::All))
        };
    };
    formats::kubernetes_port(value).map_err(|rule| port.fault(rule))?;
    match value {
        Value::String(_) if end.exists() => Err(end.fault("must not be set together with a port's name")),
        Value::String(name) => Ok((protocol, Port::Name(shared(name)))),
        value => {
            let number = |value: u64| u16::try_from(value).map_err(|_| port.fault("must be a port"));
            let first = number(value.as_u64().unwrap_or(u64::MAX))?;
            let last = match end.whole(u64::from(first), 65535)? {
                Some(last) => number(last)?,
                None => first,
            };
            Ok((protocol, Port::Range(PortRange { first, last })))
        }
    }
}
