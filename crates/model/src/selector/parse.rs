//! Makes an expression of a selector's words.

use std::collections::BTreeSet;

use super::ast::{Expr, Test};
use super::token::{OPERATORS, Token, Word, shown, tokenize};
use super::{NESTING_MAX, SelectorError};

pub(super) fn parse(text: &str) -> Result<Expr, SelectorError> {
    let tokens = tokenize(text)?;
    let mut parser = Parser { text, tokens: &tokens, next: 0, open_parens: 0 };
    if parser.word() == Word::End {
        return Ok(Expr::All);
    }
    let parsed = parser.or()?;
    match parser.word() {
        Word::End => Ok(parsed.expr),
        _ => Err(parser.unexpected("&&, || or the end")),
    }
}

/// An expression and how many groups nest in it, which is how many parentheses nest in its canonical text.
/// Bounding both this and the parentheses that were typed makes what is printed parse again.
struct Parsed {
    expr: Expr,
    nesting: usize,
}

impl From<Expr> for Parsed {
    fn from(expr: Expr) -> Parsed {
        Parsed { expr, nesting: 0 }
    }
}

struct Parser<'a> {
    text: &'a str,
    /// Ends with [`Word::End`], which is never passed.
    tokens: &'a [Token<'a>],
    next: usize,
    open_parens: usize,
}

impl<'a> Parser<'a> {
    fn or(&mut self) -> Result<Parsed, SelectorError> {
        self.operands(Word::Or, Parser::and, Expr::Or)
    }

    fn and(&mut self) -> Result<Parsed, SelectorError> {
        self.operands(Word::And, Parser::operation, Expr::And)
    }

    fn operands(
        &mut self,
        separator: Word<'_>,
        operand: fn(&mut Self) -> Result<Parsed, SelectorError>,
        group: fn(Vec<Expr>) -> Expr,
    ) -> Result<Parsed, SelectorError> {
        let start = self.token().start;
        let first = operand(self)?;
        if self.word() != separator {
            return Ok(first);
        }
        let mut nesting = first.nesting;
        let mut operands = vec![first.expr];
        while self.word() == separator {
            self.advance();
            let next = operand(self)?;
            nesting = nesting.max(next.nesting);
            operands.push(next.expr);
        }
        self.check_nesting(nesting + 1, start)?;
        Ok(Parsed { expr: group(operands), nesting: nesting + 1 })
    }

    fn operation(&mut self) -> Result<Parsed, SelectorError> {
        let mut negated = false;
        while self.word() == Word::Not {
            self.advance();
            negated = !negated;
        }
        let Parsed { expr, nesting } = self.operand()?;
        Ok(Parsed { expr: if negated { expr.negated() } else { expr }, nesting })
    }

    fn operand(&mut self) -> Result<Parsed, SelectorError> {
        let expr = match self.word() {
            Word::OpenParen => return self.parentheses(),
            Word::All => Expr::All,
            Word::Global => Expr::Global,
            Word::Has(name) => Expr::Has(name.to_owned()),
            Word::Label(name) => {
                self.advance();
                return Ok(Expr::Label { name: name.to_owned(), test: self.test()? }.into());
            }
            _ => return Err(self.unexpected("a label, has(), all(), global(), ! or (")),
        };
        self.advance();
        Ok(expr.into())
    }

    fn parentheses(&mut self) -> Result<Parsed, SelectorError> {
        self.check_nesting(self.open_parens + 1, self.token().start)?;
        self.open_parens += 1;
        self.advance();
        let inside = self.or()?;
        if self.word() != Word::CloseParen {
            return Err(self.unexpected("&&, || or )"));
        }
        self.advance();
        self.open_parens -= 1;
        Ok(inside)
    }

    fn test(&mut self) -> Result<Test, SelectorError> {
        let operator = self.word();
        if !matches!(
            operator,
            Word::Equals
                | Word::Differs
                | Word::Contains
                | Word::StartsWith
                | Word::EndsWith
                | Word::In
                | Word::NotIn
        ) {
            return Err(self.unexpected(OPERATORS));
        }
        self.advance();
        Ok(match operator {
            Word::In => Test::In(self.set()?),
            Word::NotIn => Test::NotIn(self.set()?),
            Word::Differs => Test::Differs(self.string()?),
            Word::Contains => Test::Contains(self.string()?),
            Word::StartsWith => Test::StartsWith(self.string()?),
            Word::EndsWith => Test::EndsWith(self.string()?),
            _ => Test::Equals(self.string()?),
        })
    }

    fn string(&mut self) -> Result<String, SelectorError> {
        match self.word() {
            Word::Text(value) => {
                self.advance();
                Ok(value.to_owned())
            }
            _ => Err(self.unexpected("a string in quotes")),
        }
    }

    fn set(&mut self) -> Result<BTreeSet<String>, SelectorError> {
        if self.word() != Word::OpenBrace {
            return Err(self.unexpected("a set such as {'a', 'b'}"));
        }
        self.advance();
        let mut values = BTreeSet::new();
        while let Word::Text(value) = self.word() {
            values.insert(value.to_owned());
            self.advance();
            match self.word() {
                // A comma before the brace is allowed.
                Word::Comma => self.advance(),
                Word::CloseBrace => break,
                _ => return Err(self.unexpected(", or }")),
            }
        }
        if self.word() != Word::CloseBrace {
            return Err(self.unexpected("a string in quotes or }"));
        }
        self.advance();
        Ok(values)
    }

