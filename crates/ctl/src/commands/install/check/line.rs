//! One line of the check.

use render::harmless;
use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Ok,
    /// It works, but not everything, or something else may be in the way.
    Warn,
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    pub(super) found: String,
    /// What to do; empty if there is nothing to do.
    pub(super) advice: String,
}

impl Line {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Line {
        Line { name, verdict: Verdict::Ok, found: found.into(), advice: String::new() }
    }

    pub(super) fn warn(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Line {
        Line { name, verdict: Verdict::Warn, found: found.into(), advice: advice.into() }
    }

    pub(super) fn fail(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Line {
        Line { verdict: Verdict::Fail, ..Line::warn(name, found, advice) }
    }

    fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "fail",
        }
    }

    pub(super) fn text(&self) -> String {
        let advice = if self.advice.is_empty() { String::new() } else { format!("; {}", self.advice) };
        format!("{:<5} {:<12} {}{}\n", self.word(), self.name, harmless(&self.found), harmless(&advice))
    }

    pub(super) fn json(&self) -> Value {
        json!({ "check": self.name, "verdict": self.word(), "found": self.found, "advice": self.advice })
    }
}
