//! When a token expires. The token itself is never kept.

use jiff::Timestamp;

/// The `exp` of the token in a kubeconfig; `None` if there is none that tells.
pub(super) fn expiry(kubeconfig: &str) -> Option<Timestamp> {
    let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token:"))?;
    let token = line.trim().trim_matches('"');
    let claims = decode(token.split('.').nth(1)?)?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}

/// Base64 for addresses, without padding.
fn decode(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for character in text.trim_end_matches('=').bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_expiry_is_read_and_nothing_else() {
        // {"exp":1787380400,"sub":"x"}
        let config = "users:\n- user:\n    token: \"e30.eyJleHAiOjE3ODczODA0MDAsInN1YiI6IngifQ.c2ln\"\n";
        assert_eq!(expiry(config).unwrap().as_second(), 1_787_380_400);
        for none in ["", "token: abc", "token: a.b!.c", "token: e30.e30.e30"] {
            assert_eq!(expiry(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in any::<String>()) {
            let _ = expiry(&format!("token: {text}"));
        }
    }
}
