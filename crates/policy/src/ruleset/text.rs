//! A ruleset as people read it, much as `nft list ruleset` prints it.

use std::fmt::{self, Display, Formatter};

use model::IpVersion;

use super::{
    Action, AddressPort, Base, Chain, Change, ConnectionStates, Device, Element, Hook, Icmp, Limit,
    LimitUnit, LogLevel, Match, Pattern, PortRange, Rejection, Rule, Ruleset, SetKind, Side, Table, Verdict,
};

impl Display for Ruleset {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (name, table) in &self.tables {
            writeln!(f, "table inet {name} {{\n{table}}}")?;
        }
        Ok(())
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for counter in &self.counters {
            writeln!(f, "\tcounter {counter} {{ }}")?;
        }
        for (name, set) in &self.sets {
            write!(f, "\tset {name} {{ {}", set.kind)?;
            if !set.elements.is_empty() {
                write!(f, "; elements = {{ {} }}", joined(&set.elements, ", "))?;
            }
            writeln!(f, " }}")?;
        }
        for (name, map) in &self.maps {
            write!(f, "\tmap {name} {{ type ifname : verdict")?;
            if !map.is_empty() {
                let elements = map.iter().map(|(device, verdict)| format!("\"{device}\" : {verdict}"));
                write!(f, "; elements = {{ {} }}", elements.collect::<Vec<_>>().join(", "))?;
            }
            writeln!(f, " }}")?;
        }
        for (name, chain) in &self.chains {
            write!(f, "\tchain {name} {{\n{chain}\t}}\n")?;
        }
        Ok(())
    }
}

impl Display for Chain {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(base) = self.base {
            writeln!(f, "\t\t{base}")?;
        }
        self.rules.iter().try_for_each(|rule| writeln!(f, "\t\t{rule}"))
    }
}

impl Display for Base {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "type filter hook {} priority {}; policy accept;", self.hook, self.priority)
    }
}

impl Display for Hook {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
            Hook::Postrouting => "postrouting",
        })
    }
}

impl Display for SetKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SetKind::Addresses(version) => write!(f, "type {}", address_type(*version)),
            SetKind::Networks(version) => write!(f, "type {}; flags interval", address_type(*version)),
            SetKind::AddressPorts(version) => {
                write!(f, "type {} . inet_proto . inet_service", address_type(*version))
            }
            SetKind::Ports => f.write_str("type inet_service; flags interval"),
        }
    }
}

fn address_type(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => "ipv4_addr",
        IpVersion::V6 => "ipv6_addr",
    }
}

impl Display for Element {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Element::Address(address) => address.fmt(f),
            Element::Network(network) => network.fmt(f),
            Element::AddressPort(member) => member.fmt(f),
            Element::Ports(range) => range.fmt(f),
        }
    }
}

impl Display for AddressPort {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} . {} . {}", self.address, protocol(self.protocol), self.port)
    }
}

impl Display for PortRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => self.first.fmt(f),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<String> = self.matches.iter().map(ToString::to_string).collect();
        parts.extend(self.actions.iter().map(ToString::to_string));
        parts.extend(self.comment.iter().map(|comment| format!("comment \"{comment}\"")));
        f.write_str(&parts.join(" "))
    }
}

impl Display for Match {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Match::Device { end, is } => write!(f, "{end} {is}"),
            Match::Family(IpVersion::V4) => f.write_str("meta nfproto ipv4"),
            Match::Family(IpVersion::V6) => f.write_str("meta nfproto ipv6"),
            Match::AddressInSet { side, version, set, negated } => {
                write!(f, "{} {side}addr {}@{set}", ip(*version), unless(*negated))
            }
            Match::AddressInNetwork { side, network, negated } => {
                write!(f, "{} {side}addr {}{network}", ip(IpVersion::of(network.addr())), unless(*negated))
            }
            Match::Protocol { protocol: number, negated } => {
                write!(f, "meta l4proto {}{}", unless(*negated), protocol(*number))
            }
            Match::Ports { side, range, negated } => write!(f, "th {side}port {}{range}", unless(*negated)),
            Match::PortInSet { side, set, negated } => write!(f, "th {side}port {}@{set}", unless(*negated)),
            Match::AddressPortInSet { side, version, set, negated } => {
                let addresses = ip(*version);
                write!(f, "{addresses} {side}addr . meta l4proto . th {side}port {}@{set}", unless(*negated))
            }
            Match::Icmp { icmp, negated } => write!(f, "{}{icmp}", if *negated { "not " } else { "" }),
            Match::Connection(states) => write!(f, "ct state {states}"),
            Match::Dnat(true) => f.write_str("ct status dnat"),
            Match::Dnat(false) => f.write_str("ct status & dnat == 0"),
            Match::Mark { mask, value, negated } => {
                write!(f, "meta mark & {mask:#x} {} {value:#x}", if *negated { "!=" } else { "==" })
            }
        }
    }
}

fn ip(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => "ip",
        IpVersion::V6 => "ip6",
    }
}

fn unless(negated: bool) -> &'static str {
    if negated { "!= " } else { "" }
}

fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "ipv6-icmp".to_owned(),
        132 => "sctp".to_owned(),
        136 => "udplite".to_owned(),
        number => number.to_string(),
    }
}

impl Display for Icmp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "icmp type {}", self.kind)?;
        self.code.map_or(Ok(()), |code| write!(f, " icmp code {code}"))
    }
}

impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Device::Input => "iifname",
            Device::Output => "oifname",
        })
    }
}

impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Pattern::Exactly(name) => write!(f, "\"{name}\""),
            Pattern::StartsWith(start) => write!(f, "\"{start}*\""),
        }
    }
}

impl Display for Side {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Source => "s",
            Side::Destination => "d",
        })
    }
}

impl Display for ConnectionStates {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let all = [
            (self.invalid, "invalid"),
            (self.established, "established"),
            (self.related, "related"),
            (self.new, "new"),
            (self.untracked, "untracked"),
        ];
        let set: Vec<&str> = all.into_iter().filter(|(set, _)| *set).map(|(_, word)| word).collect();
        f.write_str(&set.join(","))
    }
}

impl Display for Action {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Action::Count(counter) => write!(f, "counter name \"{counter}\""),
            Action::Limit(limit) => limit.fmt(f),
            Action::Log { prefix, level } => write!(f, "log prefix \"{prefix}\" level {level}"),
            Action::SetMark { mask, value } => {
                write!(f, "meta mark set meta mark & {:#x}", !mask)?;
                if *value == 0 { Ok(()) } else { write!(f, " | {value:#x}") }
            }
            Action::Trace => f.write_str("meta nftrace set 1"),
            Action::NoTrack => f.write_str("notrack"),
            Action::Lookup { end, map } => write!(f, "{end} vmap @{map}"),
            Action::Verdict(verdict) => verdict.fmt(f),
        }
    }
}

impl Display for Limit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let unit = match self.per {
            LimitUnit::Second => "second",
            LimitUnit::Minute => "minute",
            LimitUnit::Hour => "hour",
            LimitUnit::Day => "day",
        };
        write!(f, "limit rate {}/{unit} burst {} packets", self.packets, self.burst)
    }
}

impl Display for LogLevel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
        })
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Accept => f.write_str("accept"),
            Verdict::Drop => f.write_str("drop"),
            Verdict::Return => f.write_str("return"),
            Verdict::Jump(chain) => write!(f, "jump {chain}"),
            Verdict::Goto(chain) => write!(f, "goto {chain}"),
            Verdict::Reject(Rejection::PortUnreachable) => f.write_str("reject with icmpx port-unreachable"),
            Verdict::Reject(Rejection::TcpReset) => f.write_str("reject with tcp reset"),
        }
    }
}

impl Display for Change {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Change::AddTable { table } => write!(f, "add table inet {table}"),
            Change::DeleteTable { table } => write!(f, "delete table inet {table}"),
            Change::AddCounter { table, counter } => write!(f, "add counter inet {table} {counter}"),
            Change::DeleteCounter { table, counter } => write!(f, "delete counter inet {table} {counter}"),
            Change::AddSet { table, set, kind } => write!(f, "add set inet {table} {set} {{ {kind} }}"),
            Change::DeleteSet { table, set } => write!(f, "delete set inet {table} {set}"),
            Change::AddElements { table, set, elements } => {
                write!(f, "add element inet {table} {set} {{ {} }}", joined(elements, ", "))
            }
            Change::DeleteElements { table, set, elements } => {
                write!(f, "delete element inet {table} {set} {{ {} }}", joined(elements, ", "))
            }
            Change::AddMap { table, map } => {
                write!(f, "add map inet {table} {map} {{ type ifname : verdict }}")
            }
            Change::DeleteMap { table, map } => write!(f, "delete map inet {table} {map}"),
            Change::AddMapElements { table, map, elements } => {
                let elements = elements.iter().map(|(device, verdict)| format!("\"{device}\" : {verdict}"));
                let elements = elements.collect::<Vec<_>>().join(", ");
                write!(f, "add element inet {table} {map} {{ {elements} }}")
            }
            Change::DeleteMapElements { table, map, elements } => {
                let elements = elements.iter().map(|(device, _)| format!("\"{device}\""));
                let elements = elements.collect::<Vec<_>>().join(", ");
                write!(f, "delete element inet {table} {map} {{ {elements} }}")
            }
            Change::AddChain { table, chain, base: None } => write!(f, "add chain inet {table} {chain}"),
            Change::AddChain { table, chain, base: Some(base) } => {
                write!(f, "add chain inet {table} {chain} {{ {base} }}")
            }
            Change::DeleteChain { table, chain } => write!(f, "delete chain inet {table} {chain}"),
            Change::FlushChain { table, chain } => write!(f, "flush chain inet {table} {chain}"),
            Change::AddRules { table, chain, rules } => {
                let lines: Vec<String> =
                    rules.iter().map(|rule| format!("add rule inet {table} {chain} {rule}")).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

fn joined<T: Display>(items: impl IntoIterator<Item = T>, separator: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(separator)
}
