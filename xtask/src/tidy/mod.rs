//! `cargo xtask tidy`: what a machine can say about the state of the code. Part of `cargo xtask test`.

mod direction;
mod licence;
mod links;
mod policy;
mod promises;
mod protobuf;
mod purity;
mod readers;
mod sizes;
mod tools;
mod unsafety;
mod words;

use std::time::Instant;

use anyhow::{Result, bail};

use crate::test::KindReport;

/// What a check says: one line per fault.
#[derive(Debug)]
enum Verdict {
    Faults(Vec<String>),
    /// The check could not be made here, and why.
    Skipped(String),
}

type Check = fn() -> Result<Verdict>;

/// Quick ones first: they answer before the compiler has started.
const CHECKS: &[(&str, Check)] = &[
    ("dependency direction", direction::check),
    ("file sizes", sizes::check),
    ("words and markers", words::check),
    ("links and commands in docs", links::check),
    ("tests that the threat model names", promises::check),
    ("unsafe code only in host", unsafety::check),
    ("purity of decision crates", purity::check),
    ("readers neither index nor slice", readers::check),
    ("licences, bans, sources", policy::check),
    ("generated protobuf code", protobuf::check),
    ("format", tools::format),
    ("clippy", tools::clippy),
];

pub(crate) fn run(args: &[String]) -> Result<bool> {
    if !args.is_empty() {
        bail!("usage: cargo xtask tidy");
    }
    let report = as_test();
    Ok(report.failed.is_empty())
}

/// Every check, as tests of the kind `tidy`.
pub(crate) fn as_test() -> KindReport {
    let mut report = KindReport::new("tidy");
    for (name, check) in CHECKS {
        let started = Instant::now();
        match check() {
            Ok(Verdict::Faults(faults)) => {
                let failure = (!faults.is_empty()).then(|| faults.join("\n"));
                report.add(name, failure, started.elapsed());
            }
            Ok(Verdict::Skipped(reason)) => report.skip(name, &reason),
            Err(error) => report.add(name, Some(format!("{error:#}")), started.elapsed()),
        }
    }
    report
}
