//! The capabilities that the programs need: the agent works with those of its systemd unit, the plugin with none.

use std::net::IpAddr;

use model::settings::AGENT_CAPABILITIES;
use model::{AffinityOwner, Key, Kind};
use serde_json::json;
use testkit::process::on_path;

use crate::common::Bench;
use crate::running::{Agent, wait_until};

/// What a process may have at most: these, whatever its user.
fn bounded(capabilities: &[&str]) -> Vec<String> {
    let kept: String = capabilities
        .iter()
        .map(|name| format!(",+{}", name.to_ascii_lowercase().trim_start_matches("cap_")))
        .collect();
    let bounding = format!("--bounding-set=-all{kept}");
    ["setpriv", "--no-new-privs", &bounding, "--inh-caps=-all"].map(str::to_owned).to_vec()
}

/// A node with a card, another node that is reached through VXLAN, and a pool that is masqueraded.
fn prepare(bench: &Bench) {
    for arguments in [
        "link add uplink type veth peer name beyond",
        "address add 198.18.0.1/24 dev uplink",
        "link set uplink up",
        "link set beyond up",
    ] {
        bench.node.namespace().ip(&arguments.split(' ').collect::<Vec<_>>()).unwrap();
    }
    bench.put(
        Kind::IpPool,
        "pods",
        json!({"cidr": "10.244.0.0/16", "vxlanMode": "Always", "natOutgoing": true}),
    );
    let bgp = json!({"ipv4Address": "198.18.0.2/24"});
    bench.put(Kind::Node, "node-b", json!({"bgp": bgp, "ipv4VXLANTunnelAddr": "10.244.9.0"}));
    let block = json!({
        "cidr": "10.244.9.0/26", "affinity": "host:node-b", "strictAffinity": false,
        "allocations": vec![None::<usize>; 64], "unallocated": (0..64).collect::<Vec<_>>(), "attributes": [],
    });
    let cidr = "10.244.9.0/26".parse().unwrap();
    let affinity = Key::Affinity { owner: AffinityOwner::Host("node-b".to_owned()), block: cidr };
    bench.books().with_store(async |store| {
        let affinity_record = json!({"state": "confirmed", "deleted": "false"}).to_string();
        for (key, value) in [(Key::Block(cidr), block.to_string()), (affinity, affinity_record)] {
            store.create(key, value.into()).await.unwrap();
        }
    });
}

fn start(bench: &Bench, capabilities: &[&str]) -> Agent {
    let starter = bounded(capabilities);
    let starter: Vec<&str> = starter.iter().map(String::as_str).collect();
    let agent = bench.start_agent_by(&starter, &[("IP", "198.18.0.1/24")]);
    bench.wait_until_ready(&agent);
    agent
}

/// What `/proc/PID/status` says: the capabilities in use, as a mask.
fn effective(agent: &Agent) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(line.trim(), 16).unwrap()
}

#[test]
fn the_agent_works_with_the_capabilities_of_its_unit() {
    let test = "the_agent_works_with_the_capabilities_of_its_unit";
    let Some(bench) = Bench::empty(test) else { return };
    if !on_path("setpriv") || !on_path("nft") {
        testkit::skip(test, "setpriv or nft is not installed");
        return;
    }
    prepare(&bench);
    let agent = start(&bench, &AGENT_CAPABILITIES);
    assert_eq!(effective(&agent).count_ones() as usize, AGENT_CAPABILITIES.len(), "{}", agent.log());
    let pods = ["web-0", "web-1"].map(|name| bench.pod("shop", name));
    let addresses: Vec<IpAddr> = pods.iter().map(|pod| bench.agent_add(pod).address().unwrap()).collect();
    assert!(pods[0].netns().can_ping(&addresses[1].to_string()).unwrap());
    let namespace = bench.node.namespace();
    let tunnel = || namespace.ip(&["route", "show", "10.244.9.0/26"]).unwrap_or_default();
    wait_until(|| tunnel().contains("dev vxlan.calico"), || format!("{}{}", tunnel(), agent.log()));
    wait_until(|| bench.metric("nat_failed") == 0, || agent.log());
    // What a stranger takes away is put back.
    let route = format!("{}/32", addresses[0]);
    namespace.ip(&["route", "del", &route]).unwrap();
    wait_until(|| !namespace.ip(&["route", "show", &route]).unwrap().is_empty(), || agent.log());
    // The doctor has the agent look into the pods.
    let mut doctor = std::process::Command::new("ip");
    doctor.args(["netns", "exec", namespace.name()]).arg(bench.programs().plumb());
    doctor.args(["doctor", "--settle", "0", "-o", "json", "--agent-socket"]).arg(bench.socket());
    doctor.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", bench.lab.store_path());
    let said = String::from_utf8_lossy(&doctor.output().unwrap().stdout).into_owned();
    assert!(!said.contains("not permitted") && !said.contains("ermission denied"), "{said}");
    let log = agent.log();
    assert!(!log.contains("not permitted") && !log.contains("ermission denied"), "{log}");
    for pod in &pods {
        let outcome = bench.agent_del(pod);
        assert!(outcome.success, "{}{}", outcome.stdout, outcome.stderr);
    }
    agent.stop();
}

