//! Evidence made ready to be asked: who holds an address, which endpoint a pod has. Each index is made once, when the
//! first check asks, and shared by all.

mod books;
mod crossings;
mod givers;
mod host;
mod index;
mod nodes;
mod sandboxes;
mod troubles;
mod ways;
mod wiring;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::rc::Rc;

use ipam::{Doubt, Pool, fingerprint};
use jiff::{SignedDuration, Timestamp};
use model::{Kind, NodeName, Resource};
use plan::between::Between;
use serde_json::Value;

pub use books::{Allocation, BooksView};
use crossings::Crossings;
pub use crossings::EndKind;
pub(crate) use crossings::LostEnd;
pub(crate) use givers::NetworkConfig;
pub use host::Host;
pub use index::Index;
pub(crate) use nodes::orchestrators_name;
pub use nodes::{NodeView, Recorded};
use sandboxes::ById;
pub(crate) use troubles::Told;
use troubles::Troubles;
pub use ways::Tried;
use wiring::NodeEnd;
pub(crate) use wiring::{PodEnd, attachment_of};

use crate::timeline::Timeline;
use evidence::kernel::PodView;
use evidence::kubernetes::age;
use evidence::node::RuntimeSandbox;
use evidence::{Endpoint, Evidence, KubeNode, NodeEvidence, Pod, PodName, Sighted};

/// How young something may be and not yet be held to the rules.
pub const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// How to look.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is younger than this may still be on its way in.
    pub grace: SignedDuration,
}

impl Default for Options {
    fn default() -> Options {
        Options { grace: GRACE }
    }
}

/// One look at the evidence. Dereferences to it.
#[derive(Debug)]
pub struct Case<'e> {
    pub evidence: &'e Evidence,
    pub options: &'e Options,
    made: Indexes<'e>,
    /// What is coming or going is judged like everything else.
    is_strict: bool,
    /// Something was passed over because it is coming or going.
    has_passed_over: Cell<bool>,
}

/// What is made when the first check asks for it.
#[derive(Debug, Default)]
struct Indexes<'e> {
    pods_by_name: OnceCell<ByText<'e, Pod>>,
    pods_by_address: OnceCell<ByAddress<'e, Pod>>,
    endpoints_by_pod: OnceCell<ByText<'e, Endpoint>>,
    endpoints_by_address: OnceCell<ByAddress<'e, Endpoint>>,
    node_addresses: OnceCell<BTreeSet<IpAddr>>,
    kube_nodes: OnceCell<BTreeMap<&'e NodeName, &'e Sighted<KubeNode>>>,
    pods_by_node: OnceCell<ByText<'e, Pod>>,
    endpoints_by_node: OnceCell<ByText<'e, Endpoint>>,
    hosts: OnceCell<Vec<Host<'e>>>,
    node_views: OnceCell<BTreeMap<NodeName, NodeView<'e>>>,
    books: OnceCell<Option<BooksView>>,
    crossings: OnceCell<Vec<Crossings<'e>>>,
    last_wanted: RefCell<Option<(&'e NodeName, Rc<Between>)>>,
    node_ends: OnceCell<Vec<NodeEnd<'e>>>,
    pod_ends: OnceCell<Vec<PodEnd<'e>>>,
    timeline: OnceCell<Timeline>,
    troubles: OnceCell<Troubles>,
    at_work: OnceCell<BTreeSet<&'e str>>,
    running: OnceCell<ById<'e, &'e NodeEvidence>>,
    looked_into: OnceCell<ById<'e, (&'e NodeEvidence, &'e PodView)>>,
    inside: OnceCell<BTreeSet<IpAddr>>,
    is_book_used: OnceCell<bool>,
    pools: OnceCell<Vec<(Pool, &'e Sighted<Resource>)>>,
    sandboxes_by_pod: OnceCell<ByText<'e, RuntimeSandbox>>,
    doubt: OnceCell<Doubt<'e>>,
}

type ByAddress<'e, T> = Index<IpAddr, &'e Sighted<T>>;
/// By the fingerprint of a text: names are long and begin alike. Whoever asks compares the text itself, too.
type ByText<'e, T> = Index<u64, &'e Sighted<T>>;

impl std::ops::Deref for Case<'_> {
    type Target = Evidence;

    fn deref(&self) -> &Evidence {
        self.evidence
    }
}

