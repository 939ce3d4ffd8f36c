//! Durations: as our flags take them, and as Go, and so Calico's records, has them: `90s` and `1.5m` are both `1m30s`.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::time::Duration;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

fn unit(word: &str) -> Option<u64> {
    Some(match word {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

/// The nanoseconds of a text such as `1h30m` or `-1.5s`; none if Go would not read it.
pub(crate) fn go_nanoseconds(text: &str) -> Option<i64> {
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if unsigned == "0" {
        return Some(0);
    }
    if unsigned.is_empty() {
        return None;
    }
    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    let (mut rest, mut total) = (unsigned, 0u64);
    while !rest.is_empty() {
        let (number, after) = rest.split_at_checked(rest.find(|c| !is_of_number(c))?)?;
        let (word, next) = after.split_at_checked(after.find(is_of_number).unwrap_or(after.len()))?;
        total = total.checked_add(span(number, unit(word)?)?)?;
        rest = next;
    }
    match is_negative {
        true => 0i64.checked_sub_unsigned(total),
        false => i64::try_from(total).ok(),
    }
}

/// So much of a unit, in nanoseconds, with Go's rounding of the fraction.
fn span(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    let (mut part, mut scale) = (0u64, 1f64);
    for digit in fraction.bytes() {
        let more = part.checked_mul(10).and_then(|part| part.checked_add(u64::from(digit - b'0')));
        // Later digits are too small to count.
        let Some(more) = more.filter(|more| *more <= i64::MAX.unsigned_abs()) else { break };
        part = more;
        scale *= 10.0;
    }
    let part = (part as f64 * (unit as f64 / scale)) as u64;
    whole.checked_mul(unit)?.checked_add(part)
}

/// A duration as Go spells it.
pub(crate) fn spell_duration(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let size = nanoseconds.unsigned_abs();
    let text = match size {
        0 => return "0s".to_owned(),
        1..1_000 => format!("{size}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", decimal(size, 1_000, 3)),
        1_000_000..SECOND => format!("{}ms", decimal(size, 1_000_000, 6)),
        _ => {
            let (hours, minutes) = (size / HOUR, size % HOUR / MINUTE);
            let seconds = format!("{}s", decimal(size % MINUTE, SECOND, 9));
            match (hours, minutes) {
                (0, 0) => seconds,
                (0, _) => format!("{minutes}m{seconds}"),
                _ => format!("{hours}h{minutes}m{seconds}"),
            }
        }
    };
    format!("{sign}{text}")
}

/// So many of a unit, with a fraction of as many digits as it needs.
fn decimal(size: u64, unit: u64, digits: usize) -> String {
    let fraction = format!("{:0digits$}", size % unit);
    match fraction.trim_end_matches('0') {
        "" => (size / unit).to_string(),
        fraction => format!("{}.{fraction}", size / unit),
    }
}

/// `60s`, `500ms`, `2m`, `1h`, or seconds: as our flags take it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| "must be a duration such as 60s".to_owned())?;
    let milliseconds = match text.strip_prefix(digits).unwrap_or_default() {
        "ms" => 1,
        "s" | "" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        unit => return Err(format!("unknown unit {unit:?}; use ms, s, m or h")),
    };
    number
        .checked_mul(milliseconds)
        .map(Duration::from_millis)
        .ok_or_else(|| "the duration is too long".to_owned())
}

/// The time of a text such as `15m0s`; none if Go would not read it, or if it is negative.
pub fn parse_go_duration(text: &str) -> Option<Duration> {
    let nanoseconds = u64::try_from(go_nanoseconds(text)?).ok()?;
    Some(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_spelt_as_go_does() {
        for (text, spelt) in [
            ("0", "0s"),
            ("0s", "0s"),
            ("-0", "0s"),
            ("90s", "1m30s"),
            ("1.5m", "1m30s"),
            ("3600s", "1h0m0s"),
            ("15m", "15m0s"),
            ("1h0.5s", "1h0m0.5s"),
            ("1500ms", "1.5s"),
            (".5s", "500ms"),
            ("1.s", "1s"),
            ("250us", "250\u{b5}s"),
            ("-1m", "-1m0s"),
            ("2540400h10m10.000000000s", "2540400h10m10s"),
            ("0.3333333333333333333h", "20m0s"),
        ] {
            let nanoseconds = go_nanoseconds(text).unwrap_or_else(|| panic!("{text} is a duration"));
            assert_eq!(spell_duration(nanoseconds), spelt, "{text}");
            assert_eq!(go_nanoseconds(spelt), Some(nanoseconds), "{spelt}");
        }
    }

    #[test]
    fn other_texts_are_no_durations() {
        for text in
            ["", "-", "3", "s", ".s", "1d", "1.2.3s", "+-1s", "1 s", "99999999999h", "1s2", "\u{e9}1s"]
        {
            assert_eq!(go_nanoseconds(text), None, "{text}");
        }
        assert_eq!(go_nanoseconds("-9223372036854775808ns"), Some(i64::MIN));
        assert_eq!(spell_duration(i64::MIN), "-2562047h47m16.854775808s");
    }

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in
            [("60s", 60_000), ("7", 7_000), ("250ms", 250), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for wrong in ["", "s", "1d", "-1s", "1.5s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn gos_times_have_several_units() {
        for (text, milliseconds) in [
            ("15m0s", 900_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("0", 0),
            ("0s", 0),
            ("300ms", 300),
        ] {
            assert_eq!(parse_go_duration(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for wrong in ["", "15", "-1s", "1d", "m", "1..5s", "5 m", "99999999999999999999h"] {
            assert_eq!(parse_go_duration(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_tried(text in "\\PC{0,12}") {
            let _ = (parse_duration(&text), parse_go_duration(&text));
        }
    }
}
