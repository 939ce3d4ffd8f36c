//! Reads what `nft -j list ruleset` prints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::Value;

use super::{Act, Chain, Firewall, Hook, Match, Place, Range, Rule};

/// More than this is not looked at: a rule that was left out could be the one that matters.
const RULES_MAX: usize = 50_000;

/// Chains of programs whose matches on connections, which the old face of nftables hides, are for those that are established or
/// broken: kube-proxy's, and Docker's.
const KNOWN_FOR_ESTABLISHED: [&str; 3] = ["KUBE-FORWARD", "KUBE-FIREWALL", "DOCKER"];

impl Firewall {
    /// `None`: it is no ruleset, or has too many rules to be told.
    pub fn read(ruleset: &Value) -> Option<Firewall> {
        let objects = ruleset["nftables"].as_array()?;
        if objects.iter().filter(|object| object.get("rule").is_some()).count() > RULES_MAX {
            return None;
        }
        let sets = sets(objects);
        let mut chains: Vec<Chain> =
            objects.iter().filter_map(|object| chain(object.get("chain")?)).collect();
        let mut places: BTreeMap<(String, String, String), usize> = BTreeMap::new();
        for (index, chain) in chains.iter().enumerate() {
            places.insert((chain.family.clone(), chain.table.clone(), chain.name.clone()), index);
        }
        for value in objects.iter().filter_map(|object| object.get("rule")) {
            let of = (text(&value["family"]), text(&value["table"]), text(&value["chain"]));
            if let Some(chain) = places.get(&of).and_then(|index| chains.get_mut(*index)) {
                chain.rules.push(rule(value, &sets));
            }
        }
        Some(Firewall { chains: reached(chains), has_legacy_rules: false })
    }
}

type Sets<'v> = BTreeMap<(String, String, String), &'v Value>;

fn sets(objects: &[Value]) -> Sets<'_> {
    let named = |set: &Value| (text(&set["family"]), text(&set["table"]), text(&set["name"]));
    objects.iter().filter_map(|object| object.get("set")).map(|set| (named(set), &set["elem"])).collect()
}

/// Only of families that see a pod's packets. A chain on another hook leads nowhere here.
fn chain(value: &Value) -> Option<Chain> {
    let family = text(&value["family"]);
    if !["ip", "ip6", "inet"].contains(&family.as_str()) {
        return None;
    }
    let place = match value["hook"].as_str() {
        Some("prerouting") => Some(Place::Prerouting),
        Some("input") => Some(Place::Input),
        Some("forward") => Some(Place::Forward),
        Some("output") => Some(Place::Output),
        Some("postrouting") => Some(Place::Postrouting),
        Some(_) => return None,
        None => None,
    };
    let hook = place.map(|place| Hook {
        place,
        is_nat: value["type"] == "nat",
        priority: value["prio"].as_i64().unwrap_or(0),
        drops_the_rest: value["policy"] == "drop",
    });
    Some(Chain { family, table: text(&value["table"]), name: text(&value["name"]), hook, rules: Vec::new() })
}

/// Without those that no packet of a pod gets to: thousands of them, where there are many services.
fn reached(chains: Vec<Chain>) -> Vec<Chain> {
    let targets = |chain: &Chain| -> Vec<(String, String, String)> {
        let target = |rule: &Rule| match &rule.act {
            Act::Jump(name) | Act::Goto(name) => {
                Some((chain.family.clone(), chain.table.clone(), name.clone()))
            }
            _ => None,
        };
        chain.rules.iter().filter_map(target).collect()
    };
    let known: BTreeMap<(String, String, String), &Chain> = chains
        .iter()
        .map(|chain| ((chain.family.clone(), chain.table.clone(), chain.name.clone()), chain))
        .collect();
    let mut wanted: BTreeSet<(String, String, String)> = BTreeSet::new();
    let mut open: Vec<(String, String, String)> =
        known.iter().filter(|(_, chain)| chain.hook.is_some()).map(|(name, _)| name.clone()).collect();
    while let Some(name) = open.pop() {
        if let Some(chain) = known.get(&name).filter(|_| wanted.insert(name)) {
            open.extend(targets(chain));
        }
    }
    let is_wanted =
        |chain: &Chain| wanted.contains(&(chain.family.clone(), chain.table.clone(), chain.name.clone()));
    chains.into_iter().filter(is_wanted).collect()
}

