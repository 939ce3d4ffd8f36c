//! How lines of logs begin: syslog, journald, a container's log, klog old and new (as JSON: [`json`]), logrus, and Calico's own form.

use std::borrow::Cow;

use jiff::civil::DateTime;

use crate::words;

use super::{fields, json};

/// A line, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct LogLine<'a> {
    /// The year is 0 where the line does not tell it.
    pub(crate) at: Option<DateTime>,
    pub(crate) host: Option<&'a str>,
    /// `kubelet`, `containerd`, `systemd`.
    pub(crate) program: Option<&'a str>,
    pub(crate) level: Level,
    pub(crate) message: Cow<'a, str>,
    /// Everything after the prefix, for fields that stand beside the message.
    pub(crate) rest: Cow<'a, str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Usual,
    Error,
    Fatal,
}

pub(crate) fn read(text: &str) -> Option<LogLine<'_>> {
    let outer = syslog(text).or_else(|| container(text)).or_else(|| kernel_ring(text));
    let (at, host, program, body) = outer.unwrap_or((None, None, None, text));
    if let Some(entry) = json::read(body) {
        let (level, message) = (entry.level, entry.text.clone().into());
        return Some(LogLine { at: entry.at.or(at), host, program, level, message, rest: entry.text.into() });
    }
    let inner = klog(body).or_else(|| logrus(body)).or_else(|| calico(body));
    match inner {
        Some((inner_at, level, message)) => {
            Some(LogLine { at: inner_at.or(at), host, program, level, message, rest: body.into() })
        }
        // A program that writes as it likes, behind a prefix that says who it is.
        None => program.map(|_| LogLine {
            at,
            host,
            program,
            level: Level::Usual,
            message: body.into(),
            rest: body.into(),
        }),
    }
}

type Outer<'a> = (Option<DateTime>, Option<&'a str>, Option<&'a str>, &'a str);

/// `Dec 13 10:27:42 host program[1]: …`, or journald's with a full time.
fn syslog(text: &str) -> Option<Outer<'_>> {
    let (at, rest) = match text.as_bytes().first()? {
        byte if byte.is_ascii_uppercase() => {
            let time = DateTime::strptime("%Y %b %d %H:%M:%S", format!("0000 {}", text.get(..15)?)).ok()?;
            (time, text.get(15..)?)
        }
        byte if byte.is_ascii_digit() => {
            let (time, rest) = text.split_at_checked(text.find(' ')?)?;
            (words::local_time(time)?.0, rest)
        }
        _ => return None,
    };
    let rest = rest.strip_prefix(' ')?;
    let (host, rest) = rest.split_once(' ')?;
    let (program, body) =
        rest.split_once(": ").or_else(|| rest.strip_suffix(':').map(|program| (program, "")))?;
    let name = program.split('[').next().unwrap_or(program);
    let is_name = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./@".contains(&byte))
    };
    (is_name(host) && is_name(name)).then_some((Some(at), Some(host), Some(name), body))
}

/// `[12345.678901] …` or, with `dmesg -T`, `[Mon May  6 10:00:00 2024] …`
fn kernel_ring(text: &str) -> Option<Outer<'_>> {
    let (stamp, body) = text.strip_prefix('[')?.split_once("] ")?;
    let stamp = stamp.trim();
    if let Some((seconds, fraction)) = stamp.split_once('.') {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        return (is_number(seconds) && is_number(fraction) && fraction.len() == 6).then_some((
            None,
            None,
            Some("kernel"),
            body,
        ));
    }
    let bare: Vec<&str> = stamp.split_whitespace().skip(1).collect();
    let at = DateTime::strptime("%b %d %H:%M:%S %Y", bare.join(" ")).ok()?;
    Some((Some(at), None, Some("kernel"), body))
}

/// `2020-01-01T00:00:00.0Z stderr F …`
fn container(text: &str) -> Option<Outer<'_>> {
    let mut parts = text.splitn(4, ' ');
    let at = words::local_time(parts.next().filter(|time| time.len() > 18)?)?.0;
    parts.next().filter(|stream| matches!(*stream, "stdout" | "stderr"))?;
    parts.next().filter(|flag| matches!(*flag, "F" | "P"))?;
    Some((Some(at), None, None, parts.next()?))
}

type Inner<'a> = (Option<DateTime>, Level, Cow<'a, str>);

