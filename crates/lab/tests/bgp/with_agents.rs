//! The real agent with the real BIRD: it configures, starts, watches and reloads it.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

use lab::{CniCall, Node, Pod};
use serde_json::json;
use testkit::process::{Process, command, wait_until};

use crate::town::{Town, resource};

/// A node with an agent of its own.
struct Manned {
    number: usize,
    folder: PathBuf,
    agent: Option<Process>,
    node: Node,
}

impl Manned {
    fn new(town: &Town, number: usize) -> Manned {
        let folder = town.lab.folder().join(format!("agent-{number}"));
        std::fs::create_dir_all(&folder).unwrap();
        Manned { number, folder, agent: None, node: town.plug_in(&format!("n{number}"), number) }
    }

    fn start(&mut self, town: &Town, settings: &[(&str, &str)]) {
        self.agent = None;
        let mut agent = command("ip");
        agent.args(["netns", "exec", self.node.namespace().name()]).arg(town.lab.programs().daemon());
        agent.args(["node", "--node-name", &format!("n{}", self.number)]);
        agent.arg("--socket").arg(self.folder.join("agent.sock")).arg("--state-dir").arg(&self.folder);
        agent.arg("--bird-socket").arg(self.folder.join("bird.ctl"));
        agent.arg("--bgp-secrets").arg(town.lab.folder().join("secrets"));
        agent.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", town.lab.store_path());
        agent.env("CALICO_NETWORKING_BACKEND", "bird").env("IP", format!("10.0.0.{}/24", self.number));
        agent.env("CALICO_IPV4POOL_CIDR", "10.244.0.0/16").env("CALICO_IPV4POOL_IPIP", "Never");
        agent.envs(settings.iter().copied());
        let log = File::options().create(true).append(true).open(self.folder.join("agent.log")).unwrap();
        agent.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.agent = Some(Process::spawn(agent).unwrap());
    }

    fn ask(&self, question: &str) -> String {
        host::bird::ask(&self.folder.join("bird.ctl"), question).unwrap_or_default()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("agent.log")).unwrap_or_default()
    }

    /// What the agent says about its readiness: the status, and what is missing.
    fn readiness(&self) -> String {
        let asked = self.node.namespace().run(
            std::path::Path::new("busybox"),
            &["sh", "-c", "printf 'GET /readiness HTTP/1.1\\r\\n\\r\\n' | busybox nc -w 5 127.0.0.1 9099"],
        );
        asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    }

    #[track_caller]
    fn wait_until_ready(&self) {
        let waited = wait_until("readiness", || self.readiness().starts_with("HTTP/1.1 200"));
        assert!(waited.is_ok(), "{}\n{}", self.readiness(), self.log());
    }

    #[track_caller]
    fn wait_until_missing(&self, words: &str) {
        let waited = wait_until("what is missing", || self.readiness().contains(words));
        assert!(waited.is_ok(), "{}\n{}", self.readiness(), self.log());
    }

    fn add(&self, town: &Town, pod: &Pod) -> std::net::IpAddr {
        let socket = self.folder.join("agent.sock").display().to_string();
        let call = CniCall::new(&town.lab, &self.node, "ADD", pod).with_netconf("agent_socket", socket);
        call.run(&self.node).unwrap().address().unwrap()
    }

    /// The process of its BIRD.
    fn bird(&self) -> Option<String> {
        let socket = self.folder.join("bird.ctl").display().to_string();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        processes.filter_map(|entry| entry.file_name().into_string().ok()).find(|id| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.starts_with("bird ") && line.contains(&socket)
        })
    }

    fn kill_bird(&self) {
        if let Some(id) = self.bird() {
            testkit::process::run(std::process::Command::new("kill").args(["-9", &id])).unwrap();
        }
    }
}

impl Drop for Manned {
    fn drop(&mut self) {
        // The agent goes first: it would start another.
        self.agent = None;
        self.kill_bird();
    }
}

fn manned(test: &str) -> Option<(Town, [Manned; 2])> {
    let town = Town::new(test, 0)?;
    let mut nodes = [1, 2].map(|number| Manned::new(&town, number));
    nodes.iter_mut().for_each(|node| node.start(&town, &[]));
    nodes.iter().for_each(Manned::wait_until_ready);
    Some((town, nodes))
}

#[test]
fn agents_make_a_mesh_and_announce_what_they_claim() {
    let test = "agents_make_a_mesh_and_announce_what_they_claim";
    let Some((town, mut nodes)) = manned(test) else { return };
    let pod = town.lab.pod("shop", "web").unwrap();
    let address = nodes[0].add(&town, &pod);
    let block = model::Cidr::containing(address, 26).unwrap().to_string();
    wait_until("the block at the other node", || nodes[1].ask("show route").contains(&block)).unwrap();
    // Its BIRD outlives the agent, and the next agent takes it over.
    let (bird, since) = (nodes[0].bird().unwrap(), nodes[1].ask("show protocols"));
    nodes[0].start(&town, &[]);
    nodes[0].wait_until_ready();
    assert_eq!(nodes[0].bird().unwrap(), bird);
    let after = nodes[1].ask("show protocols");
    assert!(crate::are_same_sessions(&since, &after), "a session was dropped:\n{since}\n{after}");
}

