//! A CNI call as a plugin sends it, and as it is queued.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{BadRequest, PROTOCOL};

/// The role in which a runtime or another plugin calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Gives a pod its network.
    Network,
    /// Only allocates addresses, for another plugin.
    Ipam,
}

impl Role {
    /// By the name under which the program was started, as with Calico.
    pub fn of_program(program: Option<&Path>) -> Role {
        let name = program.and_then(Path::file_name).map(|name| name.to_string_lossy());
        match name.as_deref() {
            Some("plumb-ipam" | "calico-ipam") => Role::Ipam,
            _ => Role::Network,
        }
    }

    pub fn parse(text: &str) -> Option<Role> {
        [Role::Network, Role::Ipam].into_iter().find(|role| role.as_str() == text)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Network => "network",
            Role::Ipam => "ipam",
        }
    }
}

/// One call, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub role: Role,
    /// The `CNI_*` variables. Unset and empty are the same: runtimes use both.
    environment: BTreeMap<String, String>,
    /// The network configuration as it came.
    pub config: String,
}

#[derive(Deserialize, Serialize)]
struct Written {
    version: u32,
    role: String,
    environment: BTreeMap<String, String>,
    config: String,
}

impl Call {
    /// Keeps the `CNI_*` variables and drops the others.
    pub fn new(
        role: Role,
        variables: impl IntoIterator<Item = (String, String)>,
        config: impl Into<String>,
    ) -> Call {
        let environment = variables.into_iter().filter(|(name, _)| name.starts_with("CNI_")).collect();
        Call { role, environment, config: config.into() }
    }

    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn verb(&self) -> &str {
        self.variable("CNI_COMMAND").unwrap_or_default()
    }

    pub fn decode(text: &[u8]) -> Result<Call, BadRequest> {
        let written: Written = serde_json::from_slice(text).map_err(BadRequest::NotUnderstood)?;
        if written.version != PROTOCOL {
            return Err(BadRequest::Version(written.version));
        }
        let role = Role::parse(&written.role).ok_or(BadRequest::Role(written.role))?;
        Ok(Call::new(role, written.environment, written.config))
    }

    pub fn encode(&self) -> Vec<u8> {
        let written = Written {
            version: PROTOCOL,
            role: self.role.as_str().to_owned(),
            environment: self.environment.clone(),
            config: self.config.clone(),
        };
        serde_json::to_vec(&written).expect("texts can be written")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_programs_name_decides_the_role() {
        for (name, role) in [
            ("/opt/cni/bin/plumb-cni", Role::Network),
            ("calico", Role::Network),
            ("/opt/cni/bin/plumb-ipam", Role::Ipam),
            ("calico-ipam", Role::Ipam),
            ("/x/calico-ipam/plumb-cni", Role::Network),
            ("", Role::Network),
        ] {
            assert_eq!(Role::of_program(Some(Path::new(name))), role, "{name}");
        }
        assert_eq!(Role::of_program(None), Role::Network);
    }

    #[test]
    fn the_configuration_is_handed_over_as_it_came() {
        let variables = [("CNI_COMMAND", "DEL"), ("HOME", "/"), ("CNI_ARGS", "")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let call = Call::new(Role::Ipam, variables, "{ \"a\" : 1.0 }");
        let document: Value = serde_json::from_slice(&call.encode()).unwrap();
        let expected = json!({
            "version": 1,
            "role": "ipam",
            "environment": {"CNI_COMMAND": "DEL", "CNI_ARGS": ""},
            "config": "{ \"a\" : 1.0 }",
        });
        assert_eq!(document, expected);
        assert_eq!((call.verb(), call.variable("CNI_ARGS"), call.variable("HOME")), ("DEL", None, None));
        assert_eq!(Call::decode(&call.encode()).unwrap(), call);
    }
}
