//! The plugin's own output: errors in the form of the CNI specification, and its versions.

use std::io::Write as _;

use serde_json::{Value, json};

pub(crate) const BAD_ENVIRONMENT: u32 = 4;
pub(crate) const IO_FAILURE: u32 = 5;
pub(crate) const NOT_DECODED: u32 = 6;
pub(crate) const TRY_LATER: u32 = 11;
/// STATUS: no pod can be added, but running pods keep their network.
pub(crate) const CANNOT_ADD: u32 = 50;
/// Codes from 100 on are the plugin's own.
const INTERNAL: u32 = 100;

/// An error as a runtime expects it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CniError {
    code: u32,
    message: String,
    details: String,
}

impl CniError {
    pub(crate) fn new(code: u32, message: impl Into<String>) -> CniError {
        CniError { code, message: message.into(), details: String::new() }
    }

    pub(crate) fn details(mut self, details: impl Into<String>) -> CniError {
        self.details = details.into();
        self
    }

    pub(crate) fn print(&self, version: &str) {
        // If stdout is closed, the exit code still reports the failure.
        let _ = print(&format!("{}\n", self.document(version)));
    }

    fn document(&self, version: &str) -> Value {
        json!({"cniVersion": version, "code": self.code, "msg": self.message, "details": self.details})
    }
}

/// Writes the answer to stdout.
pub(crate) fn print(answer: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(answer.as_bytes())?;
    stdout.flush()
}

/// The version of the network configuration, or the newest.
pub(crate) fn version_of(input: &[u8]) -> String {
    let netconf: Value = serde_json::from_slice(input).unwrap_or_default();
    let named = netconf.get("cniVersion").and_then(Value::as_str);
    named.unwrap_or(wire::CNI_VERSION_NEWEST).to_owned()
}

/// The answer to VERSION.
pub(crate) fn versions(input: &[u8]) -> Value {
    json!({"cniVersion": version_of(input), "supportedVersions": wire::CNI_VERSIONS})
}

/// A runtime must get an answer that it can parse, whatever happens.
pub(crate) fn answer_even_when_panicking() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("plumb-cni: {panic}");
        let details = "this is a bug; see the log";
        CniError::new(INTERNAL, "plumb-cni panicked").details(details).print(&version_of(b""));
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_form_of_the_specification() {
        let error = CniError::new(TRY_LATER, "no").details("because");
        let expected = json!({"cniVersion": "0.4.0", "code": 11, "msg": "no", "details": "because"});
        assert_eq!(error.document("0.4.0"), expected);
    }

    #[test]
    fn an_answer_has_the_callers_version() {
        assert_eq!(version_of(br#"{"cniVersion":"0.3.1"}"#), "0.3.1");
        for input in [&b""[..], b"{}", b"{\"cniVersion\":7}", b"[", b"null"] {
            assert_eq!(version_of(input), "1.1.0");
        }
        assert_eq!(versions(b"{}")["supportedVersions"], json!(wire::CNI_VERSIONS));
    }
}
