//! Records that may be stored and that BIRD would refuse, checked with the real BIRD: whatever they say, it takes what is made of them.

use std::process::Command;

use model::Kind;
use model::validate::{unfit_for_bird, validate};
use plan::bgp::BgpView;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::views::{configuration, decided, filter, node, peer, resource, three};

fn has_bird(test: &str) -> bool {
    let has_bird = testkit::process::on_path("bird");
    if !has_bird {
        testkit::skip(test, "there is no bird here");
    }
    has_bird
}

/// What BIRD has against a text; nothing if it takes it.
fn complaint(config: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bird.conf");
    std::fs::write(&file, config).unwrap();
    let checked = Command::new("bird").arg("-p").arg("-c").arg(&file).output().unwrap();
    (!checked.status.success()).then(|| String::from_utf8_lossy(&checked.stderr).into_owned())
}

#[track_caller]
fn assert_taken(view: &BgpView) {
    let config = decided(view).config;
    assert_eq!(complaint(&config), None, "{config}");
}

fn any_lengths() -> impl Strategy<Value = Value> {
    (proptest::option::of(0..140u8), proptest::option::of(0..140u8)).prop_map(|(min, max)| {
        let mut lengths = Map::new();
        min.into_iter().for_each(|min| drop(lengths.insert("min".to_owned(), min.into())));
        max.into_iter().for_each(|max| drop(lengths.insert("max".to_owned(), max.into())));
        Value::Object(lengths)
    })
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z*?._-]{1,20}", "\\PC{0,40}", Just("x".repeat(9_000)), Just("a\"; } protocol".to_owned())]
}

fn any_number() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u64>().prop_map(Value::from),
        (0..70_000u64).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
        Just(json!("65535.65535")),
        Just(json!(null)),
    ]
}

fn any_community() -> impl Strategy<Value = String> {
    prop_oneof![
        (any::<u32>(), any::<u32>()).prop_map(|(one, two)| format!("{one}:{two}")),
        (any::<u32>(), any::<u32>(), any::<u32>())
            .prop_map(|(one, two, three)| format!("{one}:{two}:{three}")),
        any_text(),
    ]
}

fn any_duration() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..200_000u32, "(ns|us|ms|s|m|h)").prop_map(|(number, unit)| format!("{number}{unit}")),
        Just("24h".to_owned()),
        Just("-3s".to_owned()),
        Just("1h30m".to_owned()),
        Just("0".to_owned()),
        any_text(),
    ]
}

fn any_address() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<std::net::IpAddr>().prop_map(|address| address.to_string()),
        Just("fe80::1".to_owned()),
        Just("::".to_owned()),
        Just("0.0.0.0".to_owned()),
        Just("224.0.0.9".to_owned()),
        Just("::ffff:10.0.0.2".to_owned()),
        Just("255.255.255.255".to_owned()),
        (any::<std::net::Ipv4Addr>(), any::<u16>()).prop_map(|(address, port)| format!("{address}:{port}")),
        (any::<std::net::Ipv6Addr>(), any::<u16>()).prop_map(|(address, port)| format!("[{address}]:{port}")),
        any_text(),
    ]
}

fn any_network() -> impl Strategy<Value = String> {
    (any_address(), 0..140u8).prop_map(|(address, length)| format!("{address}/{length}"))
}

fn any_rule() -> impl Strategy<Value = Value> {
    let operations = proptest::collection::vec(
        prop_oneof![
            any_community().prop_map(|value| json!({"addCommunity": {"value": value}})),
            proptest::collection::vec(any_number(), 0..4)
                .prop_map(|prefix| json!({"prependASPath": {"prefix": prefix}})),
            any_number().prop_map(|value| json!({"setPriority": {"value": value}})),
        ],
        0..3,
    );
    let where_to = (any_network(), "(In|NotIn|Equal|NotEqual|Else)", any_lengths(), any::<bool>());
    let rest = (
        proptest::option::of(any_text()),
        proptest::option::of(any_community()),
        proptest::option::of(any_number()),
        proptest::collection::vec(any_number(), 0..4),
        "(Accept|Reject|Else)",
        proptest::option::of("(iBGP|eBGP|else)"),
    );
    (where_to, rest, operations).prop_map(
        |(
            (cidr, operator, lengths, has_cidr),
            (interface, community, priority, path, action, peers),
            operations,
        )| {
            let mut rule = json!({"action": action, "operations": operations, "asPathPrefix": path});
            if has_cidr {
                rule["cidr"] = cidr.into();
                rule["matchOperator"] = operator.into();
                rule["prefixLength"] = lengths;
            }
            interface.into_iter().for_each(|interface| rule["interface"] = interface.into());
            community.into_iter().for_each(|community| rule["communities"] = json!({"values": [community]}));
            priority.into_iter().for_each(|priority| rule["priority"] = priority);
            peers.into_iter().for_each(|peers| rule["peerType"] = peers.into());
            rule
        },
    )
}

fn any_filter() -> impl Strategy<Value = Value> {
    let rules = || proptest::collection::vec(any_rule(), 0..3);
    (rules(), rules(), rules(), rules()).prop_map(|(import_v4, import_v6, export_v4, export_v6)| {
        json!({"importV4": import_v4, "importV6": import_v6, "exportV4": export_v4, "exportV6": export_v6})
    })
}

