//! What the agent puts right by itself is told three times, under the code of the finding that it would have been: in the log, in the
//! metrics, and in the node's evidence. What takes one more witness stays, and is found.

use std::net::IpAddr;

use lab::Pod;
use serde_json::Value;

use crate::adoption::{device_of, runtime};
use crate::common::{Bench, sandbox_of};
use crate::hostile::{frame, say};
use crate::running::{Agent, wait_until};

/// Codes and subjects of what the agent remembers.
fn remembered(bench: &Bench) -> Vec<(String, String)> {
    let answer = say(bench, &frame(r#"{"version":1,"ask":"evidence"}"#));
    let answer: Value = serde_json::from_slice(&answer[4..]).unwrap();
    let lines = answer["stdout"].as_str().unwrap().lines().filter_map(|line| serde_json::from_str(line).ok());
    let mends = lines.filter_map(|line: Value| find(&line, "mends").and_then(Value::as_array).cloned());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    mends.flatten().map(|mend| (text(&mend["code"]), text(&mend["subject"]))).collect()
}

/// The first field of that name, however deep.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            fields.get(name).or_else(|| fields.values().find_map(|field| find(field, name)))
        }
        Value::Array(all) => all.iter().find_map(|one| find(one, name)),
        _ => None,
    }
}

#[track_caller]
fn expect(bench: &Bench, agent: &Agent, code: &str, subject: &str) {
    let expected = (code.to_owned(), subject.to_owned());
    wait_until(
        || remembered(bench).contains(&expected),
        || format!("{expected:?} in {:?}\n{}", remembered(bench), agent.log()),
    );
    let metric = format!("plumb_mends_total{{code=\"{code}\"}}");
    assert!(bench.page("metrics").contains(&metric), "{metric}");
    let line = format!("fixed [{code}] {subject}: ");
    assert!(agent.log().contains(&line), "{line} in {}", agent.log());
}

fn scene(test: &str) -> Option<(Bench, Agent, Pod, IpAddr)> {
    let bench = Bench::new(test)?;
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web");
    let address = bench.agent_add(&pod).address().unwrap();
    Some((bench, agent, pod, address))
}

#[test]
fn what_strangers_broke_has_the_code_of_its_finding() {
    let test = "what_strangers_broke_has_the_code_of_its_finding";
    let Some((bench, agent, pod, address)) = scene(test) else { return };
    let (node, device) = (bench.node.namespace(), device_of(&bench, &pod));
    let (name, on) = (bench.node.name(), |what: &str| format!("{what} on {}", bench.node.name()));
    let ip = |command: &str| node.ip(&command.split(' ').collect::<Vec<_>>()).unwrap();
    assert_eq!(remembered(&bench), [], "an ADD is no mend");

    ip(&format!("route del {address}"));
    expect(&bench, &agent, "route-missing", &format!("route {address}/32 on {name}"));
    ip(&format!("route add 10.244.0.200 dev {device} proto 112"));
    expect(&bench, &agent, "route-without-endpoint", &on("route 10.244.0.200/32"));
    let neighbour = format!("neighbour {address} at {device} on {name}");
    ip(&format!("neigh replace {address} lladdr 02:00:00:00:00:09 dev {device} nud permanent"));
    expect(&bench, &agent, "neighbour-wrong", &neighbour);
    ip(&format!("neigh del {address} dev {device}"));
    expect(&bench, &agent, "neighbour-missing", &neighbour);
    ip(&format!("link set {device} mtu 1300"));
    expect(&bench, &agent, "mtu-differs", &on(&format!("device {device}")));
    let path = format!("net/ipv4/conf/{device}/proxy_arp");
    let spoil = |path: &str| std::fs::write(format!("/proc/sys/{path}"), "0");
    node.visit(|| spoil(&path)).unwrap().unwrap();
    expect(&bench, &agent, "device-setting-wrong", &on(&path));
    node.visit(|| spoil("net/ipv4/ip_forward")).unwrap().unwrap();
    expect(&bench, &agent, "forwarding-off", &on("net/ipv4/ip_forward"));
    ip(&format!("link set {device} down"));
    expect(&bench, &agent, "device-down", &on(&format!("device {device}")));
    ip(&format!("link del {device}"));
    expect(&bench, &agent, "endpoint-without-device", &on(&format!("device {device}")));
    wait_until(|| node.can_ping(&address.to_string()).unwrap(), || agent.log());
    assert!(bench.metric("mended_total") >= 9);
}

