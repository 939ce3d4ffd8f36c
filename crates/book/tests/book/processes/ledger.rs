//! What many processes did, in the order in which it happened.
//!
//! One file that all append to, a line at a time: the kernel puts the lines in an order that agrees with time. "got" is
//! written after an assignment was answered and "drop" before a release is asked for, so between the two the address
//! certainly is the handle's.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    /// An assignment is asked for.
    Try,
    Got(Vec<IpAddr>),
    /// It was refused, with these words.
    Refused(String),
    /// A release is asked for.
    Drop,
    Gone,
    /// How many commits the process has asked for so far; the handle is the process.
    Commits(u64),
}

#[derive(Debug)]
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(path: &Path) -> Ledger {
        Ledger(File::options().append(true).create(true).open(path).unwrap())
    }

    pub(crate) fn write(&mut self, handle: &str, event: &Event) {
        let text = match event {
            Event::Try => "try".to_owned(),
            Event::Got(addresses) => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                format!("got {}", addresses.join(","))
            }
            Event::Refused(reason) => format!("refused {}", reason.replace('\n', " ")),
            Event::Drop => "drop".to_owned(),
            Event::Gone => "gone".to_owned(),
            Event::Commits(count) => format!("commits {count}"),
        };
        // One write, so that lines of two processes never mix.
        self.0.write_all(format!("{handle} {text}\n").as_bytes()).unwrap();
    }
}

pub(crate) fn read(path: &Path) -> Vec<(String, Event)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // A line without its end is still being written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(parse).collect()
}

fn parse(line: &str) -> (String, Event) {
    let (handle, rest) = line.split_once(' ').unwrap();
    let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let event = match word {
        "try" => Event::Try,
        "got" => Event::Got(rest.split(',').map(|text| text.parse().unwrap()).collect()),
        "refused" => Event::Refused(rest.to_owned()),
        "drop" => Event::Drop,
        "gone" => Event::Gone,
        "commits" => Event::Commits(rest.parse().unwrap()),
        other => panic!("{other}"),
    };
    (handle.to_owned(), event)
}

/// What is known of a handle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Standing {
    /// Whoever was at it did not come to an end: it has everything or nothing.
    Open,
    Holds(Vec<IpAddr>),
    Gone,
}

/// Where each handle stands at the end. Fails if an address ever had two owners.
pub(crate) fn judge(events: &[(String, Event)]) -> BTreeMap<String, Standing> {
    let mut owners: BTreeMap<IpAddr, &str> = BTreeMap::new();
    let mut standings = BTreeMap::new();
    for (line, (handle, event)) in events.iter().enumerate() {
        let standing = match event {
            Event::Try => Standing::Open,
            Event::Got(addresses) => {
                for address in addresses {
                    if let Some(other) = owners.insert(*address, handle) {
                        panic!("line {}: {address} is given to {handle} while it is {other}'s", line + 1);
                    }
                }
                Standing::Holds(addresses.clone())
            }
            Event::Drop => {
                owners.retain(|_, owner| *owner != handle);
                Standing::Open
            }
            Event::Refused(_) | Event::Gone => Standing::Gone,
            Event::Commits(_) => continue,
        };
        standings.insert(handle.clone(), standing);
    }
    standings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(handle: &str) -> (String, Event) {
        (handle.to_owned(), Event::Got(vec![[10, 0, 0, 1].into()]))
    }

    #[test]
    fn an_address_may_go_from_hand_to_hand() {
        let events = [got("a"), ("a".to_owned(), Event::Drop), got("b"), ("a".to_owned(), Event::Gone)];
        let standings = judge(&events);
        assert_eq!(standings["a"], Standing::Gone);
        assert_eq!(standings["b"], Standing::Holds(vec![[10, 0, 0, 1].into()]));
    }

    #[test]
    #[should_panic(expected = "10.0.0.1 is given to b while it is a's")]
    fn two_owners_at_once_are_seen() {
        judge(&[got("a"), got("b"), ("a".to_owned(), Event::Drop)]);
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let folder = testkit::scratch("ledger").unwrap();
        let path = folder.path().join("ledger");
        let events = [
            Event::Try,
            Event::Got(vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]),
            Event::Refused("no IPv4 address is free".to_owned()),
            Event::Drop,
            Event::Gone,
            Event::Commits(7),
        ];
        for event in &events {
            Ledger::open(&path).write("net.1", event);
        }
        let expected: Vec<_> = events.into_iter().map(|event| ("net.1".to_owned(), event)).collect();
        assert_eq!(read(&path), expected);
    }
}
