//! Namespaces and service accounts as Profiles. They are read only.

use serde_json::{Map, Value, json};

use super::{metadata_of, set, text, texts};
use crate::kube::convert_uid;
use crate::{Kind, Resource};

/// `kns.NAMESPACE`: allows everything, and gives the namespace's labels to its pods.
pub fn profile_of_namespace(namespace: &Value) -> Resource {
    let name = text(&namespace["metadata"], "name");
    let mut profile = profile(namespace, format!("kns.{name}"), "pcns.", name);
    let allow = json!([{"action": "Allow"}]);
    profile.spec_mut().insert("ingress".to_owned(), allow.clone());
    profile.spec_mut().insert("egress".to_owned(), allow);
    // Calico's version of a profile is that of namespaces and that of accounts; a single one has only its own.
    profile.metadata.resource_version =
        profile.metadata.resource_version.map(|version| format!("{version}/"));
    profile
}

/// `ksa.NAMESPACE.ACCOUNT`: has no rules, and gives the account's labels to its pods.
pub fn profile_of_service_account(account: &Value) -> Resource {
    let (namespace, name) = (text(&account["metadata"], "namespace"), text(&account["metadata"], "name"));
    let mut profile = profile(account, format!("ksa.{namespace}.{name}"), "pcsa.", name);
    profile.metadata.resource_version =
        profile.metadata.resource_version.map(|version| format!("/{version}"));
    profile
}

fn profile(object: &Value, profile_name: String, prefix: &str, name: &str) -> Resource {
    let mut profile = Resource::new(Kind::Profile, "");
    profile.metadata = metadata_of(object, profile_name);
    profile.metadata.uid = profile.metadata.uid.map(|uid| convert_uid(&uid));
    let labels = texts(&object["metadata"]["labels"]);
    let mut given: Map<String, Value> =
        labels.into_iter().map(|(label, value)| (format!("{prefix}{label}"), value.into())).collect();
    given.insert(format!("{prefix}projectcalico.org/name"), name.into());
    set(profile.spec_mut(), "labelsToApply", given);
    profile
}
