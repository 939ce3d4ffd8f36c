//! calicoctl's tables of BGP sessions.

use std::io::{self, Write};

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

/// `Address    10.0.0.1/24`, a line each.
pub(super) fn write_facts(out: &mut dyn Write, facts: &[(&str, String)]) -> io::Result<()> {
    for (name, value) in facts {
        let value = value.replace(char::is_control, " ");
        writeln!(out, "{name:<11}{value}")?;
    }
    Ok(())
}
