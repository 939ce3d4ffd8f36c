//! The call that this process was started for.

use std::path::Path;

use serde_json::Value;
use wire::{Call, Role};

use crate::answer::{self, CniError};

pub(crate) fn role_of_process() -> Role {
    Role::of_program(std::env::args_os().next().as_deref().map(Path::new))
}

/// The call with the environment of this process.
pub(crate) fn call_of_process(role: Role, input: &[u8]) -> Result<Call, CniError> {
    let config = std::str::from_utf8(input).map_err(|error| {
        CniError::new(answer::NOT_DECODED, "the network configuration is not UTF-8")
            .details(error.to_string())
    })?;
    let variables = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    Ok(Call::new(role, variables, config))
}

/// The question whether pods could be added now, in a version of the specification that has it.
pub(crate) fn status_of_process(netconf: &Value) -> Call {
    let mut netconf = netconf.clone();
    if let Some(document) = netconf.as_object_mut() {
        document.insert("cniVersion".to_owned(), wire::CNI_VERSION_NEWEST.into());
    }
    let variables = [("CNI_COMMAND".to_owned(), "STATUS".to_owned())];
    Call::new(Role::Network, variables, netconf.to_string())
}

/// A string in the network configuration. Empty counts as absent.
pub(crate) fn setting<'a>(netconf: &'a Value, key: &str) -> Option<&'a str> {
    netconf.get(key).and_then(Value::as_str).filter(|value| !value.is_empty())
}
