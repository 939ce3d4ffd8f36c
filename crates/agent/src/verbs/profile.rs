//! The profile of a network, for endpoints whose policy is not Kubernetes': made with the first one, and never changed.

use book::Book;
use jiff::Timestamp;
use model::originals::{Named, shortened};
use model::{Key, Kind, Resource};
use serde_json::{Value, json};
use store::StoreError;
use tracing::info;

use super::Call;
use super::endpoint::{Described, Keeping};
use super::error::CniError;
use super::netconf::PolicyType;
use crate::services::Services;

/// The profile is a label, too, and labels are no longer.
const NAME_MAX: usize = 63;

/// The name of a network's profile: the network's own where a record can have it.
pub(super) fn name_of(network: &str) -> String {
    let name = Named::Pod.recorded(network).into_owned();
    if name.len() > NAME_MAX { shortened(network) } else { name }
}

/// The profiles of the call's endpoint; `None` if Kubernetes says which. A network of ours is one of Kubernetes' unless it says otherwise: its
/// pods are in the profiles of their namespaces, which policies for namespaces need.
pub(super) fn of_endpoint(call: &Call) -> Option<Vec<String>> {
    let is_in_networks = match call.netconf.calico.policy {
        PolicyType::Network => is_calicos(call),
        PolicyType::Kubernetes => call.request.pod.is_none(),
        PolicyType::Other => true,
    };
    is_in_networks.then(|| vec![name_of(&call.netconf.name)])
}

/// The configuration is one for Calico's plugin.
fn is_calicos(call: &Call) -> bool {
    call.netconf.plugin.as_deref() == Some("calico")
}

/// Whether the network's profile is ours to make.
fn is_ours_to_make(call: &Call) -> bool {
    call.netconf.calico.policy == PolicyType::Network && is_calicos(call)
}

/// The profile that [`ensure`] has seen to: rules from before it was cached would shut the endpoint.
pub(super) fn awaited<'a>(call: &Call, described: &'a Described) -> Option<&'a str> {
    described.profiles.as_ref().filter(|_| is_ours_to_make(call))?.first().map(String::as_str)
}

/// Creates the profile unless it exists. With Kubernetes, pods accept everything; without, only what is of the same network. `false`: there
/// is none, and an endpoint that names it is shut.
pub(super) async fn ensure(call: &Call, book: &Book, services: Services<'_>) -> Result<bool, CniError> {
    if !is_ours_to_make(call) || Keeping::of(book) == Keeping::Views {
        return Ok(true);
    }
    let name = name_of(&call.netconf.name);
    if services.profile_exists(&name) == Some(true) {
        return Ok(true);
    }
    let exists = book.store().get(&Key::cluster(Kind::Profile, &name)).await?.is_some()
        || create(&name, call, book, services).await?;
    services.note_profile(name, exists);
    Ok(exists)
}

/// Whether an earlier call could not create the profile, and nobody has since.
pub(super) async fn is_missing(call: &Call, book: &Book, services: Services<'_>) -> Result<bool, CniError> {
    let name = name_of(&call.netconf.name);
    if !is_ours_to_make(call) || services.profile_exists(&name) != Some(false) {
        return Ok(false);
    }
    Ok(book.store().get(&Key::cluster(Kind::Profile, &name)).await?.is_none())
}

async fn create(name: &str, call: &Call, book: &Book, services: Services<'_>) -> Result<bool, CniError> {
    let profile = profile(name, call.request.pod.is_some());
    match book.store().create(Key::cluster(Kind::Profile, name), profile.encode()).await {
        Ok(_) => {
            info!(profile = name, "created the network's profile");
            Ok(true)
        }
        Err(StoreError::AlreadyExists { .. }) => Ok(true),
        // A node's own role may not write what is the cluster's.
        Err(StoreError::AccessDenied { .. }) => {
            services.warn_once(format!(
                "the network has no profile {name}, and this node may not create it; its endpoints do without"
            ));
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn profile(name: &str, is_open: bool) -> Resource {
    let ingress: Value = match is_open {
        true => json!([{"action": "Allow"}]),
        false => json!([{"action": "Allow", "source": {"selector": format!("has({name})")}}]),
    };
    let mut profile = Resource::new(Kind::Profile, name);
    profile.metadata.uid = Some(uuid::Uuid::new_v4().to_string());
    profile.metadata.creation_timestamp = Some(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    let spec = json!({"ingress": ingress, "egress": [{"action": "Allow"}], "labelsToApply": {name: ""}});
    profile.body.insert("spec".to_owned(), spec);
    profile.fill_defaults();
    profile
}

#[cfg(test)]
mod tests {
    use model::validate::validate;

    use super::*;

    #[test]
    fn every_network_can_have_a_profile() {
        for network in ["k8s-pod-network", "net1", "Net_1", "a.b", &"x".repeat(200)] {
            let name = name_of(network);
            for is_open in [true, false] {
                let violations = validate(&profile(&name, is_open));
                assert!(violations.is_empty(), "{name}: {violations:?}");
            }
        }
    }

    #[test]
    fn a_closed_one_accepts_only_its_own() {
        let closed = profile("net1", false);
        let expected = json!([{"action": "Allow", "source": {"selector": "has(net1)"}}]);
        assert_eq!(closed.spec("ingress"), Some(&expected));
        assert_eq!(closed.spec("labelsToApply"), Some(&json!({"net1": ""})));
    }
}
