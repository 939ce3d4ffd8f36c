//! Records in Kubernetes: endpoints are pods, and nodes are nodes.

use model::Kind;
use serde_json::json;

use crate::common::DelOutcome as _;
use crate::common::kubernetes::{install, layout};
use crate::on_kubernetes::{OnKubernetes, noted, on_bare_kubernetes, on_kubernetes};
use crate::running::wait_until;
use crate::store_down::assert_reported;

fn cluster_type(place: &OnKubernetes<'_>) -> String {
    let path = format!("/apis/{}/clusterinformations/default", layout().api_version());
    place.api().read(&path).unwrap()["spec"]["clusterType"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn an_agent_waits_for_definitions_and_for_its_node() {
    on_bare_kubernetes("an_agent_waits_for_definitions_and_for_its_node", |place| {
        let bench = place.bench;
        let mut agent =
            place.start_agent(&[("IP", ""), ("NO_DEFAULT_POOLS", ""), ("CLUSTER_TYPE", "k8s,bgp")]);
        wait_until(|| bench.socket().exists(), || agent.log());
        let says = |words: &str| bench.page("readiness").contains(words);
        wait_until(
            || says("plumb install --crds"),
            || format!("{}\n{}", bench.page("readiness"), agent.log()),
        );
        install(&place.api());
        wait_until(
            || says("Kubernetes has no Node node-a yet"),
            || format!("{}\n{}", bench.page("readiness"), agent.log()),
        );
        assert_eq!(agent.log().matches("Kubernetes has no Node node-a yet").count(), 1, "{}", agent.log());
        assert!(agent.is_running());
        place.register_node();
        bench.wait_until_ready(&agent);
        assert_eq!(cluster_type(&place), "k8s,bgp,kdd");
        let felix = format!("/apis/{}/felixconfigurations", layout().api_version());
        let listed = place.api().read(&felix).unwrap();
        assert_eq!(listed["items"].as_array().unwrap().len(), 1, "none for the node: {listed}");
        agent.stop();
    });
}

#[test]
fn a_pod_gets_its_network_and_gives_it_back() {
    on_kubernetes("a_pod_gets_its_network_and_gives_it_back", |place| {
        let (agent, bench) = (place.agent(&[]), place.bench);
        place.namespace("shop", json!({}));
        let uid = place.schedule("shop", "web-0", json!({"own": "stays"}));
        let pod = bench.pod("shop", "web-0");
        let address = place.add(&pod, &uid).address().unwrap();
        assert!(pod.netns().can_ping(bench.node.address()).unwrap());
        let recorded = place.read_pod("shop", "web-0");
        assert_eq!(noted(&recorded, "podIP"), format!("{address}/32"));
        assert_eq!(noted(&recorded, "containerID"), pod.container_id);
        assert_eq!(recorded["metadata"]["annotations"]["own"], "stays");
        let again = place.add(&pod, &uid).address().unwrap();
        assert_eq!(again, address, "{}", agent.log());
        assert!(agent.log().contains("/agent.kubeconfig"), "it is not the administrator: {}", agent.log());
        place
            .call("CHECK", &pod, &uid)
            .with_netconf("prevResult", place.add(&pod, &uid).result().unwrap())
            .run(&bench.node)
            .unwrap()
            .result_of_del();
        place.del(&pod, &uid).result_of_del();
        let recorded = place.read_pod("shop", "web-0");
        assert_eq!(noted(&recorded, "podIP"), "");
        assert_eq!(noted(&recorded, "containerID"), pod.container_id, "as Calico leaves it");
        assert_eq!(place.books.handles(), [] as [String; 0]);

        // The next sandbox of the same pod, whose pod goes before its DEL.
        let next = bench.pod("shop", "web-0");
        place.add(&next, &uid).result().unwrap();
        assert_eq!(noted(&place.read_pod("shop", "web-0"), "containerID"), next.container_id);
        place.delete_pod("shop", "web-0");
        place.del(&next, &uid).result_of_del();
        place.del(&next, &uid).result_of_del();
        assert_eq!(place.books.handles(), [] as [String; 0]);
        agent.stop();
    });
}

/// The runtime's DEL of the old sandbox comes when a new pod of the same name runs.
#[test]
fn a_late_del_leaves_a_pod_alone_that_was_created_again() {
    on_kubernetes("a_late_del_leaves_a_pod_alone_that_was_created_again", |place| {
        let (agent, bench) = (place.agent(&[]), place.bench);
        place.namespace("shop", json!({}));
        let old_uid = place.schedule("shop", "web-0", json!({}));
        let old = bench.pod("shop", "web-0");
        place.add(&old, &old_uid).result().unwrap();
        place.delete_pod("shop", "web-0");
        let uid = place.schedule("shop", "web-0", json!({}));
        assert_ne!(uid, old_uid);
        let pod = bench.pod("shop", "web-0");
        let address = place.add(&pod, &uid).address().unwrap();
        let before = place.read_pod("shop", "web-0");
        for _ in 0..2 {
            place.del(&old, &old_uid).result_of_del();
        }
        assert_eq!(place.read_pod("shop", "web-0"), before, "not even its revision changed");
        assert_eq!(place.books.allocations().into_values().collect::<Vec<_>>(), [address]);
        assert!(pod.netns().can_ping(bench.node.address()).unwrap());

        // A late ADD of the old sandbox gets nothing.
        let (code, message) = place.add(&old, &old_uid).error().unwrap();
        assert!(message.contains(&uid) && message.contains(&old_uid), "{code}: {message}");
        assert_eq!(place.books.allocations().into_values().collect::<Vec<_>>(), [address]);
        assert_eq!(place.read_pod("shop", "web-0"), before);
        place.del(&pod, &uid).result_of_del();
        assert_eq!(place.books.handles(), [] as [String; 0]);
        agent.stop();
    });
}

#[test]
fn a_pod_that_kubernetes_does_not_have_gets_nothing() {
    on_kubernetes("a_pod_that_kubernetes_does_not_have_gets_nothing", |place| {
        let (agent, bench) = (place.agent(&[]), place.bench);
        place.namespace("shop", json!({}));
        let pod = bench.pod("shop", "nobody");
        let (code, message) = place.add(&pod, "u-1").error().unwrap();
        assert!(code == 4 && message.contains("shop/nobody (UID u-1)"), "{code}: {message}");
        assert_eq!(place.books.handles(), [] as [String; 0]);
        agent.stop();
    });
}

/// Names of annotations as people write them.
fn asks(name: &str, value: &str) -> serde_json::Value {
    json!({format!("cni.projectcalico.org/{name}"): value})
}

#[test]
fn annotations_of_pods_and_namespaces_count() {
    on_kubernetes("annotations_of_pods_and_namespaces_count", |place| {
        for (name, cidr) in [("blue", "10.1.0.0/24"), ("green", "10.2.0.0/24")] {
            place.books.put(Kind::IpPool, name, json!({"cidr": cidr, "nodeSelector": "all()"}));
        }
        let (agent, bench) = (place.agent(&[]), place.bench);
        place.namespace("plain", json!({}));
        place.namespace("blue", asks("ipv4pools", "[\"blue\"]"));
        let add = |namespace: &str, name: &str, annotations| {
            let uid = place.schedule(namespace, name, annotations);
            let pod = bench.pod(namespace, name);
            let outcome = place.add(&pod, &uid);
            (pod, uid, outcome)
        };
        let address = |namespace: &str, name: &str, annotations| {
            add(namespace, name, annotations).2.address().unwrap().to_string()
        };
        assert!(address("blue", "inherits", json!({})).starts_with("10.1.0."), "{}", agent.log());
        let own = address("blue", "own", asks("ipv4pools", "[\"10.2.0.0/24\"]"));
        assert!(own.starts_with("10.2.0."), "{own}");
        assert_eq!(address("plain", "fixed", asks("ipAddrs", "[\"10.2.0.77\"]")), "10.2.0.77");
        let (pod, ..) = add("plain", "mac", asks("hwAddr", "02:00:00:00:00:42"));
        assert!(pod.netns().ip(&["link", "show", "eth0"]).unwrap().contains("02:00:00:00:00:42"));
        let (_, _, refused) = add("plain", "floating", asks("floatingIPs", "[\"192.0.2.9\"]"));
        assert!(refused.error().unwrap().1.contains("cni.projectcalico.org/floatingIPs"));
        let (pod, uid, refused) = add("plain", "brings-its-own", asks("ipAddrsNoIpam", "[\"10.9.9.9\"]"));
        assert!(refused.error().unwrap().1.contains("ipAddrsNoIpam"));
        let allowed = json!({"ip_addrs_no_ipam": true});
        let call = place.call("ADD", &pod, &uid).with_netconf("feature_control", allowed.clone());
        let result = call.run(&bench.node).unwrap();
        assert_eq!(result.address().unwrap().to_string(), "10.9.9.9");
        let check = place.call("CHECK", &pod, &uid).with_netconf("feature_control", allowed);
        check.with_netconf("prevResult", result.result().unwrap()).run(&bench.node).unwrap().result_of_del();
        place.del(&pod, &uid).result_of_del();
        assert_eq!(noted(&place.read_pod("plain", "brings-its-own"), "podIP"), "");
        // A change of a namespace counts for the next pod.
        let path = "/api/v1/namespaces/blue";
        let mut namespace = place.api().read(path).unwrap();
        namespace["metadata"]["annotations"] = asks("ipv4pools", "[\"green\"]");
        place.api().replace(path, &namespace).unwrap();
        let mut number = 0;
        let is_followed = || {
            number += 1;
            address("blue", &format!("later-{number}"), json!({})).starts_with("10.2.0.")
        };
        wait_until(is_followed, || agent.log());
        agent.stop();
    });
}

/// Nobody calls DEL: the kernel and Kubernetes say that a sandbox is gone. There is no runtime to ask here.
#[test]
fn a_sandbox_is_collected_once_its_pod_is_gone_and_only_once() {
    on_kubernetes("a_sandbox_is_collected_once_its_pod_is_gone_and_only_once", |place| {
        let (agent, bench) = (place.agent(&[("PLUMB_GRACE", "500ms")]), place.bench);
        place.namespace("shop", json!({}));
        let add = |name: &str| {
            let uid = place.schedule("shop", name, json!({}));
            let pod = bench.pod("shop", name);
            let address = place.add(&pod, &uid).address().unwrap();
            (pod, uid, address)
        };
        let (kept, kept_uid, address) = add("kept");
        let (gone, ..) = add("gone");
        kept.netns().delete().unwrap();
        gone.netns().delete().unwrap();
        place.delete_pod("shop", "gone");
        wait_until(|| place.books.handles().len() == 1, || agent.log());
        assert_eq!(bench.metric("collected_total"), 1, "{}", agent.log());
        let recorded = place.read_pod("shop", "kept");
        assert_eq!(noted(&recorded, "podIP"), format!("{address}/32"), "its pod vouches for it");

        // A pod whose sandbox was given back is no leftover: nothing is removed again and again.
        place.del(&kept, &kept_uid).result_of_del();
        let (other, ..) = add("other");
        other.netns().delete().unwrap();
        place.delete_pod("shop", "other");
        wait_until(|| place.books.handles().is_empty(), || agent.log());
        wait_until(|| bench.metric("collected_total") == 2, || agent.log());
        let recorded = place.read_pod("shop", "kept");
        let revision = &recorded["metadata"]["resourceVersion"];
        let (last, ..) = add("last");
        last.netns().delete().unwrap();
        place.delete_pod("shop", "last");
        wait_until(|| bench.metric("collected_total") == 3, || agent.log());
        assert_eq!(&place.read_pod("shop", "kept")["metadata"]["resourceVersion"], revision);
        agent.stop();
    });
}

/// The API server goes away while pods come and go.
#[test]
fn an_outage_of_the_api_server_queues_dels_and_refuses_adds() {
    on_kubernetes("an_outage_of_the_api_server_queues_dels_and_refuses_adds", |mut place| {
        let (agent, bench) = (place.agent(&[]), place.bench);
        place.namespace("shop", json!({}));
        let names = ["a", "b", "c", "d"];
        let uids = names.map(|name| place.schedule("shop", name, json!({})));
        let pods = names.map(|name| bench.pod("shop", name));
        for (pod, uid) in pods.iter().zip(&uids).take(3) {
            place.add(pod, uid).result().unwrap();
        }
        place.cluster.server.kill();
        place.del(&pods[0], &uids[0]).result_of_del();
        let (code, message) = place.add(&pods[3], &uids[3]).error().unwrap();
        assert_eq!(code, 11, "{message}");
        place.del(&pods[1], &uids[1]).result_of_del();
        let not_ready = || bench.page("readiness");
        let kubeconfig = place.cluster.kubeconfig.display().to_string();
        let settings = [("DATASTORE_TYPE", "kubernetes"), ("KUBECONFIG", kubeconfig.as_str())];
        assert_reported(bench, &agent, &settings, "");
        assert!(pods[2].netns().can_ping(bench.node.address()).unwrap(), "who runs is not disturbed");
        place.cluster.server.restart().unwrap();
        wait_until(|| place.books.handles().len() == 1, || agent.log());
        bench.wait_until_ready(&agent);
        wait_until(|| not_ready().starts_with("HTTP/1.1 200"), not_ready);
        let address = place.add(&pods[3], &uids[3]).address().unwrap();
        assert_eq!(noted(&place.read_pod("shop", "d"), "podIP"), format!("{address}/32"));
        for name in ["a", "b"] {
            assert_eq!(noted(&place.read_pod("shop", name), "podIP"), "", "{name}");
        }
        for number in [2, 3] {
            place.del(&pods[number], &uids[number]).result_of_del();
        }
        assert_eq!(place.books.handles(), [] as [String; 0]);
        agent.stop();
    });
}

/// Without an agent: the plugin finds the API server in the network configuration.
#[test]
fn a_single_call_finds_the_api_server_in_its_configuration() {
    on_kubernetes("a_single_call_finds_the_api_server_in_its_configuration", |place| {
        let bench = place.bench;
        place.namespace("shop", asks("ipv4pools", "[\"pods\"]"));
        let uid = place.schedule("shop", "web-0", json!({}));
        let pod = bench.pod("shop", "web-0");
        let call = |verb: &str| {
            let kubernetes =
                json!({"kubeconfig": place.cluster.kubeconfig, "k8s_api_root": place.cluster.server.url()});
            let mut call = place.call(verb, &pod, &uid).with_netconf("kubernetes", kubernetes);
            call = call.with_netconf("datastore_type", "kubernetes");
            for key in ["agent_socket", "sqlite_path"] {
                call.netconf.as_object_mut().unwrap().remove(key);
            }
            call.run(&bench.node).unwrap()
        };
        let address = call("ADD").address().unwrap();
        assert_eq!(noted(&place.read_pod("shop", "web-0"), "podIP"), format!("{address}/32"));
        assert!(pod.netns().can_ping(bench.node.address()).unwrap());
        call("DEL").result_of_del();
        call("DEL").result_of_del();
        assert_eq!(place.books.handles(), [] as [String; 0]);
        assert_eq!(noted(&place.read_pod("shop", "web-0"), "podIP"), "");
    });
}
