//! Rulesets as data: the changes between two of them, what holds together, and the text.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::Dice;
use model::IpVersion;
use policy::ruleset::{
    Action, Base, Chain, Change, ConnectionStates, Device, Element, Hook, Icmp, Match, Name, Pattern,
    PortRange, Rule, Ruleset, Set, SetKind, Side, Table, Verdict,
};
use proptest::prelude::*;

fn names(of: &str) -> Vec<Name> {
    (0..4).map(|number| format!("{of}{number}").into()).collect()
}

fn set(dice: &mut Dice) -> Set {
    let kinds = [SetKind::Addresses(IpVersion::V4), SetKind::Networks(IpVersion::V6), SetKind::Ports];
    let kind = *dice.one_of(&kinds);
    let element = |number: u16| match kind {
        SetKind::Networks(_) => Element::Network(format!("fd00:{number:x}::/32").parse().unwrap()),
        SetKind::Ports => Element::Ports(PortRange { first: number * 10, last: number * 10 + 5 }),
        _ => Element::Address(format!("10.0.0.{number}").parse().unwrap()),
    };
    let all: Vec<Element> = (0..5).map(element).collect();
    Set { kind, elements: dice.some_of(&all).into_iter().collect() }
}

/// A rule that refers only to what the table has.
fn rule(dice: &mut Dice, table: &Table, chains: &[Name]) -> Rule {
    let counters: Vec<Name> = table.counters.iter().cloned().collect();
    let maps: Vec<Name> = table.maps.keys().cloned().collect();
    let sets: Vec<(&Name, &Set)> = table.sets.iter().collect();
    let mut rule = Rule::default();
    if !sets.is_empty() && dice.once_in(2) {
        let (name, set) = *dice.one_of(&sets);
        rule.matches.push(match set.kind {
            SetKind::Ports => Match::PortInSet { side: Side::Source, set: name.clone(), negated: false },
            SetKind::Networks(version) | SetKind::Addresses(version) | SetKind::AddressPorts(version) => {
                Match::AddressInSet {
                    side: Side::Source,
                    version,
                    set: name.clone(),
                    negated: dice.once_in(2),
                }
            }
        });
    }
    if !counters.is_empty() && dice.once_in(2) {
        rule.actions.push(Action::Count(dice.one_of(&counters).clone()));
    }
    rule.actions.push(match dice.number(4) {
        0 if !chains.is_empty() => Action::Verdict(Verdict::Jump(dice.one_of(chains).clone())),
        1 if !maps.is_empty() => Action::Lookup { end: Device::Input, map: dice.one_of(&maps).clone() },
        2 => Action::Verdict(Verdict::Drop),
        _ => Action::Verdict(Verdict::Accept),
    });
    rule
}

fn table(dice: &mut Dice) -> Table {
    let chains = dice.some_of(&names("chain"));
    let mut table =
        Table { counters: dice.some_of(&names("count")).into_iter().collect(), ..Table::default() };
    table.sets = dice.some_of(&names("set")).into_iter().map(|name| (name, set(dice))).collect();
    for map in dice.some_of(&names("map")) {
        let devices = dice.some_of(&names("cali")).into_iter();
        let elements = devices.filter_map(|device| {
            let chain = (!chains.is_empty()).then(|| dice.one_of(&chains).clone())?;
            Some((device, if dice.once_in(3) { Verdict::Drop } else { Verdict::Goto(chain) }))
        });
        let elements = elements.collect();
        table.maps.insert(map, elements);
    }
    for name in &chains {
        let bases = [
            None,
            None,
            Some(Base { hook: Hook::Input, priority: 0 }),
            Some(Base { hook: Hook::Forward, priority: -5 }),
        ];
        let base = *dice.one_of(&bases);
        let rules = (0..dice.number(4)).map(|_| rule(dice, &table, &chains)).collect();
        table.chains.insert(name.clone(), Chain { base, rules });
    }
    table
}

fn ruleset(dice: &mut Dice) -> Ruleset {
    let tables: Vec<Name> = vec!["plumb-policy".into(), "other".into()];
    Ruleset { tables: dice.some_of(&tables).into_iter().map(|name| (name, table(dice))).collect() }
}

proptest! {
    #[test]
    fn changes_lead_from_any_ruleset_to_any_other(seed: u64) {
        let mut dice = Dice::new(seed);
        let (mut held, wanted) = (ruleset(&mut dice), ruleset(&mut dice));
        for table in held.tables.values().chain(wanted.tables.values()) {
            prop_assert_eq!(table.faults(), Vec::<String>::new());
        }
        let changes = held.changes_to(&wanted);
        prop_assert_eq!(held.apply(&changes), Ok(()), "{}", changes.iter().map(|c| format!("{c}\n")).collect::<String>());
        prop_assert_eq!(&held, &wanted);
        prop_assert_eq!(held.changes_to(&wanted), Vec::new());
    }
}

fn with_chain(rules: Vec<Rule>) -> Ruleset {
    let chains = BTreeMap::from([
        (Name::from("forward"), Chain { base: Some(Base { hook: Hook::Forward, priority: 0 }), rules }),
        (Name::from("web"), Chain::default()),
    ]);
    Ruleset { tables: BTreeMap::from([(Name::from("t"), Table { chains, ..Table::default() })]) }
}

