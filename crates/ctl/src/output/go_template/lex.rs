//! A template cut into texts and actions, and actions cut into words.

/// A piece of a template, and the line it begins on.
#[derive(Debug)]
pub(super) enum Piece {
    Text(String),
    Action { line: usize, words: Vec<Word> },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Word {
    /// `.A.B`; a lone dot has no names.
    Field(Vec<String>),
    /// `$x.A`.
    Variable(String, Vec<String>),
    Name(String),
    Text(String),
    Number(f64, bool),
    Open,
    /// With what follows the parenthesis: `).A`.
    Close(Vec<String>),
    Pipe,
    Declare,
    Assign,
    Comma,
}

/// Texts and actions in turn, with blanks trimmed where a dash asks for it.
pub(super) fn pieces(template: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let (mut rest, mut line) = (template, 1);
    let mut trims_start = false;
    loop {
        let (text, action) = match rest.split_once("{{") {
            None => (rest, None),
            Some((text, action)) => (text, Some(action)),
        };
        let begin = line + count_lines(text);
        let trims_end = action.is_some_and(|action| {
            action.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_whitespace()))
        });
        let mut text = if trims_start { text.trim_start() } else { text };
        if trims_end {
            text = text.trim_end();
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }
        let Some(mut action) = action else { return Ok(pieces) };
        if trims_end {
            action = action.strip_prefix('-').unwrap_or(action);
        }
        let length = end_of_action(action).ok_or_else(|| format!("{begin}: {}", unclosed(action)))?;
        let (inside, after) = action.split_at_checked(length).unwrap_or((action, ""));
        rest = after.strip_prefix("}}").unwrap_or(after);
        line = begin + count_lines(inside);
        let cut = inside.strip_suffix('-').filter(|cut| cut.ends_with(|c: char| c.is_ascii_whitespace()));
        trims_start = cut.is_some();
        let inside = cut.unwrap_or(inside).trim();
        if inside.starts_with("/*") && inside.ends_with("*/") {
            continue;
        }
        let words = words(inside).map_err(|problem| format!("{begin}: {problem}"))?;
        pieces.push(Piece::Action { line: begin, words });
    }
}

fn count_lines(text: &str) -> usize {
    text.matches('\n').count()
}

fn unclosed(action: &str) -> &'static str {
    // Quotes that do not close hide the end of the action.
    match action.contains("}}") && action.matches('"').count() % 2 == 1 {
        true => "unterminated quoted string",
        false => "unclosed action",
    }
}

/// Where the action ends, quotes considered.
fn end_of_action(action: &str) -> Option<usize> {
    let mut quote: Option<char> = None;
    let mut characters = action.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            (Some('`'), '`') => quote = None,
            (Some('`'), _) => {}
            (Some(_), '\\') => drop(characters.next()),
            (Some(open), close) if open == close => quote = None,
            (Some(_), '\n') => return None,
            (Some(_), _) => {}
            (None, '"' | '`' | '\'') => quote = Some(character),
            (None, '}') if characters.peek().is_some_and(|(_, next)| *next == '}') => return Some(at),
            (None, _) => {}
        }
    }
    None
}

fn words(action: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = action.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = word(first, rest)?;
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

fn word(first: char, rest: &str) -> Result<(Word, &str), String> {
    let tail = rest.strip_prefix(first).unwrap_or_default();
    Ok(match first {
        '|' => (Word::Pipe, tail),
        ',' => (Word::Comma, tail),
        '(' => (Word::Open, tail),
        ')' => {
            let (names, after) = names(tail);
            (Word::Close(names), after)
        }
        ':' if tail.starts_with('=') => (Word::Declare, tail.strip_prefix('=').unwrap_or(tail)),
        '=' => (Word::Assign, tail),
        '.' => {
            let (names, after) = names(rest);
            (Word::Field(names), if after == rest { tail } else { after })
        }
        '$' => {
            let (name, after) = identifier(tail);
            let (names, after) = names(after);
            (Word::Variable(name.to_owned(), names), after)
        }
        '"' | '`' | '\'' => quoted(first, tail)?,
        c if c.is_ascii_digit() || matches!(c, '-' | '+') => number(rest)?,
        c if c.is_alphabetic() || c == '_' => {
            let (name, after) = identifier(rest);
            (Word::Name(name.to_owned()), after)
        }
        c => return Err(format!("unexpected {c:?} in command")),
    })
}

fn identifier(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// `.A.B` at the beginning of a text.
fn names(text: &str) -> (Vec<String>, &str) {
    let (mut names, mut rest) = (Vec::new(), text);
    while let Some(tail) = rest.strip_prefix('.') {
        let (name, after) = identifier(tail);
        if name.is_empty() {
            break;
        }
        names.push(name.to_owned());
        rest = after;
    }
    (names, rest)
}

fn quoted(quote: char, tail: &str) -> Result<(Word, &str), String> {
    if quote == '`' {
        let (text, after) = tail.split_once('`').ok_or("unterminated raw quoted string")?;
        return Ok((Word::Text(text.to_owned()), after));
    }
    let mut text = String::new();
    let mut characters = tail.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => text.push(match characters.next().map(|(_, escaped)| escaped) {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some(other @ ('"' | '\'' | '\\')) => other,
                _ => return Err("invalid syntax in a quoted string".to_owned()),
            }),
            close if close == quote => {
                let after = tail.split_at_checked(at + quote.len_utf8()).map_or("", |(_, after)| after);
                let one = text.chars().next();
                return match (quote, one) {
                    ('\'', Some(one)) if text.chars().count() == 1 => {
                        Ok((Word::Number(f64::from(u32::from(one)), true), after))
                    }
                    ('\'', _) => Err("malformed character constant".to_owned()),
                    _ => Ok((Word::Text(text), after)),
                };
            }
            other => text.push(other),
        }
    }
    Err("unterminated quoted string".to_owned())
}

fn number(text: &str) -> Result<(Word, &str), String> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E' | '_');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (digits, after) = text.split_at_checked(end).unwrap_or((text, ""));
    let number =
        digits.replace('_', "").parse::<f64>().map_err(|_| format!("bad number syntax: {digits:?}"))?;
    Ok((Word::Number(number, !digits.contains(['.', 'e', 'E'])), after))
}
