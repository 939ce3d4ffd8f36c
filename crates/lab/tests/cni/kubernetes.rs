//! Pods whose records are in etcd, and about which Kubernetes is asked.

use lab::Pod;
use model::Kind;
use serde_json::{Value, json};

use crate::place::{Call, Place, address, both_with_kubernetes, networks};

const CNI: &str = "cni.projectcalico.org/";

fn annotated(pairs: &[(&str, &str)]) -> Value {
    let pairs = pairs.iter().map(|(name, value)| (format!("{CNI}{name}"), Value::from(*value)));
    Value::Object(pairs.collect())
}

fn namespace(place: &Place<'_>, name: &str, annotations: Value) {
    let namespace = json!({"metadata": {"name": name, "annotations": annotations, "labels": {"team": "x"}}});
    place.api().create("/api/v1/namespaces", &namespace).unwrap();
}

/// A pod of this name in Kubernetes, and a sandbox for it.
fn pod(place: &Place<'_>, name: &str, annotations: Value) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "annotations": annotations, "labels": {"app": "web"}},
        "spec": {"nodeName": place.node.name(), "containers": [{"name": "c", "image": "i"}]},
    });
    place.api().create("/api/v1/namespaces/shop/pods", &pod).unwrap();
    place.pod("shop", name)
}

/// With the policy type that has the plugin ask Kubernetes.
fn call(place: &Place<'_>, verb: &str, pod: &Pod) -> Call {
    let kubeconfig = place.kube().kubeconfig().unwrap();
    let call = place.of_pod(verb, pod).with("policy", json!({"type": "k8s"}));
    call.with("kubernetes", json!({"kubeconfig": kubeconfig}))
}

fn gone(place: &Place<'_>, pod: &Pod) {
    place.answer(&call(place, "DEL", pod));
    assert_eq!(place.endpoint(pod), None);
    assert_eq!(place.books.handles(), [] as [String; 0]);
}

#[test]
fn an_endpoint_says_what_kubernetes_says_of_the_pod() {
    both_with_kubernetes("an_endpoint_says_what_kubernetes_says_of_the_pod", |place| {
        place.pool("pods", "10.244.0.0/16");
        namespace(place, "shop", json!({}));
        let web = json!({
            "metadata": {"generateName": "web-", "name": "web-0", "labels": {"app": "web"}},
            "spec": {"nodeName": place.node.name(), "serviceAccountName": "robot", "containers": [{
                "name": "c", "image": "i", "ports": [
                    {"name": "http", "containerPort": 8080, "hostPort": 80},
                    {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"name": "sig", "containerPort": 90, "protocol": "SCTP"},
                    {"containerPort": 9999}]}]},
        });
        place.api().create("/api/v1/namespaces/shop/pods", &web).unwrap();
        let web = place.pod("shop", "web-0");
        let answer = place.answer(&call(place, "ADD", &web));
        let endpoint = place.endpoint(&web).unwrap();
        let labels = &endpoint.metadata.labels;
        let expected = [
            ("app", "web"),
            ("projectcalico.org/namespace", "shop"),
            ("projectcalico.org/orchestrator", "k8s"),
            ("projectcalico.org/serviceaccount", "robot"),
        ];
        assert!(
            labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected),
            "{labels:?}"
        );
        assert_eq!(endpoint.metadata.extra["generateName"], "web-");
        let spec = |field: &str| endpoint.spec(field).cloned().unwrap_or_default();
        assert_eq!(spec("serviceAccountName"), "robot");
        assert_eq!(spec("profiles"), json!(["kns.shop", "ksa.shop.robot"]));
        let ports = json!([
            {"name": "http", "port": 8080, "protocol": "TCP", "hostPort": 80},
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "sig", "port": 90, "protocol": "SCTP"},
        ]);
        assert_eq!(spec("ports"), ports);
        assert_eq!(spec("ipNetworks"), json!([format!("{}/32", address(&answer))]));
        assert_eq!(spec("containerID"), web.container_id.as_str());
        // Kubernetes makes the profiles of its namespaces.
        assert_eq!(place.profile(crate::place::NETWORK), None);
        gone(place, &web);
        let missing = place.pod("shop", "missing");
        assert!(place.error(&call(place, "ADD", &missing)).contains("no pod shop/missing"));
    });
}

