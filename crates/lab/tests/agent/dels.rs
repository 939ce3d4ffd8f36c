//! A DEL always ends: without agent, without store, without namespace, twice, for others.

use model::{KeyRange, Kind};
use serde_json::{Value, json};

use crate::common::{Bench, DelOutcome as _, sandbox_of};
use crate::running::wait_until;
use crate::stories::on_sqlite_and_kubernetes;

fn queued(bench: &Bench) -> usize {
    let entries = std::fs::read_dir(bench.state_folder().join("queue")).into_iter().flatten();
    entries
        .filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|end| end == "json"))
        .count()
}

fn without_an_agent_a_del_is_queued_and_done_when_it_is_back(bench: &Bench) {
    let agent = bench.agent(&[]);
    let (pod, other) = (bench.pod("shop", "web-0"), bench.pod("shop", "other"));
    bench.agent_add(&pod).result().unwrap();
    let address = bench.agent_add(&other).address().unwrap();
    agent.kill();
    bench.agent_del(&pod).result_of_del();
    bench.agent_del(&pod).result_of_del();
    assert_eq!(queued(bench), 1, "the same DEL twice is one");
    assert_eq!(bench.agent_add(&pod).error().unwrap().0, 11);
    let status =
        bench.agent_call("STATUS", &pod).with_netconf("cniVersion", "1.1.0").run(&bench.node).unwrap();
    assert_eq!(status.error().unwrap().0, 50);
    let agent = bench.agent(&[]);
    wait_until(|| queued(bench) == 0, || agent.log());
    bench.assert_books_match_pods(&[(&other, address)]);
    bench.agent_del(&other).result_of_del();
    bench.assert_nothing_left();
}

