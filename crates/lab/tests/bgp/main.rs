//! BGP with the real BIRD, as `plan::bgp` configures it: sessions, routes, route reflectors, a router outside.

mod frr;
mod odd;
mod outside;
mod town;
#[path = "../../../plan/tests/bgp/views.rs"]
#[expect(dead_code, reason = "the tests of decisions use more of it")]
mod views;
mod with_agents;

use plan::bgp::SecretKey;
use serde_json::json;
use testkit::process::wait_until;

use town::{Town, pool};

#[test]
fn a_mesh_of_nodes_learns_every_block_in_both_versions() {
    let Some(mut town) = Town::new("a_mesh_of_nodes_learns_every_block_in_both_versions", 3) else { return };
    town.view.pools.iter_mut().for_each(|pool| pool.is_birds = true);
    town.start();
    town.wait_until_established();
    town.assert_everybody_knows_every_block();
    wait_until("the kernel to have every route", || {
        town.speakers.iter().all(|speaker| {
            let (v4, v6) = (speaker.kernel_routes("-4"), speaker.kernel_routes("-6"));
            let others = || town.speakers.iter().filter(|other| other.number != speaker.number);
            others().all(|other| v4.contains(&format!("{} via {}", other.block_v4(), other.address())))
                && others()
                    .all(|other| v6.contains(&format!("{} via fd00::{}", other.block_v6(), other.number)))
        })
    })
    .unwrap();
}

#[test]
fn routes_into_pools_stay_out_of_the_kernel_when_the_agent_writes_them() {
    let Some(mut town) = Town::new("routes_into_pools_stay_out_of_the_kernel_when_the_agent_writes_them", 2)
    else {
        return;
    };
    town.start();
    town.wait_until_established();
    town.assert_everybody_knows_every_block();
    for speaker in &town.speakers {
        assert_eq!(speaker.kernel_routes("-4"), "", "{}", speaker.ask("show route all"));
    }
}

/// A node that announces what it likes: whatever its own agent would have told its BIRD.
fn lie(town: &Town, number: usize, lies: &[&str]) {
    let speaker = &town.speakers[number - 1];
    let honest = std::fs::read_to_string(&speaker.config).unwrap();
    let mut config = honest;
    for (version, suffix) in [("ipv4", "v4"), ("ipv6", "v6")] {
        let head = format!("function announce_{suffix}() {{\n");
        config = config.replace(&head, &format!("{head}  accept;\n"));
        let is_meant = |lie: &&&str| lie.contains(':') == (version == "ipv6");
        let routes: String =
            lies.iter().filter(is_meant).map(|lie| format!("  route {lie} blackhole;\n")).collect();
        config.push_str(&format!("protocol static lies_{suffix} {{\n  {version};\n{routes}}}\n"));
    }
    std::fs::write(&speaker.config, config).unwrap();
    let answer = speaker.ask("configure");
    assert!(answer.contains("Reconfigured"), "{answer}");
}

