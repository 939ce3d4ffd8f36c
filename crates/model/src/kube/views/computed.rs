//! What of a Node record is made of the Kubernetes Node, and so cannot be written through the record.

use std::collections::BTreeMap;

use serde_json::Value;

use super::node::{CALICO_ADDRESS, PREFIX, set};
use crate::Resource;

/// Fields that the view makes.
const COMPUTED: [&[&str]; 3] = [&["spec", "addresses"], &["spec", "orchRefs"], &["status", "podCIDRs"]];

/// Something that a changed record says otherwise than the Kubernetes Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// `spec.addresses`, `label kubernetes.io/os`.
    pub what: String,
    /// The changed record does not have it, which a manifest need not.
    pub is_omitted: bool,
}

/// Gives a changed Node record back what only Kubernetes can change, and names what that was.
pub fn keep_computed(stored: &Resource, next: &mut Resource) -> Vec<Kept> {
    let mut kept = Vec::new();
    let noted = format!("{PREFIX}kube-labels");
    if let Some(labels) = stored.metadata.annotations.get(&noted) {
        let own: BTreeMap<String, String> = serde_json::from_str(labels).unwrap_or_default();
        for (name, value) in own {
            let given = next.metadata.labels.insert(name.clone(), value.clone());
            if given.as_ref() != Some(&value) {
                kept.push(Kept { what: format!("label {name}"), is_omitted: given.is_none() });
            }
        }
        next.metadata.annotations.insert(noted, labels.clone());
    }
    for path in COMPUTED {
        let &[part, field] = path else { continue };
        let of = |resource: &Resource| resource.body.get(part)?.get(field).cloned();
        let (made, given) = (of(stored), of(next));
        if made == given {
            continue;
        }
        if of_kubernetes(&made) != of_kubernetes(&given) {
            kept.push(Kept { what: path.join("."), is_omitted: given.is_none() });
        }
        match made {
            Some(made) => set(&mut next.body, path, made),
            None => drop(next.body.get_mut(part).and_then(|part| part.as_object_mut()?.remove(field))),
        }
    }
    kept
}

/// Of addresses, those that Kubernetes knows: Calico's own follow from another field, which can be changed.
fn of_kubernetes(value: &Option<Value>) -> Option<Vec<&Value>> {
    let entries = value.as_ref()?.as_array()?.iter();
    Some(entries.filter(|entry| entry.get("type").and_then(Value::as_str) != Some(CALICO_ADDRESS)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Object, Shown, node};
    use super::*;

    fn stored() -> Resource {
        let object = json!({
            "metadata": { "name": "a", "labels": { "rack": "r1", "zone": "z1" },
                "annotations": { "projectcalico.org/labels": r#"{"own":"yes"}"# } },
            "spec": { "podCIDRs": ["10.1.0.0/24"] },
            "status": { "addresses": [{ "type": "InternalIP", "address": "172.30.0.1" }] },
        });
        node::node(&Object::new(Shown::Node, object.as_object().unwrap()))
    }

    fn kept(stored: &Resource, next: &mut Resource) -> Vec<(String, bool)> {
        keep_computed(stored, next).into_iter().map(|kept| (kept.what, kept.is_omitted)).collect()
    }

    #[test]
    fn what_only_calico_knows_can_be_changed() {
        let mut next = stored();
        next.metadata.labels.insert("own".to_owned(), "no".to_owned());
        set(&mut next.body, &["spec", "bgp", "asNumber"], json!(64512));
        let of_calico = json!({ "address": "172.30.0.9/24", "type": "CalicoNodeIP" });
        next.spec_mut()["addresses"].as_array_mut().unwrap().push(of_calico);
        let mut wanted = next.clone();
        assert_eq!(kept(&stored(), &mut next), []);
        wanted.spec_mut()["addresses"].as_array_mut().unwrap().pop();
        assert_eq!(next, wanted);
    }

    #[test]
    fn what_a_manifest_omits_stays_and_what_it_changes_is_named() {
        let mut next = stored();
        next.metadata.annotations.clear();
        next.metadata.labels =
            [("rack".to_owned(), "r2".to_owned()), ("own".to_owned(), "yes".to_owned())].into();
        next.body =
            json!({ "spec": { "addresses": [], "bgp": { "asNumber": 64512 } } }).as_object().unwrap().clone();
        let expected = [
            ("label rack".to_owned(), false),
            ("label zone".to_owned(), true),
            ("spec.addresses".to_owned(), false),
            ("spec.orchRefs".to_owned(), true),
            ("status.podCIDRs".to_owned(), true),
        ];
        assert_eq!(kept(&stored(), &mut next), expected);
        let mut like_stored = next.clone();
        like_stored.spec_mut().remove("bgp");
        assert_eq!((like_stored.body, like_stored.metadata), (stored().body, stored().metadata));
        assert_eq!(next.spec("bgp").and_then(|bgp| bgp.get("asNumber")), Some(&Value::from(64512)));
    }

    #[test]
    fn a_field_that_the_kubernetes_node_lacks_cannot_be_added() {
        let mut stored = stored();
        stored.body.remove("status");
        let mut next = stored.clone();
        set(&mut next.body, &["status", "podCIDRs"], json!(["10.9.0.0/24"]));
        assert_eq!(kept(&stored, &mut next), [("status.podCIDRs".to_owned(), false)]);
        assert_eq!(next.body.get("status"), Some(&json!({})));
    }
}
