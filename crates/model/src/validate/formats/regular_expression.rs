//! Regular expressions as Go's `regexp` package reads them. Only their grammar is checked: nothing here matches.
//!
//! What Go writes in its own way is rewritten, and `regex-syntax` checks the rest.

use std::iter::Peekable;
use std::str::Chars;

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{Ast, ClassAsciiKind, RepetitionKind, RepetitionRange};

use super::Verdict;

/// No deeper than Go allows, and shallow enough for the stack.
const NESTING_MAX: u32 = 250;
/// How often something may be repeated, repetitions of repetitions multiplied.
const REPEAT_MAX: u32 = 1000;
/// Longer than `[:^xdigit:]`, and than `1000,1000}`: nothing further ahead is looked at.
const NAME_LENGTH_MAX: usize = 20;
const COUNT_LENGTH_MAX: usize = 20;

pub fn regular_expression(text: &str) -> Verdict {
    check(text).map_err(|problem| format!("must be a regular expression: {problem}"))
}

fn check(text: &str) -> Result<(), String> {
    let mut reader = Reader { rest: text.chars().peekable(), rewritten: String::new() };
    reader.read()?;
    let mut parser = ParserBuilder::new().nest_limit(NESTING_MAX).build();
    let parsed = parser.parse(&reader.rewritten).map_err(|error| error.kind().to_string())?;
    check_repetitions(&parsed, REPEAT_MAX)
}

/// `left`: how often what is inside may still be repeated.
fn check_repetitions(expression: &Ast, left: u32) -> Result<(), String> {
    match expression {
        Ast::Repetition(repetition) => {
            if matches!(*repetition.ast, Ast::Repetition(_)) {
                return Err("a repetition is repeated".to_owned());
            }
            let count = match &repetition.op.kind {
                RepetitionKind::Range(RepetitionRange::Exactly(count) | RepetitionRange::AtLeast(count)) => {
                    *count
                }
                RepetitionKind::Range(RepetitionRange::Bounded(_, most)) => *most,
                _ => 1,
            };
            match left.checked_div(count) {
                None => Ok(()),
                Some(0) => Err(format!("something is repeated more than {REPEAT_MAX} times")),
                Some(left) => check_repetitions(&repetition.ast, left),
            }
        }
        Ast::Group(group) => check_repetitions(&group.ast, left),
        Ast::Alternation(all) => all.asts.iter().try_for_each(|part| check_repetitions(part, left)),
        Ast::Concat(all) => all.asts.iter().try_for_each(|part| check_repetitions(part, left)),
        _ => Ok(()),
    }
}

