//! The address by which a node is known: a second card does not move it, and where it really moves the others follow.

use lab::Pinger;
use lab::cluster::{Mode, Topology};

use crate::scene::{Scene, plan};

/// Nothing is said about the address, and looks follow each other quickly.
const UNSAID: [(&str, &str); 2] = [("IP", ""), ("AUTODETECT_POLL_INTERVAL", "200ms")];

fn recorded(scene: &Scene, index: usize) -> String {
    scene.lab.plumb(&["get", "node", scene.node(index), "-o", "jsonpath={.spec.bgp.ipv4Address}"]).unwrap()
}

#[test]
fn a_second_card_that_comes_later_does_not_move_a_node() {
    let test = "a_second_card_that_comes_later_does_not_move_a_node";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::TwoCards, false)) else { return };
    scene.assert_all_talk();
    let pinger = Pinger::start("the other node's pod", scene.in_pod(0), &scene.pods[1].addresses[0]).unwrap();
    for setting in [&UNSAID[..], &[("IP", "autodetect"), ("AUTODETECT_POLL_INTERVAL", "200ms")]] {
        let node = scene.node(1);
        scene.lab.kill(node, "agent").unwrap();
        // Even the default route leads out of the second card now.
        scene.lab.run_on(node, &["ip", "route", "replace", "default", "via", "172.30.9.254"]).unwrap();
        scene.lab.launch(node, "agent", setting).unwrap();
        scene.lab.wait_for_service(node, "agent").unwrap();
        pinger.wait_for_more(100).unwrap();
        assert_eq!(recorded(&scene, 1).trim(), "172.30.0.2/24", "{setting:?}");
    }
    let tally = pinger.stop().unwrap();
    assert_eq!(tally.lost, 0, "{tally:?}");
}

#[test]
fn an_address_on_the_wrong_card_is_named() {
    let test = "an_address_on_the_wrong_card_is_named";
    let Some(scene) = Scene::new(test, || plan(3, Mode::Direct, Topology::TwoCards, false)) else { return };
    scene.assert_all_talk();
    let node = scene.node(1);
    let forced = [("IP", "autodetect"), ("IP_AUTODETECTION_METHOD", "interface=eth1")];
    scene.lab.kill(node, "agent").unwrap();
    scene.lab.launch(node, "agent", &forced).unwrap();
    let readiness = |index: usize| {
        scene.lab.run_on(scene.node(index), &["curl", "-s", "127.0.0.1:9099/readiness"]).unwrap_or_default()
    };
    lab::wait_for("the cause to be named", || {
        let said = readiness(1);
        let cause = "172.30.9.2/24 is not in 172.30.0.0/24, where 2 other nodes are";
        anyhow::ensure!(said.contains(cause), "{said}");
        Ok(())
    })
    .unwrap();
    assert!(!readiness(0).contains("172.30"), "the others are not to blame: {}", readiness(0));
    // Put right: nothing is left of it.
    scene.lab.kill(node, "agent").unwrap();
    scene.lab.start(node, "agent", &[]).unwrap();
    assert_eq!(recorded(&scene, 1).trim(), "172.30.0.2/24");
    scene.assert_all_talk();
}

#[test]
fn a_node_that_returns_with_another_address_is_reached_again() {
    let test = "a_node_that_returns_with_another_address_is_reached_again";
    let Some(scene) = Scene::new(test, || plan(3, Mode::Crosssubnet, Topology::Shared, false)) else {
        return;
    };
    scene.assert_all_talk();
    let pinger =
        Pinger::start("the pod of the node that moves", scene.in_pod(0), &scene.pods[2].addresses[0])
            .unwrap();
    let node = scene.node(2);
    scene.lab.kill(node, "agent").unwrap();
    for words in [
        "address del 172.30.0.3/24 dev eth0",
        "address add 172.30.0.33/24 dev eth0",
        "route replace default via 172.30.0.254",
    ] {
        scene.lab.run_on(node, &[&["ip"], &words.split(' ').collect::<Vec<_>>()[..]].concat()).unwrap();
    }
    scene.lab.launch(node, "agent", &UNSAID).unwrap();
    scene.lab.wait_for_service(node, "agent").unwrap();
    lab::wait_for("the others to follow", || {
        let routes = scene.routes(0);
        anyhow::ensure!(routes.contains("via 172.30.0.33"), "{routes}{}", scene.evidence());
        Ok(())
    })
    .unwrap();
    pinger.wait_for_more(50).unwrap();
    let tally = pinger.stop().unwrap();
    println!("while the node moved: {} packets lost, {} answered", tally.lost, tally.answered);
    scene.assert_all_talk();
}

