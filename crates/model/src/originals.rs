//! Names that callers use and records cannot have.
//!
//! Kubernetes allows lower case letters, digits, `-` and `.`; other callers of a CNI plugin name sandboxes and interfaces
//! as they like (`Web_1`). Their endpoint is recorded under a name that stands in for theirs, with their own beside it in
//! an annotation. A stand-in has a hash of the name, so that no two names share one.

use std::borrow::Cow;

use serde_json::Value;
use sha1::{Digest, Sha1};

use crate::Resource;
use crate::validate::formats;

/// What of a name its stand-in still shows.
const SHOWN_MAX: usize = 32;
/// Digits of the hash in a stand-in.
const HASH_DIGITS: usize = 16;

/// The parts of an endpoint record that may have a stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    Namespace,
    Pod,
    ContainerId,
    Interface,
}

impl Named {
    pub const ALL: [Named; 4] = [Named::Namespace, Named::Pod, Named::ContainerId, Named::Interface];

    /// The annotation that has the caller's own name.
    pub fn annotation(self) -> &'static str {
        match self {
            Named::Namespace => "plumbline.io/original-namespace",
            Named::Pod => "plumbline.io/original-pod",
            Named::ContainerId => "plumbline.io/original-container-id",
            Named::Interface => "plumbline.io/original-interface",
        }
    }

    /// The name as a record has it: the same where that can be. What is no name by anybody's rules (`a/b`) is not made one.
    pub fn recorded(self, original: &str) -> Cow<'_, str> {
        if self.allows(original) || !is_word(original) {
            return Cow::Borrowed(original);
        }
        Cow::Owned(stand_in(original))
    }

    /// Whether a record, and Kubernetes, can have this name.
    pub fn allows(self, name: &str) -> bool {
        let can_be = match self {
            Named::ContainerId => formats::container_id(name),
            Named::Namespace | Named::Pod | Named::Interface => formats::name(name),
        };
        can_be.is_ok()
    }

    /// The caller's own name, out of a record. An annotation that does not belong to what is recorded is passed over.
    pub fn original(self, endpoint: &Resource) -> Option<&str> {
        let spec = |field| endpoint.spec(field).and_then(Value::as_str);
        let recorded = match self {
            Named::Namespace => endpoint.metadata.namespace.as_deref(),
            Named::Pod => spec("pod"),
            Named::ContainerId => spec("containerID"),
            Named::Interface => spec("endpoint"),
        };
        let recorded = recorded.filter(|text| !text.is_empty())?;
        let noted = endpoint.metadata.annotations.get(self.annotation());
        Some(noted.filter(|noted| stand_in(noted) == recorded).map_or(recorded, String::as_str))
    }
}

/// As the CNI specification wants the IDs of containers and the names of networks.
fn is_word(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric()) && text.bytes().all(fits)
}

/// The same for a name that only is too long.
pub fn shortened(original: &str) -> String {
    if is_word(original) { stand_in(original) } else { original.to_owned() }
}

/// What stands in a record for a name that cannot: a name by Kubernetes' rules, and an ID of a container by Calico's.
pub fn stand_in(original: &str) -> String {
    let fit = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let shown: String = original.chars().take(SHOWN_MAX).map(fit).collect();
    let shown = shown.trim_matches('-');
    let hash: String = Sha1::digest(original).iter().map(|byte| format!("{byte:02x}")).collect();
    let hash = &hash[..HASH_DIGITS];
    if shown.is_empty() { hash.to_owned() } else { format!("{shown}-{hash}") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::Kind;

    #[test]
    fn a_name_that_can_be_recorded_stays() {
        for name in ["web-0", "a.b", "0f3a"] {
            assert_eq!(Named::Pod.recorded(name), name);
        }
        assert_eq!(Named::ContainerId.recorded("0F3a"), "0F3a");
        let recorded = Named::Pod.recorded("Web_0");
        assert!(recorded.starts_with("web-0-") && recorded == stand_in("Web_0"), "{recorded}");
        assert_ne!(stand_in("Web_0"), stand_in("web_0"));
        assert_ne!(stand_in("Web_0"), stand_in("Web-0"));
    }

    #[test]
    fn an_annotation_counts_only_beside_its_stand_in() {
        let mut endpoint = Resource::new(Kind::WorkloadEndpoint, "x");
        endpoint.body.insert("spec".to_owned(), json!({"pod": stand_in("Web_0"), "containerID": "c1"}));
        for (named, original) in [(Named::Pod, "Web_0"), (Named::ContainerId, "another")] {
            endpoint.metadata.annotations.insert(named.annotation().to_owned(), original.to_owned());
        }
        assert_eq!(Named::Pod.original(&endpoint), Some("Web_0"));
        assert_eq!(Named::ContainerId.original(&endpoint), Some("c1"));
        assert_eq!(Named::Interface.original(&endpoint), None);
    }

    proptest! {
        #[test]
        fn whatever_it_stands_for_a_stand_in_can_be_recorded(original in any::<String>(), other in any::<String>()) {
            let stand_in = stand_in(&original);
            prop_assert!(formats::name(&stand_in).is_ok() && formats::container_id(&stand_in).is_ok(), "{stand_in}");
            prop_assert!(stand_in.len() <= SHOWN_MAX + 1 + HASH_DIGITS);
            prop_assert!((super::stand_in(&other) == stand_in) == (other == original));
            for named in Named::ALL {
                let recorded = named.recorded(&original);
                prop_assert!(named.recorded(&recorded) == recorded, "{}", recorded);
            }
        }
    }
}
