//! What a cluster cannot keep, and clusters that are not what they should be.

use model::kube::{Layout, definitions};
use model::{Key, Kind};
use serde_json::{Value, json};
use store::Change;

use super::cluster::{Cluster, town};
use super::{copy, records};
use crate::harness::runtime;
use crate::ipam::town::{Town, handle_key, handle_value};

/// Records that no cluster takes, and some that this one does not.
fn spoil(town: &Town) {
    let long = "x".repeat(254);
    let mut changes: Vec<Change> = ["with_underscore", "net.Twin", "net.twin", long.as_str()]
        .map(|id| Change::create(handle_key(id), handle_value("10.65.0.0/29", 1)))
        .to_vec();
    let resource =
        |key: Key, spec: Value| Change::create(key, json!({"metadata": {}, "spec": spec}).to_string());
    changes.extend([
        resource(Key::cluster(Kind::Node, "node-z"), json!({})),
        resource(Key::cluster(Kind::Profile, "mine"), json!({})),
        resource(Key::namespaced(Kind::NetworkSet, "nowhere", "s"), json!({"nets": []})),
        resource(super::cluster::endpoint("node-a", "gone"), json!({"ipNetworks": ["10.65.0.3/32"]})),
    ]);
    town.desk.write(changes);
}

const CODES: [&str; 6] =
    ["name-refused", "name-refused", "name-taken", "no-namespace", "no-node", "no-object-for-profile"];

#[test]
fn what_a_cluster_cannot_keep_is_listed_and_left_only_if_that_is_accepted() {
    let test = "what_a_cluster_cannot_keep_is_listed_and_left_only_if_that_is_accepted";
    let Some(cluster) = Cluster::start(test, Layout::V1) else { return };
    let town = town();
    spoil(&town);
    let refused = copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &[]);
    refused.refused(
        1,
        &[
            "IPAMHandle(with_underscore): Kubernetes refuses the name",
            "IPAMHandle(net.twin): in Kubernetes it would have the same name as IPAMHandle(net.Twin)",
            "Node(node-z): in Kubernetes a node is a Node, and the destination has no such Node",
            "NetworkSet(nowhere/s): the destination has no namespace \"nowhere\"",
            "6 records cannot be carried: nothing was copied",
            "--partial",
        ],
    );
    assert_eq!(
        cluster.count(Kind::ClusterInformation) + cluster.count(Kind::IpamHandle),
        0,
        "something was written"
    );

    let dry = copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &["--partial", "--dry-run"]);
    assert!(dry.succeeded().contains("Dry run: nothing was written"), "{dry:?}");
    assert_eq!(cluster.count(Kind::ClusterInformation) + cluster.count(Kind::IpamHandle), 0);

    let done = copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &["--partial", "-o", "json"]);
    let summary: Value = serde_json::from_str(done.succeeded()).unwrap();
    let left = summary["notCarried"].as_array().unwrap().iter().filter(|item| item["isLoss"] == true);
    let mut codes: Vec<&str> = left.map(|item| item["code"].as_str().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, CODES, "{summary}");
    assert_eq!(cluster.count(Kind::IpamHandle), 6, "one of the twins came along");
    assert_eq!(cluster.object(Kind::ClusterInformation, "default")["spec"]["datastoreReady"], true);
}

#[test]
fn a_cluster_without_definitions_is_named() {
    let test = "a_cluster_without_definitions_is_named";
    let Some(cluster) = Cluster::bare(test, Layout::V1, &[]) else { return };
    let town = town();
    copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &[])
        .refused(1, &["the cluster does not serve that kind"]);
}

#[test]
fn fields_that_an_old_definition_does_not_have_are_noticed_before_the_copy_is_used() {
    let test = "fields_that_an_old_definition_does_not_have_are_noticed_before_the_copy_is_used";
    let mut old = definitions(Layout::V1);
    old.retain(|definition| definition["spec"]["names"]["kind"] != "BGPFilter");
    for definition in old.iter_mut().filter(|definition| definition["spec"]["names"]["kind"] == "BGPPeer") {
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["spec"]["properties"].as_object_mut().unwrap().remove("asNumber").unwrap();
    }
    let Some(cluster) = Cluster::bare(test, Layout::V1, &old) else { return };
    cluster.populate();
    let town = town();
    let stopped = copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &[]);
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    for text in ["BGPPeer(rack): without spec.asNumber", "the destination stays locked", "--partial"] {
        assert!(stopped.stderr.contains(text), "{text:?} is not in {stopped:?}");
    }
    let own = cluster.object(Kind::ClusterInformation, "default");
    assert_eq!(own["spec"]["datastoreReady"], false);
    // With a kind that is not served at all, nothing begins.
    let filter = json!({"metadata": {"name": "f"}, "spec": {}});
    town.desk.write(vec![Change::create(Key::cluster(Kind::BgpFilter, "f"), filter.to_string())]);
    copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &[])
        .refused(1, &["BGPFilter(f): the destination has no CustomResourceDefinition for this kind"]);
    let done = copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &["--partial"]);
    assert!(done.succeeded().contains("not kept whole: BGPPeer(rack): without spec.asNumber"), "{done:?}");
    assert_eq!(cluster.object(Kind::ClusterInformation, "default")["spec"]["datastoreReady"], true);
}

