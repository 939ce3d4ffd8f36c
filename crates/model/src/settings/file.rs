//! The file of settings as systemd reads an `EnvironmentFile`: `NAME=value` lines, comments, quotes.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

/// What is wrong with a value or with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsFileError {
    #[error("line {line} is not NAME=value")]
    NoAssignment { line: usize },
    #[error("the value that starts in line {line} has no closing quote")]
    OpenQuote { line: usize },
    #[error("the value has a line break or another control character")]
    ControlCharacter,
}

/// A value as it stands in the file. What would need more than one line is refused.
pub fn quote_setting(value: &str) -> Result<String, SettingsFileError> {
    if value.chars().any(char::is_control) {
        return Err(SettingsFileError::ControlCharacter);
    }
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for character in value.chars() {
        if ESCAPED.contains(&character) {
            quoted.push('\\');
        }
        quoted.push(character);
    }
    quoted.push('"');
    Ok(quoted)
}

/// Between double quotes a backslash is one, except before these.
const ESCAPED: [char; 4] = ['"', '\\', '`', '$'];

/// All assignments; of several to one variable the last. Lines that are empty or begin with `#` or `;` are comments. No variable is
/// expanded: systemd expands none in such a file.
pub fn parse_settings_file(text: &str) -> Result<BTreeMap<String, String>, SettingsFileError> {
    let mut reader = Reader { rest: text.chars().peekable(), line: 1 };
    let mut settings = BTreeMap::new();
    loop {
        reader.skip_blank();
        let Some(first) = reader.rest.peek().copied() else { return Ok(settings) };
        if matches!(first, '#' | ';') {
            reader.skip_comment();
            continue;
        }
        let line = reader.line;
        let name = reader.name().ok_or(SettingsFileError::NoAssignment { line })?;
        settings.insert(name, reader.value().ok_or(SettingsFileError::OpenQuote { line })?);
    }
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn skip_blank(&mut self) {
        while self.rest.peek().is_some_and(|next| next.is_whitespace()) {
            self.next();
        }
    }

    /// A backslash at its end continues a comment, too.
    fn skip_comment(&mut self) {
        while let Some(next) = self.next() {
            match next {
                '\\' => drop(self.next()),
                '\n' => return,
                _ => {}
            }
        }
    }

    /// Up to the `=`.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        loop {
            match self.next()? {
                '=' => break,
                '\n' => return None,
                other => name.push(other),
            }
        }
        let name = name.trim_end();
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|first: char| first.is_ascii_digit())
                && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        };
        is_name(name).then(|| name.to_owned())
    }

    /// The rest of the line: parts with and without quotes. `None` if a quote stays open.
    fn value(&mut self) -> Option<String> {
        let mut value = String::new();
        // Blanks at the end do not count, unless they are quoted.
        let mut kept = 0;
        while self.rest.peek().is_some_and(|next| matches!(next, ' ' | '\t')) {
            self.next();
        }
        while let Some(next) = self.next() {
            match next {
                '\n' | '\r' => break,
                '\\' => match self.next() {
                    None | Some('\n') => {}
                    Some(escaped) => {
                        value.push(escaped);
                        kept = value.len();
                    }
                },
                '"' | '\'' => {
                    self.quoted(next, &mut value)?;
                    kept = value.len();
                }
                blank if blank.is_whitespace() => value.push(blank),
                other => {
                    value.push(other);
                    kept = value.len();
                }
            }
        }
        value.truncate(kept);
        Some(value)
    }

    fn quoted(&mut self, quote: char, value: &mut String) -> Option<()> {
        loop {
            match self.next()? {
                end if end == quote => return Some(()),
                '\\' if quote == '"' => match self.next()? {
                    '\n' => {}
                    escaped if ESCAPED.contains(&escaped) => value.push(escaped),
                    other => value.extend(['\\', other]),
                },
                other => value.push(other),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_is_read_as_systemd_reads_it() {
        let text = "# NODENAME=commented\n; neither=this\n\n A=plain text  \nB=\"two \\\"words\\\" $x \\\\ \\d\"\n\
                    C='it''s \\n'\nD=a\\ b\\\nc\nE=\nF =x\nA=again # and this\n";
        let settings = parse_settings_file(text).unwrap();
        let expected = [
            ("A", "again # and this"),
            ("B", "two \"words\" $x \\ \\d"),
            ("C", "its \\n"),
            ("D", "a bc"),
            ("E", ""),
            ("F", "x"),
        ];
        assert_eq!(settings, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn what_is_no_assignment_is_named_by_its_line() {
        assert_eq!(parse_settings_file("A=1\n\nB\n"), Err(SettingsFileError::NoAssignment { line: 3 }));
        assert_eq!(parse_settings_file("export A=1\n"), Err(SettingsFileError::NoAssignment { line: 1 }));
        assert_eq!(parse_settings_file("A=1\nB=\"x\ny"), Err(SettingsFileError::OpenQuote { line: 2 }));
        assert_eq!(quote_setting("a\nEVIL=1"), Err(SettingsFileError::ControlCharacter));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in "\\PC{0,30}") {
            let text = format!("#x\nA={}\nB=1\n", quote_setting(&value).unwrap());
            let settings = parse_settings_file(&text).unwrap();
            prop_assert_eq!(&settings["A"], &value);
            prop_assert_eq!(settings.len(), 2);
        }

        #[test]
        fn any_text_can_be_read(text in "[A-C=\"'\\\\#; \\n\\ré]{0,40}") {
            let _ = parse_settings_file(&text);
        }
    }
}
