//! Whatever comes in on the socket: a clean error, and the agent serves on.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::json;

use crate::common::{Bench, DelOutcome as _};

fn say(bench: &Bench, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(bench.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // It may hang up before everything is said.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn frame(text: &str) -> Vec<u8> {
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
    let _agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let link = bench.state_folder().join("link");
    std::os::unix::fs::symlink("/proc/self/status", &link).unwrap();
    let add = || bench.agent_call("ADD", &pod);
    let before = bench.records();
    for (call, code) in [
        (add().with("CNI_NETNS", "/proc/self/status"), 4),
        (add().with("CNI_NETNS", &link.display().to_string()), 4),
        (add().with("CNI_NETNS", "/nowhere"), 4),
        (add().with("CNI_IFNAME", "eth/0"), 4),
        (add().with("CNI_IFNAME", "sixteen-letters-"), 4),
        (add().with_netconf("cniVersion", "9.9.9"), 1),
        (add().with_netconf("runtimeConfig", json!({"ips": "nonsense"})), 7),
        (bench.agent_call("CHECK", &pod).with_netconf("prevResult", json!("nonsense")), 104),
        (
            bench.agent_call("CHECK", &pod).with_netconf("prevResult", json!({"ips": [7, {"address": []}]})),
            104,
        ),
    ] {
        let outcome = call.run(&bench.node).unwrap();
        let (found, message) = outcome.error().unwrap();
        assert_eq!(found, code, "{:?} {}: {message}", call.environment, call.netconf);
    }
    assert_eq!(bench.records(), before);
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
