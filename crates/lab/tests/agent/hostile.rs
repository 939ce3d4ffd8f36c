//! Whatever comes in on the socket: a clean error, and the agent serves on.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::hostile::refused_adds;
use crate::common::{Bench, DelOutcome as _};

pub(crate) fn say(bench: &Bench, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(bench.socket()).unwrap();
    stream.set_read_timeout(Some(testkit::PATIENCE)).unwrap();
    // It may hang up before everything is said.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

pub(crate) fn frame(text: &str) -> Vec<u8> {
    let mut frame = u32::try_from(text.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(text.as_bytes());
    frame
}

#[test]
fn garbage_on_the_socket_does_no_harm() {
    let Some(bench) = Bench::new("garbage_on_the_socket_does_no_harm") else { return };
    let mut agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    bench.agent_add(&pod).result().unwrap();
    let request = |environment: serde_json::Value, config: &str| {
        let document = json!({"version": 1, "role": "network", "environment": environment, "config": config});
        frame(&document.to_string())
    };
    let mut noise = vec![0xff; 100];
    noise.extend(b"GET / HTTP/1.1\r\n\r\n");
    for bytes in [
        Vec::new(),
        vec![0; 3],
        noise,
        frame("not json"),
        frame("{}"),
        frame(&"[".repeat(100_000)),
        u32::MAX.to_be_bytes().to_vec(),
        frame(&json!({"version": 9, "role": "network", "environment": {}, "config": ""}).to_string()),
        request(json!({}), ""),
        request(json!({"CNI_COMMAND": "ADD"}), "{}"),
        request(
            json!({"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "../x", "CNI_IFNAME": "eth0"}),
            r#"{"name":"lab"}"#,
        ),
        request(
            json!({"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c", "CNI_IFNAME": "a/b", "CNI_NETNS": "/x"}),
            r#"{"name":"lab"}"#,
        ),
    ] {
        let answer = say(&bench, &bytes);
        if answer.len() > 4 {
            let text = String::from_utf8_lossy(&answer[4..]);
            assert!(text.contains("\"exit\":1") && text.contains("code"), "{text}");
        }
    }
    assert!(agent.is_running(), "{}", agent.log());
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

#[test]
fn bad_calls_get_clean_errors() {
    let Some(bench) = Bench::new("bad_calls_get_clean_errors") else { return };
    let mut agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let mut calls = refused_adds(|| bench.agent_call("ADD", &pod));
    let folder = bench.state_folder();
    let link_to = |name: &str, target: &Path| {
        std::os::unix::fs::symlink(target, folder.join(name)).unwrap();
        bench.agent_call("ADD", &pod).with("CNI_NETNS", &folder.join(name).display().to_string())
    };
    // To no namespace, to nothing, to itself, to the agent's own socket and namespace; a pipe nobody writes to.
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    calls.extend([
        (link_to("file", Path::new("/proc/self/status")), 4),
        (link_to("nothing", &folder.join("nothing-there")), 4),
        (link_to("itself", &folder.join("itself")), 4),
        (link_to("socket", &bench.socket()), 4),
        (link_to("own", Path::new("/proc/self/ns/net")), 4),
        (link_to("to-pipe", &folder.join("pipe")), 4),
    ]);
    let check = |result: Value| bench.agent_call("CHECK", &pod).with_netconf("prevResult", result);
    for nonsense in
        [json!("nonsense"), json!([]), json!({"ips": [7, {"address": []}]}), json!({"interfaces": 7})]
    {
        calls.push((check(nonsense), 104));
    }
    bench.assert_refused(calls.iter().map(|(call, code)| (call, *code)));
    assert!(agent.is_running(), "{}", agent.log());
    // A link to a namespace is as good as its path: many systems have /var/run as one.
    let add = link_to("netns", pod.netns().path());
    add.run(&bench.node).unwrap().result().unwrap();
    // Whatever a DEL is told of the past, it ends.
    for nonsense in [json!("nonsense"), json!(7), json!({"ips": "many"}), json!([[[]]])] {
        let del = bench.agent_call("DEL", &pod).with_netconf("prevResult", nonsense);
        del.run(&bench.node).unwrap().result_of_del();
    }
    bench.assert_nothing_left();
}

#[test]
fn more_than_a_request_may_be_is_refused_through_the_plugin_too() {
    let test = "more_than_a_request_may_be_is_refused_through_the_plugin_too";
    let Some(bench) = Bench::new(test) else { return };
    let mut agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let much = "x".repeat(2 << 20);
    for call in [
        bench.agent_call("ADD", &pod).with_netconf("padding", much.as_str()),
        bench.agent_call("CHECK", &pod).with_netconf("prevResult", json!({"padding": much})),
    ] {
        let (code, message) = call.run(&bench.node).unwrap().error().unwrap();
        assert_eq!(code, 6, "{message}");
        assert!(message.contains("longer than 1048576 bytes"), "{message}");
    }
    // Just below it is served, however odd.
    let odd = bench.agent_call("ADD", &pod).with_netconf("padding", "x".repeat(900 << 10));
    odd.run(&bench.node).unwrap().result().unwrap();
    // Also a DEL: repeating it cannot help, and to succeed would be to say that the pod has no network any more.
    let del = bench.agent_call("DEL", &pod).with_netconf("padding", much.as_str()).run(&bench.node).unwrap();
    assert_eq!(del.error().unwrap().0, 6);
    bench.agent_del(&pod).result_of_del();
    assert!(agent.is_running(), "{}", agent.log());
    bench.assert_nothing_left();
}

#[test]
fn a_thousand_silent_connections_do_not_stop_the_agent() {
    let Some(bench) = Bench::new("a_thousand_silent_connections_do_not_stop_the_agent") else { return };
    let mut agent = bench.agent(&[]);
    let socket = bench.socket();
    // Those for whom the backlog has no room wait in their connect.
    let waiting: Vec<_> = (0..1000)
        .map(|_| {
            let socket = socket.clone();
            std::thread::Builder::new()
                .stack_size(64 * 1024)
                .spawn(move || {
                    let Ok(mut stream) = UnixStream::connect(socket) else { return };
                    let _ = stream.read(&mut [0]);
                })
                .unwrap()
        })
        .collect();
    let pod = bench.pod("shop", "web-0");
    bench.agent_add(&pod).result().unwrap();
    bench.agent_del(&pod).result_of_del();
    assert!(agent.is_running(), "{}", agent.log());
    for thread in waiting {
        thread.join().unwrap();
    }
    bench.assert_nothing_left();
}

#[test]
fn a_plugin_that_is_killed_leaves_no_attachment_behind() {
    let Some(bench) = Bench::new("a_plugin_that_is_killed_leaves_no_attachment_behind") else { return };
    let _agent = bench.agent(&[]);
    let mut dice = testkit::Dice::for_purpose(testkit::seed(), "plugin");
    for _ in 0..testkit::count(15, 200) {
        let pod = bench.pod("shop", "web-0");
        let mut call = bench.agent_call("ADD", &pod).spawn(&bench.node).unwrap();
        std::thread::sleep(Duration::from_micros(dice.roll(30_000)));
        call.kill().unwrap();
        call.wait().unwrap();
        bench.agent_del(&pod).result_of_del();
        bench.assert_nothing_left();
    }
}
