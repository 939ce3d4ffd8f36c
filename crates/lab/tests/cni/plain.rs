//! Containers that are no pods, and what holds for all.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use model::Kind;
use serde_json::{Value, json};
use testkit::process::wait_until;

use crate::place::{NETWORK, address, both, networks};

#[test]
fn a_container_is_recorded_in_its_networks_profile() {
    both("a_container_is_recorded_in_its_networks_profile", |place| {
        place.pool("pods", "10.244.0.0/24");
        let container = place.pod("x", "x");
        let mut call = place.plain("ADD", &container).with("mtu", 1440);
        call.netconf["args"] = json!({"org.apache.mesos": {"network_info": {"labels": {"labels": [
            {"key": "key/a", "value": "v:1"}, {"key": "projectcalico.org/namespace", "value": "shop"}]}}}});
        let answer = place.answer(&call);
        let address = address(&answer);
        let host = format!("cali{}", &container.container_id[..11]);
        let endpoint = place.container("shop", &container).unwrap();
        let mac = endpoint.spec("mac").unwrap().clone();
        let netns = container.netns().path().display().to_string();
        let expected = json!({
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": host}, {"name": "eth0", "mac": mac, "mtu": 1440, "sandbox": netns},
            ],
            "ips": [{"address": format!("{address}/32"), "interface": 1}],
            "routes": [{"dst": format!("{address}/26")}],
            "dns": {},
        });
        assert_eq!(answer, expected);
        assert_eq!(endpoint.spec("profiles"), Some(&json!([NETWORK])));
        assert_eq!(endpoint.metadata.labels["key.a"], "v-1");
        assert_eq!(endpoint.metadata.labels["projectcalico.org/namespace"], "shop");
        assert_eq!(endpoint.spec("interfaceName"), Some(&json!(host)));
        let profile = place.profile(NETWORK).unwrap();
        let only_its_own = json!([{"action": "Allow", "source": {"selector": format!("has({NETWORK})")}}]);
        assert_eq!(profile.spec("ingress"), Some(&only_its_own));
        assert_eq!(profile.spec("labelsToApply"), Some(&json!({NETWORK: ""})));
        // The DEL need not bring the labels.
        place.answer(&place.plain("DEL", &container));
        assert_eq!((place.books.endpoints().len(), place.books.handles().len()), (0, 0));
        assert!(place.profile(NETWORK).is_some(), "others may use it");
        // Without a policy type, a pod is in the network's profile, too.
        let pod = place.pod("shop", "web-0");
        place.answer(&place.of_pod("ADD", &pod).with("name", "net2"));
        assert_eq!(place.endpoint(&pod).unwrap().spec("profiles"), Some(&json!(["net2"])));
        assert_eq!(place.profile("net2").unwrap().spec("ingress"), Some(&json!([{"action": "Allow"}])));
        place.answer(&place.of_pod("DEL", &pod).with("name", "net2"));
        // Another policy type makes its own profile.
        place.answer(
            &place.plain("ADD", &container).with("name", "net3").with("policy", json!({"type": "x"})),
        );
        assert_eq!(place.profile("net3"), None);
        place.answer(&place.plain("DEL", &container).with("name", "net3"));
    });
}

