//! What the checks look at: everything that was collected, each piece with the place where it was seen.
//!
//! One file per layer. `None` means that nobody looked, which is not the same as an empty list.
//!
//! | layer | file | filled from |
//! |---|---|---|
//! | pods, nodes, events | [`kubernetes`] | the API, `kubectl` |
//! | endpoints | [`endpoint`] | the store, `calicoctl get wep` |
//! | Calico's other records | [`Records`] | the store, the API, `calicoctl get` |
//! | blocks, handles, affinities | [`books`] | the store, `etcdctl`, `calicoctl ipam` |
//! | one node | [`node`], [`kernel`], [`firewall`] | netlink, nft, the runtime, BIRD, `ip`, `crictl` |
//! | logs | [`log`] | kubelet, runtime, plugin, controllers |

// What is read here was written by strangers: nothing may be cut at a place that need not be there.
#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

pub mod answers;
pub mod books;
pub mod endpoint;
pub mod firewall;
pub mod kernel;
pub mod kubernetes;
pub mod log;
mod need;
pub mod node;
mod origin;
pub mod probe;
pub mod readiness;
#[cfg(feature = "sample")]
#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "nobody else wrote this cluster"))]
pub mod sample;
pub mod setting;
pub mod trouble;
mod unseen;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use jiff::Timestamp;
use model::{Kind, NodeName, Resource};

pub use books::IpamEvidence;
pub use endpoint::Endpoint;
pub use kubernetes::{Event, KubeNode, Pod, PodName};
pub use log::{Happening, LogEvent};
pub use need::Need;
pub use node::{NodeEvidence, same_id};
pub use origin::{Exhibit, Origin, SharedText, Sighted};
pub use setting::{Setting, SettingKind};
pub use trouble::Trouble;
pub use unseen::{FileGap, KubeList, NodeGap, PartialList, Unseen};

/// Everything that was collected in one look.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// When. `None` where a text does not tell.
    pub taken_at: Option<Timestamp>,
    pub pods: Option<Vec<Sighted<Pod>>>,
    /// When the list of pods was made, if that is another moment than the rest: a text beside what is alive. What has changed since is not
    /// held against it.
    pub pods_at: Option<Timestamp>,
    pub kube_nodes: Option<Vec<Sighted<KubeNode>>>,
    pub events: Option<Vec<Sighted<Event>>>,
    /// WorkloadEndpoint records.
    pub endpoints: Option<Vec<Sighted<Endpoint>>>,
    /// Calico's records of all other kinds.
    pub records: Records,
    pub ipam: Option<IpamEvidence>,
    pub nodes: BTreeMap<NodeName, NodeEvidence>,
    /// Evidence of nodes that nobody named; each is one text's, and its name the text's.
    pub unplaced: Vec<NodeEvidence>,
    /// How other components are set.
    pub settings: Option<Vec<Sighted<Setting>>>,
    /// In the order of the files and of their lines.
    pub log: Option<Vec<Sighted<LogEvent>>>,
    /// Which lists are only part of what there is, so that what they lack is not gone.
    pub partial: Partial,
    /// Which lists were made of Kubernetes' own objects, because nobody read the store that has them.
    pub shown: ShownByKubernetes,
    /// What was there and could not be used: texts of no known format, records that are cut.
    pub unseen: Vec<Unseen>,
    /// An earlier look at the same things. What was not so then, or is not so now, is churn.
    pub earlier: Option<Box<Evidence>>,
}

/// Calico's records, by kind. A kind that is not there was not looked at.
#[derive(Clone, Debug, Default)]
pub struct Records(BTreeMap<Kind, Vec<Sighted<Resource>>>);

/// Lists of which it is not known that they are whole: somebody pasted some lines.
///
/// A check that concludes something from what is *missing* in a list asks here first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Partial {
    pub pods: bool,
    pub kube_nodes: bool,
    pub endpoints: bool,
}

/// Lists that are views of pods and nodes. They give way to what was read from a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShownByKubernetes {
    pub endpoints: bool,
    pub nodes: bool,
}

impl Evidence {
    /// The evidence of a node, made if there is none.
    pub fn node_mut(&mut self, name: impl Into<NodeName>) -> &mut NodeEvidence {
        let name = name.into();
        self.nodes.entry(name.clone()).or_insert_with(|| NodeEvidence::new(name))
    }

    pub fn node(&self, name: &NodeName) -> Option<&NodeEvidence> {
        self.nodes.get(name)
    }