#[test]
fn an_agent_that_lacks_a_capability_for_pods_refuses_them() {
    let test = "an_agent_that_lacks_a_capability_for_pods_refuses_them";
    let Some(bench) = Bench::empty(test) else { return };
    if !on_path("setpriv") {
        testkit::skip(test, "setpriv is not installed");
        return;
    }
    bench.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/16"}));
    for (missing, pod) in [("CAP_NET_ADMIN", "a"), ("CAP_SYS_ADMIN", "b")] {
        let kept: Vec<&str> = AGENT_CAPABILITIES.into_iter().filter(|name| *name != missing).collect();
        let starter = bounded(&kept);
        let starter: Vec<&str> = starter.iter().map(String::as_str).collect();
        let agent = bench.start_agent_by(&starter, &[]);
        let log = || agent.log();
        wait_until(|| bench.socket().exists(), log);
        let outcome = bench.agent_add(&bench.pod("shop", pod));
        assert!(!outcome.success, "without {missing}: {}", outcome.stdout);
        agent.stop();
        assert_eq!(bench.books().endpoints(), [] as [String; 0], "without {missing}");
    }
}

#[test]
fn the_plugin_needs_no_capability_when_there_is_an_agent() {
    let test = "the_plugin_needs_no_capability_when_there_is_an_agent";
    let Some(bench) = Bench::empty(test) else { return };
    if !on_path("setpriv") {
        testkit::skip(test, "setpriv is not installed");
        return;
    }
    bench.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/16"}));
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web");
    for verb in ["ADD", "DEL"] {
        let mut call = bench.agent_call(verb, &pod);
        call.starter = bounded(&[]);
        let outcome = call.run(&bench.node).unwrap();
        assert!(outcome.success, "{verb}: {}{}", outcome.stdout, outcome.stderr);
    }
    agent.stop();
}

#[test]
fn one_call_without_an_agent_needs_two_capabilities() {
    let test = "one_call_without_an_agent_needs_two_capabilities";
    let Some(bench) = Bench::empty(test) else { return };
    if !on_path("setpriv") {
        testkit::skip(test, "setpriv is not installed");
        return;
    }
    bench.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/16"}));
    let call = |verb: &str, capabilities: &[&str], pod: &lab::Pod| {
        let mut call = bench.call(verb, pod);
        call.starter = bounded(capabilities);
        call.run(&bench.node).unwrap()
    };
    const BOTH: [&str; 2] = ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"];
    let pod = bench.pod("shop", "web");
    for verb in ["ADD", "DEL"] {
        let outcome = call(verb, &BOTH, &pod);
        assert!(outcome.success, "{verb}: {}{}", outcome.stdout, outcome.stderr);
    }
    for one in BOTH {
        let outcome = call(
            "ADD",
            &[one],
            &bench.pod("shop", &format!("with-{}", one.to_lowercase().replace('_', "-"))),
        );
        assert!(!outcome.success, "{one} alone: {}", outcome.stdout);
    }
}
