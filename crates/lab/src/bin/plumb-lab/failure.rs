//! What went wrong, printed as `plumb` prints it.

use std::error::Error;
use std::fmt;
use std::io;

use model::text::{ErrorText, causes};

/// The command could not do all that was asked.
pub(crate) const EXIT_FAILURE: u8 = 1;
/// The command line makes no sense. clap uses the same number.
pub(crate) const EXIT_USAGE: u8 = 2;

#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
    pub(crate) exit: u8,
    /// Whoever read our output has gone: nothing is printed.
    pub(crate) is_silent: bool,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        let message = message.into();
        Failure { message, causes: Vec::new(), hint: None, exit: EXIT_FAILURE, is_silent: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { exit: EXIT_USAGE, ..Failure::new(message) }
    }

    pub(crate) fn of(error: &dyn Error) -> Failure {
        Failure { causes: causes(error), ..Failure::new(error.to_string()) }
    }

    pub(crate) fn caused_by(mut self, error: &dyn Error) -> Failure {
        self.causes.push(error.to_string());
        self.causes.extend(causes(error));
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, causes, hint) = (&self.message, &self.causes, self.hint.as_deref());
        ErrorText { message, causes, hint }.fmt(f)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        let error: Box<dyn Error + Send + Sync> = error.into();
        Failure::of(&*error)
    }
}

/// Only for what goes to stdout.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        let is_silent = error.kind() == io::ErrorKind::BrokenPipe;
        Failure { is_silent, ..Failure::new("cannot write the output").caused_by(&error) }
    }
}
