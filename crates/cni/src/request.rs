//! A call as it is handed to the agent, and as it is kept while there is none.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::answer::{self, CniError};

/// Goes up when an older agent could misunderstand a request.
const PROTOCOL: u64 = 1;

/// As what the runtime, or another plugin, calls this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Network,
    Ipam,
}

impl Role {
    pub(crate) fn of_process() -> Role {
        Role::of_name(std::env::args_os().next().as_deref().map(Path::new))
    }

    /// The name under which the program was started tells, as with Calico's.
    fn of_name(program: Option<&Path>) -> Role {
        let name = program.and_then(Path::file_name).map(|name| name.to_string_lossy());
        match name.as_deref() {
            Some("plumb-ipam" | "calico-ipam") => Role::Ipam,
            _ => Role::Network,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Role::Network => "network",
            Role::Ipam => "ipam",
        }
    }
}

/// One call, complete.
#[derive(Debug)]
pub(crate) struct Request {
    environment: BTreeMap<String, String>,
    document: Value,
}

impl Request {
    pub(crate) fn of_process(role: Role, input: &[u8]) -> Result<Request, CniError> {
        let variables = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
        Request::new(role, variables.filter(|(name, _)| name.starts_with("CNI_")).collect(), input)
    }

    fn new(role: Role, environment: BTreeMap<String, String>, input: &[u8]) -> Result<Request, CniError> {
        let config = std::str::from_utf8(input).map_err(|error| {
            CniError::new(answer::NOT_DECODED, "the network configuration is not text")
                .details(error.to_string())
        })?;
        let document = json!({
            "version": PROTOCOL,
            "role": role.as_str(),
            "environment": environment,
            "config": config,
        });
        Ok(Request { environment, document })
    }

    pub(crate) fn verb(&self) -> &str {
        self.environment.get("CNI_COMMAND").map_or("", String::as_str)
    }

    pub(crate) fn text(&self) -> String {
        self.document.to_string()
    }
}

/// A text in the network configuration. Empty counts as not said.
pub(crate) fn setting<'a>(netconf: &'a Value, key: &str) -> Option<&'a str> {
    netconf.get(key).and_then(Value::as_str).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_name_tells_the_role() {
        for (name, role) in [
            ("/opt/cni/bin/plumb-cni", Role::Network),
            ("calico", Role::Network),
            ("/opt/cni/bin/plumb-ipam", Role::Ipam),
            ("calico-ipam", Role::Ipam),
            ("/x/calico-ipam/plumb-cni", Role::Network),
            ("", Role::Network),
        ] {
            assert_eq!(Role::of_name(Some(Path::new(name))), role, "{name}");
        }
        assert_eq!(Role::of_name(None), Role::Network);
    }

    #[test]
    fn the_configuration_is_handed_over_as_it_came() {
        let environment = BTreeMap::from([("CNI_COMMAND".to_owned(), "DEL".to_owned())]);
        let request = Request::new(Role::Ipam, environment, b"{ \"a\" : 1.0 }").unwrap();
        let document: Value = serde_json::from_str(&request.text()).unwrap();
        let expected = json!({
            "version": 1,
            "role": "ipam",
            "environment": {"CNI_COMMAND": "DEL"},
            "config": "{ \"a\" : 1.0 }",
        });
        assert_eq!(document, expected);
        assert_eq!(request.verb(), "DEL");
        assert!(Request::new(Role::Ipam, BTreeMap::new(), b"\xff").is_err());
    }
}
