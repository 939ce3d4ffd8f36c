//! Our own table of nftables, through `nft`: rules as text go in, and what it made of them comes out.

use std::io;
use std::process::{Command, Output};
use std::time::Duration;

use plan::between::NAT_TABLE;

use crate::{HostError, program};

const NOT_INSTALLED: &str = "nft is not installed";
/// A node with thousands of services has some megabytes.
const RULESET_BYTES_MAX: usize = 64 << 20;
/// It takes some milliseconds, and with thousands of rules a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// Replaces the table in one step, and gives back how nft lists it now. What a later list shows otherwise, somebody changed.
pub fn load(rules: &str) -> Result<String, HostError> {
    run(&["-f", "-"], rules)?;
    list().map(Option::unwrap_or_default)
}

/// Adds what a ruleset says to what is there, in one step.
pub fn add(rules: &str) -> Result<(), HostError> {
    run(&["-f", "-"], rules).map(|_| ())
}

/// The table as it is; `None` if there is none.
pub fn list() -> Result<Option<String>, HostError> {
    let words: Vec<&str> = ["-s", "list", "table"].into_iter().chain(NAT_TABLE.split(' ')).collect();
    match run(&words, "") {
        Ok(text) => Ok(Some(text)),
        Err(HostError::Nft { problem, .. }) if problem.contains("No such file or directory") => Ok(None),
        Err(error) => Err(error),
    }
}

/// All rules of this namespace, whoever made them, as JSON (`nft -j`). `None` where there is no nft, or more of them than
/// anybody wants to read.
pub fn ruleset() -> Result<Option<String>, HostError> {
    match run(&["-j", "list", "ruleset"], "") {
        Ok(text) => Ok(Some(text).filter(|text| text.len() <= RULESET_BYTES_MAX)),
        Err(HostError::Nft { problem, .. }) if problem == NOT_INSTALLED => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether there are rules of the old iptables, which nft does not show.
pub fn has_legacy_rules() -> bool {
    // A table is named here once somebody has used it.
    let tables = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];
    tables.iter().any(|path| std::fs::read_to_string(path).is_ok_and(|text| !text.trim().is_empty()))
}

fn run(words: &[&str], input: &str) -> Result<String, HostError> {
    let what = words.join(" ");
    let output = try_run(words, input).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => HostError::Nft { what: what.clone(), problem: NOT_INSTALLED.to_owned() },
        _ => HostError::Nft { what: what.clone(), problem: source.to_string() },
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let problem = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(HostError::Nft { what, problem })
}

fn try_run(words: &[&str], input: &str) -> io::Result<Output> {
    program::run(Command::new(program::find("nft")).args(words), input.as_bytes(), PATIENCE)
}
