//! Texts that give a terminal no orders and hide nothing from whoever reads them.

use std::fmt::{self, Write as _};

/// Shows a text with everything replaced that a terminal would obey, or that would make a line look like another one:
/// control characters of both sets, marks that turn the direction of writing, line breaks, and marks without width.
#[derive(Debug)]
pub struct Harmless<'a>(pub &'a str);

/// The same as a text of its own.
pub fn harmless(text: &str) -> String {
    Harmless(text).to_string()
}

impl fmt::Display for Harmless<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| f.write_char(harmless_character(character)))
    }
}

/// A character where columns count, as in a table or above a caret: line breaks and tabs are blanks.
pub fn one_column(character: char) -> char {
    if character.is_ascii_whitespace() { ' ' } else { harmless_character(character) }
}

fn harmless_character(character: char) -> char {
    match character {
        '\t' => ' ',
        _ if is_deceptive(character) => char::REPLACEMENT_CHARACTER,
        _ => character,
    }
}

/// The same, but line breaks stay: messages may have several lines.
#[derive(Debug)]
pub struct HarmlessLines<'a>(pub &'a str);

impl fmt::Display for HarmlessLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.0.split('\n').enumerate() {
            if number > 0 {
                f.write_char('\n')?;
            }
            Harmless(line).fmt(f)?;
        }
        Ok(())
    }
}

/// Whether a terminal would obey a character, or show a line so that it looks like another one: control characters of both sets, marks
/// that turn the direction of writing, line breaks, and marks without width.
pub fn is_deceptive(character: char) -> bool {
    let is_mark = matches!(character,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    character.is_control() || is_mark
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn orders_and_disguises_are_replaced() {
        assert_eq!(
            harmless("pod\u{1b}[2J\u{9b}1m\r\n\u{7}"),
            "pod\u{fffd}[2J\u{fffd}1m\u{fffd}\u{fffd}\u{fffd}"
        );
        assert_eq!(harmless("a\u{202e}b\u{2028}c\u{200d}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(harmless("plain\tnäme, 名前 ✓"), "plain näme, 名前 ✓");
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(HarmlessLines("a\u{202e}\nb\u{1b}\n").to_string(), "a\u{fffd}\nb\u{fffd}\n");
    }

    proptest! {
        #[test]
        fn nothing_harmful_is_left(text in any::<String>()) {
            prop_assert!(!harmless(&text).chars().any(is_deceptive));
        }
    }
}
