//! Beside other plugins: their addresses for us, ours for them, and one after the other in a chain.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lab::{CniOutcome, Pod};
use serde_json::{Value, json};

use crate::common::{Bench, DelOutcome as _, sandbox_of};

/// Where Debian puts the plugins of the CNI project.
const PLUGINS: &str = "/usr/lib/cni";

fn has_plugins(test: &str, names: &[&str]) -> bool {
    let missing = names.iter().find(|name| !Path::new(PLUGINS).join(name).is_file());
    if let Some(name) = missing {
        testkit::skip(
            test,
            &format!("there is no {PLUGINS}/{name} (Debian package containernetworking-plugins)"),
        );
    }
    missing.is_none()
}

/// A folder with our plugin under both of its names, and those of the CNI project.
fn plugin_path(bench: &Bench) -> String {
    let folder = bench.lab.folder().join("bin");
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["plumb-cni", "plumb-ipam"] {
        let link = folder.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(bench.programs().cni(), link).unwrap();
        }
    }
    format!("{}:{PLUGINS}", folder.display())
}

/// Runs any plugin on the node, as a runtime does.
fn run(bench: &Bench, program: PathBuf, verb: &str, pod: &Pod, netconf: &Value) -> CniOutcome {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("CNI_PATH", plugin_path(bench))
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", &pod.container_id)
        .env("CNI_NETNS", pod.netns().path())
        .env("CNI_IFNAME", &pod.interface)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = bench.node.namespace().visit(|| command.spawn()).unwrap().unwrap();
    child.stdin.take().unwrap().write_all(netconf.to_string().as_bytes()).unwrap();
    CniOutcome::from(child.wait_with_output().unwrap())
}

#[test]
fn another_plugin_gives_the_addresses() {
    let test = "another_plugin_gives_the_addresses";
    let Some(bench) = Bench::new(test) else { return };
    if !has_plugins(test, &["host-local"]) {
        return;
    }
    let _agent = bench.agent(&[]);
    let (web, db) = (bench.pod("shop", "web-0"), bench.pod("shop", "db-0"));
    let folder = bench.lab.folder().join("host-local");
    let ipam = json!({"type": "host-local", "subnet": "10.55.0.0/24", "dataDir": folder});
    let call = |verb: &str, pod: &Pod| {
        bench.agent_call(verb, pod).with_netconf("ipam", ipam.clone()).with("CNI_PATH", PLUGINS)
    };
    let first = call("ADD", &web).run(&bench.node).unwrap();
    assert!(first.address().unwrap().to_string().starts_with("10.55.0."), "{}", first.stdout);
    // The same again gets the same answer, and takes no second address.
    assert_eq!(call("ADD", &web).run(&bench.node).unwrap().result().unwrap(), first.result().unwrap());
    let second = call("ADD", &db).run(&bench.node).unwrap().address().unwrap();
    assert!(web.netns().can_ping(&second.to_string()).unwrap());
    assert!(bench.endpoint_of(&web).contains("10.55.0."));
    let check =
        call("CHECK", &web).with_netconf("prevResult", first.result().unwrap()).run(&bench.node).unwrap();
    assert!(check.success, "{}{}", check.stdout, check.stderr);
    for pod in [&web, &db, &db] {
        call("DEL", pod).run(&bench.node).unwrap().result_of_del();
    }
    bench.assert_nothing_left();
    let held = std::fs::read_dir(folder.join("lab")).unwrap();
    let held: Vec<_> = held
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().contains("10.55"))
        .collect();
    assert!(held.is_empty(), "host-local still holds {held:?}");
}