#[test]
fn a_bird_that_dies_is_started_again_and_meanwhile_missed() {
    let Some((_town, nodes)) = manned("a_bird_that_dies_is_started_again_and_meanwhile_missed") else {
        return;
    };
    let before = nodes[0].bird().unwrap();
    nodes[0].kill_bird();
    let waited = wait_until("another BIRD", || nodes[0].bird().is_some_and(|id| id != before));
    assert!(waited.is_ok(), "{}", nodes[0].log());
    nodes[0].wait_until_ready();
}

#[test]
fn what_is_wrong_with_bgp_is_said_by_readiness() {
    let Some((town, mut nodes)) = manned("what_is_wrong_with_bgp_is_said_by_readiness") else { return };
    let store = town.store();
    // A peer that nobody is.
    let peer = resource(model::Kind::BgpPeer, "tor", &[], json!({"peerIP": "10.0.0.99", "asNumber": 65000}));
    store.put(&peer);
    nodes[0].wait_until_missing("Global_10_0_0_99 with 10.0.0.99 (AS 65000) is not established");
    // A password that nobody knows.
    let secret = json!({"peerIP": "10.0.0.99", "asNumber": 65000, "password": {"secretKeyRef": {"name": "bgp", "key": "tor"}}});
    store.put(&resource(model::Kind::BgpPeer, "tor", &[], secret));
    nodes[0].wait_until_missing("there is no key tor in a secret bgp");
    assert!(!nodes[0].ask("show protocols").contains("Global_10_0_0_99"));
    store.remove(&peer.key());
    nodes[0].wait_until_ready();
    // No BIRD at all.
    nodes[0].start(&town, &[("PLUMB_BIRD", "/nowhere/bird")]);
    nodes[0].kill_bird();
    nodes[0].wait_until_missing("cannot start /nowhere/bird; install the package bird2");
}

/// Each may be stored, as with Calico, and BIRD takes no text that has it.
#[test]
fn one_odd_record_leaves_the_other_sessions_and_later_changes_in_force() {
    let test = "one_odd_record_leaves_the_other_sessions_and_later_changes_in_force";
    let Some((town, nodes)) = manned(test) else { return };
    let store = town.store();
    let lengths = json!({"importV4": [{"cidr": "10.0.0.0/8", "matchOperator": "In", "action": "Accept", "prefixLength": {"min": 24, "max": 16}}]});
    let odd = [
        resource(model::Kind::BgpFilter, "odd", &[], lengths),
        resource(
            model::Kind::BgpPeer,
            "odd",
            &[],
            json!({"peerIP": "10.0.0.98", "asNumber": 65000, "keepaliveTime": "24h"}),
        ),
    ];
    let before = nodes[1].ask("show protocols");
    for (number, record) in odd.iter().enumerate() {
        let file = town.lab.folder().join("odd.json");
        let manifest = json!({"apiVersion": "projectcalico.org/v3", "kind": record.kind.to_string(),
            "metadata": {"name": "odd"}, "spec": record.body["spec"]});
        std::fs::write(&file, manifest.to_string()).unwrap();
        let (is_fine, said) = plumb(&town, None, &["apply", "-f", file.to_str().unwrap()]);
        assert!(is_fine && said.contains("BIRD would reject it"), "{said}");
        nodes.iter().for_each(|node| node.wait_until_missing("odd"));
        // It is named, and keeps nobody from being ready.
        nodes.iter().for_each(|node| node.wait_until_ready());
        // What changes later is taken over, by everybody.
        let range = format!("10.{}.0.0/16", 96 + number);
        let spec = json!({"serviceClusterIPs": [{"cidr": range}]});
        store.put(&resource(model::Kind::BgpConfiguration, "default", &[], spec));
        for node in &nodes {
            let waited = wait_until("a later change", || node.ask("show route").contains(&range));
            assert!(waited.is_ok(), "{}\n{}", node.ask("show route"), node.log());
        }
    }
    let after = nodes[1].ask("show protocols");
    assert!(crate::are_same_sessions(&before, &after), "a session was dropped:\n{before}\n{after}");
}