#[test]
fn what_pods_and_namespaces_ask_for_counts() {
    both_with_kubernetes("what_pods_and_namespaces_ask_for_counts", |place| {
        for (name, cidr) in [("one", "10.1.0.0/24"), ("two", "10.2.0.0/24"), ("three", "10.3.0.0/24")] {
            place.pool(name, cidr);
        }
        place.pool("six", "fd06::/120");
        namespace(place, "shop", annotated(&[("ipv4pools", "[\"two\"]")]));
        let of_namespace = pod(place, "of-namespace", json!({}));
        assert!(address(&place.answer(&call(place, "ADD", &of_namespace))).starts_with("10.2.0."));
        let own = annotated(&[
            ("ipv4pools", "[\"10.3.0.0/24\"]"),
            ("ipv6pools", "[\"six\"]"),
            ("ipFamilies", "[\"IPv4\",\"IPv6\"]"),
            ("hwAddr", "02:00:00:00:00:77"),
            ("allowedSourcePrefixes", "[\"10.9.9.9/16\"]"),
            ("floatingIPs", "[\"172.31.0.1\",\"fd31::1\"]"),
        ]);
        let own = pod(place, "own", own);
        let refused = place.error(&call(place, "ADD", &own));
        assert!(refused.contains("floatingIPs") && place.endpoint(&own).is_none(), "{refused}");
        let add = call(place, "ADD", &own).with("feature_control", json!({"floating_ips": true}));
        let answer = place.answer(&add);
        let endpoint = place.endpoint(&own).unwrap();
        let spec = |field: &str| endpoint.spec(field).cloned().unwrap_or_default();
        let given = networks(&answer);
        let [v4, v6] = [&given[0], &given[1]].map(|text| text.split('/').next().unwrap());
        assert!(v4.starts_with("10.3.0.") && v6.starts_with("fd06::"), "{answer}");
        assert_eq!(
            (&answer["interfaces"][1]["mac"], spec("mac")),
            (&json!("02:00:00:00:00:77"), json!("02:00:00:00:00:77"))
        );
        assert_eq!(spec("allowSpoofedSourcePrefixes"), json!(["10.9.0.0/16"]));
        let nats = json!([
            {"internalIP": v4, "externalIP": "172.31.0.1"}, {"internalIP": v6, "externalIP": "fd31::1"},
        ]);
        assert_eq!(spec("ipNATs"), nats);
        for pod in [&of_namespace, &own] {
            place.answer(&call(place, "DEL", pod));
        }
        assert_eq!(place.books.handles(), [] as [String; 0]);
        let bad = pod(place, "bad", annotated(&[("hwAddr", "no-mac")]));
        assert!(place.error(&call(place, "ADD", &bad)).contains("not a MAC address"));
    });
}

#[test]
fn pods_may_ask_for_addresses() {
    both_with_kubernetes("pods_may_ask_for_addresses", |place| {
        place.pool("pods", "10.244.0.0/24");
        namespace(place, "shop", json!({}));
        let asks = pod(place, "asks", annotated(&[("ipAddrs", "[\"10.244.0.77\"]")]));
        let answer = place.answer(&call(place, "ADD", &asks));
        assert_eq!(networks(&answer), ["10.244.0.77/32"]);
        assert_eq!(answer.get("routes"), None);
        let holder = format!("{}.{}", crate::place::NETWORK, asks.container_id);
        assert_eq!(place.books.allocations()[&holder].to_string(), "10.244.0.77");
        let host_local = json!({"type": "host-local", "subnet": "10.7.0.0/24"});
        let other = pod(place, "other", annotated(&[("ipAddrs", "[\"10.244.0.78\"]")]));
        assert!(
            place
                .error(&call(place, "ADD", &other).with("ipam", host_local))
                .contains("ipam.type is host-local")
        );
        gone(place, &asks);

        let without = pod(place, "without", annotated(&[("ipAddrsNoIpam", "[\"10.99.0.7\"]")]));
        assert!(place.error(&call(place, "ADD", &without)).contains("ipAddrsNoIpam"));
        let allowed = |verb: &str| {
            call(place, verb, &without).with("feature_control", json!({"ip_addrs_no_ipam": true}))
        };
        assert_eq!(networks(&place.answer(&allowed("ADD"))), ["10.99.0.7/32"]);
        assert_eq!(place.books.handles(), [] as [String; 0]);
        let route = place.node.namespace().ip(&["route", "show", "10.99.0.7"]).unwrap();
        assert!(route.contains("scope link"), "{route}");
        place.answer(&allowed("DEL"));
        assert_eq!(place.endpoint(&without), None);

        let both = [("ipAddrs", "[\"10.244.0.5\"]"), ("ipAddrsNoIpam", "[\"10.99.0.8\"]")];
        let both = pod(place, "both", annotated(&both));
        let add = call(place, "ADD", &both).with("feature_control", json!({"ip_addrs_no_ipam": true}));
        assert!(place.error(&add).contains("excludes"));
    });
}

