//! `nft list ruleset`: tables with their chains, and rules in nft's own words.

use std::net::IpAddr;

use evidence::firewall::{Act, Chain, Firewall, Hook, Match, Place, Range, Rule};
use evidence::{Origin, Sighted};

/// Of a ruleset with more chains and rules than this none is read: a rule that was left out could be the one that matters.
pub(crate) const RULES_MAX: usize = 100_000;
/// No tool writes more into one rule. What is beyond may hold or not.
const MATCHES_MAX: usize = 64;

/// Reads the lines of a ruleset. A table counts only when its end was seen.
#[derive(Debug, Default)]
pub(crate) struct NftReader {
    /// Family and name.
    table: Option<(String, String)>,
    chain: Option<Chain>,
    /// Braces that are open in the table besides a chain's: a set, a map, a counter.
    depth: usize,
    pending: Vec<Chain>,
    done: Vec<Chain>,
    count: usize,
    first: Option<Origin>,
}

impl NftReader {
    /// Takes in a line. `false`: it is none of a ruleset.
    pub(crate) fn line(&mut self, text: &str, origin: impl Fn() -> Origin) -> bool {
        let text = text.trim();
        if self.table.is_none() {
            let Some(table) = table(text) else { return false };
            self.first.get_or_insert_with(origin);
            self.table = Some(table);
            return true;
        }
        if self.depth > 0 {
            self.depth = (self.depth + text.matches('{').count()).saturating_sub(text.matches('}').count());
        } else if text == "}" {
            self.close();
        } else if let Some(chain) = &mut self.chain {
            self.count += 1;
            if self.count <= RULES_MAX {
                chain_line(text, chain);
            }
        } else if let Some(name) = text.strip_prefix("chain ").and_then(|rest| rest.strip_suffix(" {")) {
            self.count += 1;
            let (family, table) = self.table.clone().unwrap_or_default();
            self.chain = Some(Chain { family, table, name: name.to_owned(), ..Chain::default() });
        } else if text.ends_with('{') {
            self.depth = 1;
        }
        true
    }

    fn close(&mut self) {
        match self.chain.take() {
            Some(chain) if self.pending.len() < RULES_MAX => self.pending.push(chain),
            Some(_) => {}
            None => {
                self.done.append(&mut self.pending);
                self.table = None;
            }
        }
    }

    pub(crate) fn is_beyond_limit(&self) -> bool {
        self.count > RULES_MAX
    }

    /// Whether a table has begun, ended or not.
    pub(crate) fn has_begun(&self) -> bool {
        self.first.is_some()
    }

    /// What was read of whole tables.
    pub(crate) fn finish(self) -> Option<Sighted<Firewall>> {
        if self.done.is_empty() || self.is_beyond_limit() {
            return None;
        }
        let origin = match self.first? {
            Origin::File { name, line, .. } => Origin::File { name, line, text: None },
            other => other,
        };
        Some(Sighted::new(Firewall { chains: self.done, has_legacy_rules: false }, origin))
    }
}

/// `table inet firewalld {`, or with a comment behind it.
fn table(text: &str) -> Option<(String, String)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ["table", family, name, "{", ..] = words.as_slice() else { return None };
    let is_family = matches!(*family, "ip" | "ip6" | "inet" | "arp" | "bridge" | "netdev");
    is_family.then(|| ((*family).to_owned(), (*name).to_owned()))
}

fn chain_line(text: &str, chain: &mut Chain) {
    if let Some(hook) = text.strip_prefix("type ") {
        chain.hook = hook_of(hook);
    } else if !text.is_empty() && !text.starts_with('#') && !text.starts_with("comment ") {
        let handle = chain.rules.len() as u64 + 1;
        chain.rules.push(Rule { handle, ..rule(text) });
    }
}

