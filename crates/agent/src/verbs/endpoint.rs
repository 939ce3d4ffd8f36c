//! The endpoint record of an attachment.

use std::collections::BTreeMap;
use std::net::IpAddr;

use book::Book;
use jiff::Timestamp;
use model::ipam::BlockAttribute;
use model::kube::views;
use model::names::EndpointName;
use model::originals::{Named, shortened, stand_in};
use model::validate::validate;
use model::{
    DeviceName, EndpointSpec, Key, Kind, Mac, Metadata, Resource, Sandbox, endpoint_networks, endpoint_spec,
};
use serde_json::{Value, json};

use super::error::CniError;
use super::request::PodName;
use super::{Call, profile};

/// The namespace of containers that are not pods, as with Calico.
const NAMESPACE_DEFAULT: &str = "default";

/// How a store keeps endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// Each is a record of its own, which may need another name than the pod has.
    Records,
    /// Those of pods are views of them. Other attachments have none.
    Views,
}

impl Keeping {
    pub(super) fn of(book: &Book) -> Keeping {
        if book.store().capabilities().endpoints_are_records { Keeping::Records } else { Keeping::Views }
    }
}

/// The endpoint record of an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointId {
    keeping: Keeping,
    pub(super) namespace: String,
    pub(super) name: EndpointName,
    /// As the record names it.
    container_id: String,
    network: String,
    /// Names that are not valid in a record.
    originals: BTreeMap<Named, String>,
}

/// No record can have a longer name.
const NAME_LENGTH_MAX: usize = 253;

impl EndpointId {
    pub(super) fn new(keeping: Keeping, node: &str, pod: Option<&PodName>, sandbox: &Sandbox) -> EndpointId {
        let named =
            |record: &dyn Fn(Named, &str) -> String| EndpointId::with(keeping, node, pod, sandbox, record);
        if keeping == Keeping::Views {
            return named(&|_, original| original.to_owned());
        }
        let id = named(&|named, original| named.recorded(original).into_owned());
        let is_too_long = |id: &EndpointId| id.name.compute().is_ok_and(|name| name.len() > NAME_LENGTH_MAX);
        if is_too_long(&id) { named(&|_, original| shortened(original)) } else { id }
    }

    /// `record` gives the valid form of each name.
    fn with(
        keeping: Keeping,
        node: &str,
        pod: Option<&PodName>,
        sandbox: &Sandbox,
        record: &dyn Fn(Named, &str) -> String,
    ) -> EndpointId {
        let mut originals = BTreeMap::new();
        let mut record = |named: Named, original: &str| {
            let recorded = record(named, original);
            if recorded != original {
                originals.insert(named, original.to_owned());
            }
            recorded
        };
        let endpoint = record(Named::Interface, sandbox.interface());
        let (namespace, orchestrator, workload, container_id) = match pod {
            Some(pod) => {
                let container_id = record(Named::ContainerId, sandbox.container_id());
                let namespace = record(Named::Namespace, &pod.namespace);
                (namespace, "k8s", record(Named::Pod, &pod.name), container_id)
            }
            None => {
                // It is part of the record's name, so the rules of both apply.
                let is_name = Named::Pod.recorded(sandbox.container_id()) == sandbox.container_id();
                let container_id = match is_name {
                    true => record(Named::ContainerId, sandbox.container_id()),
                    false => {
                        originals.insert(Named::ContainerId, sandbox.container_id().to_owned());
                        stand_in(sandbox.container_id())
                    }
                };
                (NAMESPACE_DEFAULT.to_owned(), "cni", container_id.clone(), container_id)
            }
        };
        let (node, orchestrator) = (node.to_owned(), orchestrator.to_owned());
        let name = EndpointName { node, orchestrator, workload, endpoint };
        let network = sandbox.network().to_owned();
        EndpointId { keeping, namespace, name, container_id, network, originals }
    }

    /// The record of a call's attachment.
    pub(super) fn of_call(keeping: Keeping, node: &str, call: &Call) -> EndpointId {
        let id = EndpointId::new(keeping, node, call.request.pod.as_ref(), &call.sandbox);
        match (&call.request.pod, call.namespace()) {
            (None, Some(namespace)) => id.in_namespace(namespace),
            _ => id,
        }
    }

    /// The same in a namespace that the caller of a container without a pod names.
    fn in_namespace(mut self, namespace: &str) -> EndpointId {
        self.namespace = Named::Namespace.recorded(namespace).into_owned();
        if self.namespace != namespace {
            self.originals.insert(Named::Namespace, namespace.to_owned());
        }
        self
    }

