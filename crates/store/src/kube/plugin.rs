//! What went wrong with a credential plugin. What it prints is a secret, and its arguments and environment may be.

use kube_client::client::AuthError;

/// How much of a plugin's complaint is shown.
const SHOWN: usize = 300;
/// Longer words may be keys or tokens.
const LONGEST_WORD: usize = 19;

/// The error of a client, if its credentials are what is wrong.
pub(super) fn problem_in(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut chain = std::iter::successors(Some(error), |error| error.source());
    chain.find_map(|error| error.downcast_ref::<AuthError>()).map(problem)
}

fn problem(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { out, .. } => match complaint(&out.stderr) {
            said if said.is_empty() => format!("failed ({}) and gave no reason", out.status),
            said => format!("failed ({}): {said}", out.status),
        },
        AuthError::AuthExecStart(source) => format!("cannot be started: {source}"),
        AuthError::AuthExecParse(_) => "printed something that is no ExecCredential".to_owned(),
        AuthError::ExecPluginFailed => "printed an ExecCredential without status".to_owned(),
        AuthError::MissingCommand => "has no command".to_owned(),
        AuthError::ExecMissingClusterInfo => "wants to know the cluster, which is not named".to_owned(),
        AuthError::UnrefreshableTokenResponse => "gives no token any more".to_owned(),
        AuthError::MalformedTokenExpirationDate(_) => "gives a time of expiry that is none".to_owned(),
        AuthError::InvalidBearerToken(_) => "gives a token that cannot be sent".to_owned(),
        // Others may repeat what was printed.
        _ => "gives nothing that can be used".to_owned(),
    }
}

/// The end of what a plugin printed for its user, without what may be a secret.
fn complaint(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let words: Vec<&str> = text.split_whitespace().map(masked).collect();
    let whole: String = words.join(" ").chars().filter(|next| !next.is_control()).collect();
    let count = whole.chars().count();
    match count > SHOWN {
        true => format!("... {}", whole.chars().skip(count - SHOWN).collect::<String>()),
        false => whole,
    }
}

fn masked(word: &str) -> &str {
    // Not at slashes and dots: they stand in paths and names as well as in keys and tokens.
    let parts = |next: char| matches!(next, ':' | '"' | '\'' | '=' | ',' | '?' | '&' | '(' | ')');
    if word.split(parts).any(may_be_secret) { "[..]" } else { word }
}

fn may_be_secret(part: &str) -> bool {
    let has = |is: fn(&u8) -> bool| part.as_bytes().iter().any(is);
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    let is_one_word = !has(|byte| matches!(byte, b'.' | b'/'));
    let is_long = part.len() > LONGEST_WORD && has(u8::is_ascii_digit);
    part.starts_with("eyJ") || is_long && (is_mixed || is_one_word)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{ExitStatus, Output};

    use super::*;

    const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0.c2ln";

    #[test]
    fn what_a_plugin_prints_is_not_shown() {
        let output = |stderr: String| Output {
            status: ExitStatus::from_raw(256),
            stdout: format!("{{\"token\":\"{TOKEN}\"}}").into_bytes(),
            stderr: stderr.into_bytes(),
        };
        let failed = |stderr: String| AuthError::AuthExecRun {
            cmd: "AWS_SECRET_ACCESS_KEY=\"geheim\" \"aws\" \"--password=geheim\"".to_owned(),
            out: Box::new(output(stderr)),
        };
        let client = kube_client::Error::Auth(failed(format!(
            "no session\n\u{1b}[1m at https://sts.eu-west-1.amazonaws.com/: token={TOKEN}, key wJalrXUtnFEMI7K7MDENG/bPxRfiCYEXAMPLEKEY1"
        )));
        let said = problem_in(&client).unwrap();
        assert!(
            said.contains("no session") && said.contains("https://sts.eu-west-1.amazonaws.com/"),
            "{said}"
        );
        for secret in ["geheim", "eyJ", "wJalr", "EXAMPLEKEY", "\u{1b}"] {
            assert!(!said.contains(secret), "{said}");
        }
        assert!(problem(&failed(String::new())).contains("no reason"));
        assert!(problem(&failed("x ".repeat(10_000))).len() < 400);
        let said = problem(&AuthError::AuthExec(format!("Result is not a string {TOKEN}")));
        assert!(!said.contains("eyJ"), "{said}");
        assert_eq!(problem_in(&std::io::Error::other("another")), None);
    }

    proptest::proptest! {
        #[test]
        fn any_complaint_is_survived(text in proptest::prelude::any::<Vec<u8>>()) {
            proptest::prop_assert!(complaint(&text).chars().count() <= SHOWN + 4);
        }
    }
}