    /// Nothing was collected. What could not be read is no evidence.
    pub fn is_empty(&self) -> bool {
        self.pods.is_none()
            && self.kube_nodes.is_none()
            && self.events.is_none()
            && self.endpoints.is_none()
            && self.records.kinds().next().is_none()
            && self.ipam.is_none()
            && self.nodes.is_empty()
            && self.unplaced.is_empty()
            && self.settings.is_none()
            && self.log.is_none()
    }

    /// The same without what a store says, and so for the earlier look: another look at that store is believed instead.
    pub fn without_store(mut self) -> Evidence {
        self.endpoints = None;
        self.records = Records::default();
        self.ipam = None;
        self.partial.endpoints = false;
        self.earlier = self.earlier.map(|earlier| Box::new(earlier.without_store()));
        self
    }

    /// The same without what Kubernetes says of pods and nodes, and so for the earlier look.
    pub fn without_kubernetes(mut self) -> Evidence {
        self.pods = None;
        self.pods_at = None;
        self.kube_nodes = None;
        (self.partial.pods, self.partial.kube_nodes) = (false, false);
        self.earlier = self.earlier.map(|earlier| Box::new(earlier.without_kubernetes()));
        self
    }

    /// Notes what the clock of whoever looked showed when the store was read: for nodes that have this clock, or one that goes the
    /// same.
    pub fn note_clock(&mut self, reading: node::ClockReading) {
        const SAME: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);
        for node in self.nodes.values_mut() {
            if node.setup.clock_ahead.as_ref().is_none_or(|ahead| ahead.seen.abs() <= SAME) {
                let origin = Origin::probe(&node.name, "clock when the store was read");
                node.setup.clock_readings.get_or_insert_default().push(Sighted::new(reading, origin));
            }
        }
    }

    /// Takes in what was collected elsewhere of the same look.
    pub fn absorb(&mut self, mut other: Evidence) {
        self.give_way_to(&other);
        other.give_way_to(self);
        self.shown.endpoints |= other.shown.endpoints;
        self.shown.nodes |= other.shown.nodes;
        self.taken_at = self.taken_at.max(other.taken_at);
        // Of several lists the oldest counts: more may have changed since.
        self.pods_at = match (self.pods_at, other.pods_at) {
            (Some(mine), Some(theirs)) => Some(mine.min(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
        self.partial = self.partial_with(&other);
        join(&mut self.pods, other.pods);
        join(&mut self.kube_nodes, other.kube_nodes);
        join(&mut self.events, other.events);
        join(&mut self.endpoints, other.endpoints);
        join(&mut self.log, other.log);
        join(&mut self.settings, other.settings);
        for (kind, records) in other.records.0 {
            self.records.0.entry(kind).or_default().extend(records);
        }
        match (&mut self.ipam, other.ipam) {
            (Some(mine), Some(theirs)) => mine.absorb(theirs),
            (mine, theirs) => *mine = mine.take().or(theirs),
        }
        for (_, node) in other.nodes {
            self.node_mut(&node.name).absorb(node);
        }
        self.unplaced.extend(other.unplaced);
        self.unseen.extend(other.unseen);
    }
}

impl Evidence {
    /// Forgets what is only a view where another collection has the records themselves.
    fn give_way_to(&mut self, other: &Evidence) {
        if self.shown.endpoints && other.endpoints.is_some() && !other.shown.endpoints {
            (self.endpoints, self.partial.endpoints, self.shown.endpoints) = (None, false, false);
        }
        if self.shown.nodes && other.records.of(Kind::Node).is_some() && !other.shown.nodes {
            self.records.0.remove(&Kind::Node);
            self.shown.nodes = false;
        }
    }

    /// Part of a list added to the whole of it leaves it whole.
    fn partial_with(&self, other: &Evidence) -> Partial {
        let join = |mine: (bool, bool), theirs: (bool, bool)| {
            let is_whole = |(is_there, is_partial): (bool, bool)| is_there && !is_partial;
            !is_whole(mine) && !is_whole(theirs) && (mine.1 || theirs.1)
        };
        let pods = |of: &Evidence| (of.pods.is_some(), of.partial.pods);
        let kube_nodes = |of: &Evidence| (of.kube_nodes.is_some(), of.partial.kube_nodes);
        let endpoints = |of: &Evidence| (of.endpoints.is_some(), of.partial.endpoints);
        Partial {
            pods: join(pods(self), pods(other)),
            kube_nodes: join(kube_nodes(self), kube_nodes(other)),
            endpoints: join(endpoints(self), endpoints(other)),
        }
    }
}

impl Records {
    /// `None`: nobody looked.
    pub fn of(&self, kind: Kind) -> Option<&[Sighted<Resource>]> {
        self.0.get(&kind).map(Vec::as_slice)
    }

    /// Those of a kind, whether or not anybody looked.
    pub fn all(&self, kind: Kind) -> &[Sighted<Resource>] {
        self.of(kind).unwrap_or_default()
    }

    pub fn find(&self, kind: Kind, name: &str) -> Option<&Sighted<Resource>> {
        self.all(kind).iter().find(|record| record.seen.metadata.name == name)
    }

    /// Notes that somebody looked for records of this kind, even if there are none.
    pub fn looked_for(&mut self, kind: Kind) {
        self.0.entry(kind).or_default();
    }

    pub fn add(&mut self, record: Sighted<Resource>) {
        self.0.entry(record.seen.kind).or_default().push(record);
    }

    /// Those of a kind, to be changed.
    pub fn all_mut(&mut self, kind: Kind) -> &mut Vec<Sighted<Resource>> {
        self.0.entry(kind).or_default()
    }

    pub fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.0.keys().copied()
    }
}

impl Sighted<Resource> {
    /// A record as it was read from the store.
    pub fn in_store(seen: Resource) -> Sighted<Resource> {
        let origin = Origin::store(&seen.key());
        Sighted { seen, origin }
    }
}

/// One collection after the other; nobody having looked at one does not spoil the other.
pub fn join<C: IntoIterator + Extend<C::Item>>(mine: &mut Option<C>, theirs: Option<C>) {
    match (mine.as_mut(), theirs) {
        (Some(mine), Some(theirs)) => mine.extend(theirs),
        (None, theirs) => *mine = theirs,
        (Some(_), None) => {}
    }
}

/// An address, with or without the length of its network.
pub fn address_of(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| text.parse::<IpNet>().ok().map(|net| net.addr()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_the_same_whatever_their_case() {
        let mut evidence = Evidence::default();
        evidence.node_mut("k8sCephNode").kernel.partial.links = true;
        let mut other = Evidence::default();
        other.node_mut("k8scephnode").pod_views = Some(Vec::new());
        evidence.absorb(other);
        assert_eq!(evidence.nodes.len(), 1);
        let node = evidence.node(&"K8SCEPHNODE".into()).unwrap();
        assert_eq!((node.name.as_str(), node.pod_views.is_some()), ("k8sCephNode", true));
    }

    #[test]
    fn a_part_of_a_list_does_not_spoil_the_whole_of_it() {
        let part = || {
            let partial = Partial { endpoints: true, ..Partial::default() };
            Evidence { endpoints: Some(Vec::new()), partial, ..Evidence::default() }
        };
        let whole = || Evidence { endpoints: Some(Vec::new()), ..Evidence::default() };
        let joined = |mut one: Evidence, other: Evidence| {
            one.absorb(other);
            one.partial.endpoints
        };
        assert!(!joined(part(), whole()) && !joined(whole(), part()));
        assert!(joined(part(), part()) && joined(part(), Evidence::default()));
        assert!(joined(Evidence::default(), part()) && !joined(Evidence::default(), whole()));
    }

    #[test]
    fn views_give_way_to_records() {
        let endpoint = |name: &str| {
            let endpoint = Endpoint { name: name.to_owned(), ..Endpoint::default() };
            Some(vec![Sighted::new(endpoint, Origin::file(name))])
        };
        let shown = ShownByKubernetes { endpoints: true, nodes: false };
        let view = || Evidence { endpoints: endpoint("view"), shown, ..Evidence::default() };
        let record = || Evidence { endpoints: endpoint("record"), ..Evidence::default() };
        for (mut one, other) in [(view(), record()), (record(), view())] {
            one.absorb(other);
            let names: Vec<&str> =
                one.endpoints.iter().flatten().map(|known| known.seen.name.as_str()).collect();
            assert_eq!((names.as_slice(), one.shown.endpoints), (["record"].as_slice(), false));
        }
        let mut both = view();
        both.absorb(view());
        assert_eq!((both.endpoints.unwrap().len(), both.shown.endpoints), (2, true));
    }

    #[test]
    fn nobody_looked_is_not_the_same_as_nothing_there() {
        let mut evidence = Evidence::default();
        evidence.absorb(Evidence::default());
        assert!(evidence.pods.is_none() && evidence.records.of(Kind::IpPool).is_none());
        assert!(evidence.is_empty());
        let mut looked = Evidence { pods: Some(Vec::new()), ..Evidence::default() };
        assert!(!looked.is_empty());
        looked.records.looked_for(Kind::IpPool);
        evidence.absorb(looked);
        evidence.absorb(Evidence::default());
        assert_eq!(evidence.pods.as_deref().map(<[_]>::len), Some(0));
        assert_eq!(evidence.records.of(Kind::IpPool).map(<[_]>::len), Some(0));
    }
}
