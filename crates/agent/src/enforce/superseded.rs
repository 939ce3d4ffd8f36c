//! Sandboxes that live on after a later sandbox of the same pod took over their endpoint record. Network policy treats them as it treats the
//! pod: without an endpoint their devices would be shut, and they would lose a network that they still own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::{Key, Resource, endpoint_networks};
use serde_json::Value;

use crate::journal::Entry;

/// An attachment of this node's journal.
#[derive(Clone, Debug)]
struct Attached {
    namespace: String,
    pod: String,
    interface: String,
    addresses: Vec<IpAddr>,
}

#[derive(Debug, Default)]
pub(super) struct Superseded {
    /// By device.
    attached: BTreeMap<String, Attached>,
    /// This node's endpoint records.
    records: BTreeMap<Key, Resource>,
    /// Endpoints in the place of records, by device.
    made: BTreeMap<String, Resource>,
}

/// Endpoints to put, and those to remove.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changed {
    pub(super) put: Vec<Resource>,
    pub(super) removed: Vec<Key>,
}

impl Superseded {
    pub(super) fn attach(&mut self, entry: &Entry) {
        let Some((namespace, pod)) = entry.pod.clone() else { return };
        let attachment = &entry.attachment;
        let interface = attachment.sandbox.interface().to_owned();
        let attached = Attached { namespace, pod, interface, addresses: attachment.addresses.clone() };
        self.attached.insert(attachment.device.to_string(), attached);
    }

    pub(super) fn detach(&mut self, device: &str) {
        self.attached.remove(device);
    }

    /// A record of this node, or one that went to another node.
    pub(super) fn put(&mut self, key: &Key, record: &Resource, node: &str) {
        if text(record, "node") == Some(node) {
            self.records.insert(key.clone(), record.clone());
        } else {
            self.records.remove(key);
        }
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.records.remove(key);
    }

    /// All records are read again, into a new calculation.
    pub(super) fn begin_again(&mut self) {
        self.records.clear();
        self.made.clear();
    }

    /// What changed since the last call. An endpoint that was made stays while its sandbox has neither a record nor a successor.
    pub(super) fn changed(&mut self) -> Changed {
        let recorded: BTreeSet<&str> =
            self.records.values().filter_map(|record| text(record, "interfaceName")).collect();
        let mut wanted = BTreeMap::new();
        for (device, attached) in &self.attached {
            if recorded.contains(&**device) {
                continue;
            }
            let made = match self.successor_of(attached) {
                Some(successor) => Some(in_place_of(successor, device, &attached.addresses)),
                None => self.made.get(device).cloned(),
            };
            wanted.extend(made.map(|made| (device.clone(), made)));
        }
        let is_new = |(device, made): &(&String, &Resource)| self.made.get(*device) != Some(*made);
        let put = wanted.iter().filter(is_new).map(|(_, made)| made.clone()).collect();
        let gone = self.made.iter().filter(|(device, _)| !wanted.contains_key(*device));
        let removed = gone.map(|(_, made)| made.key()).collect();
        self.made = wanted;
        Changed { put, removed }
    }

    fn successor_of(&self, attached: &Attached) -> Option<&Resource> {
        self.records.values().find(|record| {
            record.metadata.namespace.as_deref() == Some(&*attached.namespace)
                && text(record, "pod") == Some(&*attached.pod)
                && text(record, "endpoint") == Some(&*attached.interface)
        })
    }
}

fn text<'a>(record: &'a Resource, field: &str) -> Option<&'a str> {
    record.spec(field).and_then(Value::as_str)
}

fn in_place_of(successor: &Resource, device: &str, addresses: &[IpAddr]) -> Resource {
    let mut endpoint = successor.clone();
    endpoint.metadata.name = format!("{} ({device})", endpoint.metadata.name);
    let spec = endpoint.spec_mut();
    spec.insert("interfaceName".to_owned(), device.into());
    spec.insert("ipNetworks".to_owned(), endpoint_networks(addresses).into());
    endpoint
}

#[cfg(test)]
mod tests {
    use model::{DeviceName, Kind, Mac, Sandbox};
    use plan::Attachment;
    use serde_json::json;

    use super::*;

    fn entry(container: &str, device: &str, address: &str) -> Entry {
        let attachment = Attachment {
            sandbox: Sandbox::new("net", container, "eth0").unwrap(),
            device: DeviceName::new(device).unwrap(),
            mac: Mac([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            addresses: vec![address.parse().unwrap()],
            pod_forwards: false,
            pod_routes: Vec::new(),
        };
        Entry { attachment, netns: "/run/netns/x".into(), pod: Some(("shop".to_owned(), "web-0".to_owned())) }
    }

    fn record(node: &str, device: &str) -> Resource {
        let mut record = Resource::new(Kind::WorkloadEndpoint, "a-k8s-web--0-eth0");
        record.metadata.namespace = Some("shop".to_owned());
        record.metadata.labels.insert("app".to_owned(), "web".to_owned());
        let spec = json!({
            "node": node, "pod": "web-0", "endpoint": "eth0", "interfaceName": device,
            "ipNetworks": ["10.0.0.6/32"], "profiles": ["kns.shop"],
        });
        record.body.insert("spec".to_owned(), spec);
        record
    }

    #[test]
    fn who_lost_its_record_to_a_namesake_is_treated_like_it() {
        let mut superseded = Superseded::default();
        superseded.attach(&entry("old", "cali1", "10.0.0.5"));
        assert_eq!(superseded.changed(), Changed::default(), "no record yet");
        let own = record("a", "cali1");
        superseded.put(&own.key(), &own, "a");
        assert_eq!(superseded.changed(), Changed::default(), "its own record");

        let namesakes = record("a", "cali2");
        superseded.put(&namesakes.key(), &namesakes, "a");
        let changed = superseded.changed();
        assert_eq!((changed.put.len(), changed.removed.len()), (1, 0));
        let made = &changed.put[0];
        assert_ne!(made.key(), namesakes.key());
        assert_eq!(made.metadata.labels, namesakes.metadata.labels);
        assert_eq!(made.spec("interfaceName"), Some(&json!("cali1")));
        assert_eq!(made.spec("ipNetworks"), Some(&json!(["10.0.0.5/32"])));
        assert_eq!(superseded.changed(), Changed::default(), "once");

        // The namesake goes first.
        superseded.remove(&namesakes.key());
        assert_eq!(superseded.changed(), Changed::default());
        superseded.detach("cali1");
        assert_eq!(superseded.changed(), Changed { put: Vec::new(), removed: vec![made.key()] });
    }

    #[test]
    fn records_of_other_nodes_and_pods_do_not_count() {
        let mut superseded = Superseded::default();
        superseded.attach(&entry("old", "cali1", "10.0.0.5"));
        let elsewhere = record("b", "cali2");
        superseded.put(&elsewhere.key(), &elsewhere, "a");
        let mut of_another = record("a", "cali2");
        of_another.spec_mut().insert("pod".to_owned(), "web-1".into());
        superseded.put(&of_another.key(), &of_another, "a");
        assert_eq!(superseded.changed(), Changed::default());
        // With a new calculation, everything is put again.
        let namesakes = record("a", "cali2");
        superseded.put(&namesakes.key(), &namesakes, "a");
        assert_eq!(superseded.changed().put.len(), 1);
        superseded.begin_again();
        superseded.put(&namesakes.key(), &namesakes, "a");
        assert_eq!(superseded.changed().put.len(), 1);
    }
}
