//! What an agent does from its start to the removal of its last pod, with its role and under the policies.

use std::sync::Arc;

use book::{AssignRequest, Book, HandleRequest, Settings};
use ipam::{Owner, ReleaseRule, Tunnel};
use jiff::Timestamp;
use model::access::READ_KINDS;
use model::cluster::{basic_tiers, complete_cluster_information, new_cluster_information};
use model::ipam::{Block, IpamConfig};
use model::kube::views::shown_as;
use model::kube::{HOSTNAME_HASH_LABEL, Layout, is_custom_resource, place};
use model::{AffinityOwner, Cidr, IpVersion, Key, KeyRange, Kind, Resource};
use serde_json::{Value, json};
use store::{Change, Event, Precondition, Store, Write};

use crate::fixture::{Cluster, LAYOUTS};

const GUID: &str = "00112233445566778899aabbccddeeff";

/// Two nodes' agents, each with its own credential.
struct Agents {
    a: Arc<dyn Store>,
    b: Arc<dyn Store>,
}

impl Agents {
    async fn start(cluster: &Cluster) -> Agents {
        cluster.add_policies();
        let (a, b) = (cluster.token("node-a"), cluster.token("node-b"));
        Agents { a: cluster.store("a", &a).await, b: cluster.store("b", &b).await }
    }
}

fn resource(kind: Kind, name: &str, spec: Value) -> Resource {
    let mut resource = Resource::new(kind, name);
    resource.body.insert("spec".to_owned(), spec);
    resource
}

/// As an agent creates its records.
async fn create(store: &dyn Store, mut record: Resource) {
    record.metadata.uid = Some("6d0c7f3e-53a4-4b0f-9f0d-5b1d5f7c2a11".to_owned());
    record.metadata.creation_timestamp = Some("2026-08-22T06:33:20Z".to_owned());
    record.fill_defaults();
    let created = store.create(record.key(), record.encode()).await;
    created.unwrap_or_else(|error| panic!("{}: {error}", record.key()));
}

/// What the first agent of a cluster creates.
async fn bootstrap(store: &dyn Store, pool: Value) {
    let mut information = new_cluster_information(GUID);
    information.spec_mut().insert("clusterType".to_owned(), "k8s,kdd".into());
    let felix = json!({ "reportingInterval": "0s", "logSeverityScreen": "Info" });
    let others = [
        information,
        resource(Kind::FelixConfiguration, "default", felix),
        resource(Kind::BgpConfiguration, "default", json!({})),
        resource(Kind::IpPool, "default-ipv4-ippool", pool),
    ];
    for record in basic_tiers().into_iter().chain(others) {
        create(store, record).await;
    }
    store.create(Key::IpamConfig, IpamConfig::default().encode()).await.unwrap();
}

/// What an operator or an earlier release left out, an agent adds once.
async fn completes_the_clusters_record(cluster: &Cluster, agents: &Agents) {
    let admin = cluster.store("admin", testkit::kube::ADMIN_TOKEN).await;
    create(&*admin, resource(Kind::ClusterInformation, "default", json!({ "clusterType": "k8s" }))).await;
    let key = Key::cluster(Kind::ClusterInformation, "default");
    if cluster.layout == Layout::V1 {
        // As Calico writes it.
        let kept = json!({ "uid": "6d0c7f3e-53a4-4b0f-9f0d-5b1d5f7c2a11", "creationTimestamp": "2026-08-22T06:33:20Z" });
        let path = format!("{}/default", cluster.collection(key.kind()));
        annotate(cluster, &path, json!({ "projectcalico.org/metadata": kept.to_string() }), json!({}));
    }
    let record = agents.a.get(&key).await.unwrap().unwrap();
    let mut information = Resource::decode(&key, key.kind(), &record.value, "").unwrap();
    let complete = |information: &mut Resource, cluster_type: &str| {
        complete_cluster_information(information, || GUID.to_owned());
        information.spec_mut().insert("clusterType".to_owned(), cluster_type.into());
    };
    complete(&mut information, "k8s,kdd");
    let revision = agents.a.update(key.clone(), information.encode(), record.revision).await.unwrap();
    complete(&mut information, "k8s,kdd,kdd");
    let refused = agents.a.update(key.clone(), information.encode(), revision.clone()).await;
    assert!(refused.unwrap_err().to_string().contains("plumb-node-records"));
    admin.delete(key, revision).await.unwrap();
}