impl<'e> Case<'e> {
    pub fn new(evidence: &'e Evidence, options: &'e Options) -> Case<'e> {
        let made = Indexes::default();
        Case { evidence, options, made, is_strict: false, has_passed_over: Cell::new(false) }
    }

    /// The same evidence, with what is coming or going judged like everything else.
    pub(crate) fn strict(evidence: &'e Evidence, options: &'e Options) -> Case<'e> {
        Case { is_strict: true, ..Case::new(evidence, options) }
    }

    /// Whether something was passed over since this was asked before.
    pub(crate) fn take_passed_over(&self) -> bool {
        self.has_passed_over.replace(false)
    }

    /// To be asked about everything that is coming or going: it is not judged, and that is not forgotten.
    pub(crate) fn passes_over(&self, is_in_flux: bool) -> bool {
        if is_in_flux {
            self.has_passed_over.set(true);
        }
        is_in_flux && !self.is_strict
    }

    /// Too young to be judged. What has no age is old.
    pub fn is_young(&self, age: Option<SignedDuration>) -> bool {
        self.passes_over(age.is_some_and(|age| age < self.options.grace))
    }

    /// Being created or deleted right now: not yet, or no longer, held to the rules.
    pub fn is_in_flux(&self, pod: &Pod) -> bool {
        self.is_changing(pod) || self.passes_over(self.is_outdated(pod))
    }

    fn is_changing(&self, pod: &Pod) -> bool {
        self.passes_over(pod.is_terminating()) || self.is_young(pod.age(self.evidence.taken_at))
    }

    /// Whether the list that has this pod is older than the rest, and nobody says that the same sandbox still runs: it may have been deleted
    /// or replaced since. An operator who gives nothing a grace wants it judged.
    fn is_outdated(&self, pod: &Pod) -> bool {
        let Some(listed_at) = self.evidence.pods_at.filter(|_| self.options.grace.is_positive()) else {
            return false;
        };
        // What the list says of a pod on its node's network is held against nothing that could be newer.
        if self.is_on_host_network(pod) {
            return false;
        }
        let by_pod = self.made.sandboxes_by_pod.get_or_init(|| {
            let sandboxes = self.all_nodes().flat_map(|node| node.sandboxes.iter().flatten());
            Index::new(sandboxes.map(|sandbox| (fingerprint(&sandbox.seen.pod.name), sandbox)))
        });
        let mut sandboxes = by_pod.get(fingerprint(&pod.name.name)).iter();
        !sandboxes.any(|sandbox| {
            let is_older = sandbox.seen.created_at.is_none_or(|created| created <= listed_at);
            sandbox.seen.is_ready == Some(true) && is_older && sandbox.seen.pod.may_be(&pod.name)
        })
    }

    /// Whether something is younger than the list of pods, or was too young to be in it for certain: that it is not there says nothing.
    pub fn is_newer_than_pods(&self, created_at: Option<Timestamp>) -> bool {
        let (Some(listed_at), Some(created_at)) = (self.evidence.pods_at, created_at) else { return false };
        // Without a grace this is never so: everything is to be judged.
        let age = listed_at.duration_since(created_at).max(SignedDuration::ZERO);
        self.passes_over(age < self.options.grace)
    }

    /// The same for an endpoint: it is new, or its pod comes or goes, or a call is at work on it.
    pub fn is_endpoint_in_flux(&self, endpoint: &Endpoint) -> bool {
        self.is_young(age(endpoint.created_at, None, self.evidence.taken_at))
            || endpoint.container_id.as_deref().is_some_and(|id| self.is_at_work_on(id))
            || endpoint
                .pod_name()
                .is_some_and(|name| self.pods_named(&name).any(|pod| self.is_changing(&pod.seen)))
    }

    /// Everybody who has an address by records or by Kubernetes comes or goes.
    pub fn is_user_in_flux(&self, address: IpAddr) -> bool {
        let (endpoints, pods) = (self.endpoints_at(address), self.pods_at(address));
        let all_endpoints = endpoints.iter().all(|endpoint| self.is_endpoint_in_flux(&endpoint.seen));
        let all_pods = pods.iter().all(|pod| self.is_in_flux(&pod.seen));
        !(endpoints.is_empty() && pods.is_empty()) && all_endpoints && all_pods
    }

    /// Whether a call of an agent is at work on this container, or waits to be finished.
    pub fn is_at_work_on(&self, container_id: &str) -> bool {
        let at_work = self.made.at_work.get_or_init(|| {
            let held = self.all_nodes().flat_map(|node| node.attachments.iter().flatten());
            let in_flux = held.filter(|held| held.seen.is_in_flux);
            in_flux.map(|held| held.seen.container_id.as_str()).collect()
        });
        self.passes_over(at_work.contains(container_id))
    }

    /// What the logs tell about sandboxes, put together. `case.timeline().episodes()` are what went wrong.
    pub fn timeline(&self) -> &Timeline {
        self.made.timeline.get_or_init(|| Timeline::of(self.evidence.log.as_deref().unwrap_or_default()))
    }

    pub fn all_pods(&self) -> &'e [Sighted<Pod>] {
        self.evidence.pods.as_deref().unwrap_or_default()
    }

    pub fn all_endpoints(&self) -> &'e [Sighted<Endpoint>] {
        self.evidence.endpoints.as_deref().unwrap_or_default()
    }

    /// Nodes by name, and those that nobody named.
    pub fn all_nodes(&self) -> impl Iterator<Item = &'e NodeEvidence> + use<'e> {
        self.evidence.nodes.values().chain(&self.evidence.unplaced)
    }

    /// Pods that may be the one of this name: one, unless a namespace is not known or a list is listed twice.
    pub fn pods_named(&self, name: &PodName) -> impl Iterator<Item = &'e Sighted<Pod>> {
        let index = self.made.pods_by_name.get_or_init(|| {
            Index::new(self.all_pods().iter().map(|pod| (fingerprint(&pod.seen.name.name), pod)))
        });
        let found = index.get(fingerprint(&name.name)).iter().copied();
        found.filter(move |pod| pod.seen.name.may_be(name))
    }

    /// Pods whose status shows this address, host-network pods among them.
    pub fn pods_at(&self, address: IpAddr) -> &[&'e Sighted<Pod>] {
        self.pods_by_address().get(address)
    }

    pub fn pods_by_address(&self) -> &Index<IpAddr, &'e Sighted<Pod>> {
        self.made.pods_by_address.get_or_init(|| {
            by_address(self.all_pods().iter().map(|pod| (pod, pod.seen.addresses.as_slice())))
        })
    }

    pub fn endpoints_of(&self, pod: &PodName) -> impl Iterator<Item = &'e Sighted<Endpoint>> {
        let index = self.made.endpoints_by_pod.get_or_init(|| {
            let with_pod = |endpoint: &'e Sighted<Endpoint>| {
                Some((fingerprint(endpoint.seen.pod.as_deref()?), endpoint))
            };
            Index::new(self.all_endpoints().iter().filter_map(with_pod))
        });
        let found = index.get(fingerprint(&pod.name)).iter().copied();
        found.filter(move |endpoint| endpoint.seen.may_be_of(pod))
    }

    pub fn endpoints_at(&self, address: IpAddr) -> &[&'e Sighted<Endpoint>] {
        self.endpoints_by_address().get(address)
    }

    pub fn endpoints_by_address(&self) -> &Index<IpAddr, &'e Sighted<Endpoint>> {
        self.made.endpoints_by_address.get_or_init(|| {
            by_address(
                self.all_endpoints().iter().map(|endpoint| (endpoint, endpoint.seen.addresses.as_slice())),
            )
        })
    }

    /// Whether every endpoint there is was collected: what is not among them has none.
    pub fn knows_endpoints(&self) -> bool {
        self.evidence.endpoints.is_some() && !self.evidence.partial.endpoints
    }

    pub fn knows_pods(&self) -> bool {
        self.evidence.pods.is_some() && !self.evidence.partial.pods
    }

    /// Whether all nodes there are were listed: what is not among them is none.
    pub fn knows_nodes(&self) -> bool {
        let knows_kube_nodes = self.evidence.kube_nodes.is_some() && !self.evidence.partial.kube_nodes;
        (self.evidence.records.of(Kind::Node).is_some() || knows_kube_nodes) && !self.doubt().has_nodes()
    }

    /// What records that cannot be read may hold.
    pub fn doubt(&self) -> &Doubt<'e> {
        self.made.doubt.get_or_init(|| match &self.evidence.ipam {
            Some(ipam) => Doubt::of(&ipam.books),
            None => Doubt::default(),
        })
    }

    /// Pods that are bound to this node, whatever their state.
    pub fn pods_on(&self, node: &NodeName) -> impl Iterator<Item = &'e Sighted<Pod>> {
        let index = self
            .made
            .pods_by_node
            .get_or_init(|| by_node(self.all_pods().iter().map(|pod| (pod, pod.seen.node.as_ref()))));
        let found = index.get(node_fingerprint(node)).iter().copied();
        found.filter(move |pod| pod.seen.node.as_ref() == Some(node))
    }

    pub fn endpoints_on(&self, node: &NodeName) -> impl Iterator<Item = &'e Sighted<Endpoint>> {
        let index = self.made.endpoints_by_node.get_or_init(|| {
            by_node(self.all_endpoints().iter().map(|endpoint| (endpoint, endpoint.seen.node.as_ref())))
        });
        let found = index.get(node_fingerprint(node)).iter().copied();
        found.filter(move |endpoint| endpoint.seen.node.as_ref() == Some(node))
    }

    /// Nodes whose kernel somebody looked at.
    pub fn hosts(&self) -> &[Host<'e>] {
        self.made.hosts.get_or_init(|| {
            let is_seen = |node: &&NodeEvidence| !node.kernel.is_empty() || node.firewall.is_some();
            let nodes = self.evidence.nodes.values().filter(is_seen);
            nodes.map(|node| Host::new(node, self.endpoints_on(&node.name).collect())).collect()
        })
    }

    /// Nodes as records and Kubernetes know them.
    pub fn node_views(&self) -> &BTreeMap<NodeName, NodeView<'e>> {
        self.made.node_views.get_or_init(|| nodes::views(self.evidence))
    }

    pub fn node_view(&self, name: &NodeName) -> Option<&NodeView<'e>> {
        self.node_views().get(name)
    }

    /// What `ipam::check` says of the books, if anybody looked at them.
    pub fn books_view(&self) -> Option<&BooksView> {
        self.made.books.get_or_init(|| books::view(self)).as_ref()
    }

    pub fn kube_node(&self, name: &NodeName) -> Option<&'e Sighted<KubeNode>> {
        let index = self.made.kube_nodes.get_or_init(|| {
            let nodes = self.evidence.kube_nodes.iter().flatten();
            // The one that was described in detail comes later, or has no rival.
            nodes.map(|node| (&node.seen.name, node)).collect()
        });
        index.get(name).copied()
    }

    /// An address of a node itself: by Kubernetes, by Calico's node records, or by the kernel.
    pub fn is_node_address(&self, address: IpAddr) -> bool {
        self.made.node_addresses.get_or_init(|| self.find_node_addresses()).contains(&address)
    }

    /// A pod that has no network of its own.
    pub fn is_on_host_network(&self, pod: &Pod) -> bool {
        pod.is_on_host_network(|address| self.is_node_address(address))
    }

    fn find_node_addresses(&self) -> BTreeSet<IpAddr> {
        let kube =
            self.evidence.kube_nodes.iter().flatten().flat_map(|node| node.seen.internal_ips.iter().copied());
        // A table of nodes without addresses: what only runs on its node's network shows them.
        let of_host = self.all_pods().iter().filter(|pod| pod.seen.is_of_host_by_name());
        let of_host = of_host.flat_map(|pod| pod.seen.addresses.iter().copied());
        let mut addresses: BTreeSet<IpAddr> = kube.chain(of_host).collect();
        for node in self.evidence.records.all(Kind::Node) {
            let bgp = node.seen.spec("bgp").unwrap_or(&Value::Null);
            let told = ["ipv4Address", "ipv6Address"].into_iter().filter_map(|field| bgp[field].as_str());
            addresses.extend(told.filter_map(evidence::address_of));
        }
        for node in self.evidence.nodes.values() {
            let held = node.kernel.addresses.iter().flatten();
            addresses.extend(
                held.filter(|held| !is_workload_device(&held.seen.device)).map(|held| held.seen.net.addr()),
            );
        }
        addresses
    }
}

