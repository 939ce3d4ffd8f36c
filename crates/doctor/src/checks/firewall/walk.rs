//! What becomes of a packet: it is led through the rules, and where a rule asks for what is not known, both ways are gone.

use std::collections::BTreeSet;
use std::net::IpAddr;

use evidence::firewall::{Act, Chain, Match, Place, Rule};

use super::ruleset::{Ruleset, weight};

/// Chains call each other no deeper than this; the kernel allows 16.
const DEPTH_MAX: usize = 32;
/// The first packet of a connection through the node. What is `None` is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) incoming: Option<&'a str>,
    pub(super) outgoing: Option<&'a str>,
    pub(super) transport: Option<Transport>,
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transport {
    /// `udp`.
    pub(super) protocol: &'static str,
    pub(super) to_port: u16,
}

/// What drops a packet: a chain, by its rule with this handle, or by its policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Dropper {
    pub(super) family: String,
    pub(super) table: String,
    pub(super) chain: String,
    pub(super) rule: Option<u64>,
}

/// All that may become of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// It may get through.
    pub(super) may_pass: bool,
    /// Where it is dropped for certain, if it comes that far.
    pub(super) dropped_by: BTreeSet<Dropper>,
    /// Where it may be dropped, which depends on what is not known here.
    pub(super) perhaps_dropped_by: BTreeSet<Dropper>,
    /// It may get another source.
    pub(super) may_get_new_source: bool,
}

impl Fate {
    /// It is dropped for certain.
    pub(super) fn is_dropped(&self) -> bool {
        !self.may_pass
    }
}

impl std::fmt::Display for Dropper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Dropper { family, table, chain, rule } = self;
        write!(f, "chain {chain} of table {family} {table}: ")?;
        match rule {
            Some(handle) => write!(f, "rule {handle}"),
            None => f.write_str("policy drop"),
        }
    }
}

/// Of a packet through the node.
pub(super) fn fate_of(firewall: &Ruleset<'_>, packet: &Packet<'_>) -> Fate {
    fate_at(firewall, packet, &[Place::Prerouting, Place::Forward, Place::Postrouting])
}

/// Of a packet to the node itself.
pub(super) fn fate_of_arriving(firewall: &Ruleset<'_>, packet: &Packet<'_>) -> Fate {
    fate_at(firewall, packet, &[Place::Prerouting, Place::Input])
}

/// Of a packet of the node itself.
pub(super) fn fate_of_leaving(firewall: &Ruleset<'_>, packet: &Packet<'_>) -> Fate {
    fate_at(firewall, packet, &[Place::Output, Place::Postrouting])
}

fn fate_at(firewall: &Ruleset<'_>, packet: &Packet<'_>, places: &[Place]) -> Fate {
    let (place, fate) = (Place::Prerouting, Fate::default());
    let mut walk = Walk { firewall, packet, place, mark: Some(0), fate, steps: 0, is_certain: true };
    for place in places {
        walk.place = *place;
        if !walk.hooks() {
            return walk.fate;
        }
    }
    walk.fate.may_pass = true;
    walk.fate
}

struct Walk<'a> {
    firewall: &'a Ruleset<'a>,
    packet: &'a Packet<'a>,
    place: Place,
    /// `None`: one of the rules on the way may have set it.
    mark: Option<u64>,
    fate: Fate,
    steps: usize,
    /// It comes here whatever is not known.
    is_certain: bool,
}

/// How a chain may end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ends {
    /// The base chain lets it pass.
    accepts: bool,
    /// It comes to the end, or back to the chain that called.
    goes_on: bool,
}

