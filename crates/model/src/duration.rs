//! Durations as they are written: on our command lines, and in Calico's records, which have Go's form.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::time::Duration;

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

/// `15m0s`, `1.5h`, `0`: as Go writes it. `None`: it is none, or negative.
pub fn parse_go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim_start_matches('+');
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|digit: char| digit.is_ascii_digit() || digit == '.');
        let value: f64 = rest.strip_suffix(number)?.parse().ok()?;
        let after = number.trim_start_matches(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let seconds = match number.strip_suffix(after)? {
            "ns" => 1e-9,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(value * seconds).ok()?)?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