    fn token(&self) -> Token<'a> {
        let end = Token { word: Word::End, start: self.text.len(), end: self.text.len() };
        self.tokens.get(self.next).copied().unwrap_or(end)
    }

    fn word(&self) -> Word<'a> {
        self.token().word
    }

    fn advance(&mut self) {
        self.next = (self.next + 1).min(self.tokens.len().saturating_sub(1));
    }

    fn unexpected(&self, expected: &str) -> SelectorError {
        let Token { word, start, end } = self.token();
        let found = match word {
            Word::End => "the end".to_owned(),
            Word::Text(_) => "a string".to_owned(),
            _ => shown(self.text.get(start..end).unwrap_or_default()),
        };
        SelectorError::new(self.text, start, found, expected)
    }

    fn check_nesting(&self, nesting: usize, start: usize) -> Result<(), SelectorError> {
        if nesting <= NESTING_MAX {
            return Ok(());
        }
        let found = format!("a group of {nesting} levels");
        Err(SelectorError::new(self.text, start, found, format!("at most {NESTING_MAX} levels")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn refusals_name_place_and_expectation() {
        let operand = "expected a label, has(), all(), global(), ! or (";
        for (text, expected) in [
            ("b == b", "character 6: found 'b', expected a string in quotes".to_owned()),
            ("b starts with b", "character 15: found 'b', expected a string in quotes".to_owned()),
            ("'b1' == b", format!("character 1: found a string, {operand}")),
            ("b", format!("character 2: found the end, expected {OPERATORS}")),
            ("b && has(a)", format!("character 3: found '&&', expected {OPERATORS}")),
            ("!", format!("character 2: found the end, {operand}")),
            ("foo != ||", "character 8: found '||', expected a string in quotes".to_owned()),
            ("foo in ''", "character 8: found a string, expected a set such as {'a', 'b'}".to_owned()),
            ("foo in {'' ''}", "character 12: found a string, expected , or }".to_owned()),
            ("foo in {'', ||", "character 13: found '||', expected a string in quotes or }".to_owned()),
            ("foo in {,}", "character 9: found ',', expected a string in quotes or }".to_owned()),
            ("foo in {'a'", "character 12: found the end, expected , or }".to_owned()),
            ("(a == 'b'", "character 10: found the end, expected &&, || or )".to_owned()),
            ("()", format!("character 2: found ')', {operand}")),
            (")", format!("character 1: found ')', {operand}")),
            ("has(a) &&", format!("character 10: found the end, {operand}")),
            ("has(a) has(b)", "character 8: found 'has(b)', expected &&, || or the end".to_owned()),
            ("has(a))", "character 7: found ')', expected &&, || or the end".to_owned()),
        ] {
            assert_eq!(message(text), expected, "{text}");
        }
    }

    #[test]
    fn precedence_shapes_the_tree() {
        let has = |name: &str| Expr::Has(name.to_owned());
        let not = |expr: Expr| Expr::Not(Box::new(expr));
        let mixed = Expr::Or(vec![Expr::And(vec![has("a"), not(has("b"))]), has("c")]);
        assert_eq!(parse("has(a) && !has(b) || has(c)"), Ok(mixed));
        let grouped = not(Expr::And(vec![has("a"), Expr::Or(vec![has("b"), has("c")])]));
        assert_eq!(parse("!(has(a) && (has(b) || has(c)))"), Ok(grouped));
    }

    #[test]
    fn nesting_has_a_bound() {
        let nested = |levels: usize| format!("{}has(a){}", "!(".repeat(levels), ")".repeat(levels));
        assert!(parse(&nested(NESTING_MAX)).is_ok());
        let error = message(&nested(NESTING_MAX + 1));
        assert_eq!(error, "character 402: found a group of 201 levels, expected at most 200 levels");
        assert!(message(&"(".repeat(1_000_000)).contains("expected at most 200 levels"));
    }

    #[test]
    fn what_is_accepted_is_accepted_again_when_printed() {
        // Each typed parenthesis makes two groups here, so the printed text nests twice as deep as the typed one.
        let nested =
            |levels: usize| format!("{}has(a){}", "has(b) || has(c) && (".repeat(levels), ")".repeat(levels));
        let deepest = parse(&nested(NESTING_MAX / 2)).unwrap();
        assert_eq!(parse(&deepest.to_string()), Ok(deepest));
        let error = message(&nested(NESTING_MAX / 2 + 1));
        assert!(error.ends_with("found a group of 201 levels, expected at most 200 levels"), "{error}");
    }

    #[test]
    fn a_million_negations_are_one_or_none() {
        assert_eq!(parse(&format!("{}has(a)", "! ".repeat(1_000_000))), parse("has(a)"));
        assert_eq!(parse(&format!("{}has(a)", "!".repeat(1_000_001))), parse("!has(a)"));
    }
}
