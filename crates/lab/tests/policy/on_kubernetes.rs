//! Kubernetes' own policies, pods with their labels, and namespaces, as its API server has them.

use lab::cluster::{Mode, Plan, StoreKind, Topology};
use serde_json::{Value, json};

use crate::calico::manifest;
use crate::scene::plan;
use crate::town::{Port, Town, Way};

fn on_kubernetes() -> Plan {
    Plan { store: StoreKind::Kubernetes, ..plan(2, Mode::Vxlan, Topology::Shared, true) }
}

const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies";

fn create(town: &Town, name: &str, spec: Value) {
    let policy = json!({"metadata": {"name": name}, "spec": spec});
    let answer = town.scene.lab.with_api(|api| api.request("POST", POLICIES, Some(&policy))).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text);
}

fn delete(town: &Town, name: &str) {
    let path = format!("{POLICIES}/{name}");
    let answer = town.scene.lab.with_api(|api| api.request("DELETE", &path, None)).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
}

fn label(town: &Town, path: &str, labels: Value) {
    let patch = json!({"metadata": {"labels": labels}});
    let answer = town.scene.lab.with_api(|api| api.patch("merge", path, &patch)).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[test]
fn policies_of_kubernetes_decide() {
    let test = "policies_of_kubernetes_decide";
    if let Some(reason) = lab::missing_for_cluster(StoreKind::Kubernetes, None) {
        return testkit::skip(test, &reason);
    }
    let Some(town) = Town::new(test, on_kubernetes) else { return };
    town.assert_open("without policies", |_| true);
    for (pod, app) in [("web/pods/a", "web"), ("shop/pods/b", "db"), ("shop/pods/c", "cache")] {
        label(&town, &format!("/api/v1/namespaces/{pod}"), json!({"app": app}));
    }

    create(&town, "deny", json!({"podSelector": {}}));
    town.assert_open("default deny", |way| !way.to.starts_with("shop/"));

    let web = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}},
        "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}});
    let ports = json!([{"protocol": "TCP", "port": 80}]);
    create(
        &town,
        "web",
        json!({"podSelector": {"matchLabels": {"app": "db"}}, "ingress": [{"from": [web], "ports": ports}]}),
    );
    let by_label = |way: &Way| {
        !way.to.starts_with("shop/") || way.from == "web/a" && way.to == "shop/b" && way.port == Port::Tcp(80)
    };
    town.assert_open("one port of one pod", by_label);

    label(&town, "/api/v1/namespaces/shop/pods/c", json!({"app": "db"}));
    town.assert_open("a pod is labelled", |way| {
        !way.to.starts_with("shop/") || way.from == "web/a" && way.port == Port::Tcp(80)
    });
    label(&town, "/api/v1/namespaces/shop/pods/c", json!({"app": "cache"}));

    // Both families, and all but one address.
    let blocks = json!([
        {"ipBlock": {"cidr": "0.0.0.0/0", "except": [format!("{}/32", town.addresses("web/a")[0])]}},
        {"ipBlock": {"cidr": "::/0"}},
    ]);
    create(
        &town,
        "blocks",
        json!({"podSelector": {"matchLabels": {"app": "cache"}}, "ingress": [{"from": blocks}]}),
    );
    town.assert_open("blocks of addresses", |way| {
        by_label(way) || way.to == "shop/c" && (way.from != "web/a" || way.is_ipv6())
    });

    // A tier before all of them.
    town.scene.apply(&manifest("Tier", "first", json!({"order": 1, "defaultAction": "Pass"})));
    let rule = json!({"action": "Allow", "source": {"selector": "app == 'web'"}});
    let spec = json!({"tier": "first", "selector": "app == 'db'", "types": ["Ingress"], "ingress": [rule]});
    town.scene.apply(&manifest("GlobalNetworkPolicy", "first.web", spec));
    town.assert_open("a tier allows before", |way| {
        by_label(way)
            || way.from == "web/a" && way.to == "shop/b"
            || way.to == "shop/c" && (way.from != "web/a" || way.is_ipv6())
    });
    town.scene.lab.plumb(&["delete", "gnp", "first.web"]).unwrap();
    for name in ["deny", "web", "blocks"] {
        delete(&town, name);
    }
    town.assert_open("everything is deleted", |_| true);
    create(
        &town,
        "no-way-out",
        json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": [{"podSelector": {}}]}]}),
    );
    town.assert_open("egress", |way| !way.from.starts_with("shop/") || way.to.starts_with("shop/"));
}
