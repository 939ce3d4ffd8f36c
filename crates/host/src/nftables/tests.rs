//! Against the kernel, in a namespace of the test's own, and against what the `nft` program reads there.

use std::process::Command;

use model::IpVersion;
use policy::ruleset::*;
use serde_json::Value;

use super::Nftables;
use super::object;
use super::ruleset::ApplyError;
use crate::netns::tests::new_namespace;
use crate::{Monitor, TableTouched};

const TABLE: &str = "plumb-test";

/// Runs a test in a new namespace, or says why not.
fn in_namespace(test: &str, run: impl FnOnce(&mut Nftables) + Send) {
    if !rustix::process::geteuid().is_root() {
        testkit::skip(test, "it needs root, to make a network namespace");
        return;
    }
    new_namespace().visit(|| run(&mut Nftables::open().unwrap())).unwrap();
}

fn nft(words: &[&str]) -> String {
    let output = Command::new("nft").args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Without white space, which `nft` has its own ideas about.
fn listed() -> String {
    nft(&["list", "ruleset"]).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn name(text: &str) -> Name {
    text.into()
}

fn accept() -> Vec<Action> {
    vec![Action::Verdict(Verdict::Accept)]
}

/// Every kind of match there is.
fn all_matches() -> Vec<Vec<Match>> {
    let mut all = vec![
        vec![Match::Device { end: Device::Input, is: Pattern::Exactly(name("cali0123456789a")) }],
        vec![Match::Device { end: Device::Output, is: Pattern::StartsWith(name("cali")) }],
        vec![Match::Connection(ConnectionStates {
            established: true,
            related: true,
            ..ConnectionStates::default()
        })],
        vec![Match::Connection(ConnectionStates { invalid: true, ..ConnectionStates::default() })],
        vec![Match::Dnat(true)],
        vec![Match::Dnat(false)],
        vec![Match::Mark { mask: 0xff00, value: 0x1200, negated: false }],
        vec![Match::Mark { mask: 1, value: 0, negated: true }],
    ];
    for negated in [false, true] {
        for side in [Side::Source, Side::Destination] {
            all.extend(of_side(side, negated));
        }
        for (protocol, code) in [(1, None), (1, Some(3)), (58, Some(0))] {
            let icmp = Match::Icmp { icmp: Icmp { kind: 3, code }, negated };
            all.push(vec![Match::Protocol { protocol, negated: false }, icmp]);
        }
        all.push(vec![Match::Protocol { protocol: 132, negated }]);
    }
    all
}

fn of_side(side: Side, negated: bool) -> Vec<Vec<Match>> {
    let udp = Match::Protocol { protocol: 17, negated: false };
    let network = |text: &str| Match::AddressInNetwork { side, network: text.parse().unwrap(), negated };
    let mut all = vec![
        vec![Match::Family(IpVersion::V4), network("10.1.0.0/16")],
        vec![Match::Family(IpVersion::V4), network("10.1.2.3/32")],
        vec![Match::Family(IpVersion::V4), network("10.128.0.0/9")],
        vec![Match::Family(IpVersion::V6), network("fd00:1::/35")],
        vec![udp.clone(), Match::Ports { side, range: PortRange { first: 80, last: 90 }, negated }],
        vec![udp.clone(), Match::Ports { side, range: PortRange::single(53), negated }],
        vec![udp.clone(), Match::PortInSet { side, set: name("ports"), negated }],
    ];
    for (version, digit) in [(IpVersion::V4, 4), (IpVersion::V6, 6)] {
        for kind in ["addresses", "networks"] {
            let set = name(&format!("{kind}-{digit}"));
            all.push(vec![Match::Family(version), Match::AddressInSet { side, version, set, negated }]);
        }
        let set = name(&format!("named-{digit}"));
        all.push(vec![
            Match::Family(version),
            udp.clone(),
            Match::AddressPortInSet { side, version, set, negated },
        ]);
    }
    all
}

fn all_actions() -> Vec<Vec<Action>> {
    let limit = Limit { packets: 5, per: LimitUnit::Minute, burst: 7 };
    let decide = |verdict: Verdict| vec![Action::Verdict(verdict)];
    vec![
        accept(),
        decide(Verdict::Drop),
        decide(Verdict::Return),
        decide(Verdict::Jump(name("pi/knp/shop/allow.web-1"))),
        decide(Verdict::Goto(name("pi/knp/shop/allow.web-1"))),
        decide(Verdict::Reject(Rejection::PortUnreachable)),
        vec![Action::Count(name("denied/a.b-c")), Action::Verdict(Verdict::Drop)],
        vec![Action::Limit(limit), Action::Log { prefix: "denied default|x ".into(), level: LogLevel::Warn }],
        vec![Action::Log { prefix: "calico-packet: ".into(), level: LogLevel::Info }],
        vec![Action::SetMark { mask: 0x30000, value: 0x10000 }],
        vec![Action::Trace],
        vec![Action::Lookup { end: Device::Input, map: name("from-pods") }],
        vec![Action::Lookup { end: Device::Output, map: name("from-pods") }, Action::Verdict(Verdict::Drop)],
    ]
}

fn members(texts: &[&str]) -> impl Iterator<Item = Element> {
    texts.iter().map(|text| match text.contains('/') {
        true => Element::Network(text.parse().unwrap()),
        false => Element::Address(text.parse().unwrap()),
    })
}

fn sets() -> Vec<(&'static str, SetKind, Vec<Element>)> {
    let named = |address: &str, protocol, port| {
        Element::AddressPort(AddressPort { address: address.parse().unwrap(), protocol, port })
    };
    let (v4, v6) = (IpVersion::V4, IpVersion::V6);
    // Some of these touch each other, and some reach the last address of all.
    let networks_4 =
        ["0.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9", "10.1.0.0/16", "224.0.0.0/3", "192.0.2.4/31"];
    let networks_4: Vec<&str> = networks_4.into_iter().filter(|text| *text != "10.1.0.0/16").collect();
    vec![
        ("addresses-4", SetKind::Addresses(v4), members(&["10.0.0.1", "10.0.0.2"]).collect()),
        ("addresses-6", SetKind::Addresses(v6), members(&["fd00::1"]).collect()),
        ("networks-4", SetKind::Networks(v4), members(&networks_4).collect()),
        ("networks-6", SetKind::Networks(v6), members(&["fd00::/8", "fe00::/7", "2001:db8::/33"]).collect()),
        ("named-4", SetKind::AddressPorts(v4), vec![named("10.0.0.1", 6, 80), named("10.0.0.1", 17, 53)]),
        ("named-6", SetKind::AddressPorts(v6), vec![named("fd00::1", 132, 65535)]),
        (
            "ports",
            SetKind::Ports,
            vec![
                Element::Ports(PortRange { first: 0, last: 79 }),
                Element::Ports(PortRange::single(443)),
                Element::Ports(PortRange { first: 60000, last: 65535 }),
            ],
        ),
        ("empty", SetKind::Networks(v4), Vec::new()),
    ]
}

/// Something of everything.
fn rich() -> Ruleset {
    let mut table = Table { counters: [name("denied/a.b-c")].into(), ..Table::default() };
    for (set, kind, elements) in sets() {
        table.sets.insert(name(set), Set { kind, elements: elements.into_iter().collect() });
    }
    let pod: Name = name("pi/knp/shop/allow.web-1");
    let map = [(name("cali1"), Verdict::Goto(pod.clone())), (name("cali0123456789a"), Verdict::Drop)];
    table.maps.insert(name("from-pods"), map.into());
    let matching = all_matches().into_iter().map(|matches| Rule::new(matches, accept()));
    let rules = matching.chain([Rule::always(Verdict::Drop).commented("the end of tier \"default\", é")]);
    table.chains.insert(pod, Chain { base: None, rules: rules.collect() });
    let acting = all_actions().into_iter().map(|actions| Rule::new(Vec::new(), actions));
    let base = Some(Base { hook: Hook::Forward, priority: -1 });
    table.chains.insert(name("forward"), Chain { base, rules: acting.collect() });
    let base = Some(Base { hook: Hook::Prerouting, priority: -300 });
    let rules = vec![
        Rule::new(Vec::new(), vec![Action::NoTrack]),
        Rule::new(
            vec![Match::Protocol { protocol: 6, negated: false }],
            vec![Action::Verdict(Verdict::Reject(Rejection::TcpReset))],
        ),
    ];
    table.chains.insert(name("raw"), Chain { base, rules });
    Ruleset { tables: [(name(TABLE), table)].into() }
}

fn load(nftables: &mut Nftables, ruleset: &Ruleset) {
    let changes = Ruleset::default().changes_to(ruleset);
    nftables.change(&changes, None).unwrap();
}

#[test]
fn the_kernel_gives_back_what_it_was_given() {
    in_namespace("the_kernel_gives_back_what_it_was_given", |nftables| {
        let wanted = rich();
        assert_eq!(wanted.tables[TABLE].faults(), [] as [&str; 0]);
        load(nftables, &wanted);
        let found = nftables.read_back(&[name(TABLE)]).unwrap();
        assert_eq!(found.strange, [] as [&str; 0]);
        assert_eq!(found.ruleset, wanted, "{}\n{}", found.ruleset, wanted);
        assert_eq!(found.ruleset.changes_to(&wanted), []);
    });
}

/// Every element and rule is what `nft` sees as well: who wrote both ends of a code can be wrong twice.
#[test]
fn nft_reads_the_same() {
    in_namespace("nft_reads_the_same", |nftables| {
        load(nftables, &rich());
        let text = listed();
        for part in [
            "type ipv4_addr elements = { 10.0.0.1, 10.0.0.2 }",
            "flags interval elements = { 0.0.0.0/8, 10.0.0.0/9, 10.128.0.0/9, 192.0.2.4/31, 224.0.0.0/3 }",
            "elements = { 2001:db8::/33, fd00::/8, fe00::/7 }",
            "set named-4 { type ipv4_addr . inet_proto . inet_service elements = {",
            "10.0.0.1 . tcp . 80",
            "10.0.0.1 . udp . 53",
            "elements = { fd00::1 . sctp . 65535 }",
            "elements = { 0-79, 443, 60000-65535 }",
            "map from-pods { type ifname : verdict",
            "\"cali1\" : goto pi/knp/shop/allow.web-1",
            "\"cali0123456789a\" : drop",
            "type filter hook forward priority filter - 1; policy accept;",
            "type filter hook prerouting priority raw; policy accept;",
            "iifname \"cali0123456789a\" accept",
            "oifname \"cali*\" accept",
            "ct state established,related accept",
            "ct state invalid accept",
            "ct status dnat accept",
            "meta mark & 0x0000ff00 == 0x00001200 accept",
            "ip saddr 10.1.0.0/16 accept",
            "ip daddr != 10.1.2.3 accept",
            "ip daddr 10.128.0.0/9 accept",
            "ip6 saddr != fd00:1::/35 accept",
            "udp dport 80-90 accept",
            "udp sport != 80-90 accept",
            "udp sport 53 accept",
            "udp dport != @ports accept",
            "ip daddr . meta l4proto . udp dport @named-4 accept",
            "icmp type destination-unreachable icmp code port-unreachable accept",
            "icmpv6 type time-exceeded icmpv6 code no-route accept",
            "ct status ! dnat accept",
            "ip saddr @addresses-4 accept",
            "ip6 daddr != @networks-6 accept",
            "meta l4proto != sctp accept",
            "drop comment \"the end of tier ?default?, é\"",
            "counter name \"denied/a.b-c\" drop",
            "limit rate 5/minute burst 7 packets log prefix \"denied default|x \"",
            "log prefix \"calico-packet: \" level info",
            "meta mark set meta mark & 0xfffdffff | 0x00010000",
            "meta nftrace set 1",
            "iifname vmap @from-pods",
            "reject with tcp reset",
            "notrack",
        ] {
            assert!(text.contains(part), "nft does not show {part:?} in\n{text}");
        }
    });
}

/// From any of these rulesets to any other one, in one step, and each time it is what was wanted.
#[test]
fn differences_lead_there() {
    in_namespace("differences_lead_there", |nftables| {
        let full = rich();
        let mut other = full.clone();
        let table = other.tables.get_mut(TABLE).unwrap();
        let networks = table.sets.get_mut("networks-4").unwrap();
        networks.elements = members(&["10.0.0.0/8", "192.0.2.4/32", "192.0.2.5/32", "128.0.0.0/2"])
            .filter(|element| element.fits(SetKind::Networks(IpVersion::V4)))
            .collect();
        table.chains.get_mut("pi/knp/shop/allow.web-1").unwrap().rules.truncate(3);
        table.sets.insert(name("ports"), Set::new(SetKind::Addresses(IpVersion::V4)));
        let forward = table.chains.get_mut("forward").unwrap();
        forward.base = Some(Base { hook: Hook::Input, priority: 5 });
        table.maps.get_mut("from-pods").unwrap().insert(name("cali2"), Verdict::Goto(name("new")));
        table.chains.insert(name("new"), Chain { base: None, rules: vec![Rule::always(Verdict::Drop)] });
        let all = [Ruleset::default(), full, other];
        let mut held = Ruleset::default();
        for (from, to) in [(0, 1), (1, 2), (2, 1), (1, 0), (0, 2), (2, 0)] {
            assert_eq!(held, all[from]);
            nftables.change(&held.changes_to(&all[to]), None).unwrap();
            let found = nftables.read_back(&[name(TABLE)]).unwrap();
            assert_eq!(found.ruleset, all[to]);
            held = found.ruleset;
        }
    });
}

#[test]
fn a_refusal_names_the_change_and_leaves_all_as_it_was() {
    in_namespace("a_refusal_names_the_change_and_leaves_all_as_it_was", |nftables| {
        load(nftables, &rich());
        let before = nftables.list(TABLE).unwrap();
        let rule = Rule::always(Verdict::Jump(name("nowhere")));
        let changes = [
            Change::AddChain { table: name(TABLE), chain: name("good"), base: None },
            Change::AddRules { table: name(TABLE), chain: name("forward"), rules: vec![rule.clone()] },
            Change::AddRules { table: name(TABLE), chain: name("good"), rules: vec![rule] },
        ];
        let Err(ApplyError::Refused(refused)) = nftables.change(&changes, None) else {
            panic!("it was taken")
        };
        let positions: Vec<_> = refused.iter().map(|refused| refused.position).collect();
        assert_eq!(positions, [Some(1), Some(2)]);
        assert_eq!(
            (refused[0].errno, refused[0].what.as_str()),
            (libc::ENOENT, "add a rule to chain forward")
        );
        assert_eq!(nftables.list(TABLE).unwrap(), before);
        // And the socket is of use as before.
        nftables.change(&changes[..1], None).unwrap();
    });
}

/// Whoever decides by what the kernel had is told that it has something else by now.
#[test]
fn a_change_by_others_is_seen() {
    in_namespace("a_change_by_others_is_seen", |nftables| {
        load(nftables, &rich());
        let found = nftables.read_back(&[name(TABLE)]).unwrap();
        nft(&["add", "table", "inet", "others"]);
        let changes = found.ruleset.changes_to(&Ruleset::default());
        let moved = nftables.change(&changes, Some(found.generation));
        assert!(matches!(moved, Err(ApplyError::Moved)), "{moved:?}");
        assert!(nftables.has_table(TABLE).unwrap());
        let generation = nftables.generation().unwrap();
        assert!(generation > found.generation);
        nftables.change(&changes, Some(generation)).unwrap();
        assert!(!nftables.has_table(TABLE).unwrap() && nftables.has_table("others").unwrap());
    });
}

#[test]
fn what_others_put_into_a_table_is_named() {
    in_namespace("what_others_put_into_a_table_is_named", |nftables| {
        load(nftables, &rich());
        for words in [
            "add rule inet plumb-test forward meta length 7 accept",
            "add chain inet plumb-test nat { type nat hook output priority 0; }",
            "add chain inet plumb-test shut { type filter hook input priority 0; policy drop; }",
            "add set inet plumb-test macs { type ether_addr; }",
            "add map inet plumb-test more { type ipv4_addr : verdict; }",
            "add element inet plumb-test networks-4 { 100.0.0.0-100.0.0.2 }",
        ] {
            nft(&words.split(' ').collect::<Vec<_>>());
            let found = nftables.read_back(&[name(TABLE)]).unwrap();
            assert_ne!(found.strange, [] as [&str; 0], "{words}");
            assert!(
                found.strange.iter().all(|words| words.starts_with("table plumb-test: ")),
                "{:?}",
                found.strange
            );
            nft(&["delete", "table", "inet", TABLE]);
            load(nftables, &rich());
        }
        // A rule that could be ours is read as one.
        nft(&["insert", "rule", "inet", TABLE, "raw", "drop"]);
        let found = nftables.read_back(&[name(TABLE)]).unwrap();
        assert_eq!(found.strange, [] as [&str; 0]);
        assert_eq!(found.ruleset.tables[TABLE].chains["raw"].rules[0], Rule::always(Verdict::Drop));
    });
}

/// Of a hash and of intervals, in one transaction each.
#[test]
fn a_hundred_thousand_members_fit() {
    const COUNT: u32 = 100_000;
    in_namespace("a_hundred_thousand_members_fit", |nftables| {
        let address = |index: u32| std::net::Ipv4Addr::from_bits(0x0a00_0000 + index * 8);
        let addresses = (0..COUNT).map(|index| Element::Address(address(index).into())).collect();
        let network = |index| Element::Network(ipnet::Ipv4Net::new(address(index), 30).unwrap().into());
        let networks = (0..COUNT).map(network).collect();
        let (v4, mut table) = (IpVersion::V4, Table::default());
        table.sets.insert(name("a"), Set { kind: SetKind::Addresses(v4), elements: addresses });
        table.sets.insert(name("n"), Set { kind: SetKind::Networks(v4), elements: networks });
        let wanted = Ruleset { tables: [(name(TABLE), table)].into() };
        load(nftables, &wanted);
        let found = nftables.read_back(&[name(TABLE)]).unwrap();
        assert!(found.ruleset == wanted, "it is another ruleset");
        nftables.change(&wanted.changes_to(&Ruleset::default()), Some(found.generation)).unwrap();
    });
}

/// Rules keep no counters of their own, so a counter outlives them.
#[test]
fn counters_are_read() {
    in_namespace("counters_are_read", |nftables| {
        load(nftables, &rich());
        nft(&["add", "counter", "inet", TABLE, "mine", "packets", "7", "bytes", "700"]);
        let counters = nftables.counters(TABLE).unwrap();
        let mine = object::Counter { name: "mine".to_owned(), packets: 7, bytes: 700 };
        assert!(counters.contains(&mine) && counters.len() == 2, "{counters:?}");
        let json: Value = serde_json::from_str(&nft(&["-j", "list", "counters"])).unwrap();
        let listed = json["nftables"].as_array().unwrap().iter().filter_map(|object| object.get("counter"));
        let names: Vec<&str> = listed.filter_map(|counter| counter["name"].as_str()).collect();
        assert_eq!(names.len(), counters.len());
    });
}

/// Our own doing is no news, and a change of the whole ruleset is one for each table.
#[test]
fn what_others_do_is_announced() {
    in_namespace("what_others_do_is_announced", |nftables| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut monitor = Monitor::open_tables(nftables.port().unwrap()).unwrap();
        let mut heard = Vec::new();
        let mut wait_for = |table: &str, heard: &mut Vec<TableTouched>| {
            let wanted = TableTouched::Table(table.to_owned());
            runtime.block_on(async {
                while !heard.contains(&wanted) {
                    let next = monitor.next(|notice| heard.push(notice));
                    tokio::time::timeout(testkit::PATIENCE, next).await.expect("it is announced").unwrap();
                }
            });
        };
        load(nftables, &rich());
        nft(&["add", "table", "inet", "others"]);
        wait_for("others", &mut heard);
        let others = TableTouched::Table("others".to_owned());
        assert!(heard.iter().all(|touched| *touched == others), "{heard:?}");
        nft(&["delete", "element", "inet", TABLE, "addresses-4", "{ 10.0.0.1 }"]);
        wait_for(TABLE, &mut heard);
        heard.clear();
        nft(&["flush", "ruleset"]);
        wait_for(TABLE, &mut heard);
    });
}
