//! Calico's kinds, on a store without Kubernetes.

use lab::cluster::{Mode, Plan, StoreKind, Topology};
use model::{KeyRange, Kind, Resource};
use serde_json::{Value, json};

use crate::scene::plan;
use crate::town::{Port, Town, Way};

pub(crate) fn on_sqlite() -> Plan {
    Plan { store: StoreKind::Sqlite, ..plan(2, Mode::Vxlan, Topology::Shared, true) }
}

pub(crate) fn manifest(kind: &str, name: &str, spec: Value) -> String {
    json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": {"name": name}, "spec": spec})
        .to_string()
}

fn namespaced(kind: &str, name: &str, spec: Value) -> String {
    let metadata = json!({"name": name, "namespace": "shop"});
    json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": metadata, "spec": spec})
        .to_string()
}

/// What a cluster's own plugin would have copied from the pod: labels, and names of ports.
fn describe(town: &Town, pod: &str, labels: &[(&str, &str)], ports: Value) {
    let (namespace, name) = pod.split_once('/').unwrap();
    town.scene
        .lab
        .with_store(async |store| {
            let (records, _) =
                store.list_all(KeyRange::Namespace(Kind::WorkloadEndpoint, namespace.to_owned())).await?;
            for record in records {
                let kind = Kind::WorkloadEndpoint;
                let mut endpoint =
                    Resource::decode(&record.key, kind, &record.value, record.revision.as_str())?;
                if endpoint.spec("pod").and_then(Value::as_str) == Some(name) {
                    let labels =
                        labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
                    endpoint.metadata.labels.extend(labels);
                    endpoint.spec_mut().insert("ports".to_owned(), ports.clone());
                    store.update(record.key, endpoint.encode(), record.revision).await?;
                }
            }
            Ok(())
        })
        .unwrap();
}

fn delete(town: &Town, words: &[&str]) {
    let all = ["delete"].into_iter().chain(words.iter().copied()).collect::<Vec<_>>();
    town.scene.lab.plumb(&all).unwrap();
}

fn is_tcp_80(way: &Way) -> bool {
    way.port == Port::Tcp(80)
}

#[test]
fn policies_of_a_namespace_and_of_all_decide() {
    let Some(town) = Town::new("policies_of_a_namespace_and_of_all_decide", on_sqlite) else { return };
    town.assert_open("without policies", |_| true);

    let deny = json!({"selector": "projectcalico.org/namespace == 'shop'", "types": ["Ingress"]});
    town.scene.apply(&manifest("GlobalNetworkPolicy", "shut", deny));
    town.assert_open("nothing gets into the shop", |way| !way.to.starts_with("shop/"));

    let from_web = json!({"namespaceSelector": "projectcalico.org/name == 'web'"});
    let rule =
        json!({"action": "Allow", "protocol": "TCP", "source": from_web, "destination": {"ports": [80]}});
    town.scene.apply(&namespaced("NetworkPolicy", "allow", json!({"ingress": [rule]})));
    let by_web = |way: &Way| !way.to.starts_with("shop/") || way.from.starts_with("web/") && is_tcp_80(way);
    town.assert_open("one port for one namespace", by_web);

    // In the form in which Calico's controllers keep Kubernetes' own policies.
    let own = json!({"selector": "projectcalico.org/orchestrator == 'k8s'"});
    let spec = json!({
        "order": 1000.0, "types": ["Ingress"], "selector": "projectcalico.org/orchestrator == 'k8s'",
        "ingress": [{"action": "Allow", "source": own}],
    });
    town.scene.apply(&namespaced("NetworkPolicy", "allow-own", spec));
    town.assert_open("own namespace as well", |way| by_web(way) || way.from.starts_with("shop/"));

    for words in [&["gnp", "shut"][..], &["np", "-n", "shop", "allow"], &["np", "-n", "shop", "allow-own"]] {
        delete(&town, words);
    }
    town.assert_open("everything is deleted", |_| true);

    let egress = json!({
        "selector": "projectcalico.org/namespace == 'web'", "types": ["Egress"],
        "egress": [{"action": "Allow", "protocol": "UDP"}],
    });
    town.scene.apply(&manifest("GlobalNetworkPolicy", "only-udp-out", egress));
    town.assert_open("egress", |way| !way.from.starts_with("web/") || way.port == Port::Udp(80));
}

#[test]
fn tiers_nets_and_named_ports_decide() {
    let Some(town) = Town::new("tiers_nets_and_named_ports_decide", on_sqlite) else { return };
    let nets = |pod: &str| -> Vec<String> {
        town.addresses(pod)
            .iter()
            .map(|address| format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 }))
            .collect()
    };
    let tier = |name: &str, order: u32, action: &str| {
        manifest("Tier", name, json!({"order": order, "defaultAction": action}))
    };
    town.scene.apply(&tier("security", 10, "Pass"));
    let set = json!({"apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkSet",
        "metadata": {"name": "bad", "labels": {"bad": "yes"}}, "spec": {"nets": nets("web/a")}});
    town.scene.apply(&set.to_string());
    let spec = json!({
        "tier": "security", "order": 5, "selector": "projectcalico.org/namespace == 'shop'", "types": ["Ingress"],
        "ingress": [
            {"action": "Pass", "protocol": "UDP"},
            {"action": "Deny", "source": {"selector": "has(bad)"}},
            {"action": "Log"},
        ],
    });
    town.scene.apply(&manifest("GlobalNetworkPolicy", "security.bad", spec));
    let is_bad = |way: &Way| way.from == "web/a" && way.to.starts_with("shop/") && way.port != Port::Udp(80);
    town.assert_open("a tier denies, and passes the rest on", |way| !is_bad(way));

    // The later tier cannot take the denial back, and decides on what was passed to it.
    let spec = json!({"selector": "projectcalico.org/namespace == 'shop'", "types": ["Ingress"],
        "ingress": [{"action": "Allow", "protocol": "TCP"}]});
    town.scene.apply(&manifest("GlobalNetworkPolicy", "tcp", spec));
    town.assert_open("two tiers", |way| {
        !way.to.starts_with("shop/") || way.port != Port::Udp(80) && !is_bad(way)
    });
    delete(&town, &["gnp", "security.bad"]);
    delete(&town, &["gnp", "tcp"]);

    let port = |name: &str, port: u16| json!([{"name": name, "protocol": "TCP", "port": port}]);
    describe(&town, "shop/b", &[("app", "b")], port("http", 80));
    describe(&town, "shop/c", &[("app", "c")], port("http", 81));
    let spec = json!({"selector": "has(app)", "ingress": [
        {"action": "Allow", "protocol": "TCP", "destination": {"ports": ["http"]}, "source": {"nets": nets("web/a").iter().filter(|net| net.contains('.')).collect::<Vec<_>>()}},
        {"action": "Allow", "protocol": "TCP", "destination": {"ports": ["http"]}, "source": {"nets": nets("web/a").iter().filter(|net| net.contains(':')).collect::<Vec<_>>()}},
    ]});
    town.scene.apply(&namespaced("NetworkPolicy", "named", spec));
    town.assert_open("each pod has another number for the name", |way| match (way.from, way.to) {
        ("web/a", "shop/b") => way.port == Port::Tcp(80),
        ("web/a", "shop/c") => way.port == Port::Tcp(81),
        (_, to) => !to.starts_with("shop/"),
    });
}