#[test]
fn host_local_gives_addresses_of_the_nodes_networks() {
    both_with_kubernetes("host_local_gives_addresses_of_the_nodes_networks", |place| {
        namespace(place, "shop", json!({}));
        let node = json!({"metadata": {"name": "as-kubernetes-calls-it"},
            "spec": {"podCIDR": "10.5.0.0/24", "podCIDRs": ["10.5.0.0/24", "fd05::/112"]}});
        place.api().create("/api/v1/nodes", &node).unwrap();
        let folder = place.lab.folder().join("host-local");
        let with = |verb: &str, pod: &Pod, ipam: Value| {
            let mut ipam = ipam;
            ipam["type"] = "host-local".into();
            ipam["dataDir"] = folder.display().to_string().into();
            let kubeconfig = place.kube().kubeconfig().unwrap();
            let kubernetes = json!({"kubeconfig": kubeconfig, "node_name": "as-kubernetes-calls-it"});
            call(place, verb, pod).with("ipam", ipam).with("kubernetes", kubernetes)
        };
        let four = pod(place, "four", json!({}));
        let old_form = json!({"subnet": "usePodCidr"});
        let answer = place.answer(&with("ADD", &four, old_form.clone()));
        assert!(
            networks(&answer)[0].starts_with("10.5.0.") && networks(&answer)[0].ends_with("/32"),
            "{answer}"
        );
        assert!(four.netns().ip(&["route"]).unwrap().contains("default via 169.254.1.1"));
        assert!(four.netns().can_ping(place.node.address()).unwrap());
        place.answer(&with("DEL", &four, old_form.clone()));
        assert_eq!(place.endpoint(&four), None);
        // The address is free again: host-local counts on, and would run out of a small network otherwise.
        let left = std::fs::read_dir(folder.join(crate::place::NETWORK)).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(left.iter().all(|name| !name.starts_with("10.")), "{left:?}");

        let both = pod(place, "both", json!({}));
        let ranges = json!({"ranges": [[{"subnet": "usePodCidr"}], [{"subnet": "usePodCidrIPv6"}]],
            "routes": [{"dst": "10.9.0.0/16"}, {"dst": "fd09::/64"}]});
        let answer = place.answer(&with("ADD", &both, ranges.clone()));
        let [v4, v6] = [&networks(&answer)[0], &networks(&answer)[1]];
        assert!(v4.starts_with("10.5.0.") && v6.starts_with("fd05::"), "{answer}");
        assert_eq!(answer["routes"], json!([{"dst": "10.9.0.0/16"}, {"dst": "fd09::/64"}]));
        let routes = both.netns().ip(&["route"]).unwrap();
        assert!(routes.contains("10.9.0.0/16 via 169.254.1.1") && !routes.contains("default"), "{routes}");
        let routes = both.netns().ip(&["-6", "route"]).unwrap();
        assert!(routes.contains("fd09::/64 via fe80::") && !routes.contains("default"), "{routes}");
        place.answer(&with("DEL", &both, ranges.clone()));
        let more = place.answer(&with("ADD", &both, ranges.clone()).with("include_default_routes", true));
        assert_eq!(networks(&more).len(), 2);
        let routes = both.netns().ip(&["route"]).unwrap();
        assert!(routes.contains("10.9.0.0/16 via 169.254.1.1") && routes.contains("default via"), "{routes}");
        place.answer(&with("DEL", &both, ranges));

        let single = json!({"metadata": {"name": "single"}, "spec": {"podCIDR": "10.6.0.0/24", "podCIDRs": ["10.6.0.0/24"]}});
        place.api().create("/api/v1/nodes", &single).unwrap();
        let mut wrong = with("ADD", &four, json!({"subnet": "usePodCidrIPv6"}));
        wrong.netconf["kubernetes"]["node_name"] = "single".into();
        assert!(place.error(&wrong).contains("IPv6 pod network of node single"));
        // Not a pod: nobody knows which node Kubernetes would mean.
        let plain =
            place.plain("ADD", &four).with("ipam", json!({"type": "host-local", "subnet": "usePodCidr"}));
        assert!(place.error(&plain).contains("names no pod"));
        assert_eq!(place.books.endpoints(), [] as [String; 0]);
    });
}