#[test]
fn a_cluster_in_use_is_left_alone_and_unknown_fields_are_kept_where_the_definition_allows() {
    let test = "a_cluster_in_use_is_left_alone_and_unknown_fields_are_kept_where_the_definition_allows";
    let mut lenient = definitions(Layout::V3);
    for definition in lenient.iter_mut().filter(|definition| definition["spec"]["names"]["kind"] == "BGPPeer")
    {
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        schema["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"] = true.into();
    }
    let Some(cluster) = Cluster::bare(test, Layout::V3, &lenient) else { return };
    cluster.populate();
    let town = town();
    let later = json!({"deep": [1, {"a": null}], "number": 9007199254740993_i64});
    let peer = json!({"metadata": {"name": "new"}, "spec": {"peerIP": "172.30.0.9", "later": later}});
    town.desk.write(vec![Change::create(Key::cluster(Kind::BgpPeer, "new"), peer.to_string())]);
    let theirs = json!({"metadata": {"name": "theirs"}, "spec": {"cidr": "10.99.0.0/16"}});
    let store = cluster.store();
    runtime()
        .block_on(store.create(Key::cluster(Kind::IpPool, "theirs"), theirs.to_string().into_bytes()))
        .unwrap();
    let before = records(&store);
    copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &[])
        .refused(1, &["IPPool(theirs) does not exist in the source", "nothing was copied"]);
    assert_eq!(records(&store), before);
    copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &["--existing", "replace"]).succeeded();
    assert!(!records(&store).contains_key(&Key::cluster(Kind::IpPool, "theirs")));
    assert_eq!(cluster.object(Kind::BgpPeer, "new")["spec"]["later"], later);
}

#[test]
fn from_one_api_group_to_the_other_in_one_cluster() {
    let test = "from_one_api_group_to_the_other_in_one_cluster";
    let both = [definitions(Layout::V1), definitions(Layout::V3)].concat();
    let Some(mut cluster) = Cluster::bare(test, Layout::V1, &both) else { return };
    cluster.populate();
    let town = town();
    for (file, layout) in [("v1.cfg", Layout::V1), ("v3.cfg", Layout::V3)] {
        let (kubeconfig, group) = (cluster.kubeconfig.display(), layout.api_version());
        town.desk.file(file, format!("apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  datastoreType: kubernetes\n  kubeconfig: {kubeconfig}\n  calicoAPIGroup: {group}\n"));
    }
    let copy = |args: &[&str]| town.desk.plumb(&[&["datastore", "copy"], args].concat());
    copy(&["--from", "sqlite:plumb.db", "--to-config", "v1.cfg", "--keep-locked"]).succeeded();
    assert_eq!(cluster.count(Kind::IpamHandle), 5);
    copy(&["--from-config", "v1.cfg", "--to-config", "v3.cfg"]).succeeded();
    cluster.layout = Layout::V3;
    assert_eq!((cluster.count(Kind::IpamHandle), cluster.count(Kind::IpamBlock)), (5, 3));
    assert_eq!(cluster.object(Kind::ClusterInformation, "default")["spec"]["datastoreReady"], true);
}

#[test]
fn owners_and_finalizers_of_another_cluster_are_not_carried() {
    let test = "owners_and_finalizers_of_another_cluster_are_not_carried";
    let Some(cluster) = Cluster::start(test, Layout::V3) else { return };
    let town = town();
    let pool = Key::cluster(Kind::IpPool, "owned");
    let owner = json!({"apiVersion": "projectcalico.org/v3", "kind": "Tier", "name": "t", "uid": "01234567-89ab-4def-8123-456789abcdef"});
    let metadata = json!({"name": "owned", "ownerReferences": [owner], "finalizers": ["example.org/mine"]});
    let value = json!({"metadata": metadata, "spec": {"cidr": "10.66.0.0/24", "disabled": true}});
    town.desk.write(vec![Change::create(pool, value.to_string())]);
    let done = copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &[]);
    let told = done.succeeded();
    assert!(told.contains("changed: IPPool(owned): without its owner references (Tier t)"), "{told}");
    assert!(told.contains("changed: IPPool(owned): without its finalizers (example.org/mine)"), "{told}");
    let object = cluster.object(Kind::IpPool, "owned");
    assert_eq!(object["metadata"].get("ownerReferences"), None);
    assert_eq!(object["metadata"].get("finalizers"), None);
}

#[test]
fn one_cluster_under_two_names_is_not_copied_onto_itself() {
    let test = "one_cluster_under_two_names_is_not_copied_onto_itself";
    let Some(cluster) = Cluster::start(test, Layout::V1) else { return };
    let town = town();
    copy(&town.desk, "sqlite:plumb.db", &cluster.name(), &["--keep-locked"]).succeeded();
    let other = town.desk.folder.path().join("other.kubeconfig");
    std::fs::copy(&cluster.kubeconfig, &other).unwrap();
    let to = format!("kubernetes:{}", other.display());
    copy(&town.desk, &cluster.name(), &to, &[]).refused(2, &["at the same revision", "the same store"]);
    assert_eq!(cluster.object(Kind::ClusterInformation, "default")["spec"]["datastoreReady"], false);
}
