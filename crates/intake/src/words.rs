//! Small words that many tools print: ages, times, addresses.

use std::net::IpAddr;

use ipnet::IpNet;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

/// An age as kubectl and crictl print it: `41m`, `6d2h`, `3y10d`, `2m4s`, `2 hours ago`, `About an hour ago`.
pub(crate) fn age(text: &str) -> Option<SignedDuration> {
    let text = text.trim().trim_end_matches(" ago");
    if let Some(age) = spelled_age(text) {
        return Some(age);
    }
    let mut seconds: i64 = 0;
    let mut number: Option<i64> = None;
    for character in text.chars() {
        if let Some(digit) = character.to_digit(10) {
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(i64::from(digit))?);
            continue;
        }
        let unit = unit_seconds(character.encode_utf8(&mut [0; 4]))?;
        seconds = seconds.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    (number.is_none() && !text.is_empty()).then(|| SignedDuration::from_secs(seconds))
}

fn spelled_age(text: &str) -> Option<SignedDuration> {
    let text = text.trim_start_matches("About ").trim_start_matches("Up ");
    let (count, unit) = text.split_once(' ')?;
    let count: i64 = match count {
        "a" | "an" | "Less" => 1,
        count => count.parse().ok()?,
    };
    Some(SignedDuration::from_secs(count.checked_mul(unit_seconds(unit.trim_end_matches('s'))?)?))
}

fn unit_seconds(unit: &str) -> Option<i64> {
    Some(match unit {
        "s" | "second" | "than a second" => 1,
        "m" | "minute" => 60,
        "h" | "hour" => 3_600,
        "d" | "day" => 86_400,
        "w" | "week" => 7 * 86_400,
        "month" => 30 * 86_400,
        "y" | "year" => 365 * 86_400,
        _ => return None,
    })
}

/// A moment: RFC 3339, `kubectl describe`'s `Sat, 09 May 2020 18:35:16 +0800`, or Go's `2017-12-04 10:09:08 +0800 CST`.
pub(crate) fn moment(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(moment) = text.parse() {
        return Some(moment);
    }
    // Without the weekday: it need not fit, in a text that somebody edited.
    let bare = text.split_once(", ").map_or(text, |(_, rest)| rest);
    for format in ["%d %b %Y %H:%M:%S %z", "%Y-%m-%d %H:%M:%S%.f %z"] {
        let words: Vec<&str> =
            bare.split_whitespace().take(if format.starts_with("%d") { 5 } else { 3 }).collect();
        if let Ok(moment) = Timestamp::strptime(format, words.join(" ")) {
            return Some(moment);
        }
    }
    None
}

/// A local time with or without its zone.
pub(crate) fn local_time(text: &str) -> Option<(DateTime, Option<Offset>)> {
    let text = text.trim();
    let Some(sign) = text.rfind(['+', '-']).filter(|sign| *sign > 10) else {
        let time = text.trim_end_matches('Z').parse::<DateTime>().ok()?;
        return Some((time, text.ends_with('Z').then_some(Offset::UTC)));
    };
    let (time, zone) = text.split_at_checked(sign)?;
    let time = time.trim_end().parse::<DateTime>().ok()?;
    let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
    let (hours, minutes) = (digits.get(..2)?.parse::<i32>().ok()?, digits.get(2..4)?.parse::<i32>().ok()?);
    let seconds = hours * 3_600 + minutes * 60;
    let offset = Offset::from_seconds(if zone.starts_with('-') { -seconds } else { seconds }).ok()?;
    Some((time, Some(offset)))
}

pub(crate) use evidence::address_of as address;

/// Addresses in a list as Go prints it: `[192.168.8.34]`, `[10.0.0.1/26 10.0.0.2/26]`.
pub(crate) fn addresses(text: &str) -> Vec<IpAddr> {
    let split = |character: char| !(character.is_ascii_hexdigit() || ".:/".contains(character));
    text.split(split).filter_map(address).collect()
}

/// A network as routes spell it: `default`, `10.0.0.0/26`, `10.0.0.1`.
pub(crate) fn destination(text: &str, is_v6: bool) -> Option<IpNet> {
    match text {
        "default" if is_v6 => "::/0".parse().ok(),
        "default" => "0.0.0.0/0".parse().ok(),
        text => text
            .parse::<IpNet>()
            .ok()
            .map(|net| net.trunc())
            .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from)),
    }
}

/// Hexadecimal digits, as many as runtimes and their tools print.
pub(crate) fn is_container_id(text: &str) -> bool {
    (12..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ages_are_read() {
        for (text, seconds) in [
            ("41m", 2_460),
            ("20h", 72_000),
            ("6d2h", 525_600),
            ("2m4s", 124),
            ("3 hours ago", 10_800),
            ("About an hour ago", 3_600),
            ("2 weeks", 1_209_600),
            ("0s", 0),
        ] {
            assert_eq!(age(text), Some(SignedDuration::from_secs(seconds)), "{text}");
        }
        for text in ["", "41", "m", "<unknown>", "4x", "99999999999999999999d"] {
            assert_eq!(age(text), None, "{text}");
        }
    }

    #[test]
    fn moments_are_read() {
        let moments =
            ["Sat, 09 May 2020 18:35:16 +0800", "2020-05-09T10:35:16Z", "2020-05-09 18:35:16 +0800 CST"];
        for text in moments {
            assert_eq!(moment(text).unwrap().to_string(), "2020-05-09T10:35:16Z", "{text}");
        }
        assert_eq!(moment("<unset>"), None);
        let (time, offset) = local_time("2017-12-13T10:27:42+08:00").unwrap();
        assert_eq!((time.to_string().as_str(), offset.unwrap().seconds()), ("2017-12-13T10:27:42", 28_800));
        assert_eq!(local_time("2017-12-13 14:19:24.189").unwrap().1, None);
        assert_eq!(local_time("2017-12-13T10:27:42.5Z").unwrap().1, Some(Offset::UTC));
    }

    proptest! {
        #[test]
        fn any_text_can_be_tried(text in "\\PC{0,40}") {
            age(&text);
            moment(&text);
            local_time(&text);
            addresses(&text);
            destination(&text, false);
            is_container_id(&text);
        }
    }
}