fn a_queued_del_does_not_undo_a_later_add_of_the_same_sandbox(bench: &Bench) {
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    bench.agent_add(&pod).result().unwrap();
    agent.kill();
    bench.agent_del(&pod).result_of_del();
    let agent = bench.agent(&[]);
    let address = bench.agent_add(&pod).address().unwrap();
    wait_until(|| queued(bench) == 0, || agent.log());
    bench.assert_books_match_pods(&[(&pod, address)]);
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

/// The worker of the queue waits for an ADD of the same sandbox. The ADD does the queued DEL itself: the worker must not do it again.
fn a_del_that_an_add_has_done_is_not_done_again(bench: &Bench) {
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    bench.agent_add(&pod).result().unwrap();
    agent.kill();
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("go-on");
    let point = format!("add.fenced:wait:{}", gate.display());
    let agent = bench.agent(&[("PLUMB_FAILPOINT", point.as_str())]);
    bench.set_ready(false);
    bench.agent_del(&pod).result_of_del();
    assert_eq!(queued(bench), 1);
    let address = std::thread::scope(|scope| {
        let add = scope.spawn(|| bench.agent_add(&pod).address().unwrap());
        wait_until(|| agent.log().contains("failpoint add.fenced reached"), || agent.log());
        bench.set_ready(true);
        // The worker looks every five seconds. Should it come later, there is nothing to see.
        std::thread::sleep(std::time::Duration::from_secs(7));
        std::fs::write(&gate, "").unwrap();
        add.join().unwrap()
    });
    assert_eq!(queued(bench), 0, "the ADD did it");
    // Whatever is queued and done after it shows that the worker is past it.
    let other = bench.pod("shop", "web-1");
    bench.agent_add(&other).result().unwrap();
    bench.set_ready(false);
    bench.agent_del(&other).result_of_del();
    bench.set_ready(true);
    wait_until(|| queued(bench) == 0, || agent.log());
    bench.assert_books_match_pods(&[(&pod, address)]);
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

/// As old releases of Calico wrote them. Whose such a record is, its addresses tell.
#[test]
fn a_record_that_names_no_sandbox_goes_with_the_one_that_holds_its_address() {
    let Some(bench) = Bench::new("a_record_that_names_no_sandbox_goes_with_the_one_that_holds_its_address")
    else {
        return;
    };
    let _agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    bench.agent_add(&pod).result().unwrap();
    bench.books().with_store(async |store| {
        let (records, _) = store.list_all(KeyRange::Kind(Kind::WorkloadEndpoint)).await.unwrap();
        let [record] = &records[..] else { panic!("{records:?}") };
        let mut endpoint: Value = serde_json::from_slice(&record.value).unwrap();
        endpoint["spec"]["containerID"] = json!("");
        let nameless = endpoint.to_string().into_bytes();
        store.update(record.key.clone(), nameless, record.revision.clone()).await.unwrap();
    });
    // A DEL of an earlier sandbox of the same pod, which holds nothing, takes nothing.
    let late = bench.agent_call("DEL", &pod).with("CNI_CONTAINERID", &"ab".repeat(32)).with("CNI_NETNS", "");
    late.run(&bench.node).unwrap().result_of_del();
    assert_eq!(bench.books().endpoints().len(), 1);
    assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

fn a_locked_store_takes_no_release_but_the_kernel_is_clean(bench: &Bench) {
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    bench.agent_add(&pod).result().unwrap();
    let (key, before) = bench
        .records()
        .into_iter()
        .find(|(key, _)| key.to_string() == "ClusterInformation(default)")
        .unwrap();
    bench.set_ready(false);
    bench.agent_del(&pod).result_of_del();
    assert_eq!(pod.netns().ip(&["-br", "link", "show", "up"]).unwrap().lines().count(), 1, "only lo is up");
    assert!(bench.handle_count(sandbox_of(&pod).handle().as_str()) == 1 && queued(bench) == 1);
    // It survives a restart.
    agent.kill();
    let agent = bench.start_agent(&[]);
    bench.set_ready(true);
    wait_until(|| queued(bench) == 0, || agent.log());
    bench.assert_nothing_left();
    assert!(!before.is_empty() && key.to_string().starts_with("ClusterInformation"));
}

fn dels_that_have_nothing_to_do_succeed_and_touch_nothing(bench: &Bench) {
    let _agent = bench.agent(&[]);
    let (pod, stale) = (bench.pod("shop", "web-0"), bench.pod("shop", "web-0"));
    // The old sandbox of the same pod, whose DEL comes late.
    bench.agent_add(&stale).result().unwrap();
    let address = bench.agent_add(&pod).address().unwrap();
    for _ in 0..2 {
        bench.agent_del(&stale).result_of_del();
        bench.agent_call("DEL", &stale).with("CNI_NETNS", "").run(&bench.node).unwrap().result_of_del();
        bench.assert_books_match_pods(&[(&pod, address)]);
        assert!(pod.netns().can_ping(bench.node.address()).unwrap());
    }
    let never = bench.pod("shop", "never");
    never.netns().delete().unwrap();
    bench.agent_del(&never).result_of_del();
    bench.assert_books_match_pods(&[(&pod, address)]);
    pod.netns().delete().unwrap();
    bench.agent_del(&pod).result_of_del();
    bench.assert_nothing_left();
}

fn two_dels_at_once_and_an_add_right_after_in_the_same_namespace(bench: &Bench) {
    let _agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    for _ in 0..testkit::count(3, 30) {
        bench.agent_add(&pod).result().unwrap();
        let dels: Vec<_> =
            (0..2).map(|_| bench.agent_call("DEL", &pod).spawn(&bench.node).unwrap()).collect();
        for del in dels {
            lab::CniOutcome::from(del.wait_with_output().unwrap()).result_of_del();
        }
        let address = bench.agent_add(&pod).address().unwrap();
        bench.assert_books_match_pods(&[(&pod, address)]);
        assert!(pod.netns().can_ping(bench.node.address()).unwrap());
        bench.agent_del(&pod).result_of_del();
    }
    bench.assert_nothing_left();
    assert_eq!(json!(0), queued(bench));
}

on_sqlite_and_kubernetes! {
    without_an_agent_a_del_is_queued_and_done_when_it_is_back
    a_queued_del_does_not_undo_a_later_add_of_the_same_sandbox
    a_del_that_an_add_has_done_is_not_done_again
    a_locked_store_takes_no_release_but_the_kernel_is_clean
    dels_that_have_nothing_to_do_succeed_and_touch_nothing
    two_dels_at_once_and_an_add_right_after_in_the_same_namespace
}