fn any_peer() -> impl Strategy<Value = Value> {
    let numbers = (any_number(), any_number(), any_number(), any_number());
    let times = (any_duration(), any_duration());
    (any_address(), any_address(), numbers, times, 0..64u8).prop_map(
        |(address, gateway, (own, local, allowed, hops), (keepalive, restart), which)| {
            let mut spec = json!({"peerIP": address, "asNumber": own, "filters": ["f"]});
            let mut set = |bit: u8, field: &str, value: Value| {
                if which & (1 << bit) != 0 {
                    spec[field] = value;
                }
            };
            set(0, "localASNumber", local);
            set(1, "numAllowedLocalASNumbers", allowed);
            set(2, "ttlSecurity", hops);
            set(3, "keepaliveTime", keepalive.into());
            set(4, "maxRestartTime", restart.into());
            set(5, "reachableBy", gateway.into());
            spec
        },
    )
}

fn any_configuration() -> impl Strategy<Value = Value> {
    let lists = (
        proptest::collection::vec(any_network(), 0..3),
        proptest::collection::vec(any_text(), 0..3),
        proptest::collection::vec((any_network(), proptest::collection::vec(any_community(), 0..3)), 0..3),
    );
    (lists, any_number(), any_number(), any_duration(), any::<bool>()).prop_map(
        |((services, devices, advertised), number, port, restart, binds)| {
            let services: Vec<Value> = services.iter().map(|cidr| json!({"cidr": cidr})).collect();
            let advertised: Vec<Value> = advertised
                .into_iter()
                .map(|(cidr, communities)| json!({"cidr": cidr, "communities": communities}))
                .collect();
            json!({"serviceClusterIPs": services, "ignoredInterfaces": devices, "prefixAdvertisements": advertised,
                "asNumber": number, "listenPort": port, "nodeMeshMaxRestartTime": restart,
                "bindMode": if binds { "NodeIP" } else { "None" }})
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(u32::try_from(testkit::count(96, 3_000)).unwrap()))]

    /// Straight from the store, valid or not.
    #[test]
    fn bird_takes_what_is_made_of_any_records(
        of_filter in any_filter(),
        peers in proptest::collection::vec(any_peer(), 0..3),
        settings in proptest::option::of(any_configuration()),
        other in (any_address(), any_address(), any_number(), any_text()),
        password in any_text(),
    ) {
        if !has_bird("bird_takes_what_is_made_of_any_records") {
            return Ok(());
        }
        let mut view = three();
        filter(&mut view, "f", of_filter);
        settings.into_iter().for_each(|settings| configuration(&mut view, settings));
        for (number, spec) in peers.into_iter().enumerate() {
            peer(&mut view, &format!("p{number}"), spec);
        }
        let (v4, v6, number, cluster) = other;
        node(&mut view, "odd", json!({"ipv4Address": v4, "ipv6Address": v6, "asNumber": number, "routeReflectorClusterID": cluster}));
        let key = plan::bgp::SecretKey { name: "bgp".to_owned(), key: "mesh".to_owned() };
        view.settings.mesh_password = Some(key.clone());
        view.secrets.insert(key, password);
        let config = decided(&view).config;
        prop_assert_eq!(complaint(&config), None, "{}", config);
    }
}

/// Each is valid as Calico has it, and was enough to keep BIRD from all that changes later.
#[test]
fn one_odd_record_is_set_aside_and_the_rest_stays() {
    if !has_bird("one_odd_record_is_set_aside_and_the_rest_stays") {
        return;
    }
    let lengths = json!({"importV4": [{"cidr": "10.0.0.0/8", "matchOperator": "In", "action": "Accept", "prefixLength": {"min": 24, "max": 16}}]});
    let odd = [
        (Kind::BgpFilter, lengths),
        (Kind::BgpPeer, json!({"peerIP": "192.0.2.9", "asNumber": 65000, "keepaliveTime": "24h"})),
        (Kind::BgpPeer, json!({"peerIP": "192.0.2.9", "asNumber": 65000, "maxRestartTime": "24h"})),
        (Kind::BgpPeer, json!({"peerIP": "fe80::1", "asNumber": 65000})),
        (Kind::BgpConfiguration, json!({"nodeMeshMaxRestartTime": "24h"})),
        (Kind::Node, json!({"bgp": {"ipv6Address": "fe80::7/64"}})),
    ];
    for (kind, spec) in odd {
        let name = if kind == Kind::BgpConfiguration { "default" } else { "odd" };
        let record = resource(kind, name, &[], spec.clone());
        assert_eq!(validate(&record), [], "{spec} may be stored");
        assert_eq!(unfit_for_bird(&record).len(), 1, "{spec} is warned of");
        let mut view = three();
        peer(&mut view, "tor", json!({"peerIP": "192.0.2.1", "asNumber": 65000, "filters": ["odd"]}));
        filter(&mut view, "odd", json!({}));
        match kind {
            Kind::BgpFilter => filter(&mut view, "odd", spec.clone()),
            Kind::BgpPeer => peer(&mut view, "odd", spec.clone()),
            Kind::BgpConfiguration => configuration(&mut view, spec.clone()),
            _ => node(&mut view, "odd", spec["bgp"].clone()),
        }
        assert_taken(&view);
        let bird = decided(&view);
        let made = bird.sessions.iter().filter(|session| session.is_made()).count();
        assert_eq!(made, 5, "{spec}: {:?}", bird.sessions);
        let named = bird.troubles.iter().filter(|trouble| trouble.is_of_record()).count();
        assert_eq!(named, 1, "{spec}: {:?}", bird.troubles);
    }
}
