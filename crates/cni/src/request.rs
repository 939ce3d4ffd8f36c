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

/// A string in the network configuration. Empty counts as absent.
pub(crate) fn setting<'a>(netconf: &'a Value, key: &str) -> Option<&'a str> {
    netconf.get(key).and_then(Value::as_str).filter(|value| !value.is_empty())
}
