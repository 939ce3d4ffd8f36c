//! What a command that writes says at its end, in calicoctl's words.

use std::collections::BTreeSet;
use std::io::Write as _;

use model::Kind;

use crate::compat;
use crate::failure::{Failure, Failures};
use crate::output::short_name;
use crate::scope::Named;
use crate::write::{Done, WriteError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Apply,
    Create,
    Replace,
    Delete,
    Validate,
}

impl Verb {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Verb::Apply => "apply",
            Verb::Create => "create",
            Verb::Replace => "replace",
            Verb::Delete => "delete",
            Verb::Validate => "validate",
        }
    }

    fn past(self) -> &'static str {
        match self {
            Verb::Apply => "applied",
            Verb::Create => "created",
            Verb::Replace => "replaced",
            Verb::Delete => "deleted",
            Verb::Validate => "validated",
        }
    }

    fn why_skipped(self) -> &'static str {
        if self == Verb::Delete { "they do not exist" } else { "they already exist" }
    }
}

/// Counts what became of the resources of one command.
#[derive(Debug)]
pub(crate) struct Tally {
    verb: Verb,
    dry_run: bool,
    kinds: BTreeSet<Kind>,
    total: usize,
    handled: usize,
    /// Of those handled.
    skipped: usize,
    lines: Vec<String>,
    failures: Vec<(Named, Failure)>,
}

impl Tally {
    pub(crate) fn new(verb: Verb, dry_run: bool, subjects: impl Iterator<Item = Kind>) -> Tally {
        let mut tally = Tally {
            verb,
            dry_run,
            kinds: BTreeSet::new(),
            total: 0,
            handled: 0,
            skipped: 0,
            lines: Vec::new(),
            failures: Vec::new(),
        };
        for kind in subjects {
            tally.kinds.insert(kind);
            tally.total += 1;
        }
        tally
    }

    pub(crate) fn add(&mut self, named: Named, outcome: Result<Done, WriteError>) {
        match outcome {
            Ok(done) => {
                self.handled += 1;
                self.skipped += usize::from(done == Done::Skipped);
                if self.dry_run {
                    let name = short_name(named.kind, &named.name);
                    self.lines.push(format!("{name} {} (dry run)", done.word()));
                }
            }
            Err(error) => self.failures.push((named, error.into_failure())),
        }
    }

    /// Prints the summary. Failures come back to be printed by the caller.
    pub(crate) fn finish(self) -> Result<(), Failures> {
        if compat::is_strict() && !self.dry_run {
            return self.finish_as_calicoctl();
        }
        let mut out = std::io::stdout().lock();
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        if self.total == 0 {
            writeln!(out, "No resources specified")?;
        } else if self.failures.is_empty() && self.dry_run {
            writeln!(
                out,
                "Dry run: {} {}resource(s) would be {}",
                self.handled,
                self.kind(),
                self.verb.past()
            )?;
        } else if self.failures.is_empty() {
            writeln!(out, "Successfully {} {} {}resource(s)", self.verb.past(), self.handled, self.kind())?;
        } else if self.handled > 0 && self.dry_run {
            let (past, handled, total) = (self.verb.past(), self.handled, self.total);
            writeln!(out, "Dry run: {handled} out of {total} {}resources would be {past}", self.kind())?;
        } else if self.handled > 0 {
            let (past, handled, total) = (self.verb.past(), self.handled, self.total);
            writeln!(out, "Partial success: {past} {handled} out of {total} {}resources", self.kind())?;
        }
        if self.skipped > 0 && !self.dry_run {
            // calicoctl counts them with the others and says no more.
            compat::say(&format!(
                "note: {} of these were skipped: {}",
                self.skipped,
                self.verb.why_skipped()
            ));
        }
        let nothing_done = self.handled == 0 && self.total > 1;
        let summary = format!("failed to {} any {}resources", self.verb.word(), self.kind());
        let explain = |(named, failure): (Named, Failure)| {
            failure.within(format!("failed to {} '{}' resource {}", self.verb.word(), named.kind, named.name))
        };
        let mut failures: Vec<Failure> = self.failures.into_iter().map(explain).collect();
        if nothing_done {
            failures.push(Failure::new(summary));
        }
        Failures::collect(failures)
    }

    /// The summary in calicoctl's words, line for line.
    fn finish_as_calicoctl(self) -> Result<(), Failures> {
        let mut out = std::io::stdout().lock();
        let (verb, past, kind) = (self.verb.word(), self.verb.past(), self.kind());
        let (handled, total) = (self.handled, self.total);
        let errors: Vec<String> = self.failures.iter().map(|(_, failure)| failure.calicoctl()).collect();
        if total == 0 {
            writeln!(out, "No resources specified")?;
            return Ok(());
        }
        if errors.is_empty() || (self.verb == Verb::Delete && handled > 0) {
            writeln!(out, "Successfully {past} {handled} {kind}resource(s)")?;
        }
        let Some(last) = errors.last() else { return Ok(()) };
        let all = errors.join(" ");
        let text = match self.verb {
            Verb::Delete => {
                errors.iter().map(|error| format!("Failed to delete {kind}resource: {error}\n")).collect()
            }
            // A replacement that failed counts as handled there.
            Verb::Replace => {
                writeln!(out, "Partial success: {past} the first {total} out of {total} {kind}resources:")?;
                format!("hit error: {last}")
            }
            _ if handled == 0 && total == 1 => format!("failed to {verb} {kind}resource: [{all}]"),
            _ if handled == 0 => format!("failed to {verb} any {kind}resources: [{all}]"),
            _ => {
                if handled > errors.len() {
                    writeln!(
                        out,
                        "Partial success: {past} the first {handled} out of {total} {kind}resources:"
                    )?;
                }
                format!("hit error: [{all}]")
            }
        };
        Err(Failure::new("not everything was done").in_calicoctl(text).into())
    }

    /// `'IPPool' ` if all resources are of one kind.
    fn kind(&self) -> String {
        match (self.kinds.len(), self.kinds.first()) {
            (1, Some(kind)) => format!("'{kind}' "),
            _ => String::new(),
        }
    }
}
