//! The name of a node, compared without case.
//!
//! Kubernetes and Calico register nodes in lower case, but hosts, BIRD and people spell the same node as they like. A key of a
//! record is a text of its own: two keys that differ in case are two records, so keys do not hold this type.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::validate::formats;
use crate::word::word;

/// Any text that stands where a node is named. The first spelling is kept; equality, order and hash ignore case.
#[derive(Clone, Default)]
pub struct NodeName(Arc<str>);

word!(NodeName, Arc<str>);

/// A text under which no node can be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node name {name:?} {rule}")]
pub struct NodeNameError {
    pub name: String,
    pub rule: String,
}

impl NodeName {
    /// The name under which a machine registers if nobody configures another one: its host name in lower case, as in Calico.
    pub fn of_machine(hostname: &str) -> NodeName {
        NodeName::from(hostname.trim().to_ascii_lowercase())
    }

    /// Whether a node can be registered under this name.
    pub fn check(&self) -> Result<(), NodeNameError> {
        formats::name(&self.0).map_err(|rule| NodeNameError { name: self.0.to_string(), rule })
    }

    /// Whether a bare text names this node.
    pub fn is(&self, text: &str) -> bool {
        self.0.eq_ignore_ascii_case(text)
    }

    /// The one spelling that all spellings of the node share.
    pub fn folded(&self) -> Cow<'_, str> {
        if self.0.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(self.0.to_ascii_lowercase())
        } else {
            Cow::Borrowed(&self.0)
        }
    }

    fn folded_bytes(&self) -> impl Iterator<Item = u8> {
        self.0.bytes().map(|byte| byte.to_ascii_lowercase())
    }
}

impl PartialEq for NodeName {
    fn eq(&self, other: &NodeName) -> bool {
        self.is(&other.0)
    }
}

impl Eq for NodeName {}

impl Ord for NodeName {
    fn cmp(&self, other: &NodeName) -> Ordering {
        self.folded_bytes().cmp(other.folded_bytes())
    }
}

impl PartialOrd for NodeName {
    fn partial_cmp(&self, other: &NodeName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for NodeName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.folded_bytes().for_each(|byte| state.write_u8(byte));
        // As `str` does, so that no name is the beginning of another.
        state.write_u8(0xff);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::DefaultHasher;

    use proptest::prelude::*;

    use super::*;

    fn hash(name: &NodeName) -> u64 {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        hasher.finish()
    }

    #[test]
    fn the_spelling_is_kept_and_the_case_ignored() {
        let (mixed, lower) = (NodeName::from("k8sCephNode"), NodeName::from("k8scephnode"));
        assert_eq!(mixed, lower);
        assert_eq!(mixed.to_string(), "k8sCephNode");
        assert_eq!(format!("{mixed:?} {mixed:>12}"), "\"k8sCephNode\"  k8sCephNode");
        assert_eq!(mixed.folded(), lower.folded());
        assert!(mixed.is("K8SCEPHNODE") && !mixed.is(""));
        assert_ne!(mixed, NodeName::from("k8scephnode2"));
        assert_eq!(NodeName::of_machine(" Node-A\n").as_str(), "node-a");
    }

    #[test]
    fn only_names_in_lower_case_can_be_registered() {
        assert!(NodeName::from("Node").check().is_err());
        assert!(NodeName::from("").check().is_err());
        assert!(NodeName::from("node-a.b").check().is_ok());
    }

    proptest! {
        #[test]
        fn equality_order_and_hash_agree(left in "[aAbB.é]{0,3}", right in "[aAbB.é]{0,3}") {
            let (one, other) = (NodeName::from(left.as_str()), NodeName::from(right.as_str()));
            let is_same = left.eq_ignore_ascii_case(&right);
            prop_assert_eq!(one == other, is_same);
            prop_assert_eq!(one.cmp(&other) == Ordering::Equal, is_same);
            prop_assert_eq!(hash(&one) == hash(&other), is_same);
            prop_assert_eq!(one.folded() == other.folded(), is_same);
            prop_assert_eq!(one.cmp(&other), left.to_ascii_lowercase().cmp(&right.to_ascii_lowercase()));
        }

        #[test]
        fn any_text_is_kept_as_it_is(text in any::<String>()) {
            let name = NodeName::from(text.as_str());
            let json = serde_json::to_string(&name).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&text).unwrap());
            let read: NodeName = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(read.as_str(), &text);
            prop_assert!(NodeName::of_machine(&text).check().is_ok() || name.check().is_err());
        }
    }
}