#[test]
fn only_what_differs_changes() {
    let old = with_chain(vec![Rule::always(Verdict::Jump("web".into()))]);
    let mut new = old.clone();
    let table = new.tables.get_mut("t").unwrap();
    let addresses = ["10.0.0.1", "10.0.0.2"].map(|text| Element::Address(text.parse().unwrap()));
    table
        .sets
        .insert("s".into(), Set { kind: SetKind::Addresses(IpVersion::V4), elements: addresses.into() });
    let text = |changes: &[Change]| changes.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        text(&old.changes_to(&new)),
        ["add set inet t s { type ipv4_addr }", "add element inet t s { 10.0.0.1, 10.0.0.2 }"]
    );
    let mut newer = new.clone();
    newer.tables.get_mut("t").unwrap().sets.get_mut("s").unwrap().elements.pop_first();
    assert_eq!(text(&new.changes_to(&newer)), ["delete element inet t s { 10.0.0.1 }"]);
}

#[test]
fn what_the_kernel_refuses_is_refused() {
    let ruleset = with_chain(vec![Rule::always(Verdict::Jump("web".into()))]);
    let table: Name = "t".into();
    let network = |text: &str| Element::Network(text.parse().unwrap());
    let networks = |elements: &[&str]| Change::AddElements {
        table: table.clone(),
        set: "s".into(),
        elements: elements.iter().map(|text| network(text)).collect(),
    };
    let add =
        Change::AddSet { table: table.clone(), set: "s".into(), kind: SetKind::Networks(IpVersion::V4) };
    for (changes, reason) in [
        (
            vec![Change::DeleteChain { table: table.clone(), chain: "web".into() }],
            "a rule of chain forward refers to it",
        ),
        (vec![Change::AddTable { table: table.clone() }], "the table exists"),
        (vec![networks(&["10.0.0.0/8"])], "there is no such set"),
        (
            vec![add.clone(), networks(&["10.0.0.0/8", "10.1.0.0/16"])],
            "an element overlaps with one that the set holds",
        ),
        (
            vec![add.clone(), networks(&["10.1.0.0/16", "10.0.0.0/8"])],
            "an element overlaps with one that the set holds",
        ),
        (vec![add.clone(), networks(&["fd00::/8"])], "an element does not fit the set"),
        (vec![add, networks(&["0.0.0.0/0"])], "an element does not fit the set"),
        (
            vec![Change::AddRules {
                table: table.clone(),
                chain: "web".into(),
                rules: vec![Rule::always(Verdict::Goto("gone".into()))],
            }],
            "chain gone does not exist",
        ),
    ] {
        let refusal = ruleset.clone().apply(&changes).unwrap_err();
        assert_eq!(refusal.reason, reason, "{}", refusal.change);
    }
}

#[test]
fn a_table_that_does_not_hold_together_says_why() {
    let lookup = Rule::new(vec![], vec![Action::Lookup { end: Device::Output, map: "m".into() }]);
    let mut table = with_chain(vec![lookup]).tables.remove("t").unwrap();
    let networks =
        ["10.0.0.0/8", "10.0.0.0/16", "10.1.0.0/16"].map(|text| Element::Network(text.parse().unwrap()));
    table.sets.insert(
        "s".into(),
        Set { kind: SetKind::Networks(IpVersion::V4), elements: BTreeSet::from(networks) },
    );
    assert_eq!(
        table.faults(),
        ["chain forward, rule 0: map m does not exist", "set s: 10.0.0.0/8 and 10.0.0.0/16 overlap",]
    );
}

#[test]
fn the_text_reads_like_nft() {
    let established = ConnectionStates { established: true, related: true, ..ConnectionStates::default() };
    let rules = vec![
        Rule::new(
            vec![
                Match::Device { end: Device::Input, is: Pattern::StartsWith("cali".into()) },
                Match::Connection(established),
            ],
            vec![Action::Count("c/x".into()), Action::Verdict(Verdict::Accept)],
        ),
        Rule::new(
            vec![
                Match::Family(IpVersion::V4),
                Match::Protocol { protocol: 1, negated: false },
                Match::Icmp { icmp: Icmp { kind: 8, code: Some(0) }, negated: true },
                Match::AddressInNetwork {
                    side: Side::Source,
                    network: "10.0.0.0/8".parse().unwrap(),
                    negated: true,
                },
                Match::Mark { mask: 0x30000, value: 0x10000, negated: false },
            ],
            vec![Action::SetMark { mask: 0x30000, value: 0x20000 }],
        )
        .commented("knp/shop/web 0"),
    ];
    assert_eq!(
        with_chain(rules).to_string(),
        "table inet t {\n\tchain forward {\n\t\ttype filter hook forward priority 0; policy accept;\n\
         \t\tiifname \"cali*\" ct state established,related counter name \"c/x\" accept\n\
         \t\tmeta nfproto ipv4 meta l4proto icmp not icmp type 8 icmp code 0 ip saddr != 10.0.0.0/8 \
         meta mark & 0x30000 == 0x10000 meta mark set meta mark & 0xfffcffff | 0x20000 comment \"knp/shop/web 0\"\n\
         \t}\n\tchain web {\n\t}\n}\n"
    );
}
