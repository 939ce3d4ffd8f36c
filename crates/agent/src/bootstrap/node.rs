//! This node's own record: its name, its address, its AS number.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use model::{Key, KeyRange, Kind, Resource};
use serde_json::{Value, json};
use store::Store;
use tracing::{info, warn};

use super::{Environment, Failure, address, ensure as ensure_record, find, replace};

/// The type of the addresses that Calico writes itself.
const OWN_TYPE: &str = "CalicoNodeIP";

pub(super) async fn ensure(
    store: &dyn Store,
    node: &str,
    environment: Environment<'_>,
) -> Result<(), Failure> {
    let known = find(store, Kind::Node, node).await?;
    if known.is_none() && store.get(&Key::cluster(Kind::Node, node)).await?.is_some() {
        // It cannot be understood, and was said to be left alone.
        return Ok(());
    }
    let before = known.as_ref().and_then(|(_, resource)| recorded_address(resource));
    let found = choose(environment, before)?;
    let found = refuse_taken(store, node, found).await?;
    let Some((record, earlier)) = known else {
        let mut resource = Resource::new(Kind::Node, node);
        resource.body.insert("spec".to_owned(), json!({}));
        describe(&mut resource, found, environment)?;
        return Ok(ensure_record(store, resource).await?);
    };
    let mut resource = earlier.clone();
    describe(&mut resource, found, environment)?;
    if resource == earlier {
        return Ok(());
    }
    info!(node, address = ?found.map(|network| network.to_string()), "this node's record changes");
    Ok(replace(store, record, &resource).await?)
}

/// By Calico's rules for `IP`: said, detected each time, detected once, or left alone.
fn choose(environment: Environment<'_>, before: Option<IpNet>) -> Result<Option<IpNet>, Failure> {
    match environment("IP").as_deref() {
        Some("none") => Ok(before),
        Some("autodetect") => Ok(address::of_default_route().or(before)),
        None => Ok(before.or_else(address::of_default_route)),
        Some(text) => said(text)
            .map(Some)
            .ok_or_else(|| Failure::Refused(format!("IP is {text:?}, which is no IPv4 address"))),
    }
}

fn said(text: &str) -> Option<IpNet> {
    if let Ok(network) = text.parse::<IpNet>() {
        return network.addr().is_ipv4().then_some(network);
    }
    text.parse::<Ipv4Addr>().ok().map(address::with_network)
}

/// Two nodes with one address are never reached both; the second one goes without.
async fn refuse_taken(store: &dyn Store, node: &str, found: Option<IpNet>) -> Result<Option<IpNet>, Failure> {
    let Some(wanted) = found else { return Ok(None) };
    let (nodes, _) = store.list_all(KeyRange::Kind(Kind::Node)).await?;
    let own = Key::cluster(Kind::Node, node);
    for record in nodes.iter().filter(|record| record.key != own) {
        let decoded = Resource::decode(&record.key, Kind::Node, &record.value, record.revision.as_str());
        let taken = decoded.ok().as_ref().and_then(recorded_address).map(|network| network.addr());
        if taken == Some(wanted.addr()) {
            warn!(
                "{} has the address {} already; this node is recorded without one",
                record.key,
                wanted.addr()
            );
            return Ok(None);
        }
    }
    Ok(found)
}

fn recorded_address(node: &Resource) -> Option<IpNet> {
    let text = node.spec("bgp")?.get("ipv4Address")?.as_str()?;
    text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from)).ok()
}

/// Notes down what is known now, and keeps everything else.
fn describe(node: &mut Resource, found: Option<IpNet>, environment: Environment<'_>) -> Result<(), Failure> {
    let number = environment("AS").map(|text| {
        text.parse::<u32>().map_err(|_| Failure::Refused(format!("AS is {text:?}, which is no AS number")))
    });
    let number = number.transpose()?;
    let spec = node.spec_mut();
    if found.is_some() || number.is_some() {
        let bgp = spec.entry("bgp").or_insert_with(|| json!({}));
        if let Some(network) = found {
            bgp["ipv4Address"] = network.to_string().into();
        }
        if let Some(number) = number {
            bgp["asNumber"] = number.into();
        }
    }
    if let Some(network) = found {
        note_address(spec.entry("addresses").or_insert_with(|| json!([])), network);
    }
    if let Some(name) = environment("CALICO_K8S_NODE_REF") {
        spec.insert("orchRefs".to_owned(), json!([{"nodeName": name, "orchestrator": "k8s"}]));
    }
    Ok(())
}

/// Our own address of this version, in place of an earlier one.
fn note_address(addresses: &mut Value, network: IpNet) {
    let Some(listed) = addresses.as_array_mut() else { return };
    let text = network.to_string();
    let is_ours = |entry: &Value| {
        let is_v4 = entry["address"].as_str().is_some_and(|address| !address.contains(':'));
        entry["type"] == OWN_TYPE && is_v4
    };
    if listed.iter().any(|entry| is_ours(entry) && entry["address"] == text.as_str()) {
        return;
    }
    listed.retain(|entry| !is_ours(entry));
    listed.insert(0, json!({"address": text, "type": OWN_TYPE}));
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
        assert_eq!(recorded_address(&node).unwrap().to_string(), "192.0.2.8/24");
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
        assert_eq!(recorded_address(&recorded(store, "node-b").await), None);
    }

    #[test]
    fn wrong_settings_are_refused() {
        for wrong in ["x", "fd00::1", "10.0.0.1/33"] {
            assert!(choose(&|name: &str| (name == "IP").then(|| wrong.to_owned()), None).is_err(), "{wrong}");
        }
    }
}
