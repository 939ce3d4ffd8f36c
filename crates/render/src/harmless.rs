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
        self.0.chars().try_for_each(|character| match character {
            '\t' => f.write_char(' '),
            _ if is_harmful(character) => f.write_char(char::REPLACEMENT_CHARACTER),
            _ => f.write_char(character),
        })
    }
}

pub(crate) use model::shell::is_deceptive as is_harmful;

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

    proptest! {
        #[test]
        fn nothing_harmful_is_left(text in any::<String>()) {
            prop_assert!(!harmless(&text).chars().any(is_harmful));
        }
    }
}
