//! With whom a node speaks.

use plan::bgp::{BgpSettings, BgpView, SecretKey};
use serde_json::json;

use crate::views::{configuration, decided, node, peer, resource, sessions, three, troubles};

#[test]
fn every_node_speaks_to_every_other_in_both_versions() {
    // As texts 10.0.0.1 is the smaller, so this side waits.
    let of_a = [
        "Mesh_10_0_0_2 AS 64512 passive",
        "Mesh_10_0_0_3 AS 64512 passive",
        "Mesh_fd00__2 AS 64512 passive",
        "Mesh_fd00__3 AS 64512 passive",
    ];
    assert_eq!(sessions(&three()), of_a);
    let of_b = BgpView { node: "b".to_owned(), ..three() };
    assert_eq!(sessions(&of_b)[..2], ["Mesh_10_0_0_1 AS 64512", "Mesh_10_0_0_3 AS 64512 passive"]);
    assert_eq!(troubles(&of_b), [] as [&str; 0]);
}

#[test]
fn exactly_one_of_two_nodes_connects() {
    let mut view = three();
    // As numbers 10.0.0.9 comes before 10.0.0.10; as texts, which is what counts, after it.
    node(&mut view, "x", json!({"ipv4Address": "10.0.0.9/24"}));
    node(&mut view, "y", json!({"ipv4Address": "10.0.0.10/24"}));
    for (here, there) in [("x", "10.0.0.10"), ("y", "10.0.0.9")] {
        view.node = here.to_owned();
        let is_passive = |session: &&plan::bgp::Session| session.peer.to_string() == there;
        let bird = decided(&view);
        assert_eq!(bird.sessions.iter().find(is_passive).unwrap().is_passive, here == "y", "{here}");
    }
}

#[test]
fn a_mesh_can_be_forbidden_and_nodes_without_address_are_in_none() {
    let mut view = three();
    configuration(&mut view, json!({"nodeToNodeMeshEnabled": false}));
    assert_eq!(sessions(&view), [] as [&str; 0]);
    let mut view = three();
    node(&mut view, "b", json!({"ipv4Address": "10.0.0.2/24"}));
    node(&mut view, "c", json!({}));
    assert_eq!(sessions(&view), ["Mesh_10_0_0_2 AS 64512 passive"]);
    node(&mut view, "a", json!({}));
    assert_eq!(view.decide(), None);
}

#[test]
fn peers_are_for_all_nodes_for_one_or_for_some() {
    let mut view = three();
    configuration(&mut view, json!({"nodeToNodeMeshEnabled": false, "asNumber": 65001}));
    peer(&mut view, "tor", json!({"peerIP": "192.0.2.1", "asNumber": 65000}));
    peer(&mut view, "port", json!({"peerIP": "192.0.2.2:1790", "asNumber": "1.1"}));
    peer(&mut view, "mine", json!({"node": "a", "peerIP": "192.0.2.3", "asNumber": 65000}));
    peer(&mut view, "theirs", json!({"node": "b", "peerIP": "192.0.2.4", "asNumber": 65000}));
    peer(
        &mut view,
        "some",
        json!({"nodeSelector": "role == 'a'", "peerIP": "2001:db8::1", "asNumber": 65001}),
    );
    // Both of a global and of a node's peer there is one, the global.
    peer(&mut view, "again", json!({"node": "a", "peerIP": "192.0.2.1", "asNumber": 65009}));
    peer(&mut view, "self", json!({"peerIP": "10.0.0.1", "asNumber": 65001}));
    assert_eq!(
        sessions(&view),
        [
            "Global_192_0_2_1 AS 65000",
            "Global_192_0_2_2_port_1790 AS 65537",
            "Node_192_0_2_3 AS 65000",
            "Node_2001_db8__1 AS 65001",
        ]
    );
}

#[test]
fn whoever_is_named_as_a_peer_is_not_in_the_mesh_as_well() {
    let mut view = three();
    peer(&mut view, "b", json!({"peerIP": "10.0.0.2", "asNumber": 64512}));
    assert_eq!(sessions(&view)[..2], ["Global_10_0_0_2 AS 64512", "Mesh_10_0_0_3 AS 64512 passive"]);
}

/// `r` reflects; all others peer with it by selector, and it with them by the way back.
fn reflected() -> BgpView {
    let mut view = three();
    node(&mut view, "r", json!({"ipv4Address": "10.0.0.4/24", "routeReflectorClusterID": "1.0.0.1"}));
    peer(&mut view, "to-reflectors", json!({"nodeSelector": "role != 'r'", "peerSelector": "role == 'r'"}));
    view
}

#[test]
fn a_route_reflector_leaves_the_mesh_and_has_clients() {
    let mut view = reflected();
    assert!(sessions(&view).contains(&"Node_10_0_0_4 AS 64512 passive".to_owned()), "{:?}", sessions(&view));
    assert!(!sessions(&view).iter().any(|session| session.starts_with("Mesh_10_0_0_4")));
    view.node = "r".to_owned();
    let clients =
        ["Node_10_0_0_1 AS 64512 client", "Node_10_0_0_2 AS 64512 client", "Node_10_0_0_3 AS 64512 client"];
    assert_eq!(sessions(&view), clients);
    // Another of the same cluster is an equal.
    node(&mut view, "b", json!({"ipv4Address": "10.0.0.2/24", "routeReflectorClusterID": "1.0.0.1"}));
    assert_eq!(sessions(&view)[1], "Node_10_0_0_2 AS 64512");
}