impl Walk<'_> {
    /// Whether it may get past all chains on this hook.
    fn hooks(&mut self) -> bool {
        let mut bases: Vec<&Chain> = self.firewall.chains().filter(|chain| self.is_here(chain)).collect();
        bases.sort_by_key(|chain| chain.hook.as_ref().map_or(0, |hook| hook.priority));
        for chain in bases {
            let ends = self.chain(chain, 0);
            let drops_the_rest = chain.hook.as_ref().is_some_and(|hook| hook.drops_the_rest);
            if ends.goes_on && drops_the_rest {
                self.note_drop(chain, None);
            }
            if !ends.accepts && (!ends.goes_on || drops_the_rest) {
                return false;
            }
        }
        true
    }

    fn note_drop(&mut self, chain: &Chain, rule: Option<u64>) {
        let (family, table, chain) = (chain.family.clone(), chain.table.clone(), chain.name.clone());
        let noted =
            if self.is_certain { &mut self.fate.dropped_by } else { &mut self.fate.perhaps_dropped_by };
        noted.insert(Dropper { family, table, chain, rule });
    }

    fn is_here(&self, chain: &Chain) -> bool {
        let is_of_version = match chain.family.as_str() {
            "ip" => self.packet.to.is_ipv4(),
            "ip6" => self.packet.to.is_ipv6(),
            _ => true,
        };
        is_of_version && chain.hook.as_ref().is_some_and(|hook| hook.place == self.place)
    }

    fn chain(&mut self, chain: &Chain, depth: usize) -> Ends {
        let mut ends = Ends::default();
        if depth > DEPTH_MAX {
            return Ends { accepts: true, goes_on: true };
        }
        for rule in &chain.rules {
            self.steps = self.steps.saturating_add(weight(rule));
            if self.steps > self.firewall.steps_max() {
                return Ends { accepts: true, goes_on: true };
            }
            let holds = self.holds(rule);
            if holds == Some(false) {
                continue;
            }
            let was_certain = self.is_certain;
            self.is_certain &= holds == Some(true);
            let after = self.act(chain, rule, depth, &mut ends);
            self.is_certain = was_certain;
            if holds == Some(true) && !after {
                return ends;
            }
        }
        ends.goes_on = true;
        ends
    }

    /// Whether the next rule may be reached after this one.
    fn act(&mut self, chain: &Chain, rule: &Rule, depth: usize, ends: &mut Ends) -> bool {
        match &rule.act {
            Act::Nothing => true,
            Act::NewMark => {
                self.mark = None;
                true
            }
            Act::Accept => {
                ends.accepts = true;
                false
            }
            Act::NewSource => {
                self.fate.may_get_new_source = true;
                ends.accepts = true;
                false
            }
            Act::Drop => {
                self.note_drop(chain, Some(rule.handle));
                false
            }
            Act::Return => {
                ends.goes_on = true;
                false
            }
            Act::Jump(name) | Act::Goto(name) => {
                let called = self.called(chain, name, depth);
                ends.accepts |= called.accepts;
                let is_goto = matches!(rule.act, Act::Goto(_));
                ends.goes_on |= is_goto && called.goes_on;
                called.goes_on && !is_goto
            }
            Act::Anything => {
                (self.mark, self.fate.may_get_new_source) = (None, true);
                (ends.accepts, ends.goes_on) = (true, true);
                true
            }
        }
    }

    fn called(&mut self, from: &Chain, name: &str, depth: usize) -> Ends {
        match self.firewall.called(from, name) {
            Some(chain) => self.chain(chain, depth + 1),
            None => Ends { accepts: true, goes_on: true },
        }
    }

    /// Whether all of a rule's matches hold. `None`: perhaps.
    fn holds(&self, rule: &Rule) -> Option<bool> {
        let mut all = Some(true);
        for matching in &rule.matches {
            match self.matches(matching) {
                Some(true) => {}
                Some(false) => return Some(false),
                None => all = None,
            }
        }
        all
    }

    fn matches(&self, matching: &Match) -> Option<bool> {
        match matching {
            Match::Device { is_incoming, is_not, names } => {
                // Before it is routed, nothing is known of where it leaves, and later not always where it came in.
                let device = match (is_incoming, self.place) {
                    (true, Place::Output) => return Some(*is_not),
                    (true, _) => self.packet.incoming?,
                    (false, Place::Prerouting | Place::Input) => return Some(*is_not),
                    (false, _) => self.packet.outgoing?,
                };
                Some(names.iter().any(|name| is_called(device, name)) != *is_not)
            }
            Match::Address { is_source, is_not, ranges } => {
                let address = if *is_source { self.packet.from } else { self.packet.to };
                // A match on the other version of the protocol never holds, whichever way it is meant.
                let is_other = ranges.first().is_some_and(|range| range.0.is_ipv4() != address.is_ipv4());
                Some(!is_other && ranges.iter().any(|range| range.contains(address)) != *is_not)
            }
            Match::Protocol { is_not, names } => {
                let carried = self.packet.transport?.protocol;
                Some(names.iter().any(|name| name == carried) != *is_not)
            }
            Match::Port { protocol, is_source, is_not, ranges } => {
                let Transport { protocol: carried, to_port } = self.packet.transport?;
                match protocol.as_str() {
                    // Of any protocol that has ports.
                    "th" => {}
                    other if other == carried => {}
                    _ => return Some(false),
                }
                if *is_source {
                    return None;
                }
                Some(ranges.iter().any(|(from, to)| (*from..=*to).contains(&to_port)) != *is_not)
            }
            Match::IsIpv4(is_ipv4) => Some(self.packet.to.is_ipv4() == *is_ipv4),
            Match::State { is_not, states } => Some(states.iter().any(|state| state == "new") != *is_not),
            Match::Mark { is_not, mask, value } => Some((self.mark? & mask == *value) != *is_not),
            Match::NotForNew => Some(false),
            Match::Unknown => None,
        }
    }
}