#[test]
fn a_store_that_is_not_ready_gets_no_pods() {
    both("a_store_that_is_not_ready_gets_no_pods", |place| {
        place.pool("pods", "10.244.0.0/24");
        let host_local = json!({"type": "host-local", "subnet": "10.7.0.0/24",
            "dataDir": place.lab.folder().join("host-local")});
        let container = place.pod("x", "x");
        let ready = |spec: Value| place.books.put(Kind::ClusterInformation, "default", spec);
        for unready in [json!({"datastoreReady": false}), json!({"clusterGUID": "x"})] {
            ready(unready);
            let before = place.books.records();
            for add in [
                place.plain("ADD", &container),
                place.plain("ADD", &container).with("ipam", host_local.clone()),
            ] {
                assert!(place.error(&add).contains("locked for a migration"));
            }
            assert_eq!(place.books.records(), before);
            assert!(
                place.run(&place.plain("ADD", &container).flag("-t")).stdout.contains("data store")
                    || place.has_agent()
            );
        }
        ready(json!({"datastoreReady": true}));
        let answer = place.answer(&place.plain("ADD", &container));
        ready(json!({"datastoreReady": false}));
        let before = place.books.records();
        let strict = place.plain("DEL", &container).with("del_while_not_ready", "fail");
        assert!(place.error(&strict).contains("locked"));
        assert_eq!(place.books.records(), before);
        assert!(container.netns().ip(&["address"]).unwrap().contains(&address(&answer)));
        // Otherwise a DEL always ends; what it cannot do now is done later.
        place.answer(&place.plain("DEL", &container));
        assert_eq!(place.books.records(), before);
        let is_gone = || !container.netns().ip(&["address"]).unwrap().contains(&address(&answer));
        wait_until("the container's interface to be gone", is_gone).unwrap();
        ready(json!({"datastoreReady": true}));
        place.answer(&place.plain("DEL", &container));
        assert_eq!(place.books.endpoints(), [] as [String; 0]);
    });
}

#[test]
fn a_store_that_nobody_set_up_is_refused() {
    both("a_store_that_nobody_set_up_is_refused", |place| {
        place.pool("pods", "10.244.0.0/24");
        let key = model::Key::cluster(Kind::ClusterInformation, "default");
        place.books.with_store(async |store| {
            let record = store.get(&key).await.unwrap().unwrap();
            store.delete(record.key, record.revision).await.unwrap();
        });
        let container = place.pod("x", "x");
        assert!(place.error(&place.plain("ADD", &container)).contains("has no ClusterInformation(default)"));
        assert_eq!(place.books.handles(), [] as [String; 0]);
    });
}

#[test]
fn routes_are_marked_so_that_whoever_keeps_them_knows_them() {
    both("routes_are_marked_so_that_whoever_keeps_them_knows_them", |place| {
        place.pool("pods", "10.244.0.0/24");
        let container = place.pod("x", "x");
        let address = address(&place.answer(&place.plain("ADD", &container)));
        let show = |namespace: &lab::Namespace| namespace.ip(&["-d", "route", "show"]).unwrap();
        let protocol = if place.has_agent() { "proto 112" } else { "proto boot" };
        for routes in [show(place.node.namespace()), show(container.netns())] {
            let ours: Vec<&str> =
                routes.lines().filter(|line| line.contains("cali") || line.contains("eth0")).collect();
            assert!(ours.iter().all(|line| line.contains(protocol)), "{routes}");
        }
        assert!(show(place.node.namespace()).contains(&address));
        // The same again changes nothing, and CHECK finds nothing.
        let before = show(place.node.namespace());
        let answer = place.answer(&place.plain("ADD", &container));
        assert_eq!(show(place.node.namespace()), before);
        place.answer(&place.plain("CHECK", &container).with("prevResult", answer));
        place.answer(&place.plain("DEL", &container));
    });
}

#[test]
fn a_veth_that_leads_nowhere_makes_way_for_the_pods() {
    both("a_veth_that_leads_nowhere_makes_way_for_the_pods", |place| {
        place.pool("pods", "10.244.0.0/24");
        let pod = place.pod("shop", "web-0");
        let name = model::DeviceName::of_pod("cali", "shop", "web-0").unwrap();
        let node = place.node.namespace();
        node.ip(&["link", "add", name.as_str(), "type", "veth", "peer", "name", "left-over"]).unwrap();
        let answer = place.answer(&place.of_pod("ADD", &pod));
        assert_eq!(answer["interfaces"][0]["name"], name.as_str());
        assert!(node.ip(&["link", "show", "left-over"]).is_err());
        place.answer(&place.of_pod("DEL", &pod));
        // One that leads into a namespace may be somebody's.
        let other = place.pod("shop", "other");
        node.ip(&[
            "link",
            "add",
            name.as_str(),
            "type",
            "veth",
            "peer",
            "name",
            "theirs",
            "netns",
            other.netns().name(),
        ])
        .unwrap();
        let answer = place.answer(&place.of_pod("ADD", &pod));
        assert_ne!(answer["interfaces"][0]["name"], name.as_str());
        assert!(other.netns().ip(&["link", "show", "theirs"]).is_ok());
        place.answer(&place.of_pod("DEL", &pod));
    });
}

