//! Namespaces and service accounts as profiles: the labels that their pods inherit.

use serde_json::{Map, Value, json};

use super::Object;
use super::pod::CALICO_CNI;
use crate::kube::convert_uid;
use crate::{Kind, Resource};

/// What is in a namespace may talk to anybody, until a policy says otherwise. What the namespace asks for its pods, such as pools,
/// is shown, too: the plugin needs it.
pub(super) fn of_namespace(namespace: &Object<'_>) -> Resource {
    let name = namespace.name();
    let mut spec = Map::new();
    spec.insert("ingress".into(), json!([{ "action": "Allow" }]));
    spec.insert("egress".into(), json!([{ "action": "Allow" }]));
    let mut profile = profile(namespace, format!("kns.{name}"), "pcns.", spec);
    let asked = namespace.annotations().filter(|(name, _)| name.starts_with(CALICO_CNI));
    profile.metadata.annotations.extend(asked.map(|(name, value)| (name.clone(), value.to_owned())));
    profile
}

pub(super) fn of_service_account(account: &Object<'_>) -> Resource {
    let name = format!("ksa.{}.{}", account.metadata("namespace"), account.name());
    profile(account, name, "pcsa.", Map::new())
}

fn profile(object: &Object<'_>, name: String, prefix: &str, mut spec: Map<String, Value>) -> Resource {
    let mut labels: Map<String, Value> =
        object.labels().map(|(label, value)| (format!("{prefix}{label}"), value.into())).collect();
    labels.insert(format!("{prefix}projectcalico.org/name"), object.name().into());
    spec.insert("labelsToApply".into(), Value::Object(labels));
    let mut resource = object.record(Kind::Profile, name);
    resource.metadata.uid = resource.metadata.uid.map(|uid| convert_uid(&uid));
    resource.body.insert("spec".to_owned(), Value::Object(spec));
    resource
}
