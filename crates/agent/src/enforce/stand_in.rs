//! What takes the place of records that only a controller of Kubernetes writes.
//!
//! Calico's controllers write a profile for each namespace, which allows everything and hands the namespace's labels on. Where a store is
//! used without them, the endpoints name such profiles all the same. Without a stand-in every pod of such a cluster would be shut.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::resource::DEFAULT_ALLOW_PROFILE;
use model::{Key, Kind, Resource, endpoint_networks};
use serde_json::{Value, json};

/// How the profiles of namespaces are called.
const PREFIX: &str = "kns.";
/// The label by which pods of a namespace are found, whatever labels that has.
const NAME_LABEL: &str = "pcns.projectcalico.org/name";

/// Which profiles are there, and which were made up.
#[derive(Debug)]
pub(super) struct StandIns {
    are_used: bool,
    recorded: BTreeSet<String>,
    made: BTreeSet<String>,
}

impl StandIns {
    /// They are not used where every namespace has a profile: one that is not seen yet is not open then.
    pub(super) fn new(are_used: bool) -> StandIns {
        StandIns { are_used, recorded: BTreeSet::new(), made: BTreeSet::new() }
    }

    pub(super) fn clear(&mut self) {
        *self = StandIns::new(self.are_used);
    }

    /// Whether there is such a profile, or something in its place.
    pub(super) fn has(&self, name: &str) -> bool {
        name == DEFAULT_ALLOW_PROFILE || self.recorded.contains(name) || self.made.contains(name)
    }

    /// The profiles of namespaces that a record names and nobody has written. Each is given out once.
    pub(super) fn needed_for(&mut self, key: &Key, resource: &Resource) -> Vec<Resource> {
        if let (Kind::Profile, Key::Resource { name, .. }) = (resource.kind, key) {
            self.recorded.insert(name.clone());
            self.made.remove(name);
            return Vec::new();
        }
        if resource.kind != Kind::WorkloadEndpoint || !self.are_used {
            return Vec::new();
        }
        profiles(resource).filter_map(|name| self.needed(name)).collect()
    }

    /// The stand-in for a profile, if it needs one and has none.
    pub(super) fn needed(&mut self, name: &str) -> Option<Resource> {
        let namespace = name.strip_prefix(PREFIX).filter(|_| self.are_used)?;
        let is_needed = !self.recorded.contains(name) && self.made.insert(name.to_owned());
        is_needed.then(|| stand_in(name, namespace))
    }

    /// What takes the place of a record that is gone.
    pub(super) fn instead_of(&mut self, key: &Key) -> Option<Resource> {
        let Key::Resource { kind: Kind::Profile, name, .. } = key else { return None };
        self.recorded.remove(name);
        let namespace = name.strip_prefix(PREFIX).filter(|_| self.are_used)?;
        self.made.insert(name.clone());
        Some(stand_in(name, namespace))
    }
}

fn profiles(endpoint: &Resource) -> impl Iterator<Item = &str> {
    let named = endpoint.spec("profiles").and_then(Value::as_array);
    named.into_iter().flatten().filter_map(Value::as_str)
}

fn stand_in(name: &str, namespace: &str) -> Resource {
    let mut profile = Resource::new(Kind::Profile, name);
    let allow = json!([{"action": "Allow"}]);
    let labels = json!({ NAME_LABEL: namespace });
    profile
        .body
        .insert("spec".to_owned(), json!({"ingress": allow, "egress": allow, "labelsToApply": labels}));
    profile
}

/// A container that is no pod belongs to no namespace, and our records of such containers name no profile. Policies may select it; otherwise it is
/// open, as it was before there was any policy.
pub(super) fn fit_for_policy(resource: &mut Resource) {
    let is_container = resource.kind == Kind::WorkloadEndpoint
        && resource.spec("orchestrator").and_then(Value::as_str) == Some("cni")
        && resource.spec("profiles").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if is_container {
        let open = json!([DEFAULT_ALLOW_PROFILE]);
        resource.spec_mut().insert("profiles".to_owned(), open);
    }
}

/// What an attachment is to policy that has no record: an open endpoint without labels.
pub(super) fn bare_endpoint(node: &str, device: &str, addresses: &[IpAddr]) -> Resource {
    let mut endpoint = Resource::new(Kind::WorkloadEndpoint, device);
    endpoint.metadata.namespace = Some(String::new());
    let spec = json!({
        "node": node,
        "interfaceName": device,
        "ipNetworks": endpoint_networks(addresses),
        "profiles": [DEFAULT_ALLOW_PROFILE],
    });
    endpoint.body.insert("spec".to_owned(), spec);
    endpoint
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(orchestrator: &str, profiles: Value) -> Resource {
        let mut endpoint = Resource::new(Kind::WorkloadEndpoint, "a");
        let spec = json!({"orchestrator": orchestrator, "profiles": profiles});
        endpoint.body.insert("spec".to_owned(), spec);
        endpoint
    }

    fn profile(name: &str) -> Key {
        Key::cluster(Kind::Profile, name)
    }

    #[test]
    fn a_namespace_without_a_profile_is_open_until_it_has_one() {
        let mut stand_ins = StandIns::new(true);
        let key = Key::namespaced(Kind::WorkloadEndpoint, "shop", "a");
        let pod = endpoint("k8s", json!(["kns.shop", "ksa.shop.default", "mine"]));
        let made = stand_ins.needed_for(&key, &pod);
        assert_eq!(made.iter().map(Resource::key).collect::<Vec<_>>(), [profile("kns.shop")]);
        assert_eq!(made[0].spec("ingress"), Some(&json!([{"action": "Allow"}])));
        assert_eq!(stand_ins.needed_for(&key, &pod), []);
        let recorded = Resource::new(Kind::Profile, "kns.shop");
        assert_eq!(stand_ins.needed_for(&profile("kns.shop"), &recorded), []);
        assert_eq!(stand_ins.needed_for(&key, &pod), []);
        assert_eq!(
            stand_ins.instead_of(&profile("kns.shop")).map(|made| made.key()),
            Some(profile("kns.shop"))
        );
        assert_eq!(stand_ins.instead_of(&profile("mine")), None);
        let mut unused = StandIns::new(false);
        assert_eq!(
            (unused.needed_for(&key, &pod), unused.instead_of(&profile("kns.shop"))),
            (Vec::new(), None)
        );
    }

    #[test]
    fn a_container_that_is_no_pod_is_open() {
        let mut container = endpoint("cni", json!(null));
        fit_for_policy(&mut container);
        assert_eq!(profiles(&container).collect::<Vec<_>>(), ["projectcalico-default-allow"]);
        for (orchestrator, named) in [("k8s", json!([])), ("cni", json!(["mine"]))] {
            let before = endpoint(orchestrator, named);
            let mut after = before.clone();
            fit_for_policy(&mut after);
            assert_eq!(before, after);
        }
    }
}
