//! Sandboxes that live on without an endpoint record: a later sandbox of the same pod took it over, or the pod is gone from Kubernetes. Without
//! an endpoint their devices would be shut, and they would lose a network that they still own. Network policy treats them as it treats their
//! successor, else as it treated them, and else by what is left to know: the namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::{Key, Kind, Resource, endpoint_networks};
use serde_json::{Value, json};

use crate::journal::Entry;

/// An attachment of this node's journal.
#[derive(Clone, Debug)]
struct Attached {
    namespace: String,
    pod: String,
    interface: String,
    addresses: Vec<IpAddr>,
    node: String,
}

#[derive(Debug, Default)]
pub(super) struct Superseded {
    /// By device.
    attached: BTreeMap<String, Attached>,
    /// This node's endpoint records.
    records: BTreeMap<Key, Resource>,
    /// The last record of each device.
    last: BTreeMap<String, Resource>,
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
    pub(super) fn attach(&mut self, entry: &Entry, node: &str) {
        let Some((namespace, pod)) = entry.pod.clone() else { return };
        let attachment = &entry.attachment;
        let interface = attachment.sandbox.interface().to_owned();
        let (addresses, node) = (attachment.addresses.clone(), node.to_owned());
        let attached = Attached { namespace, pod, interface, addresses, node };
        self.attached.insert(attachment.device.to_string(), attached);
    }

    pub(super) fn detach(&mut self, device: &str) {
        self.attached.remove(device);
        self.last.remove(device);
    }

    /// A record of this node, or one that went to another node.
    pub(super) fn put(&mut self, key: &Key, record: &Resource, node: &str) {
        if text(record, "node") == Some(node) {
            if let Some(device) = text(record, "interfaceName") {
                self.last.insert(device.to_owned(), record.clone());
            }
            self.records.insert(key.clone(), record.clone());
        } else {
            self.records.remove(key);
        }
    }

    pub(super) fn remove(&mut self, key: &Key) {
        let Some(record) = self.records.remove(key) else { return };
        if let Some(device) =
            text(&record, "interfaceName").filter(|device| !self.attached.contains_key(*device))
        {
            self.last.remove(device);
        }
    }

    /// All records are read again, into a new calculation.
    pub(super) fn begin_again(&mut self) {
        self.records.clear();
        self.made.clear();
    }

    /// What changed since the last call. Only for when all records were read.
    pub(super) fn changed(&mut self) -> Changed {
        let recorded: BTreeSet<&str> =
            self.records.values().filter_map(|record| text(record, "interfaceName")).collect();
        let mut wanted = BTreeMap::new();
        for (device, attached) in &self.attached {
            if recorded.contains(&**device) {
                continue;
            }
            let made = match self.successor_of(attached).or_else(|| self.last.get(device)) {
                Some(record) => in_place_of(record, device, &attached.addresses),
                None => self.made.get(device).cloned().unwrap_or_else(|| by_namespace(attached, device)),
            };
            wanted.insert(device.clone(), made);
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

/// All that the journal knows of a pod: policies for labels of its own do not find it.
fn by_namespace(attached: &Attached, device: &str) -> Resource {
    let mut endpoint = Resource::new(Kind::WorkloadEndpoint, format!("{} ({device})", attached.pod));
    endpoint.metadata.namespace = Some(attached.namespace.clone());
    let spec = json!({
        "orchestrator": "k8s",
        "node": attached.node,
        "pod": attached.pod,
        "endpoint": attached.interface,
        "interfaceName": device,
        "ipNetworks": endpoint_networks(&attached.addresses),
        "profiles": [format!("kns.{}", attached.namespace)],
    });
    endpoint.body.insert("spec".to_owned(), spec);
    endpoint
}

fn in_place_of(record: &Resource, device: &str, addresses: &[IpAddr]) -> Resource {
    let mut endpoint = record.clone();
    endpoint.metadata.name = format!("{} ({device})", endpoint.metadata.name);
    let spec = endpoint.spec_mut();
    spec.insert("interfaceName".to_owned(), device.into());
    spec.insert("ipNetworks".to_owned(), endpoint_networks(addresses).into());
    endpoint
}

#[cfg(test)]
mod tests {
    use model::{DeviceName, Mac, Sandbox};
    use plan::Attachment;

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
        superseded.attach(&entry("old", "cali1", "10.0.0.5"), "a");
        let own = record("a", "cali1");
        superseded.put(&own.key(), &own, "a");
        assert_eq!(superseded.changed(), Changed::default(), "its own record");

        let mut namesakes = record("a", "cali2");
        namesakes.metadata.labels.insert("version".to_owned(), "2".to_owned());
        superseded.put(&namesakes.key(), &namesakes, "a");
        let changed = superseded.changed();
        assert_eq!((changed.put.len(), changed.removed.len()), (1, 0));
        let made = &changed.put[0];
        assert_ne!(made.key(), namesakes.key());
        assert_eq!(made.metadata.labels, namesakes.metadata.labels);
        assert_eq!(made.spec("interfaceName"), Some(&json!("cali1")));
        assert_eq!(made.spec("ipNetworks"), Some(&json!(["10.0.0.5/32"])));
        assert_eq!(superseded.changed(), Changed::default(), "once");

        // The namesake goes first: what the sandbox itself was counts again.
        superseded.remove(&namesakes.key());
        assert_eq!(superseded.changed().put[0].metadata.labels, own.metadata.labels);
        superseded.detach("cali1");
        assert_eq!(superseded.changed().removed.len(), 1);
        assert_eq!(superseded.changed(), Changed::default());
    }

    #[test]
    fn who_lost_its_pod_stays_what_it_was_and_else_belongs_to_its_namespace() {
        let mut superseded = Superseded::default();
        superseded.attach(&entry("old", "cali1", "10.0.0.5"), "a");
        let own = record("a", "cali1");
        superseded.put(&own.key(), &own, "a");
        superseded.remove(&own.key());
        assert_eq!(superseded.changed().put[0].metadata.labels, own.metadata.labels);
        // An agent that starts again has not seen the record.
        let mut again = Superseded::default();
        again.attach(&entry("old", "cali1", "10.0.0.5"), "a");
        let made = &again.changed().put[0];
        assert_eq!((made.metadata.namespace.as_deref(), made.metadata.labels.len()), (Some("shop"), 0));
        assert_eq!(made.spec("profiles"), Some(&json!(["kns.shop"])));
        again.put(&own.key(), &own, "a");
        assert_eq!(again.changed().removed.len(), 1, "its record is back");
    }

    #[test]
    fn records_of_other_nodes_and_pods_are_not_those_of_successors() {
        let mut superseded = Superseded::default();
        superseded.attach(&entry("old", "cali1", "10.0.0.5"), "a");
        let elsewhere = record("b", "cali2");
        superseded.put(&elsewhere.key(), &elsewhere, "a");
        let mut of_another = record("a", "cali2");
        of_another.spec_mut().insert("pod".to_owned(), "web-1".into());
        superseded.put(&of_another.key(), &of_another, "a");
        assert_eq!(superseded.changed().put[0].metadata.labels.len(), 0, "known by its namespace alone");
        // With a new calculation, everything is put again.
        superseded.begin_again();
        let namesakes = record("a", "cali2");
        superseded.put(&namesakes.key(), &namesakes, "a");
        assert_eq!(superseded.changed().put[0].metadata.labels, namesakes.metadata.labels);
    }
}
