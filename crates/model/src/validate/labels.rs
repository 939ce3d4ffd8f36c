//! Label and annotation keys and values, as Kubernetes allows them.

use super::formats::is_label;

const NAME_LENGTH_MAX: usize = 63;
const PREFIX_LENGTH_MAX: usize = 253;

/// `name` or `prefix/name`.
pub(super) fn qualified_name(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let prefix_holds =
        prefix.is_none_or(|prefix| prefix.len() <= PREFIX_LENGTH_MAX && prefix.split('.').all(is_label));
    if !prefix_holds {
        return Err("the part before the slash must be a DNS name".to_owned());
    }
    if !(1..=NAME_LENGTH_MAX).contains(&name.len()) || !is_word(name) {
        return Err(
            "must be 1 to 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
                .to_owned(),
        );
    }
    Ok(())
}

pub(super) fn label_value(value: &str) -> Result<(), String> {
    if value.is_empty() || (value.len() <= NAME_LENGTH_MAX && is_word(value)) {
        return Ok(());
    }
    Err("must be at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
        .to_owned())
}

fn is_word(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