fn rule(value: &Value, sets: &Sets<'_>) -> Rule {
    let place = (text(&value["family"]), text(&value["table"]));
    let chain = text(&value["chain"]);
    let mut rule = Rule { handle: value["handle"].as_u64().unwrap_or(0), ..Rule::default() };
    for statement in value["expr"].as_array().into_iter().flatten() {
        let Some((word, said)) = statement.as_object().and_then(|fields| fields.iter().next()) else {
            continue;
        };
        match word.as_str() {
            "match" => rule.matches.push(matching(said, &place, sets)),
            "xt" => translated(said, &chain, &mut rule),
            word => rule.act(act(word, said), word),
        }
    }
    rule
}

impl Rule {
    fn act(&mut self, act: Option<Act>, word: &str) {
        match act {
            // What limits how often a rule counts, or asks something we do not know.
            None if !HARMLESS.contains(&word) => self.matches.push(Match::Unknown),
            None => {}
            // The last word decides; a mark that was set before it is only forgotten here if it decides nothing else.
            Some(act) => self.act = act,
        }
    }
}

/// Statements that change nothing for the packet.
const HARMLESS: [&str; 4] = ["counter", "log", "comment", "notrack"];

fn act(word: &str, said: &Value) -> Option<Act> {
    let target = || text(&said["target"]);
    Some(match word {
        "accept" => Act::Accept,
        "drop" | "reject" => Act::Drop,
        "return" => Act::Return,
        "jump" => Act::Jump(target()),
        "goto" => Act::Goto(target()),
        "masquerade" | "snat" => Act::NewSource,
        "mangle" => Act::NewMark,
        "vmap" | "queue" | "dnat" | "redirect" | "tproxy" | "fwd" | "dup" | "synproxy" | "flow" => {
            Act::Anything
        }
        _ => return None,
    })
}

/// What iptables has no words of nftables for: of matches only the name is told, and of targets, too.
fn translated(said: &Value, chain: &str, rule: &mut Rule) {
    let name = said["name"].as_str().unwrap_or_default();
    if said["type"] == "target" {
        rule.act = match name {
            "REJECT" => Act::Drop,
            "MASQUERADE" | "SNAT" => Act::NewSource,
            "MARK" | "CONNMARK" => Act::NewMark,
            "LOG" | "NFLOG" | "CT" | "TCPMSS" => Act::Nothing,
            _ => Act::Anything,
        };
        return;
    }
    let is_known = KNOWN_FOR_ESTABLISHED.contains(&chain) || chain.starts_with("DOCKER-");
    match name {
        "comment" => {}
        "conntrack" if is_known => rule.matches.push(Match::NotForNew),
        _ => rule.matches.push(Match::Unknown),
    }
}

fn matching(said: &Value, place: &(String, String), sets: &Sets<'_>) -> Match {
    let (left, is_not) = (&said["left"], said["op"] == "!=");
    if !matches!(said["op"].as_str(), Some("==" | "!=" | "in")) {
        return Match::Unknown;
    }
    let named = |name: &str| sets.get(&(place.0.clone(), place.1.clone(), name.to_owned())).copied();
    let right = match said["right"].as_str().and_then(|name| name.strip_prefix('@')) {
        Some(name) => named(name).unwrap_or(&Value::Null),
        None => said["right"].get("set").unwrap_or(&said["right"]),
    };
    let known = match (inner(left, "meta", "key").as_str(), inner(left, "payload", "field").as_str()) {
        (Some("iifname" | "iif"), _) => devices(right, true, is_not),
        (Some("oifname" | "oif"), _) => devices(right, false, is_not),
        (Some("nfproto"), _) => right.as_str().map(|word| Match::IsIpv4((word == "ipv4") != is_not)),
        (Some("mark"), _) => number(right).map(|value| Match::Mark { is_not, mask: u64::MAX, value }),
        (_, Some("saddr")) if is_ip(left) => addresses(right, true, is_not),
        (_, Some("daddr")) if is_ip(left) => addresses(right, false, is_not),
        (Some("l4proto"), _) => protocols(right, is_not),
        (_, Some("protocol" | "nexthdr")) if is_ip(left) => protocols(right, is_not),
        (_, Some("sport")) => ports(left, right, true, is_not),
        (_, Some("dport")) => ports(left, right, false, is_not),
        _ if inner(left, "ct", "key") == "state" => states(right, is_not),
        _ => masked(left, right, is_not),
    };
    known.unwrap_or(Match::Unknown)
}

