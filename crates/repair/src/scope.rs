//! What a repair was asked for, as it is written on a command line and in a plan's file.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use model::{FindingCode, NodeName, UnknownCode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the operator wants to be repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    Everything,
    /// Blocks, handles, affinities.
    Ipam,
    /// Endpoints, and whatever a pod has in the kernel.
    Endpoints,
    /// Everything on a node, or that refers to it. If its Node record is gone, this confirms that it does not come back.
    Node(NodeName),
    /// The same, and the operator confirms that the node is gone for good although its Node record exists.
    GoneNode(NodeName),
    /// Findings of these codes.
    Codes(BTreeSet<FindingCode>),
}

/// Why a text is no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    #[error("unknown scope {0:?}")]
    Unknown(String),
    #[error("the scope node needs the name of a node")]
    NoNode,
    #[error("the scope finding needs at least one code, such as address-leaked")]
    NoCode,
    #[error(transparent)]
    Code(#[from] UnknownCode),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Everything => f.write_str("everything"),
            Scope::Ipam => f.write_str("ipam"),
            Scope::Endpoints => f.write_str("endpoints"),
            Scope::Node(name) => write!(f, "node {name}"),
            Scope::GoneNode(name) => write!(f, "node {name} gone"),
            Scope::Codes(codes) => {
                f.write_str("finding")?;
                codes.iter().try_for_each(|code| write!(f, " {code}"))
            }
        }
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Scope, ScopeError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(match words[..] {
            ["everything"] => Scope::Everything,
            ["ipam"] => Scope::Ipam,
            ["endpoints"] => Scope::Endpoints,
            ["node", name] => Scope::Node(name.into()),
            ["node", name, "gone"] => Scope::GoneNode(name.into()),
            ["node"] => return Err(ScopeError::NoNode),
            ["finding"] => return Err(ScopeError::NoCode),
            ["finding", ref codes @ ..] => {
                Scope::Codes(codes.iter().map(|code| code.parse()).collect::<Result<_, _>>()?)
            }
            _ => return Err(ScopeError::Unknown(text.to_owned())),
        })
    }
}

impl Serialize for Scope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Scope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scope, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_print_and_parse() {
        let codes = [FindingCode::HandleUnused, FindingCode::AddressLeaked].into();
        for (scope, text) in [
            (Scope::Everything, "everything"),
            (Scope::Ipam, "ipam"),
            (Scope::Endpoints, "endpoints"),
            (Scope::Node("a".into()), "node a"),
            (Scope::GoneNode("a".into()), "node a gone"),
            (Scope::Codes(codes), "finding address-leaked handle-unused"),
        ] {
            assert_eq!((scope.to_string(), text.parse()), (text.to_owned(), Ok(scope)));
        }
    }

    #[test]
    fn what_is_no_scope_is_refused_with_the_reason() {
        let said = |text: &str| text.parse::<Scope>().unwrap_err().to_string();
        assert_eq!(said("node"), "the scope node needs the name of a node");
        assert_eq!(said("finding"), "the scope finding needs at least one code, such as address-leaked");
        assert_eq!(said("finding pool-full addres-leaked"), "no finding has the code 'addres-leaked'");
        for unknown in ["", "ipam endpoints", "node a b", "all"] {
            assert_eq!(said(unknown), format!("unknown scope {unknown:?}"));
        }
    }
}