/// `I0526 05:33:01.905628  886002 server.go:417] …`; some builds write `INFO:1213 10:27:48.190087 …`.
fn klog(text: &str) -> Option<Inner<'_>> {
    let words = [
        ("INFO:", Level::Usual),
        ("WARNING:", Level::Usual),
        ("ERROR:", Level::Error),
        ("FATAL:", Level::Fatal),
    ];
    let letters = [("I", Level::Usual), ("W", Level::Usual), ("E", Level::Error), ("F", Level::Fatal)];
    let (rest, level) = words.into_iter().chain(letters).find_map(|(word, level)| {
        let rest = text.strip_prefix(word)?;
        rest.get(..4)?.bytes().all(|byte| byte.is_ascii_digit()).then_some((rest, level))
    })?;
    let (head, message) = rest.split_once("] ")?;
    let mut head = head.split_whitespace();
    let (day, time) = (head.next()?, head.next()?);
    let at = DateTime::strptime("%Y %m%d %H:%M:%S%.f", format!("0000 {day} {time}")).ok();
    Some((at, level, message.trim_start().into()))
}

/// `time="2017-12-13T10:27:42+08:00" level=info msg="…" key=value`
fn logrus(text: &str) -> Option<Inner<'_>> {
    let rest = text.strip_prefix("time=")?;
    let (time, rest) = fields::value(rest);
    let at = words::local_time(&time).map(|(time, _)| time);
    let level = fields::find(rest, "level")?;
    let message = fields::find(rest, "msg")?;
    Some((at, level_of(&level), message))
}

/// `2017-12-13 14:19:24.189 [INFO][14313] client.go 202: … Key="value"`
fn calico(text: &str) -> Option<Inner<'_>> {
    let at = words::local_time(text.get(..23)?)?.0;
    let rest = text.get(23..)?.strip_prefix(" [")?;
    let (level, rest) = rest.split_once(']')?;
    let rest = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(rest, |(_, rest)| rest);
    let message = rest.split_once(": ").map_or(rest, |(_, message)| message);
    Some((Some(at), level_of(level), message.trim().into()))
}

pub(super) fn level_of(word: &str) -> Level {
    match word.to_ascii_lowercase().as_str() {
        "error" => Level::Error,
        "fatal" | "panic" => Level::Fatal,
        _ => Level::Usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_taken_apart() {
        for (line, at, host, program, level, message) in [
            (
                "Dec 13 10:27:42 dev-1 kubelet[15567]: time=\"2017-12-13T10:27:42+08:00\" level=info msg=\"Key \\\"x\\\" found\" a=b",
                "2017-12-13T10:27:42",
                Some("dev-1"),
                Some("kubelet"),
                Level::Usual,
                "Key \"x\" found",
            ),
            (
                "Dec 13 10:27:42 dev-1 kubelet[15567]: ERROR:1213 10:27:42.891750   15567 cni.go:312] Error deleting",
                "0000-12-13T10:27:42.89175",
                Some("dev-1"),
                Some("kubelet"),
                Level::Error,
                "Error deleting",
            ),
            (
                "F0526 05:33:01.977085  886002 server.go:274] failed to run Kubelet",
                "0000-05-26T05:33:01.977085",
                None,
                None,
                Level::Fatal,
                "failed to run Kubelet",
            ),
            (
                "2020-05-26 12:42:35.947 [ERROR][1] client.go 255: Error getting x error=etcdserver",
                "2020-05-26T12:42:35.947",
                None,
                None,
                Level::Error,
                "Error getting x error=etcdserver",
            ),
            (
                "2020-05-26T12:42:35.947Z stderr F I0526 12:42:35.900000       1 a.go:1] hello",
                "0000-05-26T12:42:35.9",
                None,
                None,
                Level::Usual,
                "hello",
            ),
            (
                "2024-05-26T12:42:35+0800 n1 systemd[1]: kubelet.service: Unit entered failed state.",
                "2024-05-26T12:42:35",
                Some("n1"),
                Some("systemd"),
                Level::Usual,
                "kubelet.service: Unit entered failed state.",
            ),
        ] {
            let read = read(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!(
                read.at.unwrap().to_string(),
                at.replace("0000", &read.at.unwrap().to_string()[..4]),
                "{line}"
            );
            assert_eq!(
                (read.host, read.program, read.level, read.message.as_ref()),
                (host, program, level, message),
                "{line}"
            );
        }
    }

    #[test]
    fn other_texts_are_no_logs() {
        for line in
            ["", "NAME READY", "10.0.0.1 dev eth0", "default via 10.0.0.1 dev eth0", "Events:", "- a: b", "{"]
        {
            assert!(read(line).is_none(), "{line}");
        }
    }
}