/// Rewrites Go's expressions into those of `regex-syntax`.
struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    rewritten: String,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(character) = self.rest.next() {
            match character {
                '(' => self.group()?,
                '[' => self.class()?,
                '\\' => self.escape()?,
                // Any other brace stands for itself.
                '{' if !self.is_count() => self.rewritten.push_str("\\{"),
                _ => self.rewritten.push(character),
            }
        }
        Ok(())
    }

    /// `(`, `(?:`, `(?i)`, `(?i-s:`, `(?P<name>`. Names and flags are checked here, and change nothing of the grammar.
    fn group(&mut self) -> Result<(), String> {
        if self.rest.next_if_eq(&'?').is_none() {
            self.rewritten.push('(');
            return Ok(());
        }
        let is_named = self.rest.next_if_eq(&'P').is_some();
        if self.rest.next_if_eq(&'<').is_some() {
            self.rewritten.push('(');
            return self.group_name();
        }
        let flags: String =
            std::iter::from_fn(|| self.rest.next_if(|flag| "imsU-".contains(*flag))).collect();
        let are_read = !is_named && flags.matches('-').count() < 2 && !flags.ends_with('-');
        match self.rest.next() {
            Some(':') if are_read => self.rewritten.push_str("(?:"),
            Some(')') if are_read => {}
            _ => return Err("a group is of an unknown kind".to_owned()),
        }
        Ok(())
    }

    fn group_name(&mut self) -> Result<(), String> {
        let is_of_name = |character: &char| character.is_ascii_alphanumeric() || *character == '_';
        let name: String = std::iter::from_fn(|| self.rest.next_if(is_of_name)).collect();
        if name.is_empty() || self.rest.next() != Some('>') {
            return Err("a group has a bad name".to_owned());
        }
        Ok(())
    }

    /// There is no set arithmetic in Go: inside a class, all but ranges and names of classes stands for itself.
    fn class(&mut self) -> Result<(), String> {
        self.rewritten.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.rewritten.push('^');
        }
        let mut is_first = true;
        loop {
            if !is_first && self.rest.next_if_eq(&']').is_some() {
                self.rewritten.push(']');
                return Ok(());
            }
            is_first = false;
            if self.named_class()? || self.class_member()? {
                continue;
            }
            let mut ahead = self.rest.clone();
            if ahead.next() == Some('-') && ahead.next().is_some_and(|after| after != ']') {
                self.rest.next();
                self.rewritten.push('-');
                self.class_member()?;
            }
        }
    }

    /// `[:alpha:]`, `[:^alpha:]`
    fn named_class(&mut self) -> Result<bool, String> {
        let ahead: String = self.rest.clone().take(NAME_LENGTH_MAX).collect();
        let Some((name, _)) = ahead.strip_prefix("[:").and_then(|ahead| ahead.split_once(":]")) else {
            return Ok(false);
        };
        if ClassAsciiKind::from_name(name.strip_prefix('^').unwrap_or(name)).is_none() {
            return Err(format!("there is no class [:{name}:]"));
        }
        self.rewritten.push_str(&format!("[:{name}:]"));
        self.rest.nth(name.chars().count() + "[::]".len() - 1);
        Ok(true)
    }

    /// One member of a class; whether it is itself a class.
    fn class_member(&mut self) -> Result<bool, String> {
        match self.rest.next() {
            None => Err("a ']' is missing".to_owned()),
            Some('\\') => {
                let escaped = self.rest.peek().copied().unwrap_or_default();
                if "AbBzQ".contains(escaped) {
                    return Err(format!("\\{escaped} cannot be in a class"));
                }
                self.escape()?;
                Ok("dDsSwWpP".contains(escaped))
            }
            Some(character) => {
                self.literal(character);
                Ok(false)
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.rest.next() {
            Some('Q') => self.quoted(),
            Some(octal @ '0'..='7') => self.octal(octal),
            Some('x') => self.hexadecimal()?,
            Some('p' | 'P') => self.unicode_class()?,
            Some(letter) if "AbBzdDsSwWaftnrv".contains(letter) => self.rewritten.extend(['\\', letter]),
            Some(mark) if mark.is_ascii() && !mark.is_ascii_alphanumeric() => self.literal(mark),
            Some(other) => return Err(format!("\\{other} has no meaning")),
            None => return Err("a '\\' is at the end".to_owned()),
        }
        Ok(())
    }

    /// `\Q…\E`, or to the end.
    fn quoted(&mut self) {
        while let Some(character) = self.rest.next() {
            if character == '\\' && self.rest.next_if_eq(&'E').is_some() {
                return;
            }
            self.literal(character);
        }
    }

    /// Up to three digits. A single one that is not 0 would be a reference to a group, which the parser refuses.
    fn octal(&mut self, first: char) {
        let mut digits = String::from(first);
        digits.extend(std::iter::from_fn(|| self.rest.next_if(|digit| ('0'..='7').contains(digit))).take(2));
        match u32::from_str_radix(&digits, 8) {
            Ok(number) if digits.len() > 1 || number == 0 => {
                self.rewritten.push_str(&format!("\\x{{{number:x}}}"))
            }
            _ => self.rewritten.extend(['\\', first]),
        }
    }

    /// `\x41`, `\x{1F600}`; the parser knows which characters exist.
    fn hexadecimal(&mut self) -> Result<(), String> {
        let is_braced = self.rest.next_if_eq(&'{').is_some();
        let digits = std::iter::from_fn(|| self.rest.next_if(char::is_ascii_hexdigit));
        let digits: String = digits.take(if is_braced { 8 } else { 2 }).collect();
        let is_whole = if is_braced { self.rest.next() == Some('}') } else { digits.len() == 2 };
        self.rewritten.push_str(&format!("\\x{{{digits}}}"));
        if is_whole { Ok(()) } else { Err("a \\x needs two digits, or digits in braces".to_owned()) }
    }

    /// `\pL`, `\p{Greek}`, `\p{^Greek}`. Which scripts there are is left to Go.
    fn unicode_class(&mut self) -> Result<(), String> {
        let mut name = self.rest.next().map(String::from).unwrap_or_default();
        if name == "{" {
            self.rest.next_if_eq(&'^');
            let is_of_name = |character: &char| character.is_ascii_alphabetic() || *character == '_';
            name = std::iter::from_fn(|| self.rest.next_if(is_of_name)).collect();
            name.retain(|_| self.rest.peek() == Some(&'}'));
            self.rest.next();
        }
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic());
        // Any class does: the parser knows no names.
        self.rewritten.push_str("\\d");
        if is_name { Ok(()) } else { Err("a class of characters has a bad name".to_owned()) }
    }

    fn literal(&mut self, character: char) {
        if regex_syntax::is_meta_character(character) {
            self.rewritten.push('\\');
        }
        self.rewritten.push(character);
    }

    /// Whether `2}`, `2,}` or `2,5}` follows.
    fn is_count(&self) -> bool {
        let inside: String = self.rest.clone().take(COUNT_LENGTH_MAX).collect();
        let Some((inside, _)) = inside.split_once('}') else { return false };
        let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        !least.is_empty() && is_number(least) && is_number(most)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Go's own answers (`regexp.Compile`).
    const ACCEPTED: &str = r"
        ^(en.*|eth.*)$ a{2,5}? []a] [^]] \d+\.\w* { a{ a{,2} a{01} x| x*? ^* \b* (?i)x(?:y)(?P<n>z) (?<n>x)
        (?P<1a>x) (?P<n>a)(?P<n>b) (?i-s:a) (?ii)a (?) a(?i)* \0 \12 \012 \x41 \x{10FFFF} \pN \p{Greek}
        \p{^Lu} \_ \< \z \A \Q \Qa[\E* \Qab\E+ a\Q\E* [[] [a&&b] [a~~b] [+--] [a-] [-a] [a-z-9] [\d-z]
        [[:^alpha:]] [[:alpha:]-z] [\012] [\]\-] [\pL] (a{30}){33} é{2} [é-ü]";
    const REFUSED: &str = r"
        ( a) [a [] [^] *a a|* (*) \ (?i)* \Q\E* (?=a) (?!a) (?<=a) (?P<>a) (?P=n) (?P:a) (?#c) (?x)a (?-)
        (?i-) (?--i) (?u)a a{1001} a{3,2} (a{30}){34} a** a{2}{3} x*?? x*+ a**?b \1 \9 \C \E \Z \G \u1234 \é
        \x{110000} \x{} \p{Greek [z-a] [a--b] [é-a] [a-\d] [a-[:alpha:]] [[:foo:]] [\b] [\Q]\E] [\1] [\z]";

    #[test]
    fn what_go_compiles_is_accepted() {
        assert_eq!(regular_expression(""), Ok(()));
        for text in ACCEPTED.split_whitespace() {
            assert_eq!(regular_expression(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in REFUSED.split_whitespace() {
            assert!(regular_expression(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_message_says_what_is_wrong() {
        let problem = regular_expression("[z-a]").unwrap_err();
        assert!(
            problem.starts_with("must be a regular expression: invalid character class range"),
            "{problem}"
        );
    }

    #[test]
    fn depth_is_a_complaint_and_not_a_crash() {
        assert!(regular_expression(&"(".repeat(100_000)).is_err());
        assert!(regular_expression(&"(?:".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>(), dense in "[\\[\\](){}\\\\?*a-dQEpx0-9:^&,<>-]{0,30}") {
            let _ = regular_expression(&text);
            let _ = regular_expression(&dense);
        }
    }
}