/// `filter hook forward priority filter + 10; policy drop;`
fn hook_of(text: &str) -> Option<Hook> {
    let words: Vec<&str> = text.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    let after = |name: &str| words.iter().skip_while(move |word| **word != name).nth(1).copied();
    let place = match after("hook")? {
        "prerouting" => Place::Prerouting,
        "input" => Place::Input,
        "forward" => Place::Forward,
        "output" => Place::Output,
        "postrouting" => Place::Postrouting,
        _ => return None,
    };
    let mut rest = words.iter().skip_while(|word| **word != "priority").skip(1);
    let base = match rest.next().copied()? {
        "raw" => -300,
        "mangle" => -150,
        "dstnat" => -100,
        "filter" => 0,
        "security" => 50,
        "srcnat" => 100,
        number => number.parse().ok()?,
    };
    let by = |sign: i64, number: Option<&&str>| {
        number.and_then(|number| number.parse::<i64>().ok()).map(|n| sign * n)
    };
    let offset = match rest.next().copied() {
        Some("+") => by(1, rest.next()),
        Some("-") => by(-1, rest.next()),
        _ => None,
    };
    Some(Hook {
        place,
        is_nat: words.first() == Some(&"nat"),
        priority: base + offset.unwrap_or_default(),
        drops_the_rest: after("policy") == Some("drop"),
    })
}

/// The words of a rule, one after the other.
struct Words<'t> {
    words: Vec<&'t str>,
    place: usize,
}

impl<'t> Words<'t> {
    fn next(&mut self) -> Option<&'t str> {
        let word = self.words.get(self.place).copied();
        self.place += 1;
        word
    }

    /// `!= `, if it comes next.
    fn is_not(&mut self) -> bool {
        let sign = self.words.get(self.place).copied();
        let is_sign = matches!(sign, Some("!=" | "=="));
        self.place += usize::from(is_sign);
        sign == Some("!=")
    }

    /// A value, or those in braces. `None`: a named set, or something else that is not known here.
    fn values(&mut self) -> Option<Vec<&'t str>> {
        let first = self.next()?;
        if first != "{" {
            return (!first.starts_with('@')).then(|| first.split(',').collect());
        }
        let mut values = Vec::new();
        loop {
            match self.next()? {
                "}" => return Some(values),
                value => values.push(value.trim_end_matches(',')),
            }
        }
    }
}

fn rule(text: &str) -> Rule {
    let text = text.split(" # handle ").next().unwrap_or(text);
    let mut words = Words { words: text.split_whitespace().collect(), place: 0 };
    let mut rule = Rule::default();
    while let Some(word) = words.next() {
        if let Some(act) = act(word, &mut words) {
            rule.act = act;
            continue;
        }
        let found = matching(word, &mut words);
        if let Some(found) = found.filter(|_| rule.matches.len() < MATCHES_MAX) {
            rule.matches.push(found);
        }
        if rule.matches.len() == MATCHES_MAX {
            rule.matches.pop();
            rule.matches.push(Match::Unknown);
        }
    }
    rule
}

/// What a rule does, at its end.
fn act(word: &str, words: &mut Words<'_>) -> Option<Act> {
    let act = match word {
        "accept" => Act::Accept,
        "drop" | "reject" => {
            // What it answers with says nothing here.
            words.place = words.words.len();
            Act::Drop
        }
        "return" => Act::Return,
        "jump" => Act::Jump(words.next()?.to_owned()),
        "goto" => Act::Goto(words.next()?.to_owned()),
        "masquerade" | "snat" => {
            words.place = words.words.len();
            Act::NewSource
        }
        "dnat" | "redirect" | "queue" | "tproxy" | "vmap" => {
            words.place = words.words.len();
            Act::Anything
        }
        _ => return None,
    };
    Some(act)
}

