//! The store goes away and comes back: DELs end, ADDs say so, nothing is lost.

use std::path::Path;

use lab::Pod;
use model::Kind;
use serde_json::json;
use testkit::process::command;

use crate::common::books::Books;
use crate::common::{Bench, DelOutcome as _};
use crate::on_etcd::{OnEtcd, on_etcd};
use crate::running::{Agent, wait_until};
use crate::state_folder::Mounted;

#[test]
fn a_del_without_the_store_cleans_the_kernel_and_is_finished_later() {
    on_etcd("a_del_without_the_store_cleans_the_kernel_and_is_finished_later", |mut place| {
        let agent = place.agent();
        let bench = place.bench;
        let (web, db) = (bench.pod("shop", "web-0"), bench.pod("shop", "db-0"));
        bench.agent_add(&web).result().unwrap();
        let address = bench.agent_add(&db).address().unwrap();
        place.etcd.stop_all();
        bench.agent_del(&web).result_of_del();
        let links = web.netns().ip(&["-br", "link", "show", "up"]).unwrap();
        assert_eq!(links.lines().count(), 1, "only lo is up: {links}");
        assert!(db.netns().can_ping(bench.node.address()).unwrap());
        let late = bench.pod("shop", "late");
        assert_eq!(bench.agent_add(&late).error().unwrap().0, 11);
        let status = bench.agent_call("STATUS", &late).with_netconf("cniVersion", "1.1.0");
        assert_eq!(status.run(&bench.node).unwrap().error().unwrap().0, 50);
        // What is queued survives the agent, which starts without the store.
        agent.kill();
        let agent = place.start_agent();
        wait_until(|| bench.socket().exists(), || agent.log());
        bench.agent_del(&db).result_of_del();
        restart(&mut place);
        wait_until(|| place.books.handles().is_empty(), || agent.log());
        assert_eq!(place.books.endpoints(), [] as [String; 0]);
        assert_eq!(bench.agent_add(&late).address().unwrap().is_ipv4(), address.is_ipv4());
        bench.agent_del(&late).result_of_del();
        assert_eq!(place.books.handles(), [] as [String; 0]);
    });
}

#[test]
fn a_store_that_is_known_to_be_away_keeps_no_del_waiting() {
    on_etcd("a_store_that_is_known_to_be_away_keeps_no_del_waiting", |mut place| {
        let agent = place.agent();
        let bench = place.bench;
        let pods: Vec<Pod> = (0..6).map(|number| bench.pod("shop", &format!("web-{number}"))).collect();
        for pod in &pods {
            bench.agent_add(pod).result().unwrap();
        }
        place.etcd.stop_all();
        let (last, first) = pods.split_last().unwrap();
        for pod in first {
            bench.agent_del(pod).result_of_del();
        }
        let log = agent.log();
        let queued = |reason: &str| {
            log.lines().filter(|line| line.contains("queued the DEL") && line.contains(reason)).count()
        };
        let (waited, not_waited) = (queued("the store did not answer"), queued("the store is unreachable"));
        // The agent may notice by itself before the first of them.
        assert!(waited <= 1 && waited + not_waited == first.len(), "{log}");
        assert_eq!(bench.metric("store_away"), 1);
        restart(&mut place);
        wait_until(|| place.books.handles().len() == 1, || agent.log());
        wait_until(|| bench.metric("store_away") == 0, || agent.log());
        // From now on it is asked again.
        let queued = bench.metric("dels_queued_total");
        bench.agent_del(last).result_of_del();
        assert_eq!((bench.metric("dels_queued_total"), place.books.handles().len()), (queued, 0));
    });
}

