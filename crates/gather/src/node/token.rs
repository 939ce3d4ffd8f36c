//! When a token expires. The token itself is never kept.

use jiff::Timestamp;

/// The `exp` of the token in a kubeconfig; `None` if there is none that tells.
pub(super) fn expiry(kubeconfig: &str) -> Option<Timestamp> {
    let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token:"))?;
    let token = line.trim().trim_matches('"');
    let claims = model::text::base64(token.split('.').nth(1)?)?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()
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
