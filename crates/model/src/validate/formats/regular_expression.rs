//! Regular expressions as Go's `regexp` package reads them. Only their grammar is checked: nothing here matches.

use std::iter::Peekable;
use std::str::Chars;

use super::Verdict;

/// No deeper than Go allows, and shallow enough for the stack.
const NESTING_MAX: usize = 250;
const REPEAT_MAX: u32 = 1000;

pub fn regular_expression(text: &str) -> Verdict {
    let mut reader = Reader { rest: text.chars().peekable(), open: 0 };
    match reader.read() {
        Ok(()) => Ok(()),
        Err(problem) => Err(format!("must be a regular expression: {problem}")),
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    open: usize,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), &'static str> {
        // Whether there is something that a repetition can repeat.
        let mut repeatable = false;
        while let Some(character) = self.rest.next() {
            repeatable = match character {
                '(' => {
                    self.open_group()?;
                    false
                }
                ')' => {
                    self.open = self.open.checked_sub(1).ok_or("there is a ')' too many")?;
                    true
                }
                '[' => {
                    self.class()?;
                    true
                }
                '\\' => {
                    self.escape()?;
                    true
                }
                '|' => false,
                '*' | '+' | '?' => self.repeated(repeatable)?,
                '{' if self.counted()? => self.repeated(repeatable)?,
                _ => true,
            };
        }
        if self.open > 0 { Err("a ')' is missing") } else { Ok(()) }
    }

    fn repeated(&mut self, repeatable: bool) -> Result<bool, &'static str> {
        if !repeatable {
            return Err("there is nothing to repeat");
        }
        // A further `?` makes it lazy.
        self.rest.next_if_eq(&'?');
        Ok(false)
    }

    /// `(`, `(?:`, `(?i)`, `(?P<name>`. Go has no look-around.
    fn open_group(&mut self) -> Result<(), &'static str> {
        self.open += 1;
        if self.open > NESTING_MAX {
            return Err("it is nested too deep");
        }
        if self.rest.next_if_eq(&'?').is_none() {
            return Ok(());
        }
        self.rest.next_if_eq(&'P');
        if self.rest.next_if_eq(&'<').is_some() {
            return self.group_name();
        }
        loop {
            match self.rest.next() {
                Some('i' | 'm' | 's' | 'U' | '-') => {}
                Some(':') => return Ok(()),
                Some(')') => {
                    self.open -= 1;
                    return Ok(());
                }
                _ => return Err("there is a group of an unknown kind"),
            }
        }
    }

    fn group_name(&mut self) -> Result<(), &'static str> {
        let mut length = 0;
        for character in self.rest.by_ref() {
            match character {
                '>' if length > 0 => return Ok(()),
                character if character.is_ascii_alphanumeric() || character == '_' => length += 1,
                _ => break,
            }
        }
        Err("there is a group with a bad name")
    }

    fn class(&mut self) -> Result<(), &'static str> {
        self.rest.next_if_eq(&'^');
        let mut first = true;
        loop {
            match self.rest.next() {
                None => return Err("a ']' is missing"),
                Some(']') if !first => return Ok(()),
                Some('\\') => self.escape()?,
                Some(_) => {}
            }
            first = false;
        }
    }

    fn escape(&mut self) -> Result<(), &'static str> {
        match self.rest.next() {
            None => Err("there is a '\\' at the end"),
            Some(letter)
                if letter.is_ascii_alphanumeric() && !"aftnrvdDsSwWbBAzQExpPC01234567".contains(letter) =>
            {
                Err("there is an unknown escape")
            }
            Some(_) => Ok(()),
        }
    }

    /// `{2}`, `{2,}`, `{2,5}`; any other brace stands for itself.
    fn counted(&mut self) -> Result<bool, &'static str> {
        let text: String = self.rest.clone().take_while(|character| *character != '}').take(12).collect();
        if self.rest.clone().nth(text.len()) != Some('}') {
            return Ok(false);
        }
        let (least, most) = text.split_once(',').map_or((text.as_str(), None), |(a, b)| (a, Some(b)));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(least) || !most.is_none_or(|most| most.is_empty() || is_number(most)) {
            return Ok(false);
        }
        let count = |part: &str| part.parse::<u32>().unwrap_or(u32::MAX);
        let top = most.filter(|most| !most.is_empty()).map_or(count(least), count);
        if top > REPEAT_MAX || count(least) > top {
            return Err("there is a bad repeat count");
        }
        for _ in 0..=text.len() {
            self.rest.next();
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_compiles_is_accepted() {
        for text in [
            "",
            "^(en.*|eth.*)$",
            "a{2,5}?",
            "[]a]",
            "[^]]",
            "(?i)x(?:y)(?P<n>z)",
            "\\d+\\.\\w*",
            "{",
            "a{,2}",
            "x|",
            "a**?b",
        ] {
            let doubled = text == "a**?b";
            assert_eq!(regular_expression(text).is_ok(), !doubled, "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in ["(", "a)", "[a", "*a", "a|*", "\\", "(?=a)", "(?P<>a)", "a{1001}", "a{3,2}", "\\9"] {
            assert!(regular_expression(text).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_is_a_complaint_and_not_a_crash() {
        assert!(regular_expression(&"(".repeat(100_000)).is_err());
    }
}