    /// As it was when the address was allocated, whatever node and pod are called now.
    pub(super) fn from_allocation(
        keeping: Keeping,
        attribute: &BlockAttribute,
        sandbox: &Sandbox,
    ) -> Option<EndpointId> {
        let recorded = |key: &str| attribute.secondary.get(key).cloned();
        let (namespace, pod) = match (recorded("namespace"), recorded("pod")) {
            (Some(namespace), Some(name)) => (None, Some(PodName { namespace, name, uid: None })),
            (namespace, _) => (namespace, None),
        };
        let id = EndpointId::new(keeping, &recorded("node")?, pod.as_ref(), sandbox);
        Some(match namespace {
            Some(namespace) => id.in_namespace(&namespace),
            None => id,
        })
    }

    /// `None` if the store keeps no record of such an attachment.
    pub(super) fn key(&self) -> Result<Option<Key>, CniError> {
        let name = self.name.compute().map_err(|error| CniError::environment(error.to_string()))?;
        let key = Key::namespaced(Kind::WorkloadEndpoint, &self.namespace, name);
        let is_kept = self.keeping == Keeping::Records || views::behind(&key).is_some();
        Ok(is_kept.then_some(key))
    }
}

/// Whether an attachment has no record where endpoints are views of pods.
pub(crate) fn is_never_recorded(node: &str, pod: Option<&(String, String)>, sandbox: &Sandbox) -> bool {
    let pod =
        pod.map(|(namespace, name)| PodName { namespace: namespace.clone(), name: name.clone(), uid: None });
    let id = EndpointId::new(Keeping::Views, node, pod.as_ref(), sandbox);
    id.key().is_ok_and(|key| key.is_none())
}

/// The wiring that an endpoint record describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wired {
    pub(super) device: DeviceName,
    pub(super) mac: Mac,
    pub(super) addresses: Vec<IpAddr>,
}

/// What a record says of the attachment's owner, beside its wiring.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Described {
    /// `None`: those of an existing record stay.
    pub(super) labels: Option<BTreeMap<String, String>>,
    pub(super) generate_name: Option<String>,
    /// `None`: those that belong to the namespace.
    pub(super) profiles: Option<Vec<String>>,
    /// Fields of the spec, by name: account, ports, quality of service.
    pub(super) fields: BTreeMap<String, Value>,
    /// Addresses that others translate to the attachment's own.
    pub(super) floating: Vec<IpAddr>,
}

impl Described {
    fn put_into(&self, endpoint: &mut Resource) {
        if let Some(labels) = &self.labels {
            endpoint.metadata.labels.clone_from(labels);
        }
        match &self.generate_name {
            Some(name) => {
                drop(endpoint.metadata.extra.insert(GENERATE_NAME.to_owned(), name.as_str().into()))
            }
            None => drop(endpoint.metadata.extra.remove(GENERATE_NAME)),
        }
        let spec = endpoint.spec_mut();
        if let Some(profiles) = &self.profiles {
            spec.insert("profiles".to_owned(), profiles.clone().into());
        }
        spec.extend(self.fields.iter().map(|(name, value)| (name.clone(), value.clone())));
    }

    /// Adds the addresses to a record that is otherwise complete. Each floating address leads to the one of its version.
    pub(super) fn set_addresses(&self, endpoint: &mut Resource, addresses: &[IpAddr]) {
        let spec = endpoint.spec_mut();
        spec.insert("ipNetworks".to_owned(), endpoint_networks(addresses).into());
        if self.floating.is_empty() {
            return;
        }
        let inside = |floating: &IpAddr| addresses.iter().find(|own| own.is_ipv4() == floating.is_ipv4());
        let nats = self.floating.iter().filter_map(|floating| {
            let inside = inside(floating)?.to_string();
            Some(json!({"internalIP": inside, "externalIP": floating.to_string()}))
        });
        spec.insert("ipNATs".to_owned(), nats.collect::<Vec<Value>>().into());
    }

    /// A floating address that would lead nowhere.
    pub(super) fn dangling(&self, addresses: &[IpAddr]) -> Option<IpAddr> {
        let has_one = |floating: &&IpAddr| addresses.iter().any(|own| own.is_ipv4() == floating.is_ipv4());
        self.floating.iter().find(|floating| !has_one(floating)).copied()
    }
}

/// Calico keeps it in the metadata of endpoints, too.
const GENERATE_NAME: &str = "generateName";

