//! What a runtime says besides the configuration: the variables of the call.

use std::collections::BTreeMap;

/// The `CNI_*` variables of one call. Unset and empty are the same: runtimes use both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Those of this process. What is no text is not the same as nothing: the rules for names refuse what becomes
    /// of it here.
    pub(crate) fn of_process() -> Environment {
        let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Environment {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        Environment(variables.filter(|(name, _): &(String, String)| name.starts_with("CNI_")).collect())
    }
}
