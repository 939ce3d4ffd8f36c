//! This node's own record: its name, its addresses, its AS number.

use ipnet::IpNet;
use model::cluster::AGENT_VERSION_ANNOTATION;
use model::{IpVersion, Key, KeyRange, Kind, Resource};
use plan::address::{Choice, OtherNode};
use serde_json::json;
use store::Store;
use tracing::{info, warn};

use super::{Environment, Failure, ensure as ensure_record, find, is_in_kubernetes, replace};
use crate::address::{self, AddressSettings, LocalAddresses};

pub(super) async fn ensure(
    store: &dyn Store,
    node: &str,
    environment: Environment<'_>,
) -> Result<(), Failure> {
    let existing = find(store, Kind::Node, node).await?;
    if existing.is_none() && store.get(&Key::cluster(Kind::Node, node)).await?.is_some() {
        // It cannot be read, and stays as it is.
        return Ok(());
    }
    if existing.is_none() && is_in_kubernetes(store) {
        return Err(Failure::Waits(not_registered(node)));
    }
    let settings = AddressSettings::read(&|name| environment(name))
        .map_err(|error| Failure::Refused(error.to_string()))?;
    let others = other_nodes(store, node).await?;
    let local = LocalAddresses::read().unwrap_or_else(|error| {
        warn!(%error, "cannot read this node's network interfaces");
        LocalAddresses::default()
    });
    let internal = existing.as_ref().map(|(_, resource)| address::internal(resource));
    let local = local.or_internal(internal.unwrap_or_default());
    let mut found = Vec::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        let before = existing.as_ref().and_then(|(_, resource)| address::recorded(resource, version));
        let (settings, local, others) = (settings.clone(), local.clone(), others.clone());
        let choosing = move || settings.choose_first(version, &local, before, others);
        let chosen = tokio::task::spawn_blocking(choosing).await;
        let choice = chosen.map_err(|error| Failure::Refused(error.to_string()))?;
        log(&choice);
        found.extend(choice.address.map(|chosen| chosen.network));
    }
    let Some((record, earlier)) = existing else {
        let mut resource = Resource::new(Kind::Node, node);
        resource.body.insert("spec".to_owned(), json!({}));
        describe(&mut resource, &found, environment)?;
        return Ok(ensure_record(store, resource).await?);
    };
    let mut resource = earlier.clone();
    describe(&mut resource, &found, environment)?;
    if is_in_kubernetes(store)
        && let Some(reference) = earlier.spec("orchRefs")
    {
        // It is the Kubernetes node, so there is nothing to refer to.
        resource.spec_mut().insert("orchRefs".to_owned(), reference.clone());
    }
    if resource == earlier {
        return Ok(());
    }
    info!(node, addresses = ?found, "changing this node's record");
    Ok(replace(store, record, &resource).await?)
}

/// The kubelet may start after this agent, or under another name.
fn not_registered(node: &str) -> String {
    format!(
        "Kubernetes has no Node {node} yet: the kubelet registers it (kubectl get node {node}); if the node has another name there, \
         set NODENAME to that"
    )
}

/// The chosen address and why, doubts about it, and refused addresses.
fn log(choice: &Choice) {
    if let Some(chosen) = &choice.address {
        let device = chosen.interface.as_deref().unwrap_or("no device");
        info!(address = %chosen.network, device, reason = %chosen.why, "chose this node's address");
    }
    choice.refused.iter().for_each(|refusal| warn!("refused an address for this node: {refusal}"));
    choice.doubts.iter().for_each(|doubt| warn!("this node's address may be wrong: {doubt}"));
}

/// Every other node with an address.
async fn other_nodes(store: &dyn Store, node: &str) -> Result<Vec<OtherNode>, Failure> {
    let (nodes, _) = store.list_all(KeyRange::NodesInBrief).await?;
    let own = Key::cluster(Kind::Node, node);
    let mut others = Vec::new();
    for record in nodes.iter().filter(|record| record.key != own) {
        let decoded = Resource::decode(&record.key, Kind::Node, &record.value, record.revision.as_str());
        let Ok(resource) = decoded else { continue };
        for version in [IpVersion::V4, IpVersion::V6] {
            let address = address::recorded(&resource, version);
            let name = || resource.metadata.name.clone();
            others.extend(address.map(|address| OtherNode { name: name(), address }));
        }
    }
    Ok(others)
}

