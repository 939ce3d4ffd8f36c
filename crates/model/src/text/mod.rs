//! Texts that others wrote, made safe to keep and to print: no secrets, no terminal escapes, bounded lines.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod errors;
mod harmless;
mod lines;
mod mask;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

pub use errors::{ErrorText, causes, on_one_line};
pub use harmless::{Harmless, HarmlessLines, harmless, is_deceptive, one_column};
pub use lines::{Line, LineCutter, clean};
pub use mask::{MASK, is_secret_name};

/// A text with whatever looks like a secret masked, and nothing in it that a terminal would obey.
pub fn masked(text: &str) -> String {
    let (mut cutter, mut lines) = (LineCutter::default(), Vec::new());
    cutter.feed(text.as_bytes(), |line| lines.push(line.text));
    cutter.finish(|line| lines.push(line.text));
    lines.join("\n")
}

/// Base64, in the usual alphabet or in that for addresses, with padding or without.
pub fn base64(text: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    let alphabet = if text.contains(['-', '_']) { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    GeneralPurpose::new(alphabet, LENIENT).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_alphabets_with_and_without_padding() {
        for text in ["+/8=", "+/8", "-_8=", "-_8"] {
            assert_eq!(base64(text).unwrap(), [0xfb, 0xff], "{text}");
        }
        assert!(base64("").unwrap().is_empty());
        for wrong in ["a b", "é", "a"] {
            assert_eq!(base64(wrong), None, "{wrong}");
        }
    }
}
