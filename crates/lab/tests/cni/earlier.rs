//! A second ADD of what has a network already, under another name: the second wins, and nothing that comes late of the first harms it.

use serde_json::json;
use testkit::process::wait_until;

use crate::place::{NETWORK, address, both, networks};

#[test]
fn a_new_container_id_takes_the_pods_interface_over() {
    both("a_new_container_id_takes_the_pods_interface_over", |place| {
        place.pool("pods", "10.244.0.0/24");
        let first = place.pod("shop", "web-0");
        let old = address(&place.answer(&place.of_pod("ADD", &first)));
        let again = place.of_pod("ADD", &first).environment("CNI_CONTAINERID", "second");
        let answer = place.answer(&again);
        let new = address(&answer);
        assert_ne!(old, new);
        let endpoint = place.endpoint(&first).unwrap();
        assert_eq!(endpoint.spec("containerID"), Some(&json!("second")));
        assert_eq!(endpoint.spec("ipNetworks"), Some(&json!([format!("{new}/32")])));
        let inside = || first.netns().ip(&["address", "show", "eth0"]).unwrap();
        assert!(inside().contains(&new) && !inside().contains(&old));
        // The first's address is its own until its DEL.
        let handle = |container: &str| format!("{NETWORK}.{container}");
        let allocations = place.books.allocations();
        assert_eq!(allocations[&handle(&first.container_id)].to_string(), old);
        assert_eq!(allocations[&handle("second")].to_string(), new);

        for _ in 0..2 {
            place.answer(&place.of_pod("DEL", &first));
            assert_eq!(place.books.handles(), [handle("second")]);
            assert_eq!(place.endpoint(&first).unwrap().spec("containerID"), Some(&json!("second")));
            assert!(inside().contains(&new));
            assert!(first.netns().can_ping(place.node.address()).unwrap());
        }
        place.answer(&place.of_pod("DEL", &first).environment("CNI_CONTAINERID", "second"));
        assert_eq!((place.books.endpoints().len(), place.books.handles().len()), (0, 0));
        let is_empty = || first.netns().ip(&["-br", "link"]).unwrap().lines().count() == 1;
        wait_until("the pod to have no interface", is_empty).unwrap();
    });
}

#[test]
fn another_network_takes_the_pods_interface_over() {
    both("another_network_takes_the_pods_interface_over", |place| {
        place.pool("pods", "10.244.0.0/24");
        let pod = place.pod("shop", "web-0");
        place.answer(&place.of_pod("ADD", &pod));
        let second = |verb| place.of_pod(verb, &pod).with("name", "net2");
        let new = address(&place.answer(&second("ADD")));
        let endpoint = || place.endpoint(&pod).unwrap();
        assert_eq!(endpoint().spec("ipNetworks"), Some(&json!([format!("{new}/32")])));
        assert_eq!(endpoint().spec("profiles"), Some(&json!(["net2"])));
        for _ in 0..2 {
            place.answer(&place.of_pod("DEL", &pod));
            assert_eq!(endpoint().spec("ipNetworks"), Some(&json!([format!("{new}/32")])));
            assert_eq!(place.books.handles(), [format!("net2.{}", pod.container_id)]);
            assert!(pod.netns().can_ping(place.node.address()).unwrap());
        }
        // The same again is answered with the same.
        assert_eq!(address(&place.answer(&second("ADD"))), new);
        place.answer(&second("DEL"));
        assert_eq!((place.books.endpoints().len(), place.books.handles().len()), (0, 0));
    });
}

#[test]
fn a_container_joins_another_network_with_the_interface_that_it_has() {
    both("a_container_joins_another_network_with_the_interface_that_it_has", |place| {
        place.pool("pods", "10.244.0.0/24");
        let container = place.pod("x", "x");
        let first = place.answer(&place.plain("ADD", &container));
        let second = |verb| place.plain(verb, &container).with("name", "net2");
        for _ in 0..2 {
            let joined = place.answer(&second("ADD"));
            assert_eq!(networks(&joined), networks(&first));
            assert_eq!(joined["interfaces"], first["interfaces"]);
            let profiles = json!([NETWORK, "net2"]);
            assert_eq!(place.container("default", &container).unwrap().spec("profiles"), Some(&profiles));
        }
        assert!(place.profile("net2").is_some());
        assert_eq!(place.books.handles().len(), 1);
        place.answer(&second("DEL"));
        let endpoint = place.container("default", &container).unwrap();
        assert_eq!(endpoint.spec("profiles"), Some(&json!([NETWORK])));
        assert!(container.netns().can_ping(place.node.address()).unwrap());
        place.answer(&place.plain("DEL", &container));
        assert_eq!((place.books.endpoints().len(), place.books.handles().len()), (0, 0));
    });
}

#[test]
fn another_interface_is_one_of_its_own() {
    both("another_interface_is_one_of_its_own", |place| {
        place.pool("pods", "10.244.0.0/24");
        let pod = place.pod("shop", "web-0");
        let first = address(&place.answer(&place.of_pod("ADD", &pod)));
        let more = |verb| place.of_pod(verb, &pod).environment("CNI_IFNAME", "net1");
        let second = address(&place.answer(&more("ADD")));
        assert_ne!(first, second);
        assert_eq!(place.books.endpoints().len(), 2);
        place.answer(&more("DEL"));
        assert_eq!(place.endpoint(&pod).unwrap().spec("ipNetworks"), Some(&json!([format!("{first}/32")])));
        assert!(pod.netns().can_ping(place.node.address()).unwrap());
        place.answer(&place.of_pod("DEL", &pod));
    });
}

#[test]
fn a_second_add_that_fails_changes_nothing_of_the_first() {
    both("a_second_add_that_fails_changes_nothing_of_the_first", |place| {
        place.pool("pods", "10.244.0.0/24");
        let container = place.pod("x", "x");
        place.answer(&place.plain("ADD", &container));
        let before = place.books.records();
        let other = place.plain("ADD", &container).environment("CNI_CONTAINERID", "other");
        assert!(place.error(&other).contains("already has an interface eth0"));
        assert_eq!(place.books.records(), before);
        assert!(container.netns().can_ping(place.node.address()).unwrap());
        place.answer(&place.plain("DEL", &container));
    });
}