/// Everything that the agent of a node has said.
fn log(scene: &Scene, index: usize) -> String {
    scene.lab.log_tail(scene.node(index), "agent", usize::MAX)
}

const READINESS: [&str; 3] = ["curl", "-s", "127.0.0.1:9099/readiness"];

/// What a command on a node prints, whatever becomes of it.
pub(crate) fn printed(scene: &Scene, index: usize, words: &[&str]) -> String {
    let output = scene.lab.output_on(scene.node(index), words).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(scene: &Scene, index: usize, line: &str) {
    scene.lab.run_on(scene.node(index), &["sh", "-ec", line]).unwrap();
}

/// As if the node had never had an address.
fn forget_address(scene: &Scene, index: usize) {
    let patch = r#"{"spec":{"bgp":null}}"#;
    scene.lab.plumb(&["patch", "node", scene.node(index), "-p", patch]).unwrap();
    assert_eq!(recorded(scene, index).trim(), "");
}

fn wait_for_word(what: &str, said: impl Fn() -> String, word: &str) {
    lab::wait_for(what, || {
        let said = said();
        anyhow::ensure!(said.contains(word), "no {word:?} in {said}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn an_address_that_others_do_not_answer_to_is_named_and_not_taken_anew() {
    let test = "an_address_that_others_do_not_answer_to_is_named_and_not_taken_anew";
    let Some(scene) = Scene::new(test, || plan(3, Mode::Direct, Topology::TwoCards, false)) else { return };
    scene.assert_all_talk();
    let node = scene.node(0);
    scene.lab.kill(node, "agent").unwrap();
    // The records are fine, and so are the cards: only packets show it.
    for other in [1, 2] {
        run(&scene, other, "ip route add blackhole 172.30.0.1/32");
    }
    scene.lab.launch(node, "agent", &UNSAID).unwrap();
    let cause = "172.30.0.2, 172.30.0.3 do not answer to it, but to 172.30.9.1";
    wait_for_word("readiness", || printed(&scene, 0, &READINESS), cause);
    wait_for_word("the log", || log(&scene, 0), &format!("address may be wrong: 172.30.0.1: {cause}"));
    let metrics = || printed(&scene, 0, &["curl", "-s", "127.0.0.1:9099/metrics"]);
    wait_for_word("the metric", metrics, "plumb_node_address_doubts 1\n");
    let status = || printed(&scene, 0, &["plumb", "node", "status"]);
    wait_for_word("the status", status, "172.30.0.1/24 on eth0: recorded, and the node still has it");
    wait_for_word("the status", status, cause);
    let doctor = || printed(&scene, 0, &["plumb", "doctor", "-o", "json"]);
    let finding = "172.30.0.1, to which other nodes do not reply, although they reply to its 172.30.9.1";
    wait_for_word("the doctor", doctor, finding);
    assert!(doctor().contains("asked from 172.30.0.1: 172.30.0.2, 172.30.0.3; no answer"), "{}", doctor());
    // It is kept, for it was the node's before. One that has none yet takes what is answered.
    assert_eq!(recorded(&scene, 0).trim(), "172.30.0.1/24");
    scene.lab.kill(node, "agent").unwrap();
    forget_address(&scene, 0);
    scene.lab.launch(node, "agent", &UNSAID).unwrap();
    wait_for_word("the other address", || recorded(&scene, 0), "172.30.9.1/24");
    wait_for_word(
        "the log",
        || log(&scene, 0),
        &format!("refused an address for this node: 172.30.0.1: {cause}"),
    );
}

#[test]
fn a_method_without_effect_is_logged_and_found() {
    let test = "a_method_without_effect_is_logged_and_found";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::TwoCards, false)) else { return };
    let node = scene.node(0);
    scene.lab.kill(node, "agent").unwrap();
    let with_method = [UNSAID[0], UNSAID[1], ("IP_AUTODETECTION_METHOD", "interface=eth1")];
    scene.lab.launch(node, "agent", &with_method).unwrap();
    let cause = "the method interface=eth1 has no effect: the node is already registered with 172.30.0.1";
    wait_for_word("the log", || log(&scene, 0), &format!("address may be wrong: {cause}"));
    let status = || printed(&scene, 0, &["plumb", "node", "status"]);
    wait_for_word("the status", status, cause);
    let doctor = || printed(&scene, 0, &["plumb", "doctor", "-o", "json"]);
    wait_for_word("the doctor", doctor, "node-address-doubtful");
    assert!(doctor().contains(cause), "{}", doctor());
    assert_eq!(recorded(&scene, 0).trim(), "172.30.0.1/24");
}

/// A program by the kubelet's name, with its flag. It ends with its node.
fn start_kubelet(scene: &Scene, index: usize, node_ip: &str) {
    let line = format!(
        "mkdir -p /run/own; cp /bin/sh /run/own/kubelet; \
         setsid /run/own/kubelet -c 'sleep 3600; true' kubelet --node-ip={node_ip} </dev/null >/dev/null 2>&1 &"
    );
    run(scene, index, &line);
}

#[test]
fn without_an_address_the_kubelets_node_ip_decides_between_two_cards() {
    let test = "without_an_address_the_kubelets_node_ip_decides_between_two_cards";
    let Some(scene) = Scene::new(test, || plan(1, Mode::Direct, Topology::TwoCards, false)) else { return };
    let node = scene.node(0);
    scene.lab.kill(node, "agent").unwrap();
    forget_address(&scene, 0);
    // Nobody says anything: the default route decides, and the doubt is named.
    scene.lab.launch(node, "agent", &UNSAID).unwrap();
    let doubt = "nothing confirms that other nodes reach this node at 172.30.0.1 and not at 172.30.9.1";
    wait_for_word("the doubt", || printed(&scene, 0, &["plumb", "node", "status"]), doubt);
    scene.lab.kill(node, "agent").unwrap();
    forget_address(&scene, 0);
    start_kubelet(&scene, 0, "172.30.9.1");
    scene.lab.launch(node, "agent", &UNSAID).unwrap();
    wait_for_word("the kubelet's address", || recorded(&scene, 0), "172.30.9.1/24");
    let status = printed(&scene, 0, &["plumb", "node", "status"]);
    assert!(!status.contains("nothing confirms"), "{status}");
}

#[test]
fn without_any_answer_nothing_is_concluded() {
    let test = "without_any_answer_nothing_is_concluded";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::TwoCards, false)) else { return };
    // As behind a firewall that lets no such packets in.
    run(&scene, 1, "echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all");
    let node = scene.node(0);
    scene.lab.kill(node, "agent").unwrap();
    scene.lab.launch(node, "agent", &UNSAID).unwrap();
    scene.lab.wait_for_service(node, "agent").unwrap();
    let status = || printed(&scene, 0, &["plumb", "node", "status"]);
    wait_for_word("a look at the address", status, "172.30.0.1/24 on eth0: recorded");
    assert!(!status().contains("Doubt"), "{}", status());
    assert_eq!(recorded(&scene, 0).trim(), "172.30.0.1/24");
}