#[test]
fn a_pod_may_bring_its_address_along_where_that_is_allowed() {
    let Some(bench) = Bench::new("a_pod_may_bring_its_address_along_where_that_is_allowed") else { return };
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let wish = json!({"cni.projectcalico.org/ipAddrsNoIpam": "[\"10.99.0.7\"]"});
    let call = |verb: &str| {
        let runtime = json!({"io.kubernetes.cri.pod-annotations": wish});
        bench.agent_call(verb, &pod).with_netconf("runtimeConfig", runtime)
    };
    assert_eq!(call("ADD").run(&bench.node).unwrap().error().unwrap().0, 7);
    let allowed = |verb: &str| call(verb).with_netconf("feature_control", json!({"ip_addrs_no_ipam": true}));
    let answer = allowed("ADD").run(&bench.node).unwrap().result().unwrap();
    assert_eq!(answer["ips"][0]["address"], "10.99.0.7/32");
    assert_eq!(allowed("ADD").run(&bench.node).unwrap().result().unwrap(), answer);
    assert!(bench.endpoint_of(&pod).contains("10.99.0.7/32"));
    assert!(bench.books().handles().is_empty() && bench.books().addresses().is_empty());
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    let check = allowed("CHECK").with_netconf("prevResult", answer).run(&bench.node).unwrap();
    assert!(check.success, "{}{}", check.stdout, agent.log());
    // Some runtimes do not pass the annotations on again.
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

#[test]
fn other_plugins_get_addresses_from_us() {
    let test = "other_plugins_get_addresses_from_us";
    let Some(bench) = Bench::new(test) else { return };
    if !has_plugins(test, &["bridge", "ptp"]) {
        return;
    }
    let _agent = bench.agent(&[]);
    for plugin in ["bridge", "ptp"] {
        let netconf = json!({
            "cniVersion": "1.0.0", "name": format!("other-{plugin}"), "type": plugin, "bridge": "br-lab",
            "isGateway": true, "ipam": {"type": "plumb-ipam"}, "agent_socket": bench.socket(),
            "state_dir": bench.state_folder(),
        });
        let (first, second) = (bench.pod("x", "one"), bench.pod("x", "two"));
        let program = Path::new(PLUGINS).join(plugin);
        let address = |pod: &Pod| run(&bench, program.clone(), "ADD", pod, &netconf).address().unwrap();
        let (one, two) = (address(&first), address(&second));
        assert_ne!(one, two);
        assert!(first.netns().can_ping(&two.to_string()).unwrap(), "{plugin}");
        assert!(bench.node.namespace().can_ping(&one.to_string()).unwrap(), "{plugin}");
        for pod in [&first, &second, &second] {
            let done = run(&bench, program.clone(), "DEL", pod, &netconf);
            assert!(done.success, "{plugin}: {}{}", done.stdout, done.stderr);
            assert_eq!(bench.handle_count(&format!("other-{plugin}.{}", pod.container_id)), 0);
        }
    }
}

#[test]
fn a_chain_works() {
    let test = "a_chain_works";
    let Some(bench) = Bench::new(test) else { return };
    if !has_plugins(test, &["portmap", "bandwidth"]) {
        return;
    }
    let _agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let ours = bench.agent_add(&pod).result().unwrap();
    let address = ours["ips"][0]["address"].clone();
    let limits = json!({"ingressRate": 8_000_000, "ingressBurst": 8_000_000, "egressRate": 8_000_000, "egressBurst": 8_000_000});
    let mut result = ours.clone();
    for (plugin, capability, wish) in [
        ("portmap", "portMappings", json!([{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}])),
        ("bandwidth", "bandwidth", limits),
    ] {
        let netconf = json!({
            "cniVersion": "1.0.0", "name": "lab", "type": plugin, "capabilities": {capability: true},
            "runtimeConfig": {capability: wish}, "prevResult": result,
        });
        let outcome = run(&bench, Path::new(PLUGINS).join(plugin), "ADD", &pod, &netconf);
        result = outcome.result().unwrap_or_else(|error| panic!("{plugin}: {error}"));
    }
    assert_eq!(result["ips"][0]["address"], address);
    // Our CHECK sees the whole chain's result, which has more in it.
    let check =
        bench.agent_call("CHECK", &pod).with_netconf("prevResult", result.clone()).run(&bench.node).unwrap();
    assert!(check.success, "{}{}", check.stdout, check.stderr);
    for plugin in ["bandwidth", "portmap"] {
        let netconf = json!({"cniVersion": "1.0.0", "name": "lab", "type": plugin, "prevResult": result});
        let done = run(&bench, Path::new(PLUGINS).join(plugin), "DEL", &pod, &netconf);
        assert!(done.success, "{plugin}: {}{}", done.stdout, done.stderr);
    }
    bench
        .agent_call("DEL", &pod)
        .with_netconf("prevResult", result)
        .run(&bench.node)
        .unwrap()
        .result_of_del();
    assert_eq!(bench.handle_count(sandbox_of(&pod).handle().as_str()), 0);
    bench.assert_nothing_left();
}
