//! Errors as people read them: what failed, its causes, and a hint.

use std::error::Error;
use std::fmt;

use super::HarmlessLines;

/// An error on a terminal: one `error:` line, its causes below it, and a hint on a line of its own.
#[derive(Clone, Copy, Debug)]
pub struct ErrorText<'a> {
    pub message: &'a str,
    pub causes: &'a [String],
    pub hint: Option<&'a str>,
}

impl fmt::Display for ErrorText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", HarmlessLines(self.message))?;
        for cause in self.causes {
            write!(f, "\n  caused by: {}", HarmlessLines(cause))?;
        }
        match self.hint {
            Some(hint) => write!(f, "\nhint: {}", HarmlessLines(hint)),
            None => Ok(()),
        }
    }
}

/// The sources of an error, the nearest first.
pub fn causes(error: &dyn Error) -> Vec<String> {
    let mut causes = Vec::new();
    let mut source = error.source();
    while let Some(cause) = source {
        causes.push(cause.to_string());
        source = cause.source();
    }
    causes
}

/// An error and its sources on one line.
pub fn on_one_line(error: &dyn Error) -> String {
    std::iter::once(error.to_string()).chain(causes(error)).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_follow_their_error() {
        let error = Outer(std::io::Error::other("inner"));
        assert_eq!(on_one_line(&error), "outer: inner");
        let text = ErrorText { message: "outer", causes: &causes(&error), hint: Some("wait") };
        assert_eq!(text.to_string(), "error: outer\n  caused by: inner\nhint: wait");
    }
}