fn is_ip(left: &Value) -> bool {
    matches!(inner(left, "payload", "protocol").as_str(), Some("ip" | "ip6"))
}

fn masked(left: &Value, right: &Value, is_not: bool) -> Option<Match> {
    let operands = left["&"].as_array()?;
    let is_mark = inner(operands.first()?, "meta", "key") == "mark";
    is_mark.then_some(Match::Mark { is_not, mask: number(operands.get(1)?)?, value: number(right)? })
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64()
}

/// One element, or several.
fn elements(value: &Value) -> Option<Vec<&Value>> {
    match value {
        Value::Array(items) => {
            Some(items.iter().map(|item| item["elem"].get("val").unwrap_or(item)).collect())
        }
        Value::Null => None,
        one => Some(vec![one]),
    }
}

fn devices(value: &Value, is_incoming: bool, is_not: bool) -> Option<Match> {
    let names = elements(value)?.into_iter().map(|name| name.as_str().map(str::to_owned));
    Some(Match::Device { is_incoming, is_not, names: names.collect::<Option<_>>()? })
}

fn protocols(value: &Value, is_not: bool) -> Option<Match> {
    let names = elements(value)?.into_iter().map(|name| match name {
        Value::Number(number) => match number.as_u64()? {
            6 => Some("tcp".to_owned()),
            17 => Some("udp".to_owned()),
            other => Some(other.to_string()),
        },
        name => name.as_str().map(str::to_owned),
    });
    Some(Match::Protocol { is_not, names: names.collect::<Option<_>>()? })
}

fn ports(left: &Value, value: &Value, is_source: bool, is_not: bool) -> Option<Match> {
    let protocol = inner(left, "payload", "protocol").as_str()?.to_owned();
    let port = |value: &Value| u16::try_from(value.as_u64()?).ok();
    let ranges = elements(value)?.into_iter().map(|one| match one["range"].as_array() {
        Some(range) => Some((port(range.first()?)?, port(range.get(1)?)?)),
        None => port(one).map(|port| (port, port)),
    });
    Some(Match::Port { protocol, is_source, is_not, ranges: ranges.collect::<Option<_>>()? })
}

fn states(value: &Value, is_not: bool) -> Option<Match> {
    let states = elements(value)?.into_iter().map(|name| name.as_str().map(str::to_owned));
    Some(Match::State { is_not, states: states.collect::<Option<_>>()? })
}

fn addresses(value: &Value, is_source: bool, is_not: bool) -> Option<Match> {
    let ranges = elements(value)?.into_iter().map(range).collect::<Option<_>>()?;
    Some(Match::Address { is_source, is_not, ranges })
}

fn range(value: &Value) -> Option<Range> {
    let address = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
    if let Some(prefix) = value.get("prefix") {
        let len = u8::try_from(prefix["len"].as_u64()?).ok()?;
        return IpNet::new(address(&prefix["addr"])?, len).ok().map(Range::from);
    }
    match value.get("range").and_then(Value::as_array) {
        Some(ends) => Some(Range(address(ends.first()?)?, address(ends.get(1)?)?)),
        None => address(value).map(|address| Range(address, address)),
    }
}

/// A field of a field.
fn inner<'v>(value: &'v Value, outer: &str, name: &str) -> &'v Value {
    value.get(outer).and_then(|outer| outer.get(name)).unwrap_or(&Value::Null)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
