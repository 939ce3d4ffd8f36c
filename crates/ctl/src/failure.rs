//! What went wrong, as an operator sees it: one `error:` line, its causes, and a hint on a line of its own.

use std::error::Error;
use std::fmt;
use std::io::{self, Write as _};

use model::text::{ErrorText, HarmlessLines, causes};
use store::StoreError;
use store::config::ConfigError;

use crate::compat;

/// The command did what was asked.
pub(crate) const EXIT_OK: u8 = 0;
/// It could not, or not all of it.
pub(crate) const EXIT_FAILURE: u8 = 1;
/// It was called in a way it does not understand. clap uses the same number. So do commands that look for problems
/// if they could not look: there, failing is not finding.
pub(crate) const EXIT_USAGE: u8 = 2;

/// One failure.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    sort: Sort,
    /// What calicoctl says instead, where that is not our message with its causes.
    calicoctl: Option<String>,
}

/// What a failure means for the end of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Failed,
    /// The command line makes no sense, or nothing could be looked at.
    Unable,
    /// Problems were looked for, found and told as data.
    Found,
    /// Whoever read our output has gone. Nothing is said about that.
    ReaderGone,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        let message = message.into();
        Failure { message, causes: Vec::new(), hint: None, sort: Sort::Failed, calicoctl: None }
    }

    /// There are problems, and they have been told.
    pub(crate) fn found() -> Failure {
        Failure { sort: Sort::Found, ..Failure::new("there are problems") }
    }

    /// The command line makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { sort: Sort::Unable, ..Failure::new(message) }
    }

    /// The message of an error, with its sources as causes.
    pub(crate) fn of(error: &dyn Error) -> Failure {
        Failure { causes: causes(error), ..Failure::new(error.to_string()) }
    }

    /// Says it in calicoctl's words, for strict mode.
    #[must_use]
    pub(crate) fn in_calicoctl(mut self, text: impl Into<String>) -> Failure {
        self.calicoctl = Some(text.into());
        self
    }

    /// What strict mode prints.
    pub(crate) fn calicoctl(&self) -> String {
        self.calicoctl.clone().unwrap_or_else(|| self.words())
    }

    /// What happened and why, on one line.
    pub(crate) fn words(&self) -> String {
        std::iter::once(&self.message).chain(&self.causes).cloned().collect::<Vec<_>>().join(": ")
    }

    #[must_use]
    pub(crate) fn caused_by(mut self, error: &dyn Error) -> Failure {
        self.causes.push(error.to_string());
        self.causes.extend(causes(error));
        self
    }

    /// Puts this failure below a message about the larger thing that was being done.
    #[must_use]
    pub(crate) fn within(mut self, message: impl Into<String>) -> Failure {
        let message = message.into();
        self.calicoctl = self.calicoctl.map(|inner| format!("{message}: {inner}"));
        let inner = std::mem::replace(&mut self.message, message);
        self.causes.insert(0, inner);
        self
    }

    /// Says in front which file this is about. calicoctl does not say it.
    #[must_use]
    pub(crate) fn in_file(mut self, name: &str) -> Failure {
        self.calicoctl = Some(self.calicoctl());
        self.message = format!("{name}: {}", self.message);
        self
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Advice where the failure has none of its own.
    #[must_use]
    pub(crate) fn or_hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    #[must_use]
    pub(crate) fn maybe_hint(mut self, hint: Option<impl Into<String>>) -> Failure {
        if let Some(hint) = hint {
            self.hint = Some(hint.into());
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, causes, hint) = (&self.message, &self.causes, self.hint.as_deref());
        ErrorText { message, causes, hint }.fmt(f)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::of(&error).maybe_hint(error.hint())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::of(&error).maybe_hint(error.hint())
    }
}

/// Only for what goes to stdout; errors of other files are wrapped with the file's name.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let sort = if error.kind() == io::ErrorKind::BrokenPipe { Sort::ReaderGone } else { Sort::Failed };
        Failure { sort, ..Failure::new("cannot write the output").caused_by(&error) }
    }
}

/// What goes wrong on the way without stopping it. Of very many problems only the first are told, so that a store
/// full of damaged records floods neither memory nor the terminal.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    told: Vec<Failure>,
    untold: usize,
}

impl Problems {
    const TOLD_MAX: usize = 20;

    pub(crate) fn push(&mut self, failure: Failure) {
        if self.told.len() < Problems::TOLD_MAX {
            self.told.push(failure);
        } else {
            self.untold += 1;
        }
    }

    pub(crate) fn finish(self) -> Result<(), Failures> {
        Failures::collect(self.into_failures())
    }

    pub(crate) fn into_failures(mut self) -> Vec<Failure> {
        if self.untold > 0 {
            self.told.push(Failure::new(format!("{} more such errors", self.untold)));
        }
        self.told
    }
}

/// Everything that went wrong in one run, in order.
#[derive(Debug)]
pub(crate) struct Failures(Vec<Failure>);

impl Failures {
    /// `Ok` if there are none.
    pub(crate) fn collect(failures: Vec<Failure>) -> Result<(), Failures> {
        if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
    }

    /// The first of them, for those who can tell only one.
    pub(crate) fn into_first(self) -> Failure {
        self.0.into_iter().next().unwrap_or_else(|| Failure::new("nothing is known about the failure"))
    }

    /// Says what all of them come to.
    #[must_use]
    pub(crate) fn and(mut self, last: Failure) -> Failures {
        self.0.push(last);
        self
    }

    /// For a command that looks for problems: failing means that it could not look.
    #[must_use]
    pub(crate) fn unable(mut self) -> Failures {
        for failure in self.0.iter_mut().filter(|failure| failure.sort == Sort::Failed) {
            failure.sort = Sort::Unable;
        }
        self
    }

    /// Prints to stderr what is worth printing, and says how the process ends.
    pub(crate) fn report(&self) -> u8 {
        let mut stderr = io::stderr().lock();
        let is_told = |failure: &&Failure| matches!(failure.sort, Sort::Failed | Sort::Unable);
        for failure in self.0.iter().filter(is_told) {
            // Nobody is left to tell if stderr is closed.
            let _ = match compat::is_strict() {
                true => writeln!(stderr, "{}", HarmlessLines(&failure.calicoctl())),
                false => writeln!(stderr, "{failure}"),
            };
        }
        if compat::is_strict() && self.0.iter().any(|failure| failure.sort == Sort::Unable) {
            EXIT_FAILURE
        } else if self.0.iter().any(|failure| failure.sort == Sort::Unable) {
            EXIT_USAGE
        } else if self.0.iter().all(|failure| failure.sort == Sort::ReaderGone) {
            EXIT_OK
        } else {
            EXIT_FAILURE
        }
    }
}

impl<T: Into<Failure>> From<T> for Failures {
    fn from(failure: T) -> Failures {
        Failures(vec![failure.into()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_give_the_terminal_no_orders() {
        let failure = Failure::new("Node(\u{1b}[31m)")
            .caused_by(&io::Error::other("\r\u{7}"))
            .hint("\u{9b}2J")
            .in_file("two\nlines");
        assert_eq!(
            failure.to_string(),
            "error: two\nlines: Node(\u{fffd}[31m)\n  caused by: \u{fffd}\u{fffd}\nhint: \u{fffd}2J"
        );
    }
}