#[test]
fn a_node_of_the_mesh_is_believed_about_pools_only() {
    let Some(mut town) = Town::new("a_node_of_the_mesh_is_believed_about_pools_only", 3) else { return };
    town.configure(json!({"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]}));
    // The pool holds the address of a node, too.
    town.view.pools.push(pool("10.0.0.0/28"));
    town.view.pools.iter_mut().for_each(|pool| pool.is_birds = true);
    town.start();
    town.wait_until_established();
    town.assert_everybody_knows_every_block();
    let lies = [
        "0.0.0.0/0",
        "10.0.0.0/25",
        "10.0.0.3/32",
        "203.0.113.0/24",
        "::/0",
        "fd00::/65",
        "fd00::3/128",
        "2001:db8::/32",
    ];
    lie(&town, 1, &[&lies[..], &["10.244.99.0/26", "fd10::9900/122"]].concat());
    let speaker = &town.speakers[1];
    wait_until("what is in pools", || {
        let known = speaker.ask("show route");
        known.contains("10.244.99.0/26") && known.contains("fd10::9900/122")
    })
    .unwrap();
    for lie in lies {
        let known = speaker.ask(&format!("show route for {lie} protocol Mesh_10_0_0_1"))
            + &speaker.ask(&format!("show route for {lie} protocol Mesh_fd00__1"));
        let leads =
            |text: &str, to: &str| text.lines().any(|line| line.split_whitespace().next() == Some(to));
        let is_taken = leads(&known, lie);
        assert!(!is_taken, "{lie}: {known}");
        let kernel = speaker.kernel_routes("-4") + &speaker.kernel_routes("-6");
        let shown = lie.trim_end_matches("/32").trim_end_matches("/128").replace("0.0.0.0/0", "default");
        assert!(!leads(&kernel, &shown), "{lie}: {kernel}");
    }
    // A peer that the operator has named is believed, unless a filter says otherwise.
    town.peer("first", json!({"peerIP": "10.0.0.1", "asNumber": 64512}));
    town.reload(2);
    let speaker = &town.speakers[1];
    wait_until("what a named peer says", || speaker.ask("show route").contains("203.0.113.0/24")).unwrap();
}

/// Two of six reflect. Nobody else speaks to anybody but these.
#[test]
fn six_nodes_with_route_reflectors_learn_every_block() {
    let Some(mut town) = Town::new("six_nodes_with_route_reflectors_learn_every_block", 6) else { return };
    town.configure(json!({"nodeToNodeMeshEnabled": false}));
    for number in [1, 2] {
        town.node(number, json!({"routeReflectorClusterID": "1.0.0.1"}), &[("reflects", "yes")]);
    }
    town.peer("to-reflectors", json!({"nodeSelector": "all()", "peerSelector": "has(reflects)"}));
    town.start();
    town.wait_until_established();
    town.assert_everybody_knows_every_block();
    let sessions = |number: usize| town.speakers[number - 1].sessions().len();
    assert_eq!((sessions(1), sessions(3)), (10, 4), "two per peer, one for each IP version");
}

#[test]
fn sessions_with_a_password_come_up_only_where_it_is_the_same() {
    let Some(mut town) = Town::new("sessions_with_a_password_come_up_only_where_it_is_the_same", 3) else {
        return;
    };
    town.configure(json!({"nodeMeshPassword": {"secretKeyRef": {"name": "bgp", "key": "mesh"}}}));
    let key = SecretKey { name: "bgp".to_owned(), key: "mesh".to_owned() };
    for number in 1..=3 {
        let password = if number == 3 { "another" } else { "the same" };
        town.view.secrets.insert(key.clone(), password.to_owned());
        town.start_one(number);
    }
    let up = |town: &Town, number: usize| {
        let sessions = town.speakers[number - 1].sessions();
        sessions
            .into_iter()
            .filter(|(_, state)| state == "Established")
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
    };
    wait_until("the two that agree", || up(&town, 1) == ["Mesh_10_0_0_2", "Mesh_fd00__2"]).unwrap();
    assert_eq!(up(&town, 3), [] as [&str; 0]);
    // Without the secret there is no session at all, rather than an open one.
    town.view.secrets.clear();
    town.start_one(3);
    assert_eq!(town.speakers[2].sessions(), [] as [(String, String); 0]);
}

#[test]
fn a_new_block_is_announced_without_dropping_a_session() {
    let Some(mut town) = Town::new("a_new_block_is_announced_without_dropping_a_session", 2) else { return };
    town.start();
    town.wait_until_established();
    let since = |town: &Town| town.speakers[1].ask("show protocols");
    let before = since(&town);
    town.speakers[0].more_blocks.push("10.244.77.0/26".parse().unwrap());
    town.reload(1);
    wait_until("the new block", || town.speakers[1].ask("show route").contains("10.244.77.0/26")).unwrap();
    let after = since(&town);
    assert!(are_same_sessions(&before, &after), "a session was dropped:\n{before}\n{after}");
}

/// Who writes the routes changes while they are known already.
#[test]
fn another_writer_takes_over_routes_that_are_there() {
    let Some(mut town) = Town::new("another_writer_takes_over_routes_that_are_there", 2) else { return };
    town.start();
    town.wait_until_established();
    town.assert_everybody_knows_every_block();
    let (block, before) = (town.speakers[1].block_v4().to_string(), town.speakers[1].ask("show protocols"));
    assert_eq!(town.speakers[0].kernel_routes("-4"), "");
    town.view.pools.iter_mut().for_each(|pool| pool.is_birds = true);
    town.reload(1);
    wait_until("BIRD's route", || town.speakers[0].kernel_routes("-4").contains(&block)).unwrap();
    town.view.pools.iter_mut().for_each(|pool| pool.is_birds = false);
    town.reload(1);
    wait_until("no route of BIRD's", || town.speakers[0].kernel_routes("-4").is_empty()).unwrap();
    let after = town.speakers[1].ask("show protocols");
    assert!(are_same_sessions(&before, &after), "a session was dropped:\n{before}\n{after}");
}

/// Whether two answers tell of the same protocols in the same states since the same time. BIRD reckons that time anew whenever it is
/// asked, and may round it otherwise.
fn are_same_sessions(before: &str, after: &str) -> bool {
    let millis = |word: &str| {
        let (hours, rest) = word.split_once(':')?;
        let (minutes, seconds) = rest.split_once(':')?;
        let seconds: f64 = seconds.parse().ok()?;
        Some(
            (hours.parse::<u64>().ok()? * 60 + minutes.parse::<u64>().ok()?) as f64 * 60_000.0
                + seconds * 1000.0,
        )
    };
    let is_same = |(one, other): (&str, &str)| match (millis(one), millis(other)) {
        (Some(one), Some(other)) => (one - other).abs() < 10.0,
        _ => one == other,
    };
    let (before, after): (Vec<&str>, Vec<&str>) =
        (before.split_whitespace().collect(), after.split_whitespace().collect());
    before.len() == after.len() && before.into_iter().zip(after).all(is_same)
}

#[test]
fn a_session_that_was_dropped_is_seen_by_its_time() {
    let line = "Mesh_fd00__1 BGP --- up 06:51:28.618 Established\n";
    assert!(are_same_sessions(line, &line.replace(".618", ".619")));
    assert!(!are_same_sessions(line, &line.replace("28.618", "29.102")));
    assert!(!are_same_sessions(line, &line.replace("up", "start")));
}

#[test]
fn a_configuration_that_is_refused_leaves_the_old_one() {
    let Some(mut town) = Town::new("a_configuration_that_is_refused_leaves_the_old_one", 2) else { return };
    town.start();
    town.wait_until_established();
    let speaker = &town.speakers[0];
    std::fs::write(&speaker.config, "protocol nonsense {").unwrap();
    let answer = speaker.ask("configure");
    assert!(answer.contains("syntax error"), "{answer}");
    assert!(speaker.sessions().iter().all(|(_, state)| state == "Established"));
}

/// Filters of every kind, and whatever else a peer can be given: BIRD takes it.
#[test]
fn bird_understands_all_that_records_can_say() {
    let Some(mut town) = Town::new("bird_understands_all_that_records_can_say", 2) else { return };
    town.configure(json!({
        "listenPort": 1790, "bindMode": "NodeIP", "ignoredInterfaces": ["docker*"], "nodeMeshMaxRestartTime": "3m",
        "serviceClusterIPs": [{"cidr": "10.96.0.0/12"}, {"cidr": "fd96::/108"}],
        "communities": [{"name": "blue", "value": "65001:7"}],
        "prefixAdvertisements": [{"cidr": "10.244.0.0/16", "communities": ["blue", "1:2:3"]}],
    }));
    let net = |operator: &str| json!({"action": "Reject", "cidr": "10.9.0.0/16", "matchOperator": operator, "prefixLength": {"min": 20, "max": 30}});
    let rules: Vec<_> = ["Equal", "NotEqual", "In", "NotIn"].iter().map(|operator| net(operator)).chain([
        json!({"action": "Reject", "source": "RemotePeers", "interface": "eth*", "communities": {"values": ["65001:1"]}, "asPathPrefix": [65001], "priority": 512}),
        json!({"action": "Accept", "peerType": "eBGP", "communities": {"values": ["1:2:3"]}, "operations": [
            {"addCommunity": {"value": "1:2:3"}}, {"prependASPath": {"prefix": [65001, 65002]}}, {"setPriority": {"value": 1024}}]}),
    ]).collect();
    town.filter(
        "all",
        json!({"exportV4": rules, "importV4": rules, "exportV6": [], "importV6": [{"action": "Reject"}]}),
    );
    town.peer("tor", json!({
        "peerIP": "10.0.0.200:1799", "asNumber": 65000, "localASNumber": 65010, "nextHopMode": "Keep", "maxRestartTime": "2m", "keepaliveTime": "10s",
        "numAllowedLocalASNumbers": 2, "ttlSecurity": 3, "reachableBy": "10.0.0.254", "filters": ["all"],
    }));
    town.view.pools.push(plan::bgp::BgpPool { is_exported: false, ..pool("10.100.0.0/16") });
    town.view.borrowed.push("10.244.200.9".parse().unwrap());
    town.start();
    wait_until("the mesh", || {
        town.speakers
            .iter()
            .all(|speaker| speaker.sessions().iter().filter(|(_, state)| state == "Established").count() == 2)
    })
    .unwrap();
    assert!(town.speakers[0].sessions().iter().any(|(name, _)| name == "Global_10_0_0_200_port_1799"));
}
