//! A fault under way: what was done, how it is undone, and what the doctor must say of it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context as _, Result};
use lab::kubelet::PodReport;
use model::ipam::{Block, Handle};
use model::names::EndpointName;
use model::{AffinityOwner, Cidr, FindingCode, Key, Kind};
use serde_json::Value;

use crate::bird;
use crate::kubernetes;
use crate::relay::Relay;
use crate::scene::{NODES, Scene};

/// A kind of fault, named for the code that must be found.
#[derive(Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) code: FindingCode,
    /// What of the cluster it takes for itself, so that several at once do not meet.
    pub(crate) takes: Takes,
    pub(crate) inject: fn(&mut Injection<'_>) -> Result<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// One pod.
    Pod,
    /// How a node is set up; its pods are free for others.
    Setup,
    /// A node with all its pods.
    Node,
    /// What there is only one of: nothing else can be wrong at the same time.
    Cluster,
}

/// A fault at its place.
pub(crate) struct Injection<'s> {
    pub(crate) scene: &'s Scene,
    pub(crate) code: FindingCode,
    pub(crate) takes: Takes,
    /// The node it happens on.
    pub(crate) node: &'static str,
    /// The pod it happens to: of a fault that takes the node, the first.
    pub(crate) number: usize,
    pub(crate) roots: BTreeSet<(FindingCode, String)>,
    /// What must be told as following from a root.
    pub(crate) symptoms: BTreeSet<(FindingCode, String)>,
    /// A fault of a node's set-up that its pods feel.
    pub(crate) takes_pods_along: bool,
    /// Records that were written or deleted.
    touched: RefCell<BTreeSet<Key>>,
    undo: Vec<Undo>,
    undo_waits_for_bgp: bool,
    /// What makes it show, on its node. The kernel forgets what it saw.
    provocation: Option<String>,
    relay: Option<Relay>,
}

enum Undo {
    OnNode { node: &'static str, line: String },
    InPod { node: &'static str, pod: usize, line: String },
}

impl<'s> Injection<'s> {
    pub(crate) fn new(scene: &'s Scene, fault: &Fault, node: &'static str, number: usize) -> Injection<'s> {
        Injection {
            scene,
            code: fault.code,
            takes: fault.takes,
            node,
            number,
            roots: BTreeSet::new(),
            symptoms: BTreeSet::new(),
            takes_pods_along: false,
            touched: RefCell::default(),
            undo: Vec::new(),
            undo_waits_for_bgp: false,
            provocation: None,
            relay: None,
        }
    }

    /// This must be found.
    pub(crate) fn expect(&mut self, subject: impl std::fmt::Display) -> Result<()> {
        self.roots.insert((self.code, subject.to_string()));
        Ok(())
    }

    /// This must be found as following from what was expected.
    pub(crate) fn expect_symptom(&mut self, code: FindingCode, subject: impl std::fmt::Display) {
        self.symptoms.insert((code, subject.to_string()));
    }

    /// Something else is the root, and the fault's own code follows from it.
    pub(crate) fn expect_within(
        &mut self,
        root: FindingCode,
        of: impl std::fmt::Display,
        subject: impl std::fmt::Display,
    ) {
        self.roots.insert((root, of.to_string()));
        self.symptoms.insert((self.code, subject.to_string()));
    }

    pub(crate) fn pod(&self) -> &'s PodReport {
        self.scene.pod(self.node, self.number)
    }

    /// `pod team/node1-0`.
    pub(crate) fn pod_subject(&self) -> String {
        format!("pod {}", self.pod().key())
    }

