//! `calico-ipam`, called by Calico's plugin or by another.

use book::{Book, GivenRequest};
use ipam::Owner;
use model::HandleId;
use serde_json::json;
use store::etcd::EtcdConfig;
use store::{OpenMode, StoreConfig};

use crate::place::{NETWORK, Place, both, networks};

fn call(place: &Place<'_>, verb: &str, pod: &lab::Pod) -> crate::place::Call {
    place.plain(verb, pod).by("calico-ipam")
}

#[test]
fn the_answer_is_calicos() {
    both("the_answer_is_calicos", |place| {
        place.pool("four", "10.244.0.0/24");
        place.pool("six", "fd06::/112");
        let container = place.pod("x", "x");
        let ipam = json!({"type": "calico-ipam", "assign_ipv4": "true", "assign_ipv6": "true"});
        let answer = place.answer(&call(place, "ADD", &container).with("ipam", ipam));
        let [v4, v6] = [&networks(&answer)[0], &networks(&answer)[1]];
        assert!(v4.ends_with("/26") && v6.ends_with("/122"), "{answer}");
        let expected = json!({
            "cniVersion": "1.0.0", "ips": [{"address": v4}, {"address": v6}],
            "routes": [{"dst": v4}, {"dst": v6}], "dns": {},
        });
        assert_eq!(answer, expected);
        place.answer(&call(place, "DEL", &container));
        assert_eq!(place.books.handles(), [] as [String; 0]);
    });
}

#[test]
fn an_address_that_is_asked_for_is_given_once() {
    both("an_address_that_is_asked_for_is_given_once", |place| {
        place.pool("pods", "10.244.0.0/24");
        let [first, second] = ["a", "b"].map(|name| place.pod("x", name));
        let ask = |pod| call(place, "ADD", pod).arguments("IP=10.244.0.9");
        assert_eq!(networks(&place.answer(&ask(&first))), ["10.244.0.9/32"]);
        for pod in [&second, &first] {
            assert!(place.error(&ask(pod)).contains("10.244.0.9"));
        }
        place.answer(&call(place, "DEL", &first));
        assert_eq!(networks(&place.answer(&ask(&second))), ["10.244.0.9/32"]);
        place.answer(&call(place, "DEL", &second));
        place.answer(&call(place, "DEL", &second));
        assert_eq!(place.books.handles(), [] as [String; 0]);
    });
}

/// As Calico's second version would have left it.
fn allocate(place: &Place<'_>, handle: &str, address: &str) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = StoreConfig::Etcd(EtcdConfig::new([place.etcd.endpoint(0)]));
        let book = Book::new(store::open(&config, OpenMode::Existing).await.unwrap());
        let owner = Owner::on_node(HandleId::from(handle), place.node.name(), jiff::Timestamp::now());
        let asked = vec![address.parse().unwrap()];
        book.assign_addresses(GivenRequest::new(place.node.name(), owner, asked)).await.unwrap();
    });
}

#[test]
fn a_del_releases_old_handles() {
    both("a_del_releases_old_handles", |place| {
        place.pool("pods", "10.244.0.0/24");
        let (container, pod) = (place.pod("x", "x"), place.pod("shop", "web-0"));
        allocate(place, &container.container_id, "10.244.0.5");
        allocate(place, "shop.web-0", "10.244.0.6");
        place.answer(&call(place, "DEL", &container));
        assert_eq!(place.books.handles(), ["shop.web-0"]);
        place.answer(&place.of_pod("DEL", &pod));
        assert_eq!(place.books.handles(), [] as [String; 0]);
        // What a later sandbox of the pod is recorded with stays.
        let later = place.pod("shop", "web-0");
        place.answer(
            &place.of_pod("ADD", &later).arguments("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;IP=10.244.0.9"),
        );
        let own = format!("{NETWORK}.{}", later.container_id);
        place.answer(&place.of_pod("DEL", &pod));
        assert_eq!(place.books.handles(), [own]);
        place.answer(&place.of_pod("DEL", &later));
    });
}

#[test]
fn a_gateway_goes_with_the_last_container() {
    both("a_gateway_goes_with_the_last_container", |place| {
        place.pool("pods", "10.244.0.0/24");
        let [first, second] = ["a", "b"].map(|name| place.pod("x", name));
        let bridged = |verb, pod| call(place, verb, pod).with("type", "bridge");
        let answer = place.answer(&bridged("ADD", &first));
        let gateway = answer["ips"][0]["gateway"].as_str().unwrap().to_owned();
        assert_eq!(answer["routes"], json!([{"dst": "0.0.0.0/0", "gw": gateway}]));
        assert_eq!(place.answer(&bridged("ADD", &second))["ips"][0]["gateway"], gateway.as_str());
        let handle = HandleId::of_gateway(NETWORK, place.node.name()).to_string();
        place.answer(&bridged("DEL", &first));
        assert!(place.books.handles().contains(&handle), "the second needs it");
        place.answer(&bridged("DEL", &second));
        assert_eq!(place.books.handles(), [] as [String; 0]);
    });
}