/// `cali*` is any device that begins with cali.
fn is_called(device: &str, name: &str) -> bool {
    name.strip_suffix('*').map_or(device == name, |stem| device.starts_with(stem))
}

#[cfg(test)]
mod tests {
    use evidence::firewall::Firewall;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Chains by name, each with its rules' expressions; the one called FORWARD hangs on the hook and drops the rest.
    fn firewall(chains: &[(&str, Value)]) -> Firewall {
        let mut objects = Vec::new();
        for (name, rules) in chains {
            let mut chain = json!({"family": "ip", "table": "filter", "name": name});
            if *name == "FORWARD" {
                chain["hook"] = json!("forward");
                chain["type"] = json!("filter");
                chain["policy"] = json!("drop");
            }
            objects.push(json!({"chain": chain}));
            for expr in rules.as_array().unwrap() {
                objects.push(json!({"rule": {"family": "ip", "table": "filter", "chain": name, "handle": 7, "expr": expr}}));
            }
        }
        Firewall::read(&json!({"nftables": objects})).unwrap()
    }

    fn fate(firewall: &Firewall) -> Fate {
        fate_of(
            &Ruleset::of(firewall),
            &Packet {
                from: "10.1.0.1".parse().unwrap(),
                to: "10.2.0.1".parse().unwrap(),
                incoming: Some("cali1"),
                outgoing: Some("eth0"),
                transport: None,
            },
        )
    }

