//! Names of labs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::RunName;

/// A lab's name: part of the names of its folder and of its network namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LabName(String);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a valid lab name: use 1 to 40 lower-case letters, digits and dashes")]
pub struct LabNameError {
    text: String,
}

/// No part of a name, so that `plumb-lab.a.` never begins the name of another lab's namespace.
const SEPARATOR: char = '.';
const NAMESPACE_PREFIX: &str = "plumb-lab";

impl LabName {
    /// What a lab is called if nobody says otherwise.
    pub fn usual() -> LabName {
        LabName("lab".to_owned())
    }

    /// The lab of a process that makes its own and removes it again. Whoever comes later can tell whether that
    /// process still lives.
    pub(crate) fn of_run(run: &RunName) -> LabName {
        LabName(run.to_string())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The process that made this lab for itself is no more.
    pub(crate) fn is_abandoned(&self) -> bool {
        RunName::of_thing(&self.0).is_some_and(|run| !run.is_alive())
    }

    /// The network namespace of one of its parts.
    pub(crate) fn namespace(&self, part: &str) -> String {
        format!("{NAMESPACE_PREFIX}{SEPARATOR}{}{SEPARATOR}{part}", self.0)
    }

    pub(crate) fn owns_namespace(&self, name: &str) -> bool {
        name.strip_prefix(&self.namespace("")).is_some_and(|part| !part.is_empty())
    }
}

impl FromStr for LabName {
    type Err = LabNameError;

    fn from_str(text: &str) -> Result<LabName, LabNameError> {
        let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = (1..=40).contains(&text.len()) && text.bytes().all(is_fit) && !text.starts_with('-');
        if is_name { Ok(LabName(text.to_owned())) } else { Err(LabNameError { text: text.to_owned() }) }
    }
}

impl TryFrom<String> for LabName {
    type Error = LabNameError;

    fn try_from(text: String) -> Result<LabName, LabNameError> {
        text.parse()
    }
}

impl From<LabName> for String {
    fn from(name: LabName) -> String {
        name.0
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_fit_folders_and_namespaces() {
        for good in ["a", "lab", "my-lab-2", &"x".repeat(40)] {
            assert!(good.parse::<LabName>().is_ok(), "{good}");
        }
        for bad in ["", "-a", "A", "a.b", "a/b", "..", "a b", &"x".repeat(41)] {
            assert!(bad.parse::<LabName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_lab_owns_its_own_namespaces_only() {
        let lab: LabName = "a".parse().unwrap();
        assert!(lab.owns_namespace("plumb-lab.a.node1"));
        for other in ["plumb-lab.a-b.node1", "plumb-lab.a.", "plumb-lab.ab.x", "node1", "plumb-lab.b.a.c"] {
            assert!(!lab.owns_namespace(other), "{other}");
        }
    }

    #[test]
    fn the_lab_of_a_process_is_known_as_such() {
        let own = LabName::of_run(&RunName::of_this_process());
        assert_eq!(own.as_str().parse::<LabName>().unwrap(), own);
        assert!(!own.is_abandoned());
        assert!("plumb-run-1-0-0".parse::<LabName>().unwrap().is_abandoned());
        assert!(!"lab".parse::<LabName>().unwrap().is_abandoned());
    }

    proptest! {
        #[test]
        fn any_text_is_a_name_or_refused(text in ".*") {
            if let Ok(name) = text.parse::<LabName>() {
                prop_assert!(!name.as_str().contains(['/', '.', ' ']));
            }
        }
    }
}
