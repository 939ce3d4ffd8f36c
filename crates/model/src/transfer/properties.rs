//! What holds of every copy, and the cases that are decided one by one.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cluster::new_cluster_information;
use crate::kube::properties::{of_ipam, resource, stored};
use crate::kube::{decode, encode};
use crate::{AffinityOwner, Cidr};

type Source = BTreeMap<Key, Vec<u8>>;

const REFUSE: Rule = Rule { existing: Existing::Refuse, is_unfinished: false };

/// A cluster with these namespaces, and nothing else.
fn cluster<'a>(layout: Layout, namespaces: impl IntoIterator<Item = &'a str>) -> Cluster {
    let mut cluster = Cluster::new(layout);
    for namespace in namespaces {
        cluster.note(&Key::cluster(Kind::Profile, format!("kns.{namespace}")), b"{}");
    }
    cluster
}

fn destinations(source: &Source) -> Vec<Destination> {
    let namespaces = source.keys().filter_map(|key| match key {
        Key::Resource { namespace, .. } => namespace.as_deref(),
        _ => None,
    });
    let namespaces: Vec<&str> = namespaces.collect();
    let of = |layout| Destination::Kubernetes(cluster(layout, namespaces.iter().copied()));
    vec![Destination::Records, of(Layout::V1), of(Layout::V3)]
}

/// What a store shows after a value was written to it.
fn shown(to: &Destination, key: &Key, value: &[u8]) -> Vec<u8> {
    match (to, place(key)) {
        (Destination::Kubernetes(cluster), Some(place)) => {
            let mut document = stored(encode(cluster.layout, key, value).unwrap());
            document["metadata"]["uid"] = json!("99999999-9999-4999-8999-999999999999");
            decode(cluster.layout, place.kind, document).unwrap().value
        }
        _ => value.to_vec(),
    }
}

fn sources() -> impl Strategy<Value = Source> {
    let resources = prop::collection::vec(resource(), 0..6);
    let records = prop::collection::vec(of_ipam(), 0..6);
    (resources, records, any::<bool>()).prop_map(|(resources, records, has_information)| {
        let mut source: Source = resources.iter().map(|found| (found.key(), found.encode())).collect();
        for (key, value) in records {
            source.insert(key, serde_json::to_vec(&value).unwrap());
        }
        let information = has_information.then(|| new_cluster_information("g").encode());
        source.extend(information.map(|value| (information::key(), value)));
        source
    })
}

