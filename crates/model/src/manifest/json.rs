//! What JSON allows and YAML does not: the one reader for both takes YAML, so JSON is spelt for it first.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::de::IgnoredAny;

/// Whether the text is JSON as a whole. YAML's flow style looks much like it.
pub(super) fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// JSON with every character escaped that YAML refuses to see as it is. They can only stand inside strings, where
/// an escape means the same, and no line moves.
pub(super) fn as_yaml(json: &str) -> Cow<'_, str> {
    if json.chars().all(is_printable) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len() + 64);
    for character in json.chars() {
        if is_printable(character) {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(text, "\\u{unit:04x}").expect("writing to a string cannot fail");
        }
    }
    Cow::Owned(text)
}

/// The characters that may stand in YAML, without those that it takes for line breaks or a mark of byte order.
fn is_printable(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{fefe}'
        | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}