    #[track_caller]
    fn check(rules: Value, expected: &str) {
        let called = json!([[{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "docker0"}}, {"accept": null}],
                            [{"return": null}], [{"accept": null}]]);
        let found = fate(&firewall(&[("CALLED", called), ("FORWARD", rules.clone())]));
        let is_never_dropped = found.dropped_by.is_empty() && found.perhaps_dropped_by.is_empty();
        let found = match (found.may_pass, is_never_dropped) {
            (true, true) => "passes",
            (true, false) => "perhaps",
            (false, _) => "dropped",
        };
        assert_eq!(found, expected, "{rules}");
    }

    fn of(key: &str, right: Value) -> Value {
        json!({"match": {"op": "==", "left": {"meta": {"key": key}}, "right": right}})
    }

    fn address(field: &str, op: &str, right: Value) -> Value {
        json!({"match": {"op": op, "left": {"payload": {"protocol": "ip", "field": field}}, "right": right}})
    }

    #[test]
    fn rules_are_followed() {
        let accept = json!({"accept": null});
        check(json!([]), "dropped");
        check(json!([[accept]]), "passes");
        check(json!([[of("iifname", json!("cali*")), accept]]), "passes");
        check(json!([[of("iifname", json!("docker0")), accept]]), "dropped");
        check(
            json!([[of("oifname", json!({"set": ["a", "eth0"]})), {"counter": {"packets": 1}}, accept]]),
            "passes",
        );
        check(
            json!([[address("saddr", "==", json!({"prefix": {"addr": "10.1.0.0", "len": 16}})), accept]]),
            "passes",
        );
        check(
            json!([[address("daddr", "!=", json!({"prefix": {"addr": "10.2.0.0", "len": 16}})), accept]]),
            "dropped",
        );
        check(
            json!([[address("daddr", "==", json!({"set": [{"range": ["10.2.0.0", "10.2.0.9"]}]})), {"drop": null}], [accept]]),
            "dropped",
        );
        check(json!([[{"jump": {"target": "CALLED"}}]]), "dropped");
        check(json!([[{"jump": {"target": "CALLED"}}], [accept]]), "passes");
        check(json!([[{"goto": {"target": "CALLED"}}], [accept]]), "dropped");
    }

    #[test]
    fn the_first_packet_of_a_connection_is_new_and_has_no_mark() {
        let accept = json!({"accept": null});
        let state =
            |states: Value| json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": states}});
        check(json!([[state(json!(["established", "related"])), accept]]), "dropped");
        check(json!([[state(json!("new")), accept]]), "passes");
        let mark =
            json!({"match": {"op": "==", "left": {"&": [{"meta": {"key": "mark"}}, 16384]}, "right": 16384}});
        check(json!([[mark, accept]]), "dropped");
        check(
            json!([[{"mangle": {"key": {"meta": {"key": "mark"}}, "value": 16384}}], [mark, accept]]),
            "perhaps",
        );
        // kube-proxy's and Docker's own are known, somebody else's are not.
        let conntrack = json!({"xt": {"type": "match", "name": "conntrack"}});
        for (name, may_pass) in [("KUBE-FORWARD", false), ("DOCKER-USER", false), ("THEIRS", true)] {
            let called = json!([[conntrack, accept]]);
            let chains = [(name, called), ("FORWARD", json!([[{"jump": {"target": name}}]]))];
            assert_eq!(fate(&firewall(&chains)).may_pass, may_pass, "{name}");
        }
    }

    #[test]
    fn what_is_not_known_leaves_both_ways_open() {
        let port = json!({"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 80}});
        check(json!([[port, {"accept": null}]]), "perhaps");
        check(json!([[port, {"drop": null}]]), "dropped");
        check(json!([[port, {"drop": null}], [{"accept": null}]]), "perhaps");
        check(json!([[{"vmap": {"key": {}, "data": "@m"}}]]), "perhaps");
        check(json!([[{"xt": {"type": "match", "name": "set"}}, {"accept": null}]]), "perhaps");
        check(json!([[{"jump": {"target": "NOWHERE"}}]]), "perhaps");
        check(json!([[of("iifname", json!("@nosuchset")), {"accept": null}]]), "perhaps");
        check(
            json!([[{"xt": {"type": "match", "name": "comment"}}, {"xt": {"type": "target", "name": "REJECT"}}], [{"accept": null}]]),
            "dropped",
        );
        check(json!([[{"limit": {"rate": 1}}, {"accept": null}]]), "perhaps");
    }

    #[test]
    fn a_chain_that_calls_itself_ends() {
        let again = json!([{"jump": {"target": "FORWARD"}}]);
        check(json!([again]), "perhaps");
        check(json!([again, again, again]), "perhaps");
    }

    /// The work does not grow with the number of ways through the chains, but with their size.
    #[test]
    fn chains_that_call_each_other_many_times_are_not_followed_for_ever() {
        let chains: Vec<String> = (0..DEPTH_MAX).map(|depth| format!("c{depth}")).collect();
        let calls = |depth: usize| json!([[{"jump": {"target": format!("c{depth}")}}], [{"jump": {"target": format!("c{depth}")}}]]);
        let mut rules: Vec<(&str, Value)> =
            (1..).zip(&chains).map(|(next, name)| (name.as_str(), calls(next))).collect();
        rules.push(("FORWARD", calls(0)));
        let firewall = firewall(&rules);
        let rules = 2 * (DEPTH_MAX + 1);
        assert!(Ruleset::of(&firewall).steps_max() < 2_000 + 100 * rules, "no more than the rules are worth");
        assert!(fate(&firewall).may_pass, "what was not followed to its end may do anything");
    }

    /// Each call looked for its chain among all of them.
    #[test]
    fn a_chain_is_found_among_many() {
        let accept = json!([[{"accept": null}]]);
        let names: Vec<String> = (0..3_000).map(|number| format!("c{number}")).collect();
        let calls: Vec<Value> = names
            .iter()
            .rev()
            .map(|name| json!([of("iifname", json!("x")), {"jump": {"target": name}}]))
            .collect();
        let mut chains: Vec<(&str, Value)> =
            names.iter().map(|name| (name.as_str(), accept.clone())).collect();
        let last = json!([{"jump": {"target": "c2999"}}]);
        chains.push(("FORWARD", Value::from([calls, vec![last]].concat())));
        let fate = fate(&firewall(&chains));
        assert!(fate.may_pass && fate.dropped_by.is_empty(), "{fate:?}");
    }

    #[test]
    fn who_drops_is_named_and_what_nobody_reaches_is_forgotten() {
        let firewall = firewall(&[("UNUSED", json!([[{"drop": null}]])), ("FORWARD", json!([]))]);
        assert_eq!(firewall.chains.len(), 1);
        let named: Vec<String> = fate(&firewall).dropped_by.iter().map(ToString::to_string).collect();
        assert_eq!(named, ["chain FORWARD of table ip filter: policy drop"]);
        let text = serde_json::to_string(&firewall).unwrap();
        assert_eq!(serde_json::from_str::<Firewall>(&text).unwrap(), firewall);
    }

    /// What may drop a packet is not what does.
    #[test]
    fn what_only_may_drop_is_kept_apart() {
        let port = json!({"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 80}});
        let called = json!([[{"drop": null}]]);
        let chains = [
            ("CALLED", called),
            ("FORWARD", json!([[port, {"drop": null}], [port, {"jump": {"target": "CALLED"}}]])),
        ];
        let fate = fate(&firewall(&chains));
        let named: Vec<String> = fate.dropped_by.iter().map(ToString::to_string).collect();
        assert_eq!(named, ["chain FORWARD of table ip filter: policy drop"]);
        assert_eq!(fate.perhaps_dropped_by.len(), 2, "{fate:?}");
    }

    #[test]
    fn ports_and_protocols_are_followed_where_they_are_known() {
        let udp = |field: &str, right: Value| json!({"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": field}}, "right": right}});
        let drop = json!({"drop": null});
        let ends = |rule: Value| {
            let chain = json!({"family": "inet", "table": "t", "name": "c", "type": "filter", "hook": "input", "prio": 0});
            let rule = json!({"family": "inet", "table": "t", "chain": "c", "handle": 3, "expr": rule});
            let firewall = Firewall::read(&json!({"nftables": [{"chain": chain}, {"rule": rule}]})).unwrap();
            let packet = Packet {
                from: "192.0.2.1".parse().unwrap(),
                to: "192.0.2.2".parse().unwrap(),
                incoming: Some("eth0"),
                outgoing: None,
                transport: Some(Transport { protocol: "udp", to_port: 4789 }),
            };
            let rules = Ruleset::of(&firewall);
            assert!(fate_of_leaving(&rules, &packet).may_pass, "it does not come by there");
            let fate = fate_of_arriving(&rules, &packet);
            (fate.is_dropped(), !fate.perhaps_dropped_by.is_empty())
        };
        assert_eq!(ends(json!([udp("dport", json!(4789)), drop])), (true, false));
        assert_eq!(
            ends(json!([udp("dport", json!({"set": [{"range": [4000, 5000]}, 80]})), drop])),
            (true, false)
        );
        assert_eq!(ends(json!([udp("dport", json!(80)), drop])), (false, false));
        assert_eq!(ends(json!([udp("sport", json!(80)), drop])), (false, true));
        assert_eq!(ends(json!([of("l4proto", json!("udp")), drop])), (true, false));
        assert_eq!(ends(json!([of("l4proto", json!("tcp")), drop])), (false, false));
        assert_eq!(ends(json!([of("oifname", json!("eth0")), drop])), (false, false));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let words = [
            "match", "xt", "jump", "vmap", "left", "right", "meta", "key", "iifname", "set", "payload",
            "field", "saddr", "ip", "op", "==", "target", "FORWARD", "drop", "accept", "elem", "val",
            "range",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<u64>().prop_map(Value::from),
            proptest::sample::select(words.to_vec()).prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec((proptest::sample::select(words.to_vec()), inner), 0..4).prop_map(
                    |fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
                ),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_ruleset_can_be_walked(rules in proptest::collection::vec(any_json(), 0..6), rest in any_json()) {
            let _ = Firewall::read(&json!({"nftables": rest}));
            let expr = Value::from(rules.clone());
            let _ = fate(&firewall(&[("FORWARD", json!([expr])), ("CALLED", json!([rules]))]));
        }
    }
}
