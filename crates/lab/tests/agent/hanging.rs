//! Whatever hangs, the agent goes on, and ends soon after it was asked to.

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use model::Kind;
use serde_json::json;

use crate::common::{Bench, DelOutcome as _};
use crate::hostile::frame;
use crate::on_etcd::on_etcd;
use crate::running::{Agent, wait_until};

/// How long the agent may take to end, in ticks of a thread beside it: three seconds, and a tenth until its end is seen. On a busy machine
/// ticks take longer, too.
const STOPS_WITHIN: u32 = 310;
const TICK: Duration = Duration::from_millis(10);

/// A program that never ends, and leaves its mark when it starts; gives a PATH in which it comes first.
fn hanging(folder: &Path, name: &str) -> (PathBuf, String) {
    let (bin, mark) = (folder.join("bin"), folder.join(format!("{name}-started")));
    std::fs::create_dir_all(&bin).unwrap();
    let program = bin.join(name);
    let script =
        format!("#!/bin/sh\necho $$ >> {}\ntrap '' TERM\nwhile :; do sleep 1; done\n", mark.display());
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    (mark, path)
}

/// One that was under way when the agent stopped is nobody's child any more; it is this test's to end.
fn end_all(mark: &Path) {
    for number in std::fs::read_to_string(mark).unwrap().lines() {
        let _ = std::process::Command::new("kill").args(["-KILL", number.trim()]).output();
    }
    wait_until(|| !runs(mark), || "a program of this test lives on".to_owned());
}

#[track_caller]
fn stops_in_time(agent: Agent) {
    let (ticks, has_stopped) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_stopped.load(Ordering::Relaxed) {
                std::thread::sleep(TICK);
                ticks.fetch_add(1, Ordering::Relaxed);
            }
        });
        agent.stop();
        has_stopped.store(true, Ordering::Relaxed);
    });
    let ticks = ticks.into_inner();
    assert!(ticks <= STOPS_WITHIN, "it took {ticks} ticks of {TICK:?}");
}

/// Processes that a test's program left.
fn runs(mark: &Path) -> bool {
    let started = std::fs::read_to_string(mark).unwrap_or_default();
    let mut numbers = started.lines().map(str::trim);
    numbers.any(|number| std::fs::read(format!("/proc/{number}/cmdline")).is_ok_and(|line| !line.is_empty()))
}

/// An nft that works until the file `hang` is there beside it.
fn nft_that_may_hang(folder: &Path) -> (PathBuf, String) {
    let (mark, path) = hanging(folder, "nft");
    let program = folder.join("bin/nft");
    let script = std::fs::read_to_string(&program).unwrap();
    let real = std::env::var("PATH").unwrap_or_default();
    let hang = folder.join("hang").display().to_string();
    let works = format!("#!/bin/sh\n[ -e {hang} ] || PATH={real} exec nft \"$@\"\n");
    std::fs::write(&program, script.replacen("#!/bin/sh\n", &works, 1)).unwrap();
    (mark, path)
}

#[test]
fn an_nft_that_hangs_is_killed_and_reported_and_the_agent_serves_on() {
    let Some(bench) = Bench::new("an_nft_that_hangs_is_killed_and_reported_and_the_agent_serves_on") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (mark, path) = nft_that_may_hang(folder.path());
    bench.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/24", "natOutgoing": true}));
    let agent = bench.start_agent(&[("PATH", &path)]);
    bench.wait_until_ready(&agent);
    let pod = bench.pod("shop", "web-0");
    bench.agent_add(&pod).result().unwrap();
    std::fs::write(folder.path().join("hang"), "").unwrap();
    // Somebody takes our rules away, so that they have to be loaded again.
    let flushed = bench.node.namespace().run(Path::new("nft"), &["flush", "ruleset"]).unwrap();
    assert!(flushed.status.success(), "{}", String::from_utf8_lossy(&flushed.stderr));
    wait_until(|| agent.log().contains("did not end within"), || agent.log());
    bench.agent_del(&pod).result_of_del();
    assert!(bench.page("liveness").starts_with("HTTP/1.1 200"));
    // In the middle of the next try.
    let tries = || std::fs::read_to_string(&mark).unwrap().lines().count();
    let before = tries();
    wait_until(|| tries() > before, || agent.log());
    stops_in_time(agent);
    end_all(&mark);
    std::fs::remove_file(folder.path().join("hang")).unwrap();
    let agent = bench.start_agent(&[("PATH", &path)]);
    bench.wait_until_ready(&agent);
    bench.assert_nothing_left();
}