fn is_workload_device(name: &str) -> bool {
    name.starts_with(model::DeviceName::CALICO_PREFIX)
}

fn by_address<'e, T>(things: impl Iterator<Item = (&'e Sighted<T>, &'e [IpAddr])>) -> ByAddress<'e, T> {
    Index::new(things.flat_map(|(thing, addresses)| addresses.iter().map(move |address| (*address, thing))))
}

fn by_node<'e, T: 'e>(things: impl Iterator<Item = (&'e Sighted<T>, Option<&'e NodeName>)>) -> ByText<'e, T> {
    Index::new(things.filter_map(|(thing, node)| Some((node_fingerprint(node?), thing))))
}

/// The same however the name is spelled.
fn node_fingerprint(node: &NodeName) -> u64 {
    fingerprint(&node.folded())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evidence::Origin;

    fn pod(namespace: Option<&str>, name: &str, address: &str) -> Sighted<Pod> {
        let name = PodName { namespace: namespace.map(str::to_owned), name: name.to_owned() };
        let addresses = vec![address.parse().unwrap()];
        Sighted::new(Pod { name, addresses, ..Pod::default() }, Origin::file("pods"))
    }

    #[test]
    fn things_are_found_by_name_and_by_address() {
        let endpoint = Endpoint {
            namespace: Some("a".to_owned()),
            pod: Some("web".to_owned()),
            addresses: vec!["10.0.0.1".parse().unwrap()],
            ..Endpoint::default()
        };
        let evidence = Evidence {
            pods: Some(vec![pod(Some("a"), "web", "10.0.0.1"), pod(Some("b"), "web", "10.0.0.2")]),
            endpoints: Some(vec![Sighted::new(endpoint, Origin::file("wep"))]),
            ..Evidence::default()
        };
        let options = Options::default();
        let case = Case::new(&evidence, &options);
        assert_eq!(case.pods_named(&PodName::new("a", "web")).count(), 1);
        assert_eq!(case.pods_named(&PodName { namespace: None, name: "web".into() }).count(), 2);
        assert_eq!(case.pods_at("10.0.0.2".parse().unwrap()).len(), 1);
        assert_eq!(case.endpoints_of(&PodName::new("a", "web")).count(), 1);
        assert_eq!(case.endpoints_of(&PodName::new("b", "web")).count(), 0);
        assert_eq!(case.endpoints_at("10.0.0.1".parse().unwrap()).len(), 1);
    }

    #[test]
    fn what_a_call_works_on_is_in_flux() {
        let mut evidence = evidence::sample::small();
        let endpoint = evidence.endpoints.as_ref().unwrap()[0].seen.clone();
        let options = Options::default();
        assert!(!Case::new(&evidence, &options).is_endpoint_in_flux(&endpoint));
        let node = evidence.node_mut(endpoint.node.as_ref().unwrap());
        let attachments = node.attachments.as_mut().unwrap().iter_mut();
        attachments
            .filter(|held| Some(&held.seen.container_id) == endpoint.container_id.as_ref())
            .for_each(|held| held.seen.is_in_flux = true);
        assert!(Case::new(&evidence, &options).is_endpoint_in_flux(&endpoint));
    }

    /// A list that is older than the rest knows neither what came since, nor what went.
    #[test]
    fn an_older_list_condemns_nothing_that_may_have_changed_since() {
        let mut evidence = evidence::sample::small();
        let (taken_at, options) = (evidence.taken_at.unwrap(), Options::default());
        let pod = evidence.pods.as_ref().unwrap()[0].seen.clone();
        let ago = |seconds| Some(taken_at - SignedDuration::from_secs(seconds));
        evidence.pods_at = ago(300);
        let case = Case::new(&evidence, &options);
        assert!(!case.is_in_flux(&pod), "its sandbox runs since before");
        assert!(case.is_newer_than_pods(ago(10)) && case.is_newer_than_pods(ago(330)));
        assert!(!case.is_newer_than_pods(ago(3600)) && !case.is_newer_than_pods(None));
        assert!(case.take_passed_over());
        let judged = Options { grace: SignedDuration::ZERO };
        let case = Case::new(&evidence, &judged);
        assert!(!case.is_newer_than_pods(ago(10)), "without a grace everything is judged");
        for node in evidence.nodes.values_mut() {
            node.sandboxes.iter_mut().flatten().for_each(|sandbox| sandbox.seen.created_at = ago(60));
        }
        assert!(Case::new(&evidence, &options).is_in_flux(&pod), "it was replaced since");
        evidence.nodes.values_mut().for_each(|node| node.sandboxes = None);
        assert!(Case::new(&evidence, &options).is_in_flux(&pod), "it may be gone since");
        assert!(!Case::new(&evidence, &judged).is_in_flux(&pod));
        let on_host = |pod: &&evidence::Sighted<Pod>| pod.seen.name.name == "calico-node-00001";
        let on_host = evidence.pods.as_ref().unwrap().iter().find(on_host).unwrap().seen.clone();
        assert!(!Case::new(&evidence, &options).is_in_flux(&on_host), "nothing of it could be newer");
        evidence.pods_at = None;
        assert!(!Case::new(&evidence, &options).is_in_flux(&pod));
    }

    #[test]
    fn the_young_and_the_dying_are_in_flux() {
        let evidence =
            Evidence { taken_at: Some("2026-01-01T00:01:00Z".parse().unwrap()), ..Evidence::default() };
        let options = Options::default();
        let case = Case::new(&evidence, &options);
        let born = |at: &str| Pod { created_at: Some(at.parse().unwrap()), ..Pod::default() };
        assert!(case.is_in_flux(&born("2026-01-01T00:00:30Z")));
        assert!(!case.is_in_flux(&born("2026-01-01T00:00:00Z")));
        assert!(case.is_in_flux(&Pod { status: "Terminating".into(), ..Pod::default() }));
        assert!(!case.is_in_flux(&Pod::default()), "no age is no excuse");
    }
}
