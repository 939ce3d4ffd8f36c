//! Reading values of the network configuration, with errors that name the key.

use serde_json::{Map, Value};

use super::CniError;

pub(super) type Object = Map<String, Value>;

pub(super) fn section(document: &Object, key: &str) -> Result<Object, CniError> {
    match document.get(key) {
        None | Some(Value::Null) => Ok(Object::new()),
        Some(Value::Object(section)) => Ok(section.clone()),
        Some(other) => Err(wrong(key, "an object", other)),
    }
}

/// Empty counts as not set.
pub(super) fn text(document: &Object, key: &str) -> Result<Option<String>, CniError> {
    match document.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(other) => Err(wrong(key, "a string", other)),
    }
}

pub(super) fn texts(document: &Object, key: &str) -> Result<Vec<String>, CniError> {
    let listed = match document.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(listed)) => listed,
        Some(other) => return Err(wrong(key, "a list of strings", other)),
    };
    let texts = listed.iter().map(|entry| entry.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or_else(|| {
        CniError::configuration(format!("the network configuration's {key} must be a list of strings only"))
    })
}

pub(super) fn number(document: &Object, key: &str) -> Result<u64, CniError> {
    match document.get(key) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value.as_u64().ok_or_else(|| wrong(key, "a number", value)),
    }
}

/// Calico writes some flags as strings.
pub(super) fn flag(document: &Object, key: &str, otherwise: bool) -> Result<bool, CniError> {
    match document.get(key) {
        None | Some(Value::Null) => Ok(otherwise),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text == "true" => Ok(true),
        Some(Value::String(text)) if text == "false" => Ok(false),
        Some(Value::String(text)) if text.is_empty() => Ok(otherwise),
        Some(other) => Err(wrong(key, "true or false", other)),
    }
}

/// Lists and objects are not shown, because they may hold a password.
pub(super) fn wrong(key: &str, wanted: &str, found: &Value) -> CniError {
    let found = match found {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    };
    CniError::configuration(format!("the network configuration's {key} must be {wanted}, not {found}"))
}