#[test]
fn the_way_back_can_be_left_to_the_operator() {
    let mut view = reflected();
    let spec =
        json!({"nodeSelector": "role != 'r'", "peerSelector": "role == 'r'", "reversePeering": "Manual"});
    peer(&mut view, "to-reflectors", spec);
    assert!(sessions(&view).contains(&"Node_10_0_0_4 AS 64512".to_owned()), "nobody else connects");
    view.node = "r".to_owned();
    assert_eq!(sessions(&view), [] as [&str; 0]);
}

#[test]
fn a_session_without_its_password_is_not_made() {
    let secret = |key: &str| json!({"secretKeyRef": {"name": "bgp", "key": key}});
    let mut view = three();
    configuration(&mut view, json!({"nodeMeshPassword": secret("mesh")}));
    peer(&mut view, "tor", json!({"peerIP": "192.0.2.1", "asNumber": 65000, "password": secret("tor")}));
    let key = |key: &str| SecretKey { name: "bgp".to_owned(), key: key.to_owned() };
    view.secrets.insert(key("mesh"), "say \"friend\"".to_owned());
    let bird = decided(&view);
    assert!(bird.sessions.iter().all(|session| !session.is_made()));
    assert!(!bird.config.contains("protocol bgp"));
    let told = troubles(&view);
    assert!(
        told.contains(
            &"there is no key tor in a secret bgp, so there is no session Global_192_0_2_1".to_owned()
        ),
        "{told:?}"
    );
    assert!(
        told.iter().any(|told| told.starts_with("the password in key mesh of secret bgp has quotes")),
        "{told:?}"
    );
    view.secrets = [(key("mesh"), "a".to_owned()), (key("tor"), "b c".to_owned())].into();
    let bird = decided(&view);
    assert_eq!(bird.config.matches("password \"a\";").count(), 4);
    assert_eq!(bird.config.matches("password \"b c\";").count(), 1);
    assert!(bird.troubles.is_empty());
}

#[test]
fn nonsense_is_told_and_harms_nobody_else() {
    let mut view = three();
    node(&mut view, "b", json!({"ipv4Address": "10.0.0.2/24", "asNumber": "x"}));
    node(&mut view, "d", json!({"ipv4Address": "10.0.0.3/24"}));
    peer(&mut view, "no-as", json!({"peerIP": "192.0.2.1"}));
    peer(&mut view, "zero", json!({"peerIP": "192.0.2.1", "asNumber": 0}));
    peer(&mut view, "no-address", json!({"peerIP": "tor", "asNumber": 65000}));
    peer(&mut view, "empty", json!({}));
    peer(&mut view, "in-pods", json!({"localWorkloadSelector": "all()", "asNumber": 65000}));
    peer(
        &mut view,
        "in-pods-of-b",
        json!({"node": "b", "localWorkloadSelector": "all()", "asNumber": 65000}),
    );
    peer(&mut view, "selector", json!({"nodeSelector": "((", "peerIP": "192.0.2.9", "asNumber": 65000}));
    assert_eq!(
        troubles(&view),
        [
            "BGPPeer empty is left out: it names no peer",
            "BGPPeer in-pods is left out: peers inside pods (localWorkloadSelector) are not supported yet",
            "BGPPeer no-address is left out: \"tor\" is no address",
            "BGPPeer no-as is left out: it has no AS number",
            "BGPPeer selector is left out: \"((\" is no selector",
            "BGPPeer zero is left out: 0 is no AS number",
            "\"x\" of node b is no AS number, so there are no sessions with it",
            "nodes c, d have the same address 10.0.0.3: only the first is peered with",
        ]
    );
    assert_eq!(sessions(&view), ["Mesh_10_0_0_3 AS 64512 passive", "Mesh_fd00__3 AS 64512 passive"]);
    configuration(&mut view, json!({"asNumber": "1.2.3"}));
    assert_eq!(sessions(&view), [] as [&str; 0], "without an AS number of its own a node has no sessions");
}

#[test]
fn a_peer_of_another_version_than_the_node_is_told() {
    let mut view = three();
    node(&mut view, "a", json!({"ipv4Address": "10.0.0.1/24"}));
    peer(&mut view, "tor", json!({"peerIP": "2001:db8::1", "asNumber": 65000}));
    assert_eq!(
        troubles(&view),
        ["BGPPeer tor has the address 2001:db8::1, and this node has no IPv6 address"]
    );
}

#[test]
fn nodes_may_listen_elsewhere() {
    let mut view = three();
    let of_b = resource(model::Kind::BgpConfiguration, "node.b", &[], json!({"listenPort": 1790}));
    view.settings = BgpSettings::read(None, [("b", &of_b)]);
    let config = decided(&view).config;
    assert!(config.contains("neighbor 10.0.0.2 port 1790 as 64512;"), "{config}");
    assert!(config.contains("neighbor 10.0.0.3 as 64512;"), "{config}");
    view.node = "b".to_owned();
    assert!(decided(&view).config.contains("local 10.0.0.2 port 1790 as 64512;"));
    configuration(&mut view, json!({"listenPort": 0}));
    assert!(decided(&view).config.contains("local 10.0.0.2 port 179 as 64512;"), "nought is no port");
}