#[test]
fn the_plugin_can_be_tested() {
    both("the_plugin_can_be_tested", |place| {
        let container = place.pod("x", "x");
        for program in ["calico", "calico-ipam"] {
            let test = place.plain("", &container).by(program).flag("-t");
            let outcome = place.run(&test);
            assert!(outcome.success && outcome.stdout.is_empty(), "{}{}", outcome.stdout, outcome.stderr);
            let mut nowhere = test.with("etcd_endpoints", "http://127.0.0.1:1");
            if place.has_agent() {
                nowhere.netconf["agent_socket"] = "/nowhere/agent.sock".into();
            }
            let outcome = place.run(&nowhere);
            assert!(!outcome.success);
            let error: Value = serde_json::from_str(&outcome.stdout).unwrap();
            assert!(error["code"].is_u64() && !error["msg"].as_str().unwrap().is_empty(), "{error}");
            let version = place.run(&place.plain("", &container).by(program).flag("-v"));
            assert!(version.success && version.stdout.contains('.'), "{}", version.stdout);
        }
        if !place.has_agent() {
            let kubernetes = json!({"k8s_api_root": "https://127.0.0.1:1"});
            let test = place.plain("", &container).flag("-t").with("kubernetes", kubernetes);
            let outcome = place.run(&test);
            assert!(
                !outcome.success && outcome.stdout.contains("data store connection failed"),
                "{}",
                outcome.stdout
            );
        }
    });
}

#[test]
fn what_is_not_understood_is_refused_before_anything_is_done() {
    both("what_is_not_understood_is_refused_before_anything_is_done", |place| {
        place.pool("pods", "10.244.0.0/24");
        let container = place.pod("x", "x");
        let before = place.books.records();
        for (key, value, part) in [
            ("dataplane_options", json!({"type": "vpp"}), "not a known dataplane"),
            ("dataplane_options", json!({"type": "grpc"}), "name no socket"),
            ("device_type", json!("ipvlan"), "device_type"),
            ("readiness_gates", json!(["bogus"]), "not a URL"),
            ("feature_control", json!({"ip_addrs_no_ipam": true}), "is for pods"),
            ("policy_setup_timeout_seconds", json!(-1), "policy_setup_timeout_seconds"),
            ("ipam", json!({"type": "calico-ipam", "ipv4_pools": ["nowhere"]}), "nowhere"),
        ] {
            let error = place.error(&place.plain("ADD", &container).with(key, value));
            assert!(error.contains(part), "{key}: {error}");
            assert_eq!(place.books.records(), before);
        }
        assert_eq!(container.netns().ip(&["-br", "link"]).unwrap().lines().count(), 1);
    });
}

#[test]
fn an_add_waits_until_the_gates_are_open() {
    both("an_add_waits_until_the_gates_are_open", |place| {
        place.pool("pods", "10.244.0.0/24");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gate = format!("http://{}/ready", listener.local_addr().unwrap());
        let porter = std::thread::spawn(move || {
            for status in ["503 Service Unavailable", "200 OK"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let read = stream.read(&mut request).unwrap();
                assert!(request[..read].starts_with(b"GET /ready HTTP/1.1\r\n"));
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
        });
        let container = place.pod("x", "x");
        let answer = place.answer(&place.plain("ADD", &container).with("readiness_gates", json!([gate])));
        assert_eq!(networks(&answer).len(), 1);
        porter.join().unwrap();
        place.answer(&place.plain("DEL", &container).with("readiness_gates", json!([gate])));
    });
}