#[test]
fn the_api_server_and_a_token_can_stand_in_the_configuration() {
    both_with_kubernetes("the_api_server_and_a_token_can_stand_in_the_configuration", |place| {
        place.pool("pods", "10.244.0.0/24");
        namespace(place, "shop", json!({}));
        let web = pod(place, "web-0", json!({}));
        let api = place.api();
        api.create("/api/v1/namespaces/shop/serviceaccounts", &json!({"metadata": {"name": "cni"}})).unwrap();
        let uid = api.read("/api/v1/namespaces/shop/pods/web-0").unwrap()["metadata"]["uid"].clone();
        assert!(uid.is_string());
        let token = api.create(
            "/api/v1/namespaces/shop/serviceaccounts/cni/token",
            &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}}),
        );
        let token = token.unwrap()["status"]["token"].as_str().unwrap().to_owned();
        let authority = place.kube().certificates().cert("ca");
        let with = |token: &str| {
            let policy =
                json!({"type": "k8s", "k8s_auth_token": token, "k8s_certificate_authority": authority});
            let kubernetes = json!({"k8s_api_root": place.kube().url()});
            place.of_pod("ADD", &web).with("policy", policy).with("kubernetes", kubernetes)
        };
        // The account has no rights yet.
        let refused = place.error(&with(&token));
        assert!(!refused.contains(&token), "a secret in an error: {refused}");
        let rights = "/apis/rbac.authorization.k8s.io/v1";
        api.create(
            &format!("{rights}/clusterroles"),
            &json!({"metadata": {"name": "cni"},
            "rules": [{"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["get"]}]}),
        )
        .unwrap();
        api.create(
            &format!("{rights}/clusterrolebindings"),
            &json!({"metadata": {"name": "cni"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cni"},
            "subjects": [{"kind": "ServiceAccount", "name": "cni", "namespace": "shop"}]}),
        )
        .unwrap();
        let mut last = String::new();
        let is_served = || {
            let outcome = place.run(&with(&token));
            last = outcome.stdout.clone();
            outcome.success
        };
        let waited = testkit::process::wait_until("the rights to count", is_served);
        assert!(waited.is_ok(), "{last}");
        assert_eq!(place.endpoint(&web).unwrap().metadata.labels["app"], "web");
        gone(place, &web);
        let nobody = place.of_pod("ADD", &web).with("policy", json!({"type": "k8s"}));
        assert!(place.error(&nobody).contains("names no API server"));
    });
}

#[test]
fn pools_may_be_for_some_namespaces_only() {
    both_with_kubernetes("pools_may_be_for_some_namespaces_only", |place| {
        place.books.put(
            Kind::IpPool,
            "theirs",
            json!({"cidr": "10.1.0.0/24", "namespaceSelector": "team == 'y'"}),
        );
        place.books.put(
            Kind::IpPool,
            "ours",
            json!({"cidr": "10.2.0.0/24", "namespaceSelector": "team == 'x'"}),
        );
        namespace(place, "shop", json!({}));
        let web = pod(place, "web-0", json!({}));
        assert!(address(&place.answer(&call(place, "ADD", &web))).starts_with("10.2.0."));
        gone(place, &web);
    });
}