    pub(crate) fn device(&self) -> &'s str {
        &self.pod().device
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.pod().addresses[0].parse().expect("an address")
    }

    pub(crate) fn other_node(&self) -> &'static str {
        if self.node == "node1" { "node2" } else { "node1" }
    }

    /// A number that no other fault has, for names and addresses.
    pub(crate) fn lot(&self) -> usize {
        let node: usize = self.node.trim_start_matches("node").parse().unwrap_or_default();
        node * 16 + self.number
    }

    pub(crate) fn block(&self) -> Cidr {
        self.scene.block_of(self.node)
    }

    pub(crate) fn owner(&self) -> AffinityOwner {
        AffinityOwner::Host(self.node.to_owned())
    }

    pub(crate) fn handle(&self) -> String {
        format!("{}.{}", lab::cluster::NETWORK, self.pod().container_id)
    }

    pub(crate) fn endpoint_key(&self) -> Key {
        endpoint_key(self.node, &self.pod().namespace, &self.pod().name)
    }

    pub(crate) fn endpoint_subject(&self) -> String {
        subject_of_endpoint(&self.endpoint_key())
    }

    /// On the node, and how it is undone.
    pub(crate) fn on_node(&mut self, line: impl AsRef<str>, undo: impl Into<String>) -> Result<()> {
        self.on(self.node, line, undo)
    }

    pub(crate) fn on(
        &mut self,
        node: &'static str,
        line: impl AsRef<str>,
        undo: impl Into<String>,
    ) -> Result<()> {
        self.undo.push(Undo::OnNode { node, line: undo.into() });
        self.scene.on(node, line.as_ref())?;
        Ok(())
    }

    /// Inside the pod.
    pub(crate) fn in_pod(&mut self, line: impl AsRef<str>, undo: impl Into<String>) -> Result<()> {
        self.undo.push(Undo::InPod { node: self.node, pod: self.number, line: undo.into() });
        self.scene.inside(self.node, self.pod(), line.as_ref())?;
        Ok(())
    }

    /// Sessions take their time to come back.
    pub(crate) fn undo_waits_for_bgp(&mut self) {
        self.undo_waits_for_bgp = true;
    }

    /// This makes it show, whenever it is to be found.
    pub(crate) fn shows_by(&mut self, line: impl Into<String>) -> Result<()> {
        self.provocation = Some(line.into());
        self.provoke()
    }

    pub(crate) fn provoke(&self) -> Result<()> {
        self.provocation.as_ref().map_or(Ok(()), |line| self.scene.on(self.node, line).map(|_| ()))
    }

    /// The node's agent is asked through this relay.
    pub(crate) fn ask_through(&mut self, relay: Relay) {
        self.scene.ask_at(self.node, Some(relay.socket()));
        self.relay = Some(relay);
    }

    /// A record as it is now.
    pub(crate) fn record(&self, key: &Key) -> Result<Vec<u8>> {
        self.scene.records()?.remove(key).with_context(|| format!("no record {key}"))
    }

    pub(crate) fn put(&self, key: Key, value: impl Into<Vec<u8>>) -> Result<()> {
        self.touched.borrow_mut().insert(key.clone());
        self.scene.change(key, Some(value.into()))
    }

    pub(crate) fn remove(&self, key: Key) -> Result<()> {
        self.touched.borrow_mut().insert(key.clone());
        self.scene.change(key, None)
    }

    /// Every record that was written or deleted.
    pub(crate) fn touched(&self) -> BTreeSet<Key> {
        self.touched.borrow().clone()
    }

    /// Changes a record's JSON.
    pub(crate) fn edit(&self, key: &Key, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut value: Value = serde_json::from_slice(&self.record(key)?)?;
        change(&mut value);
        self.put(key.clone(), value.to_string())
    }

    pub(crate) fn edit_endpoint(&self, change: impl FnOnce(&mut Value)) -> Result<()> {
        self.edit(&self.endpoint_key(), |record| change(&mut record["spec"]))
    }

    pub(crate) fn edit_node(&self, node: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
        self.edit(&Key::cluster(Kind::Node, node), |record| change(&mut record["spec"]))
    }

    pub(crate) fn edit_block(&self, cidr: Cidr, change: impl FnOnce(&mut Block)) -> Result<()> {
        let key = Key::Block(cidr);
        let mut block = Block::decode(&cidr, &self.record(&key)?)?;
        change(&mut block);
        self.put(key, block.encode())
    }

    pub(crate) fn put_handle(&self, id: &str, block: Cidr) -> Result<()> {
        let record = Handle { block: [(block.to_string(), 1)].into(), ..Handle::default() };
        self.put(Key::Handle(id.into()), record.encode())
    }

    /// A resource with this spec.
    pub(crate) fn put_resource(&self, kind: Kind, name: &str, spec: Value) -> Result<()> {
        let mut resource = model::Resource::new(kind, name);
        resource.body.insert("spec".to_owned(), spec);
        self.put(resource.key(), resource.encode())
    }

    /// A node that is somewhere else: Kubernetes lists it, too.
    pub(crate) fn put_node(&self, name: &str, spec: Value) -> Result<()> {
        let address = spec["bgp"]["ipv4Address"].as_str().and_then(|text| text.split('/').next());
        let listed = kubernetes::node(name, address.context("a node has an address")?);
        self.edit_list("nodes.json", |nodes| nodes.push(listed))?;
        self.put_resource(Kind::Node, name, spec)
    }

    /// Changes a list that `kubectl` printed.
    pub(crate) fn edit_list(&self, file: &str, change: impl FnOnce(&mut Vec<Value>)) -> Result<()> {
        let mut list: Value = serde_json::from_str(&self.scene.read_text(file)?)?;
        change(list["items"].as_array_mut().context("a list")?);
        self.scene.write_text(file, &list.to_string())
    }

    /// Changes what `kubectl` printed of one thing.
    pub(crate) fn edit_item(&self, file: &str, name: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
        self.edit_list(file, |items| {
            let named = items.iter_mut().find(|item| item["metadata"]["name"] == name);
            change(named.expect("it is listed"));
        })
    }

    /// Puts back what is not a record: the last change first.
    pub(crate) fn undo(&mut self) -> Result<()> {
        while let Some(undo) = self.undo.pop() {
            self.take_back(undo)?;
        }
        self.settle()
    }

    /// The same after a repair: what is put back already cannot be put back again.
    pub(crate) fn undo_the_rest(&mut self) -> Result<()> {
        while let Some(undo) = self.undo.pop() {
            // Whether all is well shows at the next look.
            let _ = self.take_back(undo);
        }
        self.settle()
    }

    fn take_back(&self, undo: Undo) -> Result<String> {
        match undo {
            Undo::OnNode { node, line } => self.scene.on(node, &line),
            Undo::InPod { node, pod, line } => self.scene.inside(node, self.scene.pod(node, pod), &line),
        }
    }

    fn settle(&mut self) -> Result<()> {
        self.scene.send_packets(false);
        if self.relay.take().is_some() {
            self.scene.ask_at(self.node, None);
        }
        let all = NODES.len() * (NODES.len() - 1);
        if self.undo_waits_for_bgp { bird::wait_for_sessions(self.scene, all) } else { Ok(()) }
    }
}

pub(crate) fn endpoint_key(node: &str, namespace: &str, pod: &str) -> Key {
    let name = EndpointName::of_pod(node, pod, "eth0").compute().expect("a name");
    Key::namespaced(Kind::WorkloadEndpoint, namespace, name)
}

pub(crate) fn subject_of_endpoint(key: &Key) -> String {
    match key {
        Key::Resource { namespace, name, .. } => {
            format!("endpoint {}/{name}", namespace.as_deref().unwrap_or_default())
        }
        other => other.to_string(),
    }
}
