//! What BIRD is told.

use model::Kind;
use plan::bgp::{BgpNode, BgpPool};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::views::{configuration, decided, filter, node, peer, pool, resource, three};

/// The lines of one block of the configuration.
fn block(config: &str, head: &str) -> Vec<String> {
    let from = config.find(head).unwrap_or_else(|| panic!("no {head} in\n{config}"));
    let lines = config[from..].lines().skip(1).take_while(|line| *line != "}");
    lines.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn only_what_the_node_has_is_announced() {
    let mut view = three();
    view.borrowed = vec!["10.244.9.9".parse().unwrap()];
    configuration(&mut view, json!({"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]}));
    let config = decided(&view).config;
    assert_eq!(
        block(&config, "protocol static own_v4 {"),
        ["ipv4;", "route 10.244.0.0/26 blackhole;", "route 10.244.9.9/32 blackhole;"]
    );
    assert_eq!(block(&config, "protocol static own_v6 {"), ["ipv6;", "route fd10::/122 blackhole;"]);
    assert_eq!(block(&config, "protocol static services_v4 {"), ["ipv4;", "route 10.96.0.0/12 blackhole;"]);
    assert_eq!(
        block(&config, "function announce_v4() {"),
        ["if proto = \"own_v4\" then accept;", "if proto = \"services_v4\" then accept;", "reject;"]
    );
}

#[test]
fn the_mesh_is_believed_about_pools_only() {
    let mut view = three();
    configuration(&mut view, json!({"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]}));
    view.refused = vec!["10.244.0.0/28".parse().unwrap()];
    // Claimed by a record, outside of every pool.
    view.blocks.push("0.0.0.0/0".parse().unwrap());
    view.borrowed = vec!["10.0.0.2".parse().unwrap()];
    view.pools.push(pool("10.0.0.0/30"));
    let config = decided(&view).config;
    assert_eq!(
        block(&config, "function from_mesh_v4() {"),
        [
            "if net ~ [ 10.0.0.1/32-, 10.0.0.2/32-, 10.0.0.3/32-, 10.244.0.0/28 ] then reject;",
            "if net ~ [ 10.244.0.0/16+, 10.0.0.0/30+, 10.96.0.0/12+ ] then accept;",
            "reject;"
        ]
    );
    assert!(
        !block(&config, "protocol static own_v4 {").iter().any(|line| line.contains("0.0.0.0/0")),
        "{config}"
    );
    assert_eq!(config.matches("      from_mesh_v4();").count(), 2, "{config}");
}

#[test]
fn a_route_reflector_passes_on_what_is_in_pools() {
    let mut view = three();
    node(&mut view, "a", json!({"ipv4Address": "10.0.0.1/24", "routeReflectorClusterID": "1.0.0.1"}));
    view.pools.push(BgpPool { is_exported: false, ..pool("10.100.0.0/16") });
    let rules = block(&decided(&view).config, "function announce_v4() {");
    assert_eq!(rules[0], "if net ~ [ 10.100.0.0/16+ ] then reject;");
    assert!(
        rules.contains(&"if source = RTS_BGP && net ~ [ 10.244.0.0/16+ ] then accept;".to_owned()),
        "{rules:?}"
    );
}

#[test]
fn routes_into_pools_are_the_agents_unless_they_are_birds() {
    let mut view = three();
    view.pools = vec![pool("10.244.0.0/16"), BgpPool { is_birds: true, ..pool("10.100.0.0/16") }];
    let rules = block(&decided(&view).config, "filter to_kernel_v4 {");
    assert_eq!(
        rules,
        [
            "if proto = \"reach_v4\" then accept;",
            "if source != RTS_BGP then reject;",
            "if net ~ [ 10.244.0.0/16+ ] then reject;",
            "accept;"
        ]
    );
}

/// Somebody else tells of the services, too, and the node would send their packets there.
#[test]
fn routes_to_services_stay_out_of_the_kernel() {
    let mut view = three();
    configuration(&mut view, json!({"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]}));
    let rules = block(&decided(&view).config, "filter to_kernel_v4 {");
    assert_eq!(rules[2], "if net ~ [ 10.244.0.0/16+, 10.96.0.0/12+ ] then reject;");
}

/// They still stay out of its kernel: whatever others tell of them, its packets to services are its own to deal with.
#[test]
fn a_node_that_load_balancers_leave_alone_announces_no_services() {
    let mut view = three();
    configuration(
        &mut view,
        json!({"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}, {"cidr": "fd96::/108"}],
            "serviceExternalIPs": [{"cidr": "192.0.2.0/28"}], "serviceLoadBalancerIPs": [{"cidr": "198.51.100.7/32"}]}),
    );
    let all =
        ["10.96.0.0/12", "192.0.2.0/28", "198.51.100.7/32"].map(|net| format!("route {net} blackhole;"));
    let announced = |view: &plan::bgp::BgpView, suffix: &str| {
        block(&decided(view).config, &format!("protocol static services_{suffix} {{")).split_off(1)
    };
    assert_eq!(announced(&view, "v4"), all);
    assert_eq!(announced(&view, "v6"), ["route fd96::/108 blackhole;"]);
    for (value, is_announced) in [("false", true), ("true", false)] {
        let label = ("node.kubernetes.io/exclude-from-external-load-balancers", value);
        let own = resource(Kind::Node, "a", &[label], json!({"bgp": {"ipv4Address": "10.0.0.1/24"}}));
        view.nodes.insert("a".to_owned(), BgpNode::read(&own));
        assert_eq!(announced(&view, "v4").is_empty(), !is_announced, "{value}");
        assert!(block(&decided(&view).config, "filter to_kernel_v4 {")[2].contains("10.96.0.0/12+"));
    }
}

#[test]
fn bird_binds_to_the_nodes_address_only_if_it_is_told() {
    let mut view = three();
    assert!(!decided(&view).config.contains("strict bind"));
    configuration(&mut view, json!({"bindMode": "NodeIP"}));
    assert_eq!(decided(&view).config.matches("strict bind on;").count(), 4);
}

#[test]
fn the_usual_port_is_not_part_of_a_sessions_name() {
    let mut view = three();
    peer(&mut view, "tor", json!({"peerIP": "192.0.2.1:179", "asNumber": 65000}));
    peer(&mut view, "other", json!({"peerIP": "192.0.2.2:1790", "asNumber": 65000}));
    let config = decided(&view).config;
    assert!(config.contains("protocol bgp Global_192_0_2_1 {"), "{config}");
    assert!(config.contains("protocol bgp Global_192_0_2_2_port_1790 {"), "{config}");
}

#[test]
fn settings_of_a_peer_become_words_of_bird() {
    let mut view = three();
    let spec = json!({
        "peerIP": "192.0.2.1", "asNumber": 65000, "localASNumber": 65010, "nextHopMode": "Self", "maxRestartTime": "2m",
        "keepaliveTime": "10s", "numAllowedLocalASNumbers": 2, "ttlSecurity": 3, "reachableBy": "10.0.0.254", "sourceAddress": "None",
    });
    peer(&mut view, "tor", spec);
    let config = decided(&view).config;
    assert_eq!(
        block(&config, "protocol bgp Global_192_0_2_1 {")[..13],
        [
            "local port 179 as 65010;",
            "neighbor 192.0.2.1 as 65000;",
            "multihop 3;",
            "ttl security on;",
            "connect delay time 1;",
            "connect retry time 5;",
            "error wait time 1, 30;",
            "graceful restart on;",
            "graceful restart time 120;",
            "keepalive time 10;",
            "hold time 30;",
            "allow local as 2;",
            "ipv4 {",
        ]
    );
    assert_eq!(block(&config, "protocol static reach_v4 {"), ["ipv4;", "route 192.0.2.1/32 via 10.0.0.254;"]);
    assert!(config.contains("    next hop self;\n"));
}

#[test]
fn communities_are_added_by_number_and_by_name() {
    let mut view = three();
    configuration(
        &mut view,
        json!({
            "communities": [{"name": "blue", "value": "65001:7"}],
            "prefixAdvertisements": [{"cidr": "10.244.0.0/16", "communities": ["blue", "65001:8", "1:2:3"]}],
        }),
    );
    let rule = &block(&decided(&view).config, "function announce_v4() {")[0];
    assert_eq!(
        rule,
        "if net ~ [ 10.244.0.0/16+ ] then { bgp_community.add((65001,7)); bgp_community.add((65001,8)); bgp_large_community.add((1,2,3)); }"
    );
}

/// The statements of one export rule towards a peer outside.
fn exported(rule: Value) -> Vec<String> {
    let mut view = three();
    filter(&mut view, "f", json!({"exportV4": [rule]}));
    peer(&mut view, "tor", json!({"peerIP": "192.0.2.1", "asNumber": 65000, "filters": ["f"]}));
    let lines = block(&decided(&view).config, "protocol bgp Global_192_0_2_1 {");
    let lines = lines.into_iter().skip_while(|line| line != "export filter {").skip(1);
    lines.take_while(|line| line != "announce_v4();").collect()
}

#[test]
fn filters_become_conditions() {
    let rule = |mut rule: Value, action: &str| {
        rule["action"] = json!(action);
        exported(rule)
    };
    let net = |operator: &str| json!({"cidr": "10.0.0.0/8", "matchOperator": operator});
    assert_eq!(rule(net("Equal"), "Accept"), ["if (net = 10.0.0.0/8) then { accept; }"]);
    assert_eq!(rule(net("NotEqual"), "Reject"), ["if (net != 10.0.0.0/8) then { reject; }"]);
    assert_eq!(rule(net("In"), "Accept"), ["if (net ~ [ 10.0.0.0/8{8,32} ]) then { accept; }"]);
    let lengths =
        json!({"cidr": "10.0.0.0/8", "matchOperator": "NotIn", "prefixLength": {"min": 16, "max": 24}});
    assert_eq!(rule(lengths, "Reject"), ["if (!(net ~ [ 10.0.0.0/8{16,24} ])) then { reject; }"]);
    let several = json!({
        "source": "RemotePeers", "interface": "eth*", "communities": {"values": ["65001:1"]}, "asPathPrefix": [65001, "1.1"], "priority": 512,
    });
    assert_eq!(
        rule(several, "Reject"),
        [
            "if (source = RTS_BGP) && (ifname ~ \"eth*\") && ((65001,1) ~ bgp_community) && (bgp_path ~ [= 65001 65537 * =]) \
          && (bgp_local_pref = 2147483135) then { reject; }"
        ]
    );
    let operations = json!({"operations": [
        {"addCommunity": {"value": "1:2:3"}}, {"prependASPath": {"prefix": [65001, 65002]}}, {"setPriority": {"value": 1024}},
    ]});
    assert_eq!(
        rule(operations, "Accept"),
        [
            "{ bgp_large_community.add((1,2,3)); bgp_path.prepend(65002); bgp_path.prepend(65001); bgp_local_pref = 2147482623; accept; }"
        ]
    );
    assert_eq!(rule(json!({"peerType": "eBGP"}), "Reject"), ["{ reject; }"]);
    assert_eq!(rule(json!({"peerType": "iBGP"}), "Reject"), [] as [&str; 0]);
}

#[test]
fn each_direction_and_version_has_its_own_rules() {
    let mut view = three();
    let only = |network: &str| json!([{"action": "Reject", "cidr": network, "matchOperator": "Equal"}]);
    let networks = [
        ("192.0.2.1", "import", "10.1.0.0/16"),
        ("192.0.2.1", "export", "10.2.0.0/16"),
        ("2001:db8::1", "import", "fd01::/48"),
        ("2001:db8::1", "export", "fd02::/48"),
    ];
    let fields = ["importV4", "exportV4", "importV6", "exportV6"];
    let spec =
        fields.into_iter().zip(networks).map(|(field, (_, _, network))| (field.to_owned(), only(network)));
    filter(&mut view, "f", Value::Object(spec.collect()));
    for (name, address) in [("four", "192.0.2.1"), ("six", "2001:db8::1")] {
        peer(&mut view, name, json!({"peerIP": address, "asNumber": 65000, "filters": ["f"]}));
    }
    let config = decided(&view).config;
    for (address, direction, network) in networks {
        let session = format!("protocol bgp Global_{} {{", address.replace(['.', ':'], "_"));
        let lines = block(&config, &session);
        let mut rules = lines.iter().skip_while(|line| **line != format!("{direction} filter {{")).skip(1);
        assert_eq!(rules.next(), Some(&format!("if (net = {network}) then {{ reject; }}")), "{lines:?}");
    }
}

#[test]
fn next_hops_are_kept_or_replaced_as_records_say() {
    let check = |said: Value, expected: Option<&str>| {
        let mut view = three();
        let mut spec = json!({"peerIP": "192.0.2.1", "asNumber": 65000});
        spec.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        peer(&mut view, "tor", spec);
        let lines = block(&decided(&view).config, "protocol bgp Global_192_0_2_1 {");
        assert_eq!(
            lines.iter().map(String::as_str).find(|line| line.starts_with("next hop")),
            expected,
            "{said}"
        );
    };
    check(json!({}), None);
    check(json!({"keepOriginalNextHop": true}), Some("next hop keep;"));
    check(json!({"keepOriginalNextHop": false}), None);
    check(json!({"nextHopMode": "Self", "keepOriginalNextHop": true}), Some("next hop self;"));
    check(json!({"nextHopMode": "Keep"}), Some("next hop keep;"));
}

#[test]
fn a_rule_that_nobody_understands_rejects() {
    for rule in [
        json!({"action": "Accept", "cidr": "10.0.0.0/8", "matchOperator": "Near"}),
        json!({"action": "Accept", "cidr": "nonsense", "matchOperator": "In"}),
        json!({"action": "Accept", "interface": "eth\"; accept; #"}),
        json!({"action": "Accept", "source": "Hearsay"}),
        json!({"action": "Accept", "peerType": "xBGP"}),
        json!({"action": "Accept", "communities": {"values": ["red"]}}),
        json!({"action": "Maybe"}),
        json!({"action": "Accept", "operations": [{"paintRed": {}}]}),
    ] {
        assert_eq!(exported(rule.clone()), ["{ reject; }"], "{rule}");
    }
}

#[test]
fn with_a_filter_missing_nothing_is_exchanged() {
    let mut view = three();
    peer(&mut view, "tor", json!({"peerIP": "192.0.2.1", "asNumber": 65000, "filters": ["gone"]}));
    let bird = decided(&view);
    let lines = block(&bird.config, "protocol bgp Global_192_0_2_1 {");
    assert!(
        lines.contains(&"import none;".to_owned()) && lines.contains(&"export none;".to_owned()),
        "{lines:?}"
    );
    assert_eq!(bird.troubles.len(), 1);
    assert_eq!(
        bird.troubles[0].to_string(),
        "there is no BGPFilter gone, so no routes are exchanged with Global_192_0_2_1"
    );
}

#[test]
fn a_node_without_ipv4_has_a_router_id_all_the_same() {
    let mut view = three();
    node(&mut view, "a", json!({"ipv6Address": "fd00::1/64"}));
    let id = |view: &plan::bgp::BgpView| {
        let config = decided(view).config;
        config.lines().find_map(|line| line.strip_prefix("router id ")).unwrap().to_owned()
    };
    let first = id(&view);
    assert_ne!(first, "0.0.0.0;");
    node(&mut view, "b", json!({"ipv6Address": "fd00::2/64"}));
    view.node = "b".to_owned();
    assert_ne!(id(&view), first);
}

proptest! {
    /// Whatever stands in records, no text of theirs ends a statement or a quote.
    #[test]
    fn texts_of_records_stay_inside_their_words(junk in "\\PC{0,20}", inside in "[\"';{}#\n a-z0-9.:/*]{0,20}") {
        for text in [junk, inside] {
            let mut view = three();
            let plain = decided(&view).config.matches("protocol bgp").count();
            configuration(&mut view, json!({"ignoredInterfaces": [text], "asNumber": 64512, "communities": [{"name": text, "value": text}]}));
            filter(&mut view, "f", json!({"importV4": [{"action": text, "interface": text, "cidr": text, "matchOperator": "In"}]}));
            peer(&mut view, "p", json!({"peerIP": text, "asNumber": text, "filters": ["f"], "maxRestartTime": text, "reachableBy": text}));
            node(&mut view, "b", json!({"ipv4Address": "10.0.0.2/24", "ipv6Address": "fd00::2/64", "routeReflectorClusterID": text}));
            let config = decided(&view).config;
            prop_assert!(config.matches("protocol bgp").count() <= plain + 1);
            prop_assert_eq!(config.matches('"').count() % 2, 0);
            prop_assert_eq!(config.matches('{').count(), config.matches('}').count());
        }
    }
}