#[test]
fn neither_a_virtual_address_nor_another_nodes_is_taken() {
    let test = "neither_a_virtual_address_nor_another_nodes_is_taken";
    let Some(scene) = Scene::new(test, || plan(2, Mode::Direct, Topology::Shared, false)) else { return };
    let node = scene.node(0);
    for (change, refusal, taken) in [
        // As keepalived does it; and packets leave with that address, too.
        (
            "ip address add 172.30.0.100/32 dev eth0; \
             ip route replace default via 172.30.0.254 src 172.30.0.100",
            "172.30.0.100 on eth0 may move to another machine",
            "172.30.0.1/24",
        ),
        // A machine that was made from the other one's image.
        (
            "ip address flush dev eth0; ip address add 172.30.0.2/24 dev eth0; \
             ip route replace default via 172.30.0.254",
            "172.30.0.2 is the address of the node node2",
            "",
        ),
    ] {
        scene.lab.kill(node, "agent").unwrap();
        forget_address(&scene, 0);
        run(&scene, 0, change);
        scene.lab.launch(node, "agent", &UNSAID).unwrap();
        let refused = format!("refused an address for this node: {refusal}");
        wait_for_word("the refusal", || log(&scene, 0), &refused);
        wait_for_word("the address", || format!("{:?}", recorded(&scene, 0).trim()), &format!("{taken:?}"));
    }
    // Not even if the operator says it.
    scene.lab.kill(node, "agent").unwrap();
    scene.lab.launch(node, "agent", &[("IP", "172.30.0.2"), ("AUTODETECT_POLL_INTERVAL", "200ms")]).unwrap();
    wait_for_word(
        "readiness",
        || printed(&scene, 0, &READINESS),
        "cannot reach other nodes: no device of this node has its IPv4 address",
    );
    assert_eq!(recorded(&scene, 0).trim(), "");
    assert_eq!(recorded(&scene, 1).trim(), "172.30.0.2/24");
}