/// What the doctor says, called on the node, and how it ends.
fn diagnosed(bench: &Bench, settings: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut plumb = command("ip");
    plumb.args(["netns", "exec", bench.node.namespace().name()]).arg(bench.programs().plumb());
    plumb.args(["doctor", "--settle", "0", "--agent-socket"]).arg(bench.socket());
    plumb.env("DATASTORE_TYPE", "sqlite").env("SQLITE_PATH", bench.lab.store_path());
    plumb.envs(settings.iter().copied());
    let output = plumb.output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[track_caller]
pub(crate) fn assert_reported(bench: &Bench, agent: &Agent, settings: &[(&str, &str)], problem: &str) {
    assert_away(bench, agent, problem);
    let (code, report) = diagnosed(bench, settings);
    // The line may be broken after the colon: the path of a file can be long.
    assert!(report.starts_with("Incomplete evidence: the store could not be read:"), "{report}");
    assert!(report.contains("[store-unreachable]"), "{report}");
    assert_eq!(code, Some(1), "{report}");
}

/// By the agent itself.
#[track_caller]
fn assert_away(bench: &Bench, agent: &Agent, problem: &str) {
    let not_ready = || bench.page("readiness");
    wait_until(|| not_ready().contains("cannot use the store"), || agent.log());
    assert!(not_ready().starts_with("HTTP/1.1 503") && not_ready().contains(problem), "{}", not_ready());
    assert_eq!(bench.metric("store_away"), 1);
    let status = bench.agent_call("STATUS", &bench.pod("shop", "status")).with_netconf("cniVersion", "1.1.0");
    assert_eq!(status.run(&bench.node).unwrap().error().unwrap().0, 50);
}

#[test]
fn a_stopped_etcd_is_reported_everywhere() {
    on_etcd("a_stopped_etcd_is_reported_everywhere", |mut place| {
        let agent = place.agent();
        let (bench, endpoint) = (place.bench, place.etcd.endpoint(0));
        let settings = [("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", endpoint.as_str())];
        place.etcd.stop_all();
        assert_reported(bench, &agent, &settings, "");
        restart(&mut place);
        bench.wait_until_ready(&agent);
        wait_until(|| bench.page("readiness").starts_with("HTTP/1.1 200"), || agent.log());
    });
}

#[test]
fn a_file_that_is_moved_and_replaced_is_reported_and_used_again() {
    let Some(bench) = Bench::new("a_file_that_is_moved_and_replaced_is_reported_and_used_again") else {
        return;
    };
    let agent = bench.agent(&[]);
    let (path, aside) = (bench.lab.store_path(), bench.lab.store_path().with_extension("aside"));
    let first = bench.pod("shop", "first");
    bench.agent_add(&first).result().unwrap();
    std::fs::rename(&path, &aside).unwrap();
    assert_reported(&bench, &agent, &[], "the file was removed or replaced while in use");
    assert!(!path.exists(), "no new file is made");
    std::fs::rename(&aside, &path).unwrap();
    bench.wait_until_ready(&agent);
    wait_until(|| bench.page("readiness").starts_with("HTTP/1.1 200"), || agent.log());
    let second = bench.pod("shop", "second");
    bench.agent_add(&second).result().unwrap();

    // A backup in its place, by somebody who knows of the one file only.
    let backup = path.with_extension("backup");
    back_up(&bench, &backup);
    bench.agent_del(&second).result_of_del();
    std::fs::rename(&backup, &path).unwrap();
    let third = bench.pod("shop", "third");
    wait_until(|| bench.agent_add(&third).success, || agent.log());
    for pod in [&first, &second, &third] {
        wait_until(|| bench.agent_del(pod).success, || agent.log());
    }
    wait_until(|| bench.books().handles().is_empty(), || agent.log());
}

#[test]
fn a_store_on_a_full_disk_is_reported_and_used_again() {
    let Some(bench) = Bench::new("a_store_on_a_full_disk_is_reported_and_used_again") else { return };
    let folder = bench.state_folder().join("disk");
    let disk = Mounted::at(&folder, "2m");
    let path = folder.join("plumb.db");
    let books = Books::at(&path);
    books.put(Kind::IpPool, "pods", json!({"cidr": "10.244.0.0/16"}));
    let settings = [("SQLITE_PATH", path.to_str().unwrap())];
    let agent = bench.agent(&settings);
    let (first, second) = (bench.pod("shop", "first"), bench.pod("shop", "second"));
    bench.agent_add(&first).result().unwrap();
    let filler = disk.fill();
    assert_away(&bench, &agent, "no space left on the disk");
    // The records can still be read.
    let (code, report) = diagnosed(&bench, &settings);
    assert!(code == Some(1) && report.contains("[store-unreachable]"), "{report}");
    let (_, message) = bench.agent_add(&second).error().unwrap();
    assert!(message.contains("no space left on the disk"), "{message}");
    assert_eq!(books.handles().len(), 1, "what was refused left nothing");
    assert!(first.netns().can_ping(bench.node.address()).unwrap());
    bench.agent_del(&first).result_of_del();
    std::fs::remove_file(filler).unwrap();
    wait_until(|| bench.page("readiness").starts_with("HTTP/1.1 200"), || agent.log());
    wait_until(|| books.handles().is_empty(), || agent.log());
    bench.agent_add(&second).result().unwrap();
    bench.agent_del(&second).result_of_del();
    assert_eq!(books.handles(), [] as [String; 0]);
    agent.stop();
}

/// Another file with the same records.
fn back_up(bench: &Bench, path: &Path) {
    let records = bench.records();
    Books::at(path).with_store(async |store| {
        for (key, value) in records {
            store.create(key, value.into_bytes()).await.unwrap();
        }
    });
}

/// The node's agent is well, so nothing is found; but nobody has seen the records.
#[test]
fn without_the_records_there_is_no_verdict() {
    let Some(bench) = Bench::new("without_the_records_there_is_no_verdict") else { return };
    let agent = bench.agent(&[]);
    let nobody = [("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", "http://127.0.0.1:1")];
    let (code, report) = diagnosed(&bench, &nobody);
    // The line may be broken after the colon: the path of a file can be long.
    assert!(report.starts_with("Incomplete evidence: the store could not be read:"), "{report}");
    assert_eq!(code, Some(2), "{report}");
    assert!(report.contains("Nothing wrong was found in the rest."), "{report}");
    agent.stop();
}

fn restart(place: &mut OnEtcd<'_>) {
    place.etcd.restart(0).unwrap();
    place.etcd.wait_healthy().unwrap();
}
