//! `BGPFilter` records, as conditions and actions in BIRD's language.

use std::fmt::Write as _;

use model::validate::{is_device_pattern, prefix_lengths};
use model::{Cidr, Resource};
use serde_json::Value;

use super::records::{Community, community};
use super::session::Session;

/// Calico's way to give a route a priority between nodes: the higher the preference, the lower the metric.
const PREFERENCE_MAX: u64 = 2_147_483_647;

/// A record. A rule that cannot be understood rejects: it may be the one that should have kept something out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BgpFilter {
    import_v4: Vec<Rule>,
    import_v6: Vec<Rule>,
    export_v4: Vec<Rule>,
    export_v6: Vec<Rule>,
    /// Rules that cannot be understood, by their place.
    pub(super) unfit: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Import,
    Export,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// For sessions inside the AS, outside, or both.
    internal: Option<bool>,
    conditions: Vec<String>,
    actions: Vec<String>,
    accepts: bool,
}

impl BgpFilter {
    pub fn read(filter: &Resource) -> BgpFilter {
        let mut unfit = Vec::new();
        let mut rules = |field: &str| {
            let items = filter.spec(field).and_then(Value::as_array).into_iter().flatten().enumerate();
            let read = items.map(|(place, item)| {
                Rule::read(item).unwrap_or_else(|| {
                    unfit.push(format!("spec.{field}[{place}]"));
                    Rule::reject()
                })
            });
            read.collect()
        };
        let (import_v4, import_v6) = (rules("importV4"), rules("importV6"));
        let (export_v4, export_v6) = (rules("exportV4"), rules("exportV6"));
        BgpFilter { import_v4, import_v6, export_v4, export_v6, unfit }
    }

    /// The statements for a session, each on a line of its own.
    pub(super) fn statements(&self, direction: Direction, session: &Session) -> Vec<String> {
        let rules = match (direction, session.peer.is_ipv4()) {
            (Direction::Import, true) => &self.import_v4,
            (Direction::Import, false) => &self.import_v6,
            (Direction::Export, true) => &self.export_v4,
            (Direction::Export, false) => &self.export_v6,
        };
        let concerns = |rule: &&Rule| rule.internal.is_none_or(|internal| internal == session.is_internal());
        rules.iter().filter(concerns).map(Rule::statement).collect()
    }
}

impl Rule {
    fn reject() -> Rule {
        Rule { internal: None, conditions: Vec::new(), actions: Vec::new(), accepts: false }
    }

    /// `None`: it cannot be understood.
    fn read(rule: &Value) -> Option<Rule> {
        let text = |field: &str| rule.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let mut conditions = Vec::new();
        if let Some(cidr) = text("cidr") {
            let cidr = Cidr::parse_masked(cidr).ok()?;
            conditions.push(of_network(&cidr, text("matchOperator")?, rule.get("prefixLength"))?);
        }
        match text("source") {
            None => {}
            Some("RemotePeers") => conditions.push("source = RTS_BGP".to_owned()),
            Some(_) => return None,
        }
        if let Some(pattern) = text("interface") {
            is_device_pattern(pattern).then(|| conditions.push(format!("ifname ~ \"{pattern}\"")))?;
        }
        let values = rule.get("communities").and_then(|of| of.get("values")).and_then(Value::as_array);
        for value in values.into_iter().flatten() {
            conditions.push(in_communities(&community(value.as_str()?)?));
        }
        if let Some(path) = rule.get("asPathPrefix").and_then(Value::as_array).filter(|path| !path.is_empty())
        {
            let path: Option<Vec<String>> = path.iter().map(number_text).collect();
            conditions.push(format!("bgp_path ~ [= {} * =]", path?.join(" ")));
        }
        if let Some(priority) = rule.get("priority") {
            conditions.push(format!("bgp_local_pref = {}", preference(priority)?));
        }
        let operations = rule.get("operations").and_then(Value::as_array).into_iter().flatten();
        let actions: Option<Vec<Vec<String>>> = operations.map(operation).collect();
        let internal = match text("peerType") {
            None => None,
            Some("iBGP") => Some(true),
            Some("eBGP") => Some(false),
            Some(_) => return None,
        };
        let accepts = match text("action")? {
            "Accept" => true,
            "Reject" => false,
            _ => return None,
        };
        Some(Rule { internal, conditions, actions: actions?.concat(), accepts })
    }

    fn statement(&self) -> String {
        let mut text = String::new();
        if !self.conditions.is_empty() {
            let all: Vec<String> = self.conditions.iter().map(|condition| format!("({condition})")).collect();
            let _ = write!(text, "if {} then ", all.join(" && "));
        }
        text.push_str("{ ");
        for action in &self.actions {
            let _ = write!(text, "{action} ");
        }
        text.push_str(if self.accepts { "accept; }" } else { "reject; }" });
        text
    }
}

fn of_network(cidr: &Cidr, operator: &str, lengths: Option<&Value>) -> Option<String> {
    let limit = |field: &str| lengths.and_then(|lengths| lengths.get(field));
    let net = cidr.to_string();
    let (min, max) = prefix_lengths(cidr, limit("min"), limit("max"))?;
    let inside = || Some(format!("net ~ [ {net}{{{min},{max}}} ]"));
    match operator {
        "Equal" => Some(format!("net = {net}")),
        "NotEqual" => Some(format!("net != {net}")),
        "In" => inside(),
        "NotIn" => inside().map(|inside| format!("!({inside})")),
        _ => None,
    }
}

fn in_communities(community: &Community) -> String {
    let list = if community.len() == 2 { "bgp_community" } else { "bgp_large_community" };
    format!("{} ~ {list}", tuple(community))
}

/// `(65001,100)`.
pub(super) fn tuple(community: &Community) -> String {
    let numbers: Vec<String> = community.iter().map(u32::to_string).collect();
    format!("({})", numbers.join(","))
}

pub(super) fn add_community(community: &Community) -> String {
    let list = if community.len() == 2 { "bgp_community" } else { "bgp_large_community" };
    format!("{list}.add({});", tuple(community))
}

fn operation(operation: &Value) -> Option<Vec<String>> {
    if let Some(value) = operation.get("addCommunity") {
        return Some(vec![add_community(&community(value.get("value")?.as_str()?)?)]);
    }
    if let Some(value) = operation.get("prependASPath") {
        let path = value.get("prefix")?.as_array()?;
        // The one that is put in front last comes first.
        let prepend = |number: &Value| Some(format!("bgp_path.prepend({});", number_text(number)?));
        return path.iter().rev().map(prepend).collect();
    }
    let value = operation.get("setPriority")?.get("value")?;
    Some(vec![format!("bgp_local_pref = {};", preference(value)?)])
}

fn number_text(value: &Value) -> Option<String> {
    let number = match value {
        Value::String(text) => model::validate::formats::parse_as_number(text)?,
        value => u32::try_from(value.as_u64()?).ok()?,
    };
    Some(number.to_string())
}

fn preference(priority: &Value) -> Option<u64> {
    PREFERENCE_MAX.checked_sub(priority.as_u64()?)
}