/// Of three permanent neighbours that no record asks for, one is of nobody: of the others, one has a route and one is an address that
/// the pod gave itself.
#[test]
fn a_neighbour_of_nobody_is_removed_after_the_grace() {
    let test = "a_neighbour_of_nobody_is_removed_after_the_grace";
    let Some(bench) = Bench::new(test) else { return };
    let agent = bench.agent(&[("PLUMB_GRACE", "500ms")]);
    let pod = bench.pod("shop", "web");
    let address = bench.agent_add(&pod).address().unwrap();
    let (node, device) = (bench.node.namespace(), device_of(&bench, &pod));
    let ip = |command: &str| node.ip(&command.split(' ').collect::<Vec<_>>()).unwrap();
    pod.netns().ip(&["address", "add", "10.244.9.2/32", "dev", "eth0"]).unwrap();
    ip(&format!("route add 10.244.9.3 dev {device} proto static"));
    for last in 1..=3 {
        ip(&format!("neigh add 10.244.9.{last} lladdr 02:00:00:00:00:09 dev {device} nud permanent"));
    }
    let subject = format!("neighbour 10.244.9.1 at {device} on {}", bench.node.name());
    expect(&bench, &agent, "neighbour-without-endpoint", &subject);
    let left = ip(&format!("neigh show dev {device} nud permanent"));
    for (kept, is_there) in
        [("10.244.9.1 ", false), ("10.244.9.2 ", true), ("10.244.9.3 ", true), (&format!("{address} "), true)]
    {
        assert_eq!(left.contains(kept), is_there, "{kept} in {left}");
    }
    // The other two were looked at just as often.
    let mends = remembered(&bench);
    assert_eq!(mends.len(), 1, "{mends:?}");
    assert!(node.can_ping(&address.to_string()).unwrap());
}

/// Two sandboxes that the runtime has no more. The namespace of one is there, with its end of the device: that is a word for it.
#[test]
fn what_takes_one_more_witness_is_left_and_found() {
    let test = "what_takes_one_more_witness_is_left_and_found";
    let Some(bench) = Bench::new(test) else { return };
    let (gone, doubtful, alive) =
        (bench.pod("shop", "gone"), bench.pod("shop", "doubtful"), bench.pod("shop", "alive"));
    let listing = runtime(&bench, &[&gone, &doubtful, &alive]);
    let endpoint = format!("unix://{}/cri.sock", bench.state_folder().display());
    let settings = [
        ("CONTAINER_RUNTIME_ENDPOINT", endpoint.as_str()),
        ("PLUMB_GRACE", "500ms"),
        ("PLUMB_DOCTOR_EVERY", "200ms"),
    ];
    let agent = bench.agent(&settings);
    let addresses = [&gone, &doubtful, &alive].map(|pod| bench.agent_add(pod).address().unwrap());
    for pod in [&gone, &doubtful] {
        listing.remove(pod).unwrap();
    }
    let device = device_of(&bench, &doubtful);
    gone.netns().delete().unwrap();
    wait_until(|| bench.metric("collected_total") == 1, || agent.log());
    let id = &gone.container_id;
    let subject = format!("sandbox {}", &id[..id.len().min(12)]);
    expect(&bench, &agent, "endpoint-without-sandbox", &subject);
    expect(&bench, &agent, "address-leaked", &subject);

    // Both were looked at just as often.
    let finding = "plumb_findings{code=\"endpoint-without-sandbox\",severity=\"warning\"} 1";
    wait_until(
        || bench.page("metrics").lines().any(|line| line == finding),
        || format!("{}\n{}", bench.page("metrics"), agent.log()),
    );
    assert_eq!(bench.metric("collected_total"), 1, "{}", agent.log());
    let node = bench.node.namespace();
    assert!(node.ip(&["link", "show", &device]).unwrap().contains(&sandbox_of(&doubtful).alias()));
    assert!(bench.books().addresses().contains_key(sandbox_of(&doubtful).handle().as_str()));
    assert!(node.can_ping(&addresses[1].to_string()).unwrap());
    assert!(node.can_ping(&addresses[2].to_string()).unwrap());
}