/// Updates version, addresses, AS number and node reference, and keeps everything else.
fn describe(node: &mut Resource, found: &[IpNet], environment: Environment<'_>) -> Result<(), Failure> {
    // `plumb status` counts the versions of a cluster by it.
    let version = env!("CARGO_PKG_VERSION").to_owned();
    node.metadata.annotations.insert(AGENT_VERSION_ANNOTATION.to_owned(), version);
    let number = environment("AS").map(|text| {
        text.parse::<u32>()
            .map_err(|_| Failure::Refused(format!("AS is {text:?}, which is not an AS number")))
    });
    if let Some(number) = number.transpose()? {
        node.spec_mut().entry("bgp").or_insert_with(|| json!({}))["asNumber"] = number.into();
    }
    found.iter().for_each(|network| address::write(node, *network));
    if let Some(name) = environment("CALICO_K8S_NODE_REF") {
        let reference = json!([{"nodeName": name, "orchestrator": "k8s"}]);
        node.spec_mut().insert("orchRefs".to_owned(), reference);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use store::MemoryStore;

    use super::*;

    fn with_ip(address: &'static str) -> impl Fn(&str) -> Option<String> + Sync {
        move |name| (name == "IP").then(|| address.to_owned())
    }

    async fn recorded(store: &dyn Store, node: &str) -> Resource {
        find(store, Kind::Node, node).await.unwrap().unwrap().1
    }

    #[tokio::test]
    async fn the_record_follows_the_setting_and_keeps_the_rest() {
        let store = MemoryStore::new();
        let store: &dyn Store = &store;
        ensure(store, "node-a", &with_ip("192.0.2.7/24")).await.unwrap();
        let node = recorded(store, "node-a").await;
        assert_eq!(node.spec("bgp"), Some(&json!({"ipv4Address": "192.0.2.7/24"})));
        assert_eq!(node.spec("addresses").unwrap()[0]["type"], "CalicoNodeIP");

        let mut changed = node.clone();
        changed.spec_mut().insert("later".to_owned(), json!(1));
        changed.spec_mut()["addresses"]
            .as_array_mut()
            .unwrap()
            .push(json!({"address": "x", "type": "ExternalIP"}));
        let record = store.get(&node.key()).await.unwrap().unwrap();
        store.update(record.key, changed.encode(), record.revision).await.unwrap();
        ensure(store, "node-a", &with_ip("192.0.2.8/24")).await.unwrap();
        let node = recorded(store, "node-a").await;
        assert_eq!(address::recorded(&node, IpVersion::V4).unwrap().to_string(), "192.0.2.8/24");
        assert_eq!(node.spec("later"), Some(&json!(1)));
        let addresses = node.spec("addresses").unwrap().as_array().unwrap();
        assert_eq!((addresses.len(), &addresses[1]["type"]), (2, &json!("ExternalIP")));

        ensure(store, "node-a", &with_ip("none")).await.unwrap();
        assert_eq!(recorded(store, "node-a").await, node);
    }

    #[tokio::test]
    async fn an_address_of_another_node_is_not_taken() {
        let store = MemoryStore::new();
        let store: &dyn Store = &store;
        ensure(store, "node-a", &with_ip("192.0.2.7/24")).await.unwrap();
        ensure(store, "node-b", &with_ip("192.0.2.7")).await.unwrap();
        assert_eq!(address::recorded(&recorded(store, "node-b").await, IpVersion::V4), None);
    }

    #[tokio::test]
    async fn both_ip_versions_are_recorded() {
        let store = MemoryStore::new();
        let store: &dyn Store = &store;
        let said = |name: &str| match name {
            "IP" => Some("192.0.2.7/24".to_owned()),
            "IP6" => Some("2001:db8::7/64".to_owned()),
            _ => None,
        };
        ensure(store, "node-a", &said).await.unwrap();
        let node = recorded(store, "node-a").await;
        let bgp = json!({"ipv4Address": "192.0.2.7/24", "ipv6Address": "2001:db8::7/64"});
        assert_eq!(node.spec("bgp"), Some(&bgp));
    }

    #[tokio::test]
    async fn wrong_settings_are_refused() {
        let store = MemoryStore::new();
        let store: &dyn Store = &store;
        for wrong in ["x", "fd00::1", "10.0.0.1/33"] {
            assert!(ensure(store, "node-a", &with_ip(wrong)).await.is_err(), "{wrong}");
        }
    }
}
