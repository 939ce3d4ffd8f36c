//! Numbers and what may stand for them: ports, protocols, AS numbers, communities, durations, rates.

use serde_json::Value;

use super::name::port_name;
use super::{Verdict, must};

/// A port, a range of ports, or a port's name.
pub fn port(value: &Value) -> Verdict {
    let rule = "must be a port from 1 to 65535, a range such as 8080:8090, or a port's name";
    match value {
        Value::Number(number) => must(number.as_u64().is_some_and(is_port), rule),
        Value::String(text) => match parse_ports(text) {
            Some((first, last)) => {
                must(is_port(first) && is_port(last), rule)?;
                must(first <= last, "must not end before it starts")
            }
            None if text.contains(':') => Err(rule.to_owned()),
            None => port_name(text).map_err(|_| rule.to_owned()),
        },
        _ => Err(rule.to_owned()),
    }
}

/// A port or a port's name, as Kubernetes has it.
pub fn kubernetes_port(value: &Value) -> Verdict {
    let holds = match value {
        Value::Number(number) => number.as_u64().is_some_and(is_port),
        Value::String(text) => port_name(text).is_ok(),
        _ => false,
    };
    must(holds, "must be a port from 1 to 65535 or a port's name")
}

/// A port by its number alone, or the two ends of a range; none for a name.
pub fn parse_ports(text: &str) -> Option<(u64, u64)> {
    match text.split_once(':') {
        None => digits(text).map(|port| (port, port)),
        Some((first, last)) => Some((digits(first)?, digits(last)?)),
    }
}

fn is_port(number: u64) -> bool {
    (1..=65535).contains(&number)
}

fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A number too large for 64 bits is too large for a port as well.
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// A BGP community: two 16 bit numbers, or three of 32 bits.
pub fn community(text: &str) -> Verdict {
    let parts: Vec<&str> = text.split(':').collect();
    let largest = match parts.len() {
        2 => u64::from(u16::MAX),
        3 => u64::from(u32::MAX),
        _ => return Err("must be a community: AA:NN, or AA:NN:MM for a large one".to_owned()),
    };
    let holds = parts.iter().all(|part| digits(part).is_some_and(|number| number <= largest));
    must(holds, "must be a community: AA:NN of numbers up to 65535, or AA:NN:MM up to 4294967295")
}

/// A duration as Go writes it: `90s`, `1h30m`, `-1.5s`.
pub fn duration(text: &str) -> Verdict {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let holds = unsigned == "0" || of_units(unsigned, &["ns", "us", "µs", "μs", "ms", "s", "m", "h"]);
    must(holds, "must be a duration, such as 90s or 1h30m")
}

/// The same, not negative and no finer than milliseconds.
pub fn duration_positive(text: &str) -> Verdict {
    let holds = text == "0" || of_units(text, &["ms", "s", "m", "h"]);
    must(holds, "must be a duration of ms, s, m and h, such as 90s or 1h30m")
}

pub fn duration_or_auto(text: &str) -> Verdict {
    let holds = text == "Auto" || of_units(text, &["us", "ms", "s", "m", "h"]);
    must(holds, "must be Auto or a duration, such as 90s or 1h30m")
}

/// A duration in whole seconds, rounded up, and at least one unless it is nothing. `None` if it is none, or negative.
pub fn whole_seconds(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    duration(text).ok().filter(|()| !text.starts_with('-'))?;
    let mut total = 0.0;
    for (number, unit) in numbers_with_units(text)? {
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        total += number * seconds;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded right here")]
    (0.0..1e15).contains(&total).then(|| total.ceil() as u64)
}

fn of_units(text: &str, units: &[&str]) -> bool {
    numbers_with_units(text).is_some_and(|parts| parts.iter().all(|(_, unit)| units.contains(unit)))
}

/// `1h30.5s` in its parts. At least one; each has a number with at most one dot.
fn numbers_with_units(text: &str) -> Option<Vec<(f64, &str)>> {
    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    let (mut rest, mut parts) = (text, Vec::new());
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c| !is_of_number(c))?);
        let (unit, next) = after.split_at(after.find(is_of_number).unwrap_or(after.len()));
        parts.push((number.parse().ok()?, unit));
        rest = next;
    }
    Some(parts).filter(|parts| !parts.is_empty())
}

/// `10/second`.
pub fn rate(text: &str) -> Verdict {
    let holds = text.split_once('/').is_some_and(|(number, unit)| {
        number.len() <= 4
            && !number.starts_with('0')
            && digits(number).is_some()
            && matches!(unit, "second" | "minute" | "hour" | "day")
    });
    must(holds, "must be a rate: 1 to 9999 per second, minute, hour or day, such as 10/second")
}

pub const PROTOCOLS: &[&str] = &["TCP", "UDP", "ICMP", "ICMPv6", "SCTP", "UDPLite"];

/// A protocol by number or by name.
pub fn protocol(value: &Value) -> Verdict {
    let holds = match value {
        Value::Number(number) => number.as_u64().is_some_and(|number| (1..=255).contains(&number)),
        Value::String(name) => {
            PROTOCOLS.contains(&name.as_str()) || name.parse::<u8>().is_ok_and(|number| number > 0)
        }
        _ => false,
    };
    must(holds, "must be a protocol number from 1 to 255 or one of TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite")
}

/// A protocol whose packets have ports.
pub fn protocol_with_ports(value: &Value) -> Verdict {
    protocol(value)?;
    let holds = match value {
        Value::String(name) => matches!(name.as_str(), "TCP" | "UDP" | "SCTP" | "6" | "17" | "132"),
        _ => matches!(value.as_u64(), Some(6 | 17 | 132)),
    };
    must(holds, "must be a protocol that has ports: TCP, UDP or SCTP")
}

/// A number up to 2^32-1, or two 16 bit numbers joined by a dot.
pub fn as_number(value: &Value) -> Verdict {
    let holds = match value {
        Value::Number(number) => number.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
        Value::String(text) => parse_as_number(text).is_some(),
        _ => false,
    };
    must(holds, "must be an AS number: 0 to 4294967295, or two numbers up to 65535 joined by a dot")
}

/// Reads an AS number written as text, in either form.
pub fn parse_as_number(text: &str) -> Option<u32> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('.') {
        None if digits(text) => text.parse().ok(),
        Some((high, low)) if digits(high) && digits(low) => {
            let (high, low): (u16, u16) = (high.parse().ok()?, low.parse().ok()?);
            Some(u32::from(high) << 16 | u32::from(low))
        }
        _ => None,
    }
}

const DSCP_NAMES: &[&str] = &[
    "DF", "EF", "AF11", "AF12", "AF13", "AF21", "AF22", "AF23", "AF31", "AF32", "AF33", "AF41", "AF42",
    "AF43", "CS0", "CS1", "CS2", "CS3", "CS4", "CS5", "CS6",
];

/// A DSCP mark by number or by name.
pub fn dscp(value: &Value) -> Verdict {
    let holds = match value {
        Value::Number(number) => number.as_u64().is_some_and(|number| number <= 63),
        Value::String(name) => {
            let name = name.trim().to_ascii_uppercase();
            DSCP_NAMES.contains(&name.as_str()) || name.parse::<u8>().is_ok_and(|number| number <= 63)
        }
        _ => false,
    };
    must(holds, "must be a DSCP value: 0 to 63, DF, EF, AFxy or CSx")
}