#[test]
fn the_agent_stops_in_time_while_callers_hang() {
    let Some(bench) = Bench::new("the_agent_stops_in_time_while_callers_hang") else { return };
    let agent = bench.agent(&[]);
    let mut callers: Vec<UnixStream> =
        (0..20).map(|_| UnixStream::connect(bench.socket()).unwrap()).collect();
    for caller in callers.iter_mut().take(10) {
        caller.write_all(&frame(r#"{"version":1,"ask":"evidence"}"#)[..20]).unwrap();
    }
    let connect = || (0..20).map(|_| TcpStream::connect("127.0.0.1:9099").unwrap()).collect::<Vec<_>>();
    let visitors = bench.node.namespace().visit(connect).unwrap();
    stops_in_time(agent);
    drop((callers, visitors));
}

#[test]
fn the_agent_stops_in_time_while_a_call_hangs_in_the_kernel_thread() {
    let test = "the_agent_stops_in_time_while_a_call_hangs_in_the_kernel_thread";
    let Some(bench) = Bench::new(test) else { return };
    // Held inside the work on the kernel, with the lock that all other work needs.
    let agent = bench.start_agent(&[("PLUMB_FAILPOINT", "add.half-wired:pause")]);
    wait_until(|| bench.socket().exists(), || agent.log());
    wait_until(|| bench.page("readiness").starts_with("HTTP/1.1 200"), || agent.log());
    let pod = bench.pod("shop", "web-0");
    let add = bench.agent_call("ADD", &pod).spawn(&bench.node).unwrap();
    wait_until(|| agent.log().contains("failpoint"), || agent.log());
    stops_in_time(agent);
    // The plugin waits for the next agent, which serves it.
    let agent = bench.agent(&[]);
    let outcome = lab::CniOutcome::from(add.wait_with_output().unwrap());
    assert!(outcome.success, "{} {}", outcome.stdout, agent.log());
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

#[test]
fn the_agent_stops_in_time_while_the_store_does_not_answer() {
    on_etcd("the_agent_stops_in_time_while_the_store_does_not_answer", |mut place| {
        let agent = place.agent();
        let bench = place.bench;
        place.etcd.stop_all();
        let pod = bench.pod("shop", "web-0");
        let add = bench.agent_call("ADD", &pod).spawn(&bench.node).unwrap();
        let status = bench.agent_call("STATUS", &pod).with_netconf("cniVersion", "1.1.0");
        assert!(!status.run(&bench.node).unwrap().success);
        stops_in_time(agent);
        let outcome = lab::CniOutcome::from(add.wait_with_output().unwrap());
        assert!(!outcome.success, "{}", outcome.stdout);
    });
}

#[test]
fn a_bird_that_does_not_answer_hinders_neither_start_nor_stop() {
    let Some(bench) = Bench::new("a_bird_that_does_not_answer_hinders_neither_start_nor_stop") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (mark, _) = hanging(folder.path(), "bird");
    let program = folder.path().join("bin/bird").display().to_string();
    let socket = folder.path().join("bird.ctl");
    let listener = UnixListener::bind(&socket).unwrap();
    let settings = [
        ("CALICO_NETWORKING_BACKEND", "bird"),
        ("PLUMB_BIRD", program.as_str()),
        ("PLUMB_BIRD_SOCKET", socket.to_str().unwrap()),
        ("IP", "192.0.2.7/24"),
    ];
    let agent = bench.start_agent(&settings);
    wait_until(|| mark.exists(), || agent.log());
    let pod = bench.pod("shop", "web-0");
    bench.agent_add(&pod).result().unwrap();
    wait_until(|| bench.page("readiness").contains("did not end within"), || bench.page("readiness"));
    bench.agent_del(&pod).result_of_del();
    stops_in_time(agent);
    drop(listener);
    end_all(&mark);
}
