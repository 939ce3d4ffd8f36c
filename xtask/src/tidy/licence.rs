//! Licence expressions as crates write them, and whether a list of allowed licences satisfies them.

use anyhow::{Result, bail};

/// Whether the code may be used by someone who accepts only the `allowed` licences.
///
/// Understands `AND`, `OR`, `WITH`, parentheses, and the old `/` for `OR`. `AND` binds tighter than `OR`.
pub(super) fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { tokens: &tokens, allowed };
    let outcome = reader.any_of();
    match (outcome, reader.tokens) {
        (Some(outcome), []) => Ok(outcome),
        _ => bail!("{expression:?} is no licence expression"),
    }
}

struct Reader<'a> {
    tokens: &'a [&'a str],
    allowed: &'a [String],
}

impl Reader<'_> {
    fn any_of(&mut self) -> Option<bool> {
        let mut outcome = self.all_of()?;
        while self.take("OR") {
            outcome |= self.all_of()?;
        }
        Some(outcome)
    }

    fn all_of(&mut self) -> Option<bool> {
        let mut outcome = self.one()?;
        while self.take("AND") {
            outcome &= self.one()?;
        }
        Some(outcome)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let inner = self.any_of()?;
            return self.take(")").then_some(inner);
        }
        let mut name = self.next_name()?.to_owned();
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.next_name()?);
        }
        Some(self.allowed.contains(&name))
    }

    fn take(&mut self, token: &str) -> bool {
        match self.tokens.split_first() {
            Some((first, rest)) if *first == token => {
                self.tokens = rest;
                true
            }
            _ => false,
        }
    }

    fn next_name(&mut self) -> Option<&str> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        (!["AND", "OR", "WITH", "(", ")"].contains(first)).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_weighed() {
        let allowed =
            ["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        let cases = [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("MIT OR GPL-3.0-only", true),
            ("MIT AND GPL-3.0-only", false),
            ("MIT/Apache-2.0", true),
            ("GPL-2.0 / MIT", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR GPL-2.0) AND OpenSSL", false),
            ("GPL-2.0 OR MIT AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0 WITH Classpath-exception-2.0", false),
        ];
        for (expression, expected) in cases {
            assert_eq!(is_allowed(expression, &allowed).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_is_an_error() {
        for text in ["", "MIT OR", "(MIT", "MIT Apache-2.0", "OR", "MIT WITH", ")"] {
            assert!(is_allowed(text, &["MIT".to_owned()]).is_err(), "{text}");
        }
    }
}