/// The record for an attachment. An existing record of an earlier sandbox of the same pod keeps its metadata; everything about the sandbox
/// is replaced.
pub(super) fn record(
    id: &EndpointId,
    wired: &Wired,
    described: &Described,
    earlier: Option<&Resource>,
    now: Timestamp,
) -> Result<Resource, CniError> {
    let mut endpoint = Resource::new(Kind::WorkloadEndpoint, "");
    endpoint.metadata = match earlier {
        Some(earlier) => earlier.metadata.clone(),
        None => Metadata {
            uid: Some(uuid::Uuid::new_v4().to_string()),
            creation_timestamp: Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            ..Metadata::default()
        },
    };
    endpoint.metadata.name = String::new();
    endpoint.metadata.namespace = Some(id.namespace.clone());
    for named in Named::ALL {
        match id.originals.get(&named) {
            Some(original) => {
                endpoint.metadata.annotations.insert(named.annotation().to_owned(), original.clone());
            }
            None => {
                endpoint.metadata.annotations.remove(named.annotation());
            }
        }
    }
    let is_same_container =
        earlier.is_some_and(|earlier| text_of(earlier, "containerID") == Some(&id.container_id));
    if is_same_container && id.keeping == Keeping::Records {
        // The container had this interface in another network, whose DEL is still to come.
        endpoint.metadata.annotations.insert(NETWORK_ANNOTATION.to_owned(), id.network.clone());
    } else {
        endpoint.metadata.annotations.remove(NETWORK_ANNOTATION);
    }
    endpoint.body.insert("spec".to_owned(), spec(id, wired));
    if id.keeping == Keeping::Records {
        described.put_into(&mut endpoint);
        described.set_addresses(&mut endpoint, &wired.addresses);
    }
    endpoint.fill_defaults();
    if id.keeping == Keeping::Views {
        // Kubernetes has checked the pod's names, and whatever the sandbox is called goes into an annotation.
        return Ok(endpoint);
    }
    match validate(&endpoint).first() {
        None => Ok(endpoint),
        Some(violation) => Err(CniError::environment(format!("cannot record the endpoint: {violation}"))),
    }
}

fn spec(id: &EndpointId, wired: &Wired) -> Value {
    endpoint_spec(&EndpointSpec {
        node: &id.name.node,
        namespace: &id.namespace,
        orchestrator: &id.name.orchestrator,
        workload: &id.name.workload,
        container_id: &id.container_id,
        interface: &id.name.endpoint,
        addresses: &wired.addresses,
        device: wired.device.as_str(),
        mac: Some(wired.mac),
    })
}

/// Which network a container's interface belongs to, where it was in several.
const NETWORK_ANNOTATION: &str = "plumbline.io/network";

fn text_of<'a>(endpoint: &'a Resource, field: &str) -> Option<&'a str> {
    endpoint.spec(field).and_then(Value::as_str)
}

/// Whether a record of the sandbox's container is of the sandbox's network, too. Most do not say.
pub(super) fn is_of_network(endpoint: &Resource, sandbox: &Sandbox) -> bool {
    let named = endpoint.metadata.annotations.get(NETWORK_ANNOTATION);
    named.is_none_or(|named| named == sandbox.network())
}

/// The record without the profile of a network that the container joined later, through the interface that it had; `None` if it did not.
pub(super) fn without_joined(endpoint: &Resource, sandbox: &Sandbox) -> Option<Resource> {
    if text_of(endpoint, "orchestrator") != Some("cni") {
        return None;
    }
    let profile = profile::name_of(sandbox.network());
    let mut rest = endpoint.clone();
    let listed = rest.spec_mut().get_mut("profiles").and_then(Value::as_array_mut)?;
    let is_first = listed.first().and_then(Value::as_str).is_none_or(|first| first == profile);
    let before = listed.len();
    listed.retain(|entry| entry.as_str() != Some(&profile));
    (!is_first && listed.len() < before).then_some(rest)
}

/// The record with the profile of a further network; `None` if it has that already.
pub(super) fn with_joined(endpoint: &Resource, profile: &str) -> Option<Resource> {
    let mut joined = endpoint.clone();
    let listed = joined.spec_mut().entry("profiles").or_insert_with(|| json!([])).as_array_mut()?;
    if listed.iter().any(|entry| entry.as_str() == Some(profile)) {
        return None;
    }
    listed.push(profile.into());
    Some(joined)
}

/// The container ID of a record's sandbox, as its caller named it.
pub(super) fn container_id(endpoint: &Resource) -> &str {
    Named::ContainerId.original(endpoint).unwrap_or_default()
}

/// The wiring that a record describes; `None` if it cannot be read.
pub(super) fn wired(endpoint: &Resource) -> Option<Wired> {
    let text = |field| endpoint.spec(field).and_then(Value::as_str);
    Some(Wired {
        device: DeviceName::new(text("interfaceName")?).ok()?,
        mac: text("mac")?.parse().ok()?,
        addresses: addresses(endpoint)?,
    })
}