/// A condition, if the word begins one.
fn matching(word: &str, words: &mut Words<'_>) -> Option<Match> {
    match word {
        "counter" => {
            // `packets 1 bytes 2`
            let has_numbers = words.words.get(words.place).is_some_and(|next| *next == "packets");
            words.place += if has_numbers { 4 } else { 0 };
            None
        }
        "comment" => {
            words.place = words.words.len();
            None
        }
        "log" | "limit" | "xt" | "fib" | "rt" | "socket" => Some(Match::Unknown),
        "iifname" | "oifname" | "iif" | "oif" => Some(device(word.starts_with('i'), words)),
        "ip" | "ip6" => Some(of_header(word == "ip", words)),
        "udp" | "tcp" | "sctp" => Some(port(word, words)),
        "meta" => of_meta(words),
        "ct" => Some(of_connection(words)),
        // What stands between known words, or behind an unknown one.
        _ => Some(Match::Unknown),
    }
}

fn device(is_incoming: bool, words: &mut Words<'_>) -> Match {
    let is_not = words.is_not();
    let Some(names) = words.values() else { return Match::Unknown };
    let names = names.into_iter().map(|name| name.trim_matches('"').to_owned()).collect();
    Match::Device { is_incoming, is_not, names }
}

fn of_header(is_ipv4: bool, words: &mut Words<'_>) -> Match {
    let field = words.next().unwrap_or_default();
    let is_not = words.is_not();
    let values = words.values();
    match (field, values) {
        ("saddr" | "daddr", Some(values)) => {
            let ranges: Option<Vec<Range>> = values.into_iter().map(range).collect();
            let found = ranges.map(|ranges| Match::Address { is_source: field == "saddr", is_not, ranges });
            found.unwrap_or(Match::Unknown)
        }
        ("protocol" | "nexthdr", Some(values)) if is_ipv4 || field == "nexthdr" => protocol(is_not, &values),
        _ => Match::Unknown,
    }
}

fn protocol(is_not: bool, values: &[&str]) -> Match {
    Match::Protocol { is_not, names: values.iter().map(|name| (*name).to_owned()).collect() }
}

fn port(protocol: &str, words: &mut Words<'_>) -> Match {
    let field = words.next().unwrap_or_default();
    let is_not = words.is_not();
    let ports = words.values().and_then(|values| values.into_iter().map(ports).collect::<Option<Vec<_>>>());
    match (field, ports) {
        ("dport" | "sport", Some(ranges)) => {
            Match::Port { protocol: protocol.to_owned(), is_source: field == "sport", is_not, ranges }
        }
        _ => Match::Unknown,
    }
}

/// `meta l4proto tcp`, `meta mark & 0x1 == 0x1`, `meta mark set …`.
fn of_meta(words: &mut Words<'_>) -> Option<Match> {
    match words.next()? {
        "l4proto" => {
            let is_not = words.is_not();
            Some(words.values().map_or(Match::Unknown, |values| protocol(is_not, &values)))
        }
        "iifname" => Some(device(true, words)),
        "oifname" => Some(device(false, words)),
        "nfproto" => match words.next()? {
            "ipv4" => Some(Match::IsIpv4(true)),
            "ipv6" => Some(Match::IsIpv4(false)),
            _ => Some(Match::Unknown),
        },
        "mark" => Some(mark(words)),
        _ => {
            words.place += 1;
            Some(Match::Unknown)
        }
    }
}

fn mark(words: &mut Words<'_>) -> Match {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let rest = words.words.get(words.place..).unwrap_or_default();
    let (found, taken) = match rest {
        ["&", mask, sign @ ("==" | "!="), value, ..] => (
            number(mask).zip(number(value)).map(|(mask, value)| Match::Mark {
                is_not: *sign == "!=",
                mask,
                value,
            }),
            4,
        ),
        ["set", ..] => (None, rest.iter().position(|word| is_verdict(word)).unwrap_or(rest.len())),
        [value, ..] => {
            (number(value).map(|value| Match::Mark { is_not: false, mask: u64::from(u32::MAX), value }), 1)
        }
        [] => (None, 0),
    };
    words.place += taken;
    found.unwrap_or(Match::Unknown)
}

fn is_verdict(word: &str) -> bool {
    matches!(word, "accept" | "drop" | "return" | "jump" | "goto" | "reject")
}