/// A BIRD that refuses more than anybody knows of.
#[test]
fn what_only_bird_refuses_is_found_and_left_out() {
    let Some((town, mut nodes)) = manned("what_only_bird_refuses_is_found_and_left_out") else { return };
    let picky = town.lab.folder().join("picky-bird");
    let script = "#!/bin/sh\n[ \"$1\" = -p ] && grep -q '10.0.0.97\\|(65000,66)' \"$3\" && echo 'I do not like it' >&2 && exit 1\nexec bird \"$@\"\n";
    std::fs::write(&picky, script).unwrap();
    testkit::process::run(std::process::Command::new("chmod").arg("+x").arg(&picky)).unwrap();
    nodes[0].start(&town, &[("PLUMB_BIRD", picky.to_str().unwrap())]);
    nodes[0].wait_until_ready();
    let store = town.store();
    let odd = |address: &str| json!({"peerIP": address, "asNumber": 65000, "filters": ["odd"]});
    let filter = json!({"importV4": [{"action": "Reject", "communities": {"values": ["65000:66"]}}]});
    store.put(&resource(model::Kind::BgpFilter, "odd", &[], filter));
    store.put(&resource(model::Kind::BgpPeer, "disliked", &[], odd("10.0.0.97")));
    store.put(&resource(model::Kind::BgpPeer, "tor", &[], odd("10.0.0.96")));
    nodes[0].wait_until_missing(
        "BIRD refuses the configuration of Global_10_0_0_97, so this session is left out",
    );
    nodes[0]
        .wait_until_missing("BIRD refuses BGPFilter odd, so no routes are exchanged with peers that name it");
    let protocols = nodes[0].ask("show protocols");
    assert!(protocols.contains("Global_10_0_0_96") && !protocols.contains("Global_10_0_0_97"), "{protocols}");
    assert!(protocols.contains("Established"), "{protocols}");
    let spec = json!({"serviceClusterIPs": [{"cidr": "10.99.0.0/16"}]});
    store.put(&resource(model::Kind::BgpConfiguration, "default", &[], spec));
    let waited = wait_until("a later change", || nodes[0].ask("show route").contains("10.99.0.0/16"));
    assert!(waited.is_ok(), "{}\n{}", nodes[0].ask("show route"), nodes[0].log());
    // Corrected: everything is told again.
    store.remove(&resource(model::Kind::BgpPeer, "disliked", &[], json!({})).key());
    store.put(&resource(model::Kind::BgpFilter, "odd", &[], json!({})));
    let waited = wait_until("nothing to be left out", || !nodes[0].readiness().contains("BIRD refuses"));
    assert!(waited.is_ok(), "{}", nodes[0].readiness());
}

/// `plumb node …`, in the node's namespace or outside of it.
fn plumb(town: &Town, at: Option<&Manned>, arguments: &[&str]) -> (bool, String) {
    let program = town.lab.programs().plumb();
    let mut plumb = match at {
        Some(node) => {
            let mut inside = command("ip");
            inside.args(["netns", "exec", node.node.namespace().name()]).arg(program);
            inside
        }
        None => command(program),
    };
    plumb.args(arguments).env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", town.lab.store_path());
    let output = plumb.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_node_tells_how_it_is_on_the_spot_and_from_afar() {
    let test = "a_node_tells_how_it_is_on_the_spot_and_from_afar";
    let Some((town, nodes)) = manned(test) else { return };
    let pod = town.lab.pod("shop", "web").unwrap();
    nodes[0].add(&town, &pod);
    let (agent, bird) = (nodes[0].folder.join("agent.sock"), nodes[0].folder.join("bird.ctl"));
    let here = [
        "node",
        "status",
        "--agent-socket",
        agent.to_str().unwrap(),
        "--bird-socket",
        bird.to_str().unwrap(),
    ];
    let (is_fine, said) = plumb(&town, Some(&nodes[0]), &here);
    assert!(is_fine, "{said}");
    for line in [
        "Calico process is running.",
        "Address       10.0.0.1/24",
        "Blocks        10.244.",
        "| PEER ADDRESS |     PEER TYPE     | STATE |",
        "| 10.0.0.2     | node-to-node mesh | up    |",
        "No IPv6 peers found.",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    let afar = |more: &[&str]| plumb(&town, None, &[&["node", "status", "n2"], more].concat());
    let (is_fine, said) = afar(&[]);
    assert!(!is_fine && said.contains("node n2 has no CalicoNodeStatus record"), "{said}");
    assert!(afar(&["--watch-period", "1"]).0);
    let waited = wait_until("the status from afar", || afar(&[]).0);
    let (_, said) = afar(&[]);
    assert!(waited.is_ok(), "{said}");
    assert!(
        said.contains("| 10.0.0.1     | node-to-node mesh | up    |")
            && said.contains("BIRD          Ready, version 2"),
        "{said}"
    );
    let (is_fine, said) = plumb(&town, None, &["node", "status", "nowhere"]);
    assert!(!is_fine && said.contains("node nowhere does not exist"), "{said}");
}
