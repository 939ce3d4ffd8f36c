//! Calico's selector language: which labels a pool, peer, policy or profile speaks of.
//!
//! ```text
//! or         = and { "||" and }
//! and        = operation { "&&" operation }
//! operation  = { "!" } ( "(" or ")" | "all()" | "global()" | "has(" label ")" | label test )
//! test       = "==" string | "!=" string | "contains" string | "starts with" string | "ends with" string
//!            | "in" set | "not in" set
//! set        = "{" [ string { "," string } [ "," ] ] "}"
//! ```
//!
//! Facts that are easy to get wrong:
//! * The empty selector is `all()`. (Some fields of Calico's API give *absence* a meaning of its own; that is
//!   the field's business, not the language's.)
//! * `!=` and `not in` are true of a missing label; every other test is false of it.
//! * Only blank and tab are white space. Inside a word operator it may be left out (`notin`), between `has`
//!   and its parenthesis it may not stand.
//! * Words are operators only right after a label, so `in in {"x"}` asks for the label `in`.
//! * Strings have no escapes: one that holds both kinds of quotes cannot be written.
//!
//! `token` splits text into words, `parse` makes an expression of them, `ast` evaluates and prints it.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod ast;
mod compose;
mod parse;
#[cfg(test)]
mod properties;
mod token;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::one_column;
use ast::Expr;
pub use ast::Labels;
pub use compose::Requirement;

/// The longest label name that can be asked for.
pub const LABEL_LEN_MAX: usize = 512;

/// How deep groups may nest. Calico sets no bound; this one keeps every walk over an expression off the end of
/// the stack.
pub const NESTING_MAX: usize = 200;

/// A parsed selector. Two are equal if they have the same canonical text, which is what `Display` prints: one
/// blank around operators, sets sorted and without duplicates, double quotes where the value allows, every
/// `&&` and `||` group in parentheses, double negation gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    root: Expr,
}

impl Selector {
    /// The selector that matches everything.
    pub fn all() -> Selector {
        Selector { root: Expr::All }
    }

    /// Whether this is `all()` itself. A selector such as `has(a) || !has(a)` is not, though it matches the same.
    pub fn is_all(&self) -> bool {
        self.root == Expr::All
    }

    /// Whether `global()` stands anywhere inside. It matches everything here; the rules where it may be used,
    /// and what it means there, belong to the kinds that allow it.
    pub fn mentions_global(&self) -> bool {
        self.root.mentions_global()
    }

    pub fn matches(&self, labels: &(impl Labels + ?Sized)) -> bool {
        self.root.matches(labels)
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Selector, SelectorError> {
        parse::parse(text).map(|root| Selector { root })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.fmt(f)
    }
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Selector, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A text that is no selector: where, what stood there, what should have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("character {}: found {found}, expected {expected}", self.position())]
pub struct SelectorError {
    text: String,
    /// In bytes, at a character's start or at the end of the text.
    offset: usize,
    found: String,
    expected: String,
}

impl SelectorError {
    fn new(
        text: &str,
        offset: usize,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> SelectorError {
        SelectorError { text: text.to_owned(), offset, found: found.into(), expected: expected.into() }
    }

    /// Which character of the text is the first wrong one, counted from 1.
    pub fn position(&self) -> usize {
        token::start(&self.text, self.offset).chars().count() + 1
    }

    pub fn found(&self) -> &str {
        &self.found
    }

    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// Two lines for a terminal: the text around the place, and a caret below it.
    pub fn pointer(&self) -> String {
        const BEFORE: usize = 60;
        const AFTER: usize = 20;
        let before: Vec<char> = token::start(&self.text, self.offset).chars().collect();
        let mut after = token::end(&self.text, self.offset).chars();
        let skipped = before.len().saturating_sub(BEFORE);

        let mut line = String::from(if skipped > 0 { "…" } else { "" });
        line.extend(before.iter().skip(skipped).copied().map(one_column));
        let caret = line.chars().count();
        line.extend(after.by_ref().take(AFTER).map(one_column));
        if after.next().is_some() {
            line.push('…');
        }
        format!("{line}\n{:caret$}^", "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> SelectorError {
        text.parse::<Selector>().expect_err(text)
    }

    #[test]
    fn all_is_what_it_says() {
        assert!(Selector::all().is_all());
        assert_eq!("".parse(), Ok(Selector::all()));
        assert_eq!(" \t".parse(), Ok(Selector::all()));
        assert!(!"global()".parse::<Selector>().unwrap().is_all());
        assert!(!"!all()".parse::<Selector>().unwrap().is_all());
    }

    #[test]
    fn global_is_found_at_any_depth() {
        for (text, mentioned) in [
            ("global()", true),
            ("has(a) && !(has(b) || global())", true),
            ("has(global) || global == 'global()'", false),
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().mentions_global(), mentioned, "{text}");
        }
    }

    #[test]
    fn errors_point_at_the_place() {
        let error = error("a == 'b' && c = 'd'");
        assert_eq!(error.to_string(), "character 15: found '=', expected ==");
        assert_eq!(error.pointer(), "a == 'b' && c = 'd'\n              ^");
    }

    #[test]
    fn the_pointer_counts_characters_and_keeps_to_one_short_line() {
        assert_eq!(error("a == 'ü\n' b").pointer(), "a == 'ü ' b\n          ^");
        let long = format!("a in {{{}}} %{}", "'x', ".repeat(100), "y".repeat(100));
        let pointer = error(&long).pointer();
        let (line, caret) = pointer.split_once('\n').unwrap();
        assert!(line.starts_with('…') && line.ends_with('…'), "{line}");
        assert!(line.chars().count() < 90, "{line}");
        assert_eq!(line.chars().nth(caret.chars().count() - 1), Some('%'));
    }

    #[test]
    fn json_is_a_string() {
        let selector: Selector = serde_json::from_str(r#""a=='b'""#).unwrap();
        assert_eq!(serde_json::to_string(&selector).unwrap(), r#""a == \"b\"""#);
        let error = serde_json::from_str::<Selector>(r#""a""#).unwrap_err();
        assert!(error.to_string().starts_with("character 2: found the end"), "{error}");
    }
}
