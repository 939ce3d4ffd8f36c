//! What the agent of a node must not do, each tried: without the policies it could, with them it is refused.

mod affinities;
mod blocks;
mod new_records;
mod records;

use ipam::{Owner, Reservations};
use jiff::Timestamp;
use model::ipam::{Affinity, AffinityState, Block, Handle};
use model::kube::access;
use model::{AffinityOwner, Cidr, Key, Kind};
use serde_json::{Value, json};
use store::Store;

use crate::acts::Act;
use crate::fixture::{CERTIFIED, Cluster, LAYOUTS};

/// A block of node-b: its first address is node-b's, the second node-a's, the third cools down, the rest is free.
const BLOCK: &str = "10.0.0.0/26";

/// An act, and words of the refusal.
type Refused = (Act, &'static str);

fn affinity(node: &str, block: &str) -> Key {
    Key::Affinity { owner: AffinityOwner::Host(node.to_owned()), block: block.parse().unwrap() }
}

/// The cluster's records and those of node-b, made by the administrator.
async fn populate(store: &dyn Store) {
    let spec = |spec: Value| json!({ "spec": spec }).to_string().into_bytes();
    let cluster = |kind, name: &str| Key::cluster(kind, name);
    for (key, value) in [
        (
            cluster(Kind::ClusterInformation, "default"),
            spec(json!({ "clusterGUID": "1", "clusterType": "k8s,kdd", "datastoreReady": true })),
        ),
        (cluster(Kind::IpPool, "pods"), spec(json!({ "cidr": "10.0.0.0/16" }))),
        (cluster(Kind::FelixConfiguration, "default"), spec(json!({ "bpfEnabled": false }))),
        (
            cluster(Kind::CalicoNodeStatus, "of-b"),
            spec(json!({ "node": "node-b", "classes": ["Agent"], "updatePeriodSeconds": 10 })),
        ),
        (
            cluster(Kind::CalicoNodeStatus, "of-a"),
            spec(json!({ "node": "node-a", "classes": ["Agent"], "updatePeriodSeconds": 10 })),
        ),
        (affinity("node-b", BLOCK), Affinity::new(AffinityState::Confirmed).encode()),
        (affinity("node-a", "10.0.0.64/26"), Affinity::new(AffinityState::Confirmed).encode()),
        (of_load_balancer("10.0.1.0/26"), Affinity::new(AffinityState::Confirmed).encode()),
        (of_load_balancer("10.0.1.64/26"), Affinity::new(AffinityState::PendingDeletion).encode()),
        (Key::Handle("vxlan-tunnel-addr-node-b".into()), Handle::default().encode()),
        (Key::Handle("net.a".into()), Handle::default().encode()),
    ] {
        store.create(key, value).await.unwrap();
    }
    let block = block_of_b();
    store.create(block.key(), block.encode()).await.unwrap();
    for (cidr, owner) in blocks::EMPTY {
        let block = Block::new(cidr.parse::<Cidr>().unwrap(), Some(&owner("node-a".to_owned())), 100);
        store.create(block.key(), block.encode()).await.unwrap();
    }
}

fn of_load_balancer(block: &str) -> Key {
    Key::Affinity { owner: AffinityOwner::Virtual("load-balancer".to_owned()), block: block.parse().unwrap() }
}

fn block_of_b() -> Block {
    let owner = AffinityOwner::Host("node-b".to_owned());
    let mut block = Block::new(BLOCK.parse::<Cidr>().unwrap(), Some(&owner), 100);
    for (handle, node) in [("net.b", "node-b"), ("net.a", "node-a"), ("net.c", "node-b")] {
        let owner = Owner::on_node(handle, node, Timestamp::now()).of_pod("blue", "web", None);
        assert_eq!(ipam::take(&mut block, &owner, 1, &Reservations::default()).len(), 1);
    }
    ipam::give_back(&mut block, &[2], Some(Timestamp::now()));
    ipam::count_write(&mut block);
    block
}

/// Acts that the roles allow and a policy does not.
fn against_policies(cluster: &Cluster) -> Vec<Refused> {
    let mut acts = records::on_nodes_and_pods();
    acts.extend(blocks::acts(cluster));
    acts.extend(affinities::acts(cluster));
    acts.extend(new_records::acts(cluster));
    acts.extend(records::on_others(cluster));
    acts
}

/// The garbage collector removes whatever has it.
fn owner_that_is_gone() -> Value {
    json!([{ "apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone" }])
}

/// Acts that no role of an agent allows.
fn against_roles(cluster: &Cluster) -> Vec<Act> {
    let pool = format!("{}/pods", cluster.collection(Kind::IpPool));
    let felix = format!("{}/default", cluster.collection(Kind::FelixConfiguration));
    let settings = cluster.api().read(&felix).unwrap();
    let (pods, named) =
        ("/api/v1/namespaces/blue/pods", |name: &str| json!({ "metadata": { "name": name } }));
    let pod =
        json!({ "metadata": { "name": "new" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let role = json!({ "metadata": { "name": "more" }, "rules": [] });
    let label = json!({ "metadata": { "labels": { "a": "b" } } });
    let host_endpoint = json!({ "spec": { "node": "node-a", "interfaceName": "eth0" } }).to_string();
    let host_endpoint =
        cluster.creation("a host endpoint", &Key::cluster(Kind::HostEndpoint, "h"), host_endpoint.as_bytes());
    vec![
        Act::delete("deleting a pool", &pool),
        Act::replace("changing a pool", &pool, cluster.api().read(&pool).unwrap()),
        Act::replace("changing the cluster's settings", &felix, settings),
        Act::read("reading Secrets", "/api/v1/namespaces/kube-system/secrets"),
        Act::read("reading one Secret", "/api/v1/namespaces/kube-system/secrets/s"),
        Act::read("reading ConfigMaps", "/api/v1/configmaps"),
        Act::create("creating a pod", pods, pod),
        Act::delete("deleting a pod", &format!("{pods}/web-node-a")),
        Act::merge("labelling a pod", &format!("{pods}/web-node-a"), label.clone()),
        Act::create("creating a node", "/api/v1/nodes", named("node-c")),
        Act::delete("deleting its node", "/api/v1/nodes/node-a"),
        Act::merge("labelling its node", "/api/v1/nodes/node-a", label),
        Act::create("creating a namespace", "/api/v1/namespaces", named("green")),
        Act::create("granting itself more", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role),
        Act::delete(
            "removing a policy",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/plumb-node-blocks",
        ),
        Act::create(
            "a token of another account",
            "/api/v1/namespaces/kube-system/serviceaccounts/plumb-operator/token",
            json!({ "spec": {} }),
        ),
        Act::delete("removing all blocks", &cluster.collection(Kind::IpamBlock)),
        host_endpoint,
    ]
}

async fn refuse_all(test: &str, cluster: &Cluster) {
    populate(&*cluster.store("admin", testkit::kube::ADMIN_TOKEN).await).await;
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "a": "b" } });
    cluster.api().create("/api/v1/namespaces/kube-system/secrets", &secret).unwrap();
    let agent = cluster.server.api_as(&cluster.token("node-a"));

    let acts = against_policies(cluster);
    each_check_is_tried(cluster, &acts);
    // Otherwise an act that is refused for another reason would prove nothing.
    for (act, _) in &acts {
        let answer = act.try_out(&agent);
        assert!(answer.status < 300, "{} without policies: {} {}", act.what, answer.status, answer.text);
    }
    cluster.add_policies();
    for (act, words) in &acts {
        let answer = act.send(&agent);
        let is_refused = answer.status == 403 && answer.text.contains(words);
        assert!(is_refused, "{}: {} {}", act.what, answer.status, answer.text);
    }
    let beyond_roles = against_roles(cluster);
    for act in &beyond_roles {
        let answer = act.try_out(&cluster.api());
        assert!(answer.status < 300, "{} by an administrator: {} {}", act.what, answer.status, answer.text);
        let answer = act.send(&agent);
        let is_refused = answer.status == 403 && answer.text.contains(" cannot ");
        assert!(is_refused, "{}: {} {}", act.what, answer.status, answer.text);
    }
    testkit::note(test, &format!("{} acts refused by policies, {} by roles", acts.len(), beyond_roles.len()));
}

/// Whatever a policy checks, some act is refused for it. Whether the credential names a node has a test of its own.
fn each_check_is_tried(cluster: &Cluster, acts: &[Refused]) {
    for policy in access::policies(cluster.layout, access::NAMESPACE) {
        let checks = policy["spec"]["validations"].as_array().into_iter().flatten().skip(1);
        for message in checks.filter_map(|check| check["message"].as_str()) {
            assert!(acts.iter().any(|(_, words)| message.contains(words)), "nothing tries {message:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_not_its_nodes_an_agent_cannot_write() {
    let test = "whatever_is_not_its_nodes_an_agent_cannot_write";
    for layout in LAYOUTS {
        let Some(cluster) = Cluster::start(test, layout) else { return };
        refuse_all(test, &cluster).await;
    }
}

/// Whatever the credential is, it must name the node: a token that is bound to a pod or to a node, or a certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_is_known_by_its_credential() {
    let test = "an_agent_is_known_by_its_credential";
    let Some(cluster) = Cluster::start(test, LAYOUTS[0]) else { return };
    cluster.add_policies();
    let api = cluster.api();
    let annotation = json!({ "metadata": { "annotations": { "projectcalico.org/ASNumber": "64512" } } });
    let annotated = |token: &str, node: &str| {
        let act = Act::merge("annotation", &format!("/api/v1/nodes/{node}/status"), annotation.clone());
        act.send(&cluster.server.api_as(token))
    };
    let of_pod = api.token_of("kube-system", "plumb-node", "Pod", "plumbd-node-a").unwrap();
    for token in [of_pod.as_str(), &cluster.token("node-a"), CERTIFIED] {
        assert_eq!(annotated(token, "node-a").status, 200);
        let refused = annotated(token, "node-b");
        assert!(refused.status == 403 && refused.text.contains("another node"), "{refused:?}");
    }
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/plumb-node/token";
    let unbound = api.create(path, &json!({ "spec": {} })).unwrap();
    let refused = annotated(unbound["status"]["token"].as_str().unwrap(), "node-a");
    assert!(refused.status == 403 && refused.text.contains("the credential names no node"), "{refused:?}");
}