proptest! {
    #[test]
    fn every_record_is_written_or_listed(source in sources()) {
        for to in destinations(&source) {
            let plan = plan(source.clone(), Origin::Records, &to);
            let accounted = plan.writes.len() + plan.left.len() + usize::from(plan.information.is_some());
            prop_assert_eq!(accounted, source.len());
            let mut keys: Vec<&Key> = plan.left.iter().map(|(key, _)| key).collect();
            keys.sort();
            keys.dedup();
            prop_assert_eq!(keys.len(), plan.left.len());
            prop_assert_eq!(plan.stages().concat().len(), plan.writes.len());
        }
    }

    #[test]
    fn between_stores_of_one_layout_every_byte_is_carried(source in sources()) {
        let plan = plan(source.clone(), Origin::Records, &Destination::Records);
        prop_assert!(plan.left.is_empty() && plan.altered.is_empty());
        let mut carried = plan.writes;
        carried.extend(plan.information.map(|value| (information::key(), value)));
        prop_assert_eq!(carried, source);
    }

    #[test]
    fn what_was_written_is_found_again_and_changes_by_others_are_noticed(source in sources(), field in "y[a-z]{3}") {
        for to in destinations(&source) {
            let plan = plan(source.clone(), Origin::Records, &to);
            for (key, value) in &plan.writes {
                let stored = shown(&to, key, value);
                prop_assert_eq!(plan.meet(&to, REFUSE, key, &stored), Meeting::Same, "{}", key);
                let mut changed: Value = serde_json::from_slice(&stored).unwrap();
                changed[&field] = json!(1);
                let changed = serde_json::to_vec(&changed).unwrap();
                let meeting = plan.meet(&to, REFUSE, key, &changed);
                let fields = vec![field.clone()];
                prop_assert_eq!(meeting, Meeting::InTheWay(Obstacle::Differs { fields }), "{}", key);
                let unfinished = Rule { is_unfinished: true, ..REFUSE };
                prop_assert_eq!(plan.meet(&to, unfinished, key, &changed), Meeting::Replace);
                let replaced = plan.replacement(&to, key, &changed).unwrap();
                prop_assert_eq!(plan.meet(&to, REFUSE, key, &shown(&to, key, &replaced)), Meeting::Same);
            }
        }
    }

    #[test]
    fn nothing_in_kubernetes_has_owners_or_finalizers_of_elsewhere(source in sources()) {
        for to in destinations(&source) {
            let Destination::Kubernetes(cluster) = &to else { continue };
            let plan = plan(source.clone(), Origin::Records, &to);
            for (key, value) in &plan.writes {
                let document = Value::Object(encode(cluster.layout, key, value).unwrap()).to_string();
                prop_assert!(!document.contains("ownerReferences") && !document.contains("finalizers"), "{}", document);
            }
            let dropped = |key: &Key| plan.altered.iter().any(|(of, altered)| of == key && matches!(altered, Altered::Owners(_)));
            for (key, value) in source.iter().filter(|(key, _)| plan.writes.contains_key(key)) {
                let has_owners = String::from_utf8_lossy(value).contains("ownerReferences");
                prop_assert_eq!(dropped(key), has_owners, "{}", key);
            }
        }
    }

    #[test]
    fn there_and_back_is_the_same(source in sources()) {
        for to in destinations(&source) {
            let Destination::Kubernetes(_) = &to else { continue };
            let there = plan(source.clone(), Origin::Records, &to);
            let shown: Source = there.writes.iter().map(|(key, value)| (key.clone(), shown(&to, key, value))).collect();
            let back = plan(shown, Origin::Kubernetes, &Destination::Records);
            for (key, value) in &back.writes {
                let likeness = there.compare(&to, key, value);
                prop_assert_eq!(likeness, Some(Likeness::Same), "{}", key);
            }
            prop_assert_eq!(back.writes.len(), there.writes.len());
        }
    }

    #[test]
    fn names_in_kubernetes_are_taken_once(ids in prop::collection::btree_set("[aAbB_.]{1,3}", 0..12)) {
        let source: Source = ids.iter().map(|id| (Key::Handle(id.as_str().into()), br#"{"block":{}}"#.to_vec())).collect();
        let to = Destination::Kubernetes(cluster(Layout::V1, []));
        let plan = plan(source, Origin::Records, &to);
        let names: BTreeSet<String> = plan.writes.keys().map(|key| place(key).unwrap().name).collect();
        prop_assert_eq!(names.len(), plan.writes.len());
        for (key, why) in &plan.left {
            let name = place(key).unwrap().name;
            let is_taken = names.contains(&name);
            prop_assert_eq!(is_taken, matches!(why, Why::NameTaken { .. }), "{} {}", key, why);
            prop_assert!(is_taken || name.contains('_') || name.starts_with('.') || name.ends_with('.') || name.contains(".."));
        }
    }

    #[test]
    fn any_value_is_survived(resource in resource(), (of_ipam, _) in of_ipam(), bytes in any::<Vec<u8>>(), text in "\\PC{0,20}") {
        let node = Key::cluster(Kind::Node, "n");
        for value in [bytes, text.clone().into_bytes(), json!({"metadata": text, "spec": text}).to_string().into()] {
            for key in [resource.key(), of_ipam.clone(), node.clone(), Key::cluster(Kind::IpamConfiguration, "default")] {
                let source: Source = [(key.clone(), value.clone()), (Key::IpamConfig, value.clone())].into();
                for mut to in destinations(&source) {
                    if let Destination::Kubernetes(cluster) = &mut to {
                        cluster.note(&node, &value);
                        cluster.note(&key, &value);
                    }
                    for from in [Origin::Records, Origin::Kubernetes] {
                        let plan = plan(source.clone(), from, &to);
                        let _ = plan.meet(&to, REFUSE, &key, b"{}");
                        let _ = plan.meet(&to, REFUSE, &key, &value);
                        let _ = plan.replacement(&to, &key, &value);
                    }
                }
            }
        }
    }
}

fn one(to: &Destination, key: &Key, value: Value) -> Plan<Vec<u8>> {
    plan([(key.clone(), value.to_string().into_bytes())], Origin::Records, to)
}

fn why(to: &Destination, key: &Key, value: Value) -> Option<Why> {
    let mut plan = one(to, key, value);
    assert_eq!(plan.left.len() + plan.writes.len(), 1, "{key}");
    plan.left.pop().map(|(_, why)| why)
}

#[test]
fn what_kubernetes_cannot_keep_is_left_with_a_reason() {
    let to = Destination::Kubernetes(cluster(Layout::V1, ["blue"]));
    let set = |namespace: &str| Key::namespaced(Kind::NetworkSet, namespace, "s");
    assert_eq!(why(&to, &set("blue"), json!({"spec": {}})), None);
    let namespace = "red".to_owned();
    assert_eq!(why(&to, &set("red"), json!({"spec": {}})), Some(Why::NoNamespace { namespace }));
    let long = "x".repeat(254);
    for (id, is_refused) in [("net.0F3a", false), ("a_b", true), (long.as_str(), true), (&long[1..], false)] {
        let left = why(&to, &Key::Handle(id.into()), json!({"block": {}}));
        assert_eq!(matches!(left, Some(Why::NameRefused { .. })), is_refused, "{id}: {left:?}");
    }
    let unused = Key::cluster(Kind::IpamConfiguration, "default");
    assert_eq!(why(&to, &unused, json!({"spec": {"strictAffinity": true}})), Some(Why::ReadByNobody));
    let affinity = Key::cluster(Kind::BlockAffinity, "n-10-0-0-0-26");
    assert_eq!(why(&to, &affinity, json!({"spec": {}})), Some(Why::ReadByNobody));
    let block: Cidr = "10.0.0.0/30".parse().unwrap();
    let marked = json!({"cidr": "10.0.0.0/30", "deleted": true});
    assert_eq!(why(&to, &Key::Block(block), marked), Some(Why::Deleted));
    let other = json!({"cidr": "10.0.0.4/30"});
    assert_eq!(why(&to, &Key::Block(block), other), None, "the key says which network it is");
    let Destination::Kubernetes(mut poor) = to else { unreachable!("made above") };
    poor.unserved.insert(Kind::NetworkSet);
    assert_eq!(why(&Destination::Kubernetes(poor), &set("blue"), json!({"spec": {}})), Some(Why::NotServed));
}

#[test]
fn a_node_called_like_the_load_balancer_takes_the_name_of_its_affinity() {
    let block: Cidr = "10.0.0.0/26".parse().unwrap();
    let [host, other] = [AffinityOwner::Host, AffinityOwner::Virtual]
        .map(|of| Key::Affinity { owner: of("load-balancer".to_owned()), block });
    let source = [&host, &other].map(|key| (key.clone(), br#"{"state":"confirmed"}"#.to_vec()));
    let plan = plan(source, Origin::Records, &Destination::Kubernetes(cluster(Layout::V3, [])));
    assert_eq!(plan.left, [(other, Why::NameTaken { by: host })]);
    assert!(plan.has_losses());
}

#[test]
fn endpoints_and_profiles_are_what_the_cluster_shows() {
    let mut there = cluster(Layout::V1, ["shop"]);
    let endpoint = |pod: &str| Key::namespaced(Kind::WorkloadEndpoint, "shop", format!("n-k8s-{pod}-eth0"));
    let record = |network: &str, sandbox: &str| json!({"metadata": {"name": "x"}, "spec": {"ipNetworks": [network], "containerID": sandbox}});
    there.note(&endpoint("known"), record("10.0.0.1/32", "c1").to_string().as_bytes());
    there.note(&endpoint("bare"), record("10.0.0.2/32", "").to_string().as_bytes());
    there.note(&endpoint("ended"), br#"{"spec":{}}"#);
    let to = Destination::Kubernetes(there);
    let left = |pod: &str, network: &str| why(&to, &endpoint(pod), record(network, "c1"));
    assert_eq!(left("known", "10.0.0.1/32"), Some(Why::ShownByPod));
    assert_eq!(left("bare", "10.0.0.2/32"), None, "the Pod learns its sandbox");
    assert_eq!(left("gone", "10.0.0.1/32"), Some(Why::NoPod));
    assert_eq!(left("ended", "10.0.0.1/32"), Some(Why::NoAddress));
    let text = |network: &str, sandbox: &str| record(network, sandbox).to_string().into_bytes();
    let endpoint_of = text("10.0.0.2/32", "c1");
    for (pod, is_it) in [
        (text("10.0.0.2/32", ""), true),
        (text("10.0.0.2/32", "c2"), false),
        (text("10.0.0.3/32", ""), false),
        (Vec::new(), false),
    ] {
        assert_eq!(is_pod_of(&endpoint("bare"), &endpoint_of, &pod), is_it);
    }
    let addresses = vec!["10.0.0.1/32".to_owned()];
    assert_eq!(left("known", "10.0.0.9/32"), Some(Why::PodDiffers { addresses }));
    let of_docker = Key::namespaced(Kind::WorkloadEndpoint, "shop", "n-libnetwork-libnetwork-ab");
    assert_eq!(why(&to, &of_docker, record("10.0.0.1/32", "")), Some(Why::NotOfAPod));
    for (name, reason) in [("kns.shop", Why::ShownByObject), ("mine", Why::NoObjectForProfile)] {
        assert_eq!(why(&to, &Key::cluster(Kind::Profile, name), json!({"spec": {}})), Some(reason));
    }
    let plan = one(&to, &endpoint("bare"), record("10.0.0.2/32", "c1"));
    let stored = record("10.0.0.2/32", "").to_string();
    assert_eq!(plan.meet(&to, REFUSE, &endpoint("bare"), stored.as_bytes()), Meeting::Replace);
    let pod = Key::namespaced(Kind::WorkloadEndpoint, "shop", "n-k8s-other-eth0");
    assert_eq!(plan.meet(&to, REFUSE, &pod, b"{}"), Meeting::Ignore, "Pods are in nobody's way");
}

#[test]
fn finished_pods_and_deletions_stay_behind() {
    let endpoint = Key::namespaced(Kind::WorkloadEndpoint, "shop", "n-k8s-web-eth0");
    let without = (endpoint.clone(), json!({"spec": {"pod": "web"}}).to_string().into_bytes());
    let ended = plan([without.clone()], Origin::Kubernetes, &Destination::Records);
    assert_eq!(ended.left, [(endpoint.clone(), Why::NoAddress)]);
    assert!(!ended.has_losses());
    assert_eq!(plan([without], Origin::Records, &Destination::Records).writes.len(), 1);

    let time = "2026-08-22T06:33:20Z";
    let leaving = |spec: Value| json!({"metadata": {"deletionTimestamp": time, "deletionGracePeriodSeconds": 0}, "spec": spec});
    let pool = Key::cluster(Kind::IpPool, "p");
    let source = [
        (pool.clone(), leaving(json!({"cidr": "10.0.0.0/16"})).to_string().into_bytes()),
        (endpoint.clone(), leaving(json!({"ipNetworks": ["10.0.0.1/32"]})).to_string().into_bytes()),
    ];
    let plan = plan(source, Origin::Kubernetes, &Destination::Records);
    assert_eq!(plan.altered, [(pool.clone(), Altered::Deletion { disables_pool: true })]);
    let carried = |key: &Key| serde_json::from_slice::<Value>(&plan.writes[key]).unwrap();
    assert_eq!(carried(&pool), json!({"metadata": {}, "spec": {"cidr": "10.0.0.0/16", "disabled": true}}));
    assert_eq!(carried(&endpoint)["metadata"], json!({}));
}

#[test]
fn nodes_are_put_onto_nodes_that_exist() {
    let mut there = cluster(Layout::V1, []);
    let key = Key::cluster(Kind::Node, "n");
    there.note(&key, json!({"metadata": {"name": "n", "uid": "u"}, "spec": {}}).to_string().as_bytes());
    let to = Destination::Kubernetes(there);
    let node = json!({"metadata": {"name": "n"}, "spec": {"ipv4VXLANTunnelAddr": "10.0.0.1", "new": 1}});
    let plan = one(&to, &key, node.clone());
    assert_eq!(plan.altered, [(key.clone(), Altered::NodeFields(vec!["spec.new".to_owned()]))]);
    assert!(plan.has_losses());
    let stored = json!({"metadata": {"name": "n", "labels": {"later": "x"}, "annotations": {
        "projectcalico.org/kube-labels": "{\"later\":\"x\"}"}}, "spec": {}});
    assert_eq!(plan.meet(&to, REFUSE, &key, stored.to_string().as_bytes()), Meeting::Replace);
    assert_eq!(plan.meet(&to, REFUSE, &key, &plan.writes[&key]), Meeting::Same);
    assert_eq!(why(&to, &Key::cluster(Kind::Node, "m"), node), Some(Why::NoNode));
    let renamed = json!({"spec": {"orchRefs": [{"orchestrator": "k8s", "nodeName": "n.example"}]}});
    assert_eq!(why(&to, &key, renamed), Some(Why::OtherNodeName { name: "n.example".to_owned() }));
}

#[test]
fn a_policy_keeps_the_name_that_operators_know() {
    let stored_as = Key::cluster(Kind::GlobalNetworkPolicy, "default.web");
    let old = json!({"metadata": {"name": "default.web"}, "spec": {"tier": "default"}});
    for layout in [Layout::V1, Layout::V3] {
        let to = Destination::Kubernetes(cluster(layout, []));
        let plan = one(&to, &stored_as, old.clone());
        let (key, value) = plan.writes.first_key_value().unwrap();
        let stored = shown(&to, key, value);
        assert_eq!(plan.meet(&to, REFUSE, key, &stored), Meeting::Same, "{layout:?}");
        let shown = Resource::decode(key, Kind::GlobalNetworkPolicy, &stored, "").unwrap();
        assert_eq!(shown.metadata.name, "web", "{layout:?}");
        assert_eq!(plan.altered.is_empty(), layout == Layout::V1);
        assert_eq!(*key == stored_as, layout == Layout::V1);
    }
}

#[test]
fn what_the_operator_says_decides_about_what_is_there() {
    let (pool, block) = (Key::cluster(Kind::IpPool, "p"), Key::Block("10.0.0.0/30".parse().unwrap()));
    let plan = one(&Destination::Records, &pool, json!({"spec": {"cidr": "10.0.0.0/16"}}));
    let tier = Key::cluster(Kind::Tier, "default");
    let other = json!({"spec": {"cidr": "10.1.0.0/16"}}).to_string();
    let meet = |existing, key: &Key| {
        plan.meet(&Destination::Records, Rule { existing, is_unfinished: false }, key, other.as_bytes())
    };
    let fields = vec!["spec.cidr".to_owned()];
    assert_eq!(
        meet(Existing::Refuse, &pool),
        Meeting::InTheWay(Obstacle::Differs { fields: fields.clone() })
    );
    assert_eq!(meet(Existing::Keep, &pool), Meeting::Keep(fields));
    assert_eq!(meet(Existing::Replace, &pool), Meeting::Replace);
    for (existing, meeting) in [
        (Existing::Refuse, Meeting::InTheWay(Obstacle::NotInSource)),
        (Existing::Keep, Meeting::InTheWay(Obstacle::NotInSource)),
        (Existing::Replace, Meeting::Remove),
    ] {
        assert_eq!(meet(existing, &block), meeting);
        assert_eq!(meet(existing, &tier), Meeting::Ignore, "every store has it");
    }
    assert_eq!(meet(Existing::Keep, &Key::cluster(Kind::IpPool, "q")), Meeting::Ignore);
}

#[test]
fn a_status_that_a_controller_writes_is_no_difference_but_a_missing_one_is_noticed() {
    let to = Destination::Kubernetes(cluster(Layout::V3, []));
    let pool = Key::cluster(Kind::IpPool, "p");
    let record = |status: Value| {
        let mut record = json!({"metadata": {"name": "p"}, "spec": {"cidr": "10.0.0.0/16"}});
        if !status.is_null() {
            record["status"] = status;
        }
        record
    };
    let with_status = one(&to, &pool, record(json!({"conditions": []})));
    let meet =
        |plan: &Plan<Vec<u8>>, stored: Value| plan.meet(&to, REFUSE, &pool, stored.to_string().as_bytes());
    let written = json!({"conditions": [{"type": "Allocatable"}]});
    assert_eq!(meet(&with_status, record(written.clone())), Meeting::Same);
    assert_eq!(meet(&with_status, record(Value::Null)), Meeting::Lacks(vec!["status".to_owned()]));
    assert_eq!(meet(&one(&to, &pool, record(Value::Null)), record(written)), Meeting::Same);
}

#[test]
fn what_differs_within_a_list_is_named() {
    let to = Destination::Kubernetes(cluster(Layout::V3, []));
    let set = Key::cluster(Kind::BgpConfiguration, "default");
    let of = |communities: Value| {
        json!({ "metadata": { "name": "default" },
            "spec": { "communities": communities, "logSeverityScreen": "Info", "serviceLoadBalancerAggregation": "Enabled" } })
    };
    let plan = one(&to, &set, of(json!([{ "name": "a", "value": "1:1" }, { "name": "b", "value": "2:2" }])));
    let compare = |stored: Value| plan.compare(&to, &set, of(stored).to_string().as_bytes()).unwrap();
    let fields = |fields: &[&str]| fields.iter().map(|field| format!("spec.communities{field}")).collect();
    for (stored, likeness) in [
        (json!([{ "name": "a", "value": "1:1" }, { "name": "b" }]), Likeness::Lacks(fields(&["[1].value"]))),
        (
            json!([{ "name": "a", "value": "1:1", "later": 1 }, { "name": "b", "value": "2:2" }]),
            Likeness::Adds(fields(&["[0].later"])),
        ),
        (
            json!([{ "name": "a", "value": "9:9" }, { "name": "b" }]),
            Likeness::Differs(fields(&["[1].value", "[0].value"])),
        ),
        (json!([{ "name": "a", "value": "1:1" }]), Likeness::Differs(fields(&[""]))),
        (json!(["a", { "name": "b", "value": "2:2" }]), Likeness::Differs(fields(&[""]))),
    ] {
        assert_eq!(compare(stored), likeness);
    }
}
