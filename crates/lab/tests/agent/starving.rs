//! Others who call the agent do not keep it from answering probes and plugins.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Bench, DelOutcome as _};
use crate::hostile::frame;
use crate::running::wait_until;

const PAGES: &str = "127.0.0.1:9099";
/// A kubelet waits for one second; a busy machine may take longer. An agent that serves 32 connections for 5 s each takes a
/// minute for those that wait here.
const PROBE_PATIENCE: Duration = Duration::from_secs(20);
const FLOODERS: usize = 3;
const HELD_EACH: usize = 200;
const PROBES: usize = 20;

/// A page of the agent's, as a kubelet asks for it.
fn probe(page: &str) -> std::io::Result<String> {
    let address: SocketAddr = PAGES.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&address, PROBE_PATIENCE)?;
    stream.set_read_timeout(Some(PROBE_PATIENCE))?;
    stream.write_all(format!("GET /{page} HTTP/1.1\r\nHost: {PAGES}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Connects again and again, says nothing or half of something, and lets go of nothing but the oldest.
fn flood(until: &AtomicBool) {
    let address: SocketAddr = PAGES.parse().unwrap();
    let mut held = VecDeque::new();
    while !until.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) else {
            continue;
        };
        if held.len() % 2 == 0 {
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nSlow: ");
        }
        held.push_back(stream);
        if held.len() > HELD_EACH {
            // As slowly as the outage that this comes from: 20 new ones every half second. Who is let go sooner makes room.
            std::thread::sleep(Duration::from_millis(25));
            held.pop_front();
        }
    }
}

#[test]
fn probes_are_answered_whoever_else_calls() {
    let Some(bench) = Bench::new("probes_are_answered_whoever_else_calls") else { return };
    let agent = bench.agent(&[]);
    let done = AtomicBool::new(false);
    let answers: Vec<std::io::Result<String>> = bench
        .node
        .namespace()
        .visit(|| {
            std::thread::scope(|scope| {
                for _ in 0..FLOODERS {
                    scope.spawn(|| flood(&done));
                }
                // Until there are more of them than there ever were places.
                std::thread::sleep(Duration::from_secs(1));
                let answers = (0..PROBES)
                    .map(|number| probe(if number % 2 == 0 { "readiness" } else { "liveness" }))
                    .collect();
                done.store(true, Ordering::Relaxed);
                answers
            })
        })
        .unwrap();
    for answer in answers {
        let answer = answer.unwrap_or_else(|error| panic!("{error}: {}", agent.log()));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

/// Callers who ask for much and read nothing. The node has enough routes for an answer that no socket holds by itself.
fn slow_readers(bench: &Bench) -> Vec<UnixStream> {
    let routes: String = (0..4000)
        .map(|number| format!("route add blackhole 10.99.{}.{}\n", number / 250, number % 250))
        .collect();
    let file = bench.state_folder().join("routes");
    std::fs::write(&file, routes).unwrap();
    bench.node.namespace().ip(&["-batch", file.to_str().unwrap()]).unwrap();
    let question = frame(r#"{"version":1,"ask":"evidence"}"#);
    (0..300)
        .map_while(|_| {
            let mut stream = UnixStream::connect(bench.socket()).ok()?;
            stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
            stream.write_all(&question).ok()?;
            Some(stream)
        })
        .take(256)
        .collect()
}

#[test]
fn callers_that_do_not_read_their_answers_keep_nobody_out() {
    let Some(bench) = Bench::new("callers_that_do_not_read_their_answers_keep_nobody_out") else { return };
    let agent = bench.agent(&[]);
    let readers = slow_readers(&bench);
    assert!(readers.len() > 200, "{}", readers.len());
    let pod = bench.pod("shop", "web-0");
    bench.agent_add(&pod).result().unwrap();
    bench.agent_del(&pod).result_of_del();
    // Those whose answer is under way are let go after a while; then others get theirs.
    let said = || agent.log().contains("a client did not read its reply");
    wait_until(said, || agent.log());
    drop(readers);
    agent.stop();
}