/// Somebody else's metadata on an object.
fn annotate(cluster: &Cluster, path: &str, annotations: Value, labels: Value) {
    let change = json!({ "metadata": { "annotations": annotations, "labels": labels } });
    let answer = cluster.api().patch("merge", path, &change).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Nor may an agent create it as it should not be.
fn cannot_create_a_locked_cluster(cluster: &Cluster) {
    let api = cluster.server.api_as(&cluster.token("node-a"));
    let key = Key::cluster(Kind::ClusterInformation, "default");
    for (field, value) in [
        ("datastoreReady", json!(false)),
        ("clusterGUID", json!("0123")),
        ("clusterType", json!("k8s")),
        ("calicoVersion", json!("v9")),
    ] {
        let mut spec = json!({ "clusterGUID": GUID, "clusterType": "kdd", "datastoreReady": true });
        spec[field] = value;
        let act = cluster.creation(field, &key, json!({ "spec": spec }).to_string().as_bytes());
        let answer = act.try_out(&api);
        let is_refused = answer.status == 403 && answer.text.contains("a new record has the settings");
        assert!(is_refused, "{field}: {} {}", answer.status, answer.text);
    }
}

fn owner(handle: &str, node: &str) -> Owner {
    Owner::on_node(handle, node, Timestamp::now()).of_pod("blue", "web", None)
}

fn request(handle: &str, node: &str) -> AssignRequest {
    AssignRequest::new(node, owner(handle, node), &[IpVersion::V4])
}

/// The block that one address for a new owner came from.
async fn assign(book: &Book, handle: &str, node: &str) -> Cidr {
    let grant = book.assign(request(handle, node)).await;
    grant.unwrap_or_else(|error| panic!("{handle} on {node}: {error:?}")).addresses[0].block
}

/// A book whose clock is an hour behind: what it claims, others may take over.
fn an_hour_ago(store: &Arc<dyn Store>) -> Book {
    let clock = || Timestamp::now() - jiff::SignedDuration::from_hours(1);
    Book::with_settings(Arc::clone(store), Settings { clock: Arc::new(clock), ..Settings::default() })
}

async fn release(book: &Book, handle: &str) {
    let released = book.release_handle(HandleRequest::all(handle)).await.unwrap();
    assert_eq!(released.addresses.len(), 1, "{handle}");
}

async fn block(store: &dyn Store, cidr: Cidr) -> Option<Block> {
    let record = store.get(&Key::Block(cidr)).await.unwrap()?;
    Some(Block::decode(&cidr, &record.value).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_can_do_its_work_with_the_shipped_role() {
    let test = "an_agent_can_do_its_work_with_the_shipped_role";
    for layout in LAYOUTS {
        let Some(cluster) = Cluster::start(test, layout) else { return };
        let agents = Agents::start(&cluster).await;
        cannot_create_a_locked_cluster(&cluster);
        completes_the_clusters_record(&cluster, &agents).await;
        let pool = |cidr: &str, size: u8| {
            json!({ "cidr": cidr, "blockSize": size, "vxlanMode": "Always", "ipipMode": "Never", "natOutgoing": true,
                "disableBGPExport": false, "nodeSelector": "all()" })
        };
        bootstrap(&*agents.a, pool("10.64.0.0/28", 30)).await;
        let v6 = resource(Kind::IpPool, "default-ipv6-ippool", pool("fd00:64:0:0:8::/112", 122));
        create(&*agents.a, v6).await;
        reads_and_watches(&cluster, &agents).await;
        writes_node_and_pod(&agents).await;
        writes_status(&cluster, &agents).await;
        allocates_and_releases(&cluster, &agents).await;
        allocates_ipv6(&agents).await;
    }
}

async fn allocates_ipv6(agents: &Agents) {
    let a = Book::new(Arc::clone(&agents.a));
    let ask = AssignRequest::new("node-a", owner("net.a6", "node-a"), &[IpVersion::V6]);
    let from = a.assign(ask).await.unwrap().addresses[0].block;
    assert!(from.to_string().starts_with("fd00:64::8:"), "{from}");
    release(&a, "net.a6").await;
}

/// A block of 4096 addresses stays within what the API server spends on a policy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_block_is_not_too_large_for_the_policies() {
    let test = "the_largest_block_is_not_too_large_for_the_policies";
    let Some(cluster) = Cluster::start(test, LAYOUTS[0]) else { return };
    let agents = Agents::start(&cluster).await;
    let pool = json!({ "cidr": "10.64.0.0/20", "blockSize": 20, "nodeSelector": "all()" });
    bootstrap(&*agents.a, pool).await;
    let a = Book::new(Arc::clone(&agents.a));
    let first = assign(&a, "net.a1", "node-a").await;
    let admin = cluster.store("admin", testkit::kube::ADMIN_TOKEN).await;
    let record = admin.get(&Key::Block(first)).await.unwrap().unwrap();
    let mut full = Block::decode(&first, &record.value).unwrap();
    for number in 1..4000 {
        let owner = owner(&format!("net.b{number}"), "node-b");
        assert_eq!(ipam::take(&mut full, &owner, 1, &ipam::Reservations::default()).len(), 1);
    }
    ipam::count_write(&mut full);
    admin.update(record.key, full.encode(), record.revision).await.unwrap();
    assert_eq!(assign(&a, "net.a2", "node-a").await, first);
    release(&a, "net.a2").await;
}

/// Everything that an agent lists and follows.
async fn reads_and_watches(cluster: &Cluster, agents: &Agents) {
    let owner = AffinityOwner::Host("node-a".to_owned());
    // Of the profiles only namespaces: their annotations choose pools.
    let kinds = || READ_KINDS.into_iter().filter(|kind| *kind != Kind::Profile);
    let mut ranges: Vec<KeyRange> = kinds().map(KeyRange::Kind).collect();
    ranges.extend([
        KeyRange::NamePrefix { kind: Kind::Profile, namespace: None, prefix: "kns.".to_owned() },
        KeyRange::EndpointsOf("node-a".into()),
        KeyRange::Blocks(IpVersion::V4),
        KeyRange::AffinitiesOf(owner, IpVersion::V4),
        KeyRange::IpamConfig,
        KeyRange::Handles,
    ]);
    for range in ranges {
        agents.a.list_all(range.clone()).await.unwrap_or_else(|error| panic!("{range:?}: {error}"));
    }
    let api = cluster.server.api_as(&cluster.token("node-a"));
    let of_ipam = [Kind::IpamBlock, Kind::BlockAffinity, Kind::IpamConfiguration];
    for kind in kinds().chain(of_ipam) {
        let shown = shown_as(kind).iter().map(|shown| ("", shown.plural()));
        let kept = is_custom_resource(kind).then(|| (cluster.layout.group(), cluster.layout.plural(kind)));
        for (group, resource) in shown.chain(kept) {
            let asked = json!({ "verb": "watch", "group": group, "resource": resource });
            let review = json!({ "spec": { "resourceAttributes": asked } });
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            assert_eq!(api.create(path, &review).unwrap()["status"]["allowed"], true, "watching {resource}");
        }
    }
}

/// Its node's address, and an endpoint from ADD to DEL.
async fn writes_node_and_pod(agents: &Agents) {
    let key = Key::cluster(Kind::Node, "node-a");
    let record = agents.a.get(&key).await.unwrap().unwrap();
    let mut node = Resource::decode(&key, Kind::Node, &record.value, "").unwrap();
    node.spec_mut().insert("bgp".into(), json!({ "ipv4Address": "192.0.2.7/24", "asNumber": 64512 }));
    node.metadata.annotations.insert("plumbline.io/policies-not-enforced".into(), "2".into());
    agents.a.update(key, node.encode(), record.revision).await.unwrap();

    let key = Key::namespaced(Kind::WorkloadEndpoint, "blue", "node--a-k8s-web--node--a-eth0");
    let record = agents.a.get(&key).await.unwrap().unwrap();
    let mut endpoint = Resource::decode(&key, Kind::WorkloadEndpoint, &record.value, "").unwrap();
    for (field, value) in [
        ("ipNetworks", json!(["10.64.0.1/32"])),
        ("containerID", json!("c0ffee")),
        ("mac", json!("02:00:00:00:00:09")),
        ("interfaceName", json!("cali0123456789a")),
    ] {
        endpoint.spec_mut().insert(field.to_owned(), value);
    }
    let uid = endpoint.metadata.uid.clone().unwrap();
    let attach = Change {
        key: key.clone(),
        precondition: Precondition::Uid(uid),
        write: Write::Put(endpoint.encode().into()),
    };
    agents.a.commit(vec![attach]).await.unwrap();
    let record = agents.a.get(&key).await.unwrap().unwrap();
    let refused = agents.b.update(key.clone(), record.value.to_vec(), record.revision.clone()).await;
    assert!(refused.unwrap_err().to_string().contains("plumb-node-pods"));
    agents.a.delete(key, record.revision).await.unwrap();
}

/// A status that an operator has asked for.
async fn writes_status(cluster: &Cluster, agents: &Agents) {
    let admin = cluster.store("admin", testkit::kube::ADMIN_TOKEN).await;
    let asked = json!({ "node": "node-a", "classes": ["Agent"], "updatePeriodSeconds": 10 });
    let mut status = resource(Kind::CalicoNodeStatus, "of-a", asked);
    let revision = admin.create(status.key(), status.encode()).await.unwrap();
    status.body.insert("status".into(), json!({ "lastUpdated": "2026-01-01T00:00:00Z" }));
    agents.a.update(status.key(), status.encode(), revision).await.unwrap();
}

/// Of four blocks with four addresses each.
async fn allocates_and_releases(cluster: &Cluster, agents: &Agents) {
    let (a, b) = (Book::new(Arc::clone(&agents.a)), Book::new(Arc::clone(&agents.b)));
    let (_, from) = agents.b.list_all(KeyRange::Blocks(IpVersion::V4)).await.unwrap();
    let mut blocks = agents.b.watch(KeyRange::Blocks(IpVersion::V4), from).await.unwrap();
    let tunnel = a.ensure_tunnel_address("node-a", Tunnel::Vxlan).await.unwrap();
    assert!(tunnel.is_some());
    let seen = tokio::time::timeout(testkit::PATIENCE, blocks.next()).await.unwrap();
    assert!(matches!(seen, Some(Ok(Event::Put(_)))), "node-b learns of it: {seen:?}");
    let own = assign(&a, "net.a1", "node-a").await;
    let of_b = assign(&b, "net.b1", "node-b").await;
    assert_ne!(own, of_b);
    for handle in ["net.a2", "net.a3"] {
        assert_eq!(assign(&a, handle, "node-a").await, own);
    }
    // What others note on a block of a node stays, and an older Calico's note may go.
    let path = |kind, key: &Key| format!("{}/{}", cluster.collection(kind), place(key).unwrap().name);
    let notes = json!({ "projectcalico.org/metadata": "{}", "somebody.example/note": "stays" });
    annotate(cluster, &path(Kind::IpamBlock, &Key::Block(of_b)), notes.clone(), json!({ "a": "b" }));
    // It may have one block only, and borrows.
    let borrowed = AssignRequest { blocks_max: Some(1), ..request("net.a4", "node-a") };
    assert_eq!(a.assign(borrowed).await.unwrap().addresses[0].block, of_b);
    release(&a, "net.a4").await;

    // Blocks that node-b claimed an hour ago and no longer uses; then none is unclaimed.
    let earlier = an_hour_ago(&agents.b);
    let claim = earlier.claim_blocks("10.64.0.0/28".parse().unwrap(), AffinityOwner::Host("node-b".into()));
    let claimed = claim.await.unwrap().claimed;
    assert_eq!(claimed.len(), 3);
    for claimed in claimed {
        let key = Key::Affinity { owner: AffinityOwner::Host("node-b".into()), block: claimed };
        // Before v3.31 affinities had no labels.
        let labels = json!({ HOSTNAME_HASH_LABEL: null, "a": "b" });
        annotate(cluster, &path(Kind::BlockAffinity, &key), notes.clone(), labels);
    }
    let taken_over = assign(&a, "net.a5", "node-a").await;
    let node_a = AffinityOwner::Host("node-a".to_owned());
    assert_eq!(block(&*agents.a, taken_over).await.unwrap().owner(), Some(node_a.clone()));
    let stale = Key::Affinity { owner: AffinityOwner::Host("node-b".into()), block: taken_over };
    assert_eq!(agents.b.get(&stale).await.unwrap(), None, "node-b has lost it");
    release(&a, "net.a5").await;

    let rule = ReleaseRule { must_be_empty: true, sequence_number: None };
    let given_up = a.release_blocks(vec![(node_a, taken_over)], rule).await.unwrap();
    assert!(given_up.iter().all(|given_up| given_up.result.is_ok()), "{given_up:?}");
    assert_eq!(block(&*agents.a, taken_over).await, None);
    for handle in ["net.a1", "net.a2", "net.a3"] {
        release(&a, handle).await;
    }
    release(&b, "net.b1").await;
}

/// Released addresses cool down; whoever needs one later frees them, also in another node's block.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_cool_down_under_the_policies() {
    let test = "addresses_cool_down_under_the_policies";
    let Some(cluster) = Cluster::start(test, LAYOUTS[0]) else { return };
    let agents = Agents::start(&cluster).await;
    bootstrap(&*agents.a, json!({ "cidr": "10.64.0.0/30", "blockSize": 30, "nodeSelector": "all()" })).await;
    let admin = Book::new(cluster.store("admin", testkit::kube::ADMIN_TOKEN).await);
    admin.change_config(|config| config.ip_cooldown_seconds = 600).await.unwrap();
    let (a, b) = (Book::new(Arc::clone(&agents.a)), Book::new(Arc::clone(&agents.b)));
    let mut cidr = None;
    for number in 0..4 {
        cidr = Some(assign(&a, &format!("net.a{number}"), "node-a").await);
    }
    for number in 0..4 {
        release(&a, &format!("net.a{number}")).await;
    }
    let cooling = block(&*agents.a, cidr.unwrap()).await.unwrap();
    assert!((0..4).all(|offset| cooling.attribute(offset).is_some_and(ipam::is_cooling_down)), "{cooling:?}");
    assert!(b.assign(request("net.b1", "node-b")).await.is_err(), "nothing is free yet");
    admin.change_config(|config| config.ip_cooldown_seconds = 0).await.unwrap();
    assert_eq!(Some(assign(&b, "net.b1", "node-b").await), cidr);
}

/// Without the verb that plumb-node-reclaim grants, other nodes' empty blocks stay theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_reclaim_empty_blocks_stay() {
    let test = "without_the_right_to_reclaim_empty_blocks_stay";
    let Some(cluster) = Cluster::start(test, LAYOUTS[1]) else { return };
    cluster
        .api()
        .delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/plumb-node-reclaim")
        .unwrap();
    let agents = Agents::start(&cluster).await;
    bootstrap(&*agents.a, json!({ "cidr": "10.64.0.0/30", "blockSize": 30, "nodeSelector": "all()" })).await;
    let earlier = an_hour_ago(&agents.b);
    let whole = "10.64.0.0/30".parse().unwrap();
    earlier.claim_blocks(whole, AffinityOwner::Host("node-b".into())).await.unwrap();
    let a = Book::new(Arc::clone(&agents.a));
    let refused = a.assign(request("net.a1", "node-a")).await.unwrap_err();
    let said = format!("{refused:?}");
    assert!(said.contains("plumb-node-affinities") && said.contains("another node's"), "{said}");
    let kept = block(&*agents.a, whole).await.unwrap();
    assert_eq!(kept.owner(), Some(AffinityOwner::Host("node-b".into())));
}