/// `ct state { established, related }`, `ct state established,related`, `ct status dnat`.
fn of_connection(words: &mut Words<'_>) -> Match {
    let field = words.next().unwrap_or_default();
    let is_not = words.is_not();
    match (field, words.values()) {
        ("state", Some(states)) => {
            Match::State { is_not, states: states.into_iter().map(str::to_owned).collect() }
        }
        // The first packet of a connection to a service is, that of one to a pod is not.
        ("status", Some(status)) if status.contains(&"dnat") && !is_not => Match::NotForNew,
        _ => Match::Unknown,
    }
}

fn range(text: &str) -> Option<Range> {
    if let Some((from, to)) = text.split_once('-') {
        return Some(Range(from.parse().ok()?, to.parse().ok()?));
    }
    let net: Option<ipnet::IpNet> = text.parse().ok();
    net.map(|net| Range::from(net.trunc())).or_else(|| {
        let address: IpAddr = text.parse().ok()?;
        Some(Range(address, address))
    })
}

fn ports(text: &str) -> Option<(u16, u16)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    Some((from.parse().ok()?, to.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<Firewall> {
        let mut reader = NftReader::default();
        for line in text.lines() {
            reader.line(line, || Origin::file("f"));
        }
        reader.finish().map(|firewall| firewall.seen)
    }

    const RULESET: &str = "table inet firewalld {\n\tset s {\n\t\ttype ipv4_addr\n\t\telements = { 10.0.0.1,\n\t\t             10.0.0.2 }\n\t}\n\
        \tchain filter_FORWARD {\n\t\ttype filter hook forward priority filter + 10; policy accept;\n\
        \t\tct state { established, related } accept\n\t\tiifname \"lo\" accept\n\t\tip saddr @s accept\n\
        \t\tjump zones\n\t\treject with icmpx admin-prohibited\n\t}\n\n\tchain zones {\n\
        \t\tmeta l4proto { icmp, ipv6-icmp } accept\n\t\tip daddr { 10.0.0.0/8, 192.0.2.1-192.0.2.9 } udp dport 4789 counter packets 1 bytes 2 drop # handle 7\n\
        \t\tmeta mark & 0x00010000 == 0x00010000 accept\n\t}\n}\n";

    #[test]
    fn chains_and_rules_are_read() {
        let chains = read(RULESET).unwrap().chains;
        assert_eq!(chains.len(), 2);
        let hook = chains[0].hook.as_ref().unwrap();
        assert_eq!((hook.place, hook.priority, hook.drops_the_rest), (Place::Forward, 10, false));
        let acts: Vec<&Act> = chains[0].rules.iter().map(|rule| &rule.act).collect();
        assert_eq!(
            acts,
            [&Act::Accept, &Act::Accept, &Act::Accept, &Act::Jump("zones".to_owned()), &Act::Drop]
        );
        assert_eq!(
            chains[0].rules[0].matches,
            [Match::State { is_not: false, states: vec!["established".to_owned(), "related".to_owned()] }]
        );
        assert_eq!(chains[0].rules[2].matches, [Match::Unknown]);
        assert!(chains[0].rules[4].matches.is_empty());
        let drop = &chains[1].rules[1];
        assert_eq!((drop.matches.len(), &drop.act), (2, &Act::Drop), "{drop:?}");
        assert_eq!(
            chains[1].rules[2].matches,
            [Match::Mark { is_not: false, mask: 0x10000, value: 0x10000 }]
        );
    }

    #[test]
    fn a_table_without_its_end_says_nothing() {
        assert_eq!(read(RULESET.trim_end().trim_end_matches('}')), None);
    }

    proptest! {
        #[test]
        fn any_lines_can_be_fed(lines in proptest::collection::vec("(table ip t \\{|chain c \\{|\\}|type filter hook|ip saddr|\\{|meta mark|set|ct state|udp dport|!=|[0-9./-]{1,9}|accept|drop|jump|counter packets| ){0,12}", 0..12)) {
            read(&lines.join("\n"));
        }
    }
}
