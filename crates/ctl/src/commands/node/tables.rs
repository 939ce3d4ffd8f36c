//! calicoctl's tables of BGP sessions.

use std::io::{self, Write};

use evidence::node::Mend;
use render::harmless;

use crate::output::boxed::Boxed;

/// A line of a table.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) is_ipv4: bool,
    /// PEER ADDRESS, PEER TYPE, STATE, SINCE, INFO.
    pub(super) cells: [String; 5],
}

pub(super) fn write(out: &mut dyn Write, peers: &[Peer]) -> io::Result<()> {
    for (version, is_ipv4) in [("IPv4", true), ("IPv6", false)] {
        writeln!(out, "\n{version} BGP status")?;
        let mut table = Boxed::new(&["PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO"]);
        let of_version: Vec<&Peer> = peers.iter().filter(|peer| peer.is_ipv4 == is_ipv4).collect();
        if of_version.is_empty() {
            writeln!(out, "No {version} peers found.")?;
            continue;
        }
        of_version.iter().for_each(|peer| table.row(peer.cells.to_vec()));
        table.write(out)?;
    }
    Ok(())
}

/// How many of them are shown.
const MENDS_SHOWN: usize = 10;

/// What the node's agent put right by itself: the last ones, the newest first.
pub(super) fn write_mends(out: &mut dyn Write, mends: &[Mend]) -> io::Result<()> {
    if mends.is_empty() {
        return writeln!(out, "\nThe agent has fixed nothing since it started.");
    }
    writeln!(out, "\nFixed by the agent")?;
    let mut table = Boxed::new(&["WHEN", "CODE", "SUBJECT", "WHAT"]);
    for Mend { at, code, subject, words } in mends.iter().rev().take(MENDS_SHOWN) {
        let when = at.strftime("%Y-%m-%d %H:%M:%S").to_string();
        table.row(
            [when, code.to_string(), subject.clone(), words.clone()].map(|cell| harmless(&cell)).to_vec(),
        );
    }
    table.write(out)?;
    match mends.len().saturating_sub(MENDS_SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "and {more} earlier"),
    }
}

/// `Address    10.0.0.1/24`, a line each.
pub(super) fn write_facts(out: &mut dyn Write, facts: &[(&str, String)]) -> io::Result<()> {
    for (name, value) in facts {
        let value = value.replace(char::is_control, " ");
        writeln!(out, "{name:<14}{value}")?;
    }
    Ok(())
}
