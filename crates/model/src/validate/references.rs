//! What a resource needs to be there, and what may not be taken away.

use serde_json::Value;

use super::Violation;
use super::fields::Fields;
use super::policy::is_built_in_tier;
use crate::resource::DEFAULT_ALLOW_PROFILE;
use crate::{Key, Kind, Resource};

/// A record that another one names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The field that names it.
    pub field: String,
    /// What must be there.
    pub key: Key,
}

impl Reference {
    /// What to report when it is not.
    pub fn missing(&self) -> Violation {
        let Key::Resource { name, kind, .. } = &self.key else {
            return Violation {
                field: self.field.clone(),
                value: self.key.to_string(),
                rule: "must exist".into(),
            };
        };
        Violation { field: self.field.clone(), value: name.clone(), rule: format!("there is no such {kind}") }
    }
}

/// The records that must exist before this one is written. A policy's tier is only asked for when the policy is
/// created, a peer's filters at every write.
pub fn references(resource: &Resource, is_new: bool) -> Vec<Reference> {
    let spec = Fields::of_spec(resource);
    match resource.kind {
        Kind::BgpPeer => spec
            .items("filters")
            .filter_map(|(path, item)| item.as_str().map(|name| (path, name)))
            .map(|(path, name)| Reference {
                field: path.to_string(),
                key: Key::cluster(Kind::BgpFilter, name),
            })
            .collect(),
        kind if kind.is_tiered() && is_new => {
            let key = Key::cluster(Kind::Tier, resource.tier());
            vec![Reference { field: spec.path("tier").to_string(), key }]
        }
        _ => Vec::new(),
    }
}

/// Why a record may never be deleted through the resource commands.
pub fn refuse_deletion(key: &Key) -> Option<&'static str> {
    match key {
        Key::Resource { kind: Kind::Tier, name, .. } if is_built_in_tier(name) => {
            Some("this tier is built in and cannot be deleted")
        }
        Key::Resource { kind: Kind::Profile, name, .. } if name == DEFAULT_ALLOW_PROFILE => {
            Some("this profile is built in and cannot be deleted")
        }
        Key::Resource { kind: Kind::ClusterInformation, .. } => {
            Some("the cluster's own record cannot be deleted")
        }
        Key::Resource { kind: Kind::NetworkPolicy, name, .. } if is_of_kubernetes(name) => {
            Some("this policy is one of Kubernetes, which is managed through the API of Kubernetes")
        }
        _ => None,
    }
}

/// Names of NetworkPolicies that stand for those of Kubernetes; none may be written or deleted as one of Calico's.
const KUBERNETES_POLICY_PREFIX: &str = "knp.default.";

/// Whether a NetworkPolicy of this name is one of Kubernetes.
pub fn is_of_kubernetes(policy: &str) -> bool {
    policy.starts_with(KUBERNETES_POLICY_PREFIX)
}

/// Whether a policy keeps its tier from being deleted.
pub fn is_in_tier(policy: &Resource, tier: &str) -> bool {
    policy.kind.is_tiered() && policy.spec("tier").and_then(Value::as_str).unwrap_or_default() == tier
}