/// `None` if one of them cannot be read.
pub(crate) fn addresses(endpoint: &Resource) -> Option<Vec<IpAddr>> {
    let networks = endpoint.spec("ipNetworks").and_then(Value::as_array)?;
    let address = |network: &Value| network.as_str()?.split('/').next()?.parse().ok();
    networks.iter().map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox() -> Sandbox {
        Sandbox::new("net", "0f3a", "eth0").unwrap()
    }

    fn example() -> Wired {
        Wired {
            device: DeviceName::of_pod("cali", "shop", "web-0").unwrap(),
            mac: sandbox().mac(),
            addresses: vec!["10.0.0.5".parse().unwrap()],
        }
    }

    fn pod() -> PodName {
        PodName { namespace: "shop".to_owned(), name: "web-0".to_owned(), uid: None }
    }

    fn now() -> Timestamp {
        "2026-08-22T06:33:20Z".parse().unwrap()
    }

    #[test]
    fn a_pods_record_is_calicos() {
        let id = EndpointId::new(Keeping::Records, "node-a", Some(&pod()), &sandbox());
        let endpoint = record(&id, &example(), &Described::default(), None, now()).unwrap();
        assert_eq!(
            id.key().unwrap().unwrap().etcd_text(),
            "/calico/resources/v3/projectcalico.org/workloadendpoints/shop/node--a-k8s-web--0-eth0"
        );
        assert_eq!(Some(endpoint.key()), id.key().unwrap());
        assert_eq!(endpoint.metadata.labels["projectcalico.org/orchestrator"], "k8s");
        assert_eq!(endpoint.metadata.labels["projectcalico.org/namespace"], "shop");
        assert_eq!(endpoint.spec("ipNetworks"), Some(&json!(["10.0.0.5/32"])));
        assert_eq!(endpoint.spec("profiles"), Some(&json!(["kns.shop"])));
        assert_eq!(container_id(&endpoint), "0f3a");
        assert_eq!(wired(&endpoint), Some(example()));
    }

    #[test]
    fn a_container_without_a_pod_is_recorded_by_its_id() {
        let id = EndpointId::new(Keeping::Records, "node-a", None, &sandbox());
        let endpoint = record(&id, &example(), &Described::default(), None, now()).unwrap();
        assert_eq!(endpoint.metadata.name, "node--a-cni-0f3a-eth0");
        assert_eq!(endpoint.metadata.namespace.as_deref(), Some("default"));
    }

    #[test]
    fn a_new_sandbox_takes_over_the_record_but_not_its_identity() {
        let id = EndpointId::new(Keeping::Records, "node-a", Some(&pod()), &sandbox());
        let earlier = record(&id, &example(), &Described::default(), None, now()).unwrap();
        let next = Sandbox::new("net", "1f3a", "eth0").unwrap();
        let id = EndpointId::new(Keeping::Records, "node-a", Some(&pod()), &next);
        let wired = Wired { mac: next.mac(), ..example() };
        let later = record(&id, &wired, &Described::default(), Some(&earlier), now()).unwrap();
        assert_eq!(later.metadata.uid, earlier.metadata.uid);
        assert_eq!(container_id(&later), "1f3a");
    }

    #[test]
    fn an_allocation_leads_to_its_record() {
        let secondary = [("node", "node-a"), ("namespace", "shop"), ("pod", "web-0")];
        let secondary = secondary.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        let attribute = BlockAttribute { secondary, ..BlockAttribute::default() };
        let id = EndpointId::new(Keeping::Records, "node-a", Some(&pod()), &sandbox());
        assert_eq!(EndpointId::from_allocation(Keeping::Records, &attribute, &sandbox()), Some(id));
        assert_eq!(
            EndpointId::from_allocation(Keeping::Records, &BlockAttribute::default(), &sandbox()),
            None
        );
    }

    #[test]
    fn what_kubernetes_says_of_the_pod_replaces_what_it_said_before() {
        let id = EndpointId::new(Keeping::Records, "node-a", Some(&pod()), &sandbox());
        let labels = |name: &str| Some(BTreeMap::from([(name.to_owned(), "x".to_owned())]));
        let described = Described {
            labels: labels("app"),
            generate_name: Some("web-".to_owned()),
            profiles: Some(vec!["kns.shop".to_owned(), "ksa.shop.robot".to_owned()]),
            fields: [("serviceAccountName".to_owned(), json!("robot"))].into(),
            floating: vec!["10.9.0.1".parse().unwrap(), "fd09::1".parse().unwrap()],
        };
        let first = record(&id, &example(), &described, None, now()).unwrap();
        assert_eq!(first.metadata.extra["generateName"], "web-");
        assert_eq!(first.metadata.labels["projectcalico.org/orchestrator"], "k8s");
        assert_eq!(first.spec("profiles"), Some(&json!(["kns.shop", "ksa.shop.robot"])));
        assert_eq!(first.spec("serviceAccountName"), Some(&json!("robot")));
        let nats = json!([{"internalIP": "10.0.0.5", "externalIP": "10.9.0.1"}]);
        assert_eq!(first.spec("ipNATs"), Some(&nats));
        assert_eq!(described.dangling(&example().addresses), "fd09::1".parse().ok());
        let described = Described { labels: labels("tier"), ..Described::default() };
        let second = record(&id, &example(), &described, Some(&first), now()).unwrap();
        assert!(second.metadata.labels.contains_key("tier") && !second.metadata.labels.contains_key("app"));
        assert!(!second.metadata.extra.contains_key("generateName"));
        let third = record(&id, &example(), &Described::default(), Some(&second), now()).unwrap();
        assert_eq!(third.metadata.labels, second.metadata.labels, "nobody says anything about labels");
    }

    #[test]
    fn a_container_can_be_in_a_namespace_without_being_a_pod() {
        let secondary = [("node", "node-a"), ("namespace", "shop")];
        let secondary = secondary.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
        let attribute = BlockAttribute { secondary, ..BlockAttribute::default() };
        let id = EndpointId::from_allocation(Keeping::Records, &attribute, &sandbox()).unwrap();
        assert_eq!((id.namespace.as_str(), id.name.orchestrator.as_str()), ("shop", "cni"));
    }

    #[test]
    fn names_that_kubernetes_would_not_allow_have_a_record_and_are_kept_beside() {
        let pod = |namespace: &str, name: &str| {
            Some(PodName { namespace: namespace.to_owned(), name: name.to_owned(), uid: None })
        };
        let long = "x".repeat(240);
        let mut keys = std::collections::BTreeSet::new();
        let callers = [
            (pod("Shop", "Web_0"), "ABC_1.2", "Eth_0"),
            (pod("shop", "Web_0"), "ABC_1.2", "eth0"),
            (pod("shop", "web_0"), "ABC_1.2", "eth0"),
            (pod("shop", &long), "0f3a", "eth0"),
            (None, "ABC", "eth0"),
            (None, "aBC", "eth0"),
            (None, "a.c", "eth0"),
            (None, "abc", "eth0"),
            (None, "abc-", "eth0"),
        ];
        let count = callers.len();
        for (pod, container, interface) in callers {
            let sandbox = Sandbox::new("net", container, interface).unwrap();
            let id = EndpointId::new(Keeping::Records, "node-a", pod.as_ref(), &sandbox);
            let endpoint = record(&id, &example(), &Described::default(), None, now()).unwrap();
            assert_eq!(Some(endpoint.key()), id.key().unwrap());
            assert!(keys.insert(endpoint.key()), "{} is another's", endpoint.key());
            assert_eq!(container_id(&endpoint), container);
            assert_eq!(Named::Interface.original(&endpoint), Some(interface));
            if let Some(pod) = &pod {
                assert_eq!(Named::Pod.original(&endpoint), Some(pod.name.as_str()));
                assert_eq!(Named::Namespace.original(&endpoint), Some(pod.namespace.as_str()));
            }
        }
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn what_is_no_name_by_anybodys_rules_is_refused() {
        for name in ["web/0", "web 0", "", "../x"] {
            let pod = PodName { namespace: "shop".to_owned(), name: name.to_owned(), uid: None };
            let id = EndpointId::new(Keeping::Records, "node-a", Some(&pod), &sandbox());
            assert!(record(&id, &example(), &Described::default(), None, now()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn the_next_sandbox_does_not_inherit_a_name_that_is_not_its_own() {
        let old = Sandbox::new("net", "C_1", "eth0").unwrap();
        let earlier = record(
            &EndpointId::new(Keeping::Records, "node-a", Some(&pod()), &old),
            &example(),
            &Described::default(),
            None,
            now(),
        )
        .unwrap();
        assert_eq!(container_id(&earlier), "C_1");
        let id = EndpointId::new(Keeping::Records, "node-a", Some(&pod()), &sandbox());
        let later = record(&id, &example(), &Described::default(), Some(&earlier), now()).unwrap();
        assert_eq!((container_id(&later), later.metadata.annotations.len()), ("0f3a", 0));
    }
}