/// Nothing is said about the address, and looks are far apart.
const SELDOM: [(&str, &str); 2] = [("IP", ""), ("AUTODETECT_POLL_INTERVAL", "1h")];

/// What the others hold of this node's hardware address until they forget it: packets to its address go to a card that is gone.
fn remember_old_card(scene: &Scene, is_remembered: bool) {
    let line = match is_remembered {
        true => "ip neigh replace 172.30.0.1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
        false => "ip neigh del 172.30.0.1 dev eth0",
    };
    [1, 2].iter().for_each(|other| run(scene, *other, line));
}

#[test]
fn a_node_that_returns_with_another_card_does_not_call_itself_unreachable() {
    let test = "a_node_that_returns_with_another_card_does_not_call_itself_unreachable";
    let Some(scene) = Scene::new(test, || plan(3, Mode::Direct, Topology::TwoCards, false)) else { return };
    scene.assert_all_talk();
    let node = scene.node(0);
    scene.lab.kill(node, "agent").unwrap();
    run(&scene, 0, "ip link set eth0 address 02:00:00:00:00:42");
    remember_old_card(&scene, true);
    scene.lab.launch(node, "agent", &SELDOM).unwrap();
    wait_for_word(
        "a look without an answer",
        || log(&scene, 0),
        "but not to this one: observation 1 of 4 address=172.30.0.1",
    );
    remember_old_card(&scene, false);
    // The next look is not an hour away.
    let status = || printed(&scene, 0, &["plumb", "doctor", "-o", "json"]);
    lab::wait_for("readiness", || {
        let said = printed(&scene, 0, &READINESS);
        anyhow::ensure!(said.starts_with("ok"), "{said}");
        Ok(())
    })
    .unwrap();
    scene.assert_all_talk();
    assert!(!status().contains("node-address-unfit"), "{}", status());
    let said = log(&scene, 0);
    assert!(!said.contains("address may be wrong"), "one look was enough for a verdict: {said}");
}

#[test]
fn a_verdict_of_silence_ends_soon_after_the_silence() {
    let test = "a_verdict_of_silence_ends_soon_after_the_silence";
    let Some(scene) = Scene::new(test, || plan(3, Mode::Direct, Topology::TwoCards, false)) else { return };
    scene.assert_all_talk();
    let node = scene.node(0);
    scene.lab.kill(node, "agent").unwrap();
    remember_old_card(&scene, true);
    scene.lab.launch(node, "agent", &SELDOM).unwrap();
    let cause = "172.30.0.2, 172.30.0.3 do not answer to it, but to 172.30.9.1";
    wait_for_word("readiness", || printed(&scene, 0, &READINESS), cause);
    remember_old_card(&scene, false);
    wait_for_word("readiness", || printed(&scene, 0, &READINESS), "ok");
}
