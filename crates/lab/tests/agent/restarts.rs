//! An agent that starts anew costs no pod its network, and no new pod its start.

use std::sync::atomic::{AtomicBool, Ordering};

use lab::Pod;

use crate::common::{Bench, DelOutcome as _};
use crate::running::wait_until;

/// Adds and removes pods one after the other, for as long as wanted. Gives what went wrong.
fn stream(bench: &Bench, pods: &[Pod], done: &AtomicBool) -> (usize, Vec<String>) {
    let (mut calls, mut failures) = (0, Vec::new());
    while !done.load(Ordering::Relaxed) {
        for pod in pods {
            let added = bench.agent_add(pod);
            if !added.success {
                failures.push(format!("ADD: {}{}", added.stdout, added.stderr));
            }
            let removed = bench.agent_del(pod);
            if !removed.success {
                failures.push(format!("DEL: {}{}", removed.stdout, removed.stderr));
            }
            calls += 2;
        }
    }
    (calls, failures)
}

#[test]
fn restarts_of_the_agent_fail_no_add() {
    let Some(bench) = Bench::new("restarts_of_the_agent_fail_no_add") else { return };
    let kept = bench.pod("shop", "kept");
    let agent = bench.agent(&[]);
    bench.agent_add(&kept).result().unwrap();
    let streams: Vec<Vec<Pod>> = (0..2)
        .map(|stream| (0..3).map(|number| bench.pod("shop", &format!("pod-{stream}-{number}"))).collect())
        .collect();
    let done = AtomicBool::new(false);
    let (outcomes, agent): (Vec<(usize, Vec<String>)>, _) = std::thread::scope(|scope| {
        let running: Vec<_> =
            streams.iter().map(|pods| scope.spawn(|| stream(&bench, pods, &done))).collect();
        let mut agent = agent;
        for round in 0..testkit::count(4, 20) {
            wait_until(|| bench.metric("cni_calls_served_total") > 4, || agent.log());
            if round % 2 == 0 {
                agent.stop()
            } else {
                agent.kill()
            }
            agent = bench.agent(&[]);
        }
        done.store(true, Ordering::Relaxed);
        (running.into_iter().map(|stream| stream.join().unwrap()).collect(), agent)
    });
    for (calls, failures) in outcomes {
        assert!(
            failures.is_empty(),
            "{} of {calls} calls failed: {failures:#?}\n{}",
            failures.len(),
            agent.log()
        );
    }
    assert!(kept.netns().can_ping(bench.node.address()).unwrap());
    bench.agent_del(&kept).result_of_del();
    wait_until(|| bench.books().handles().is_empty(), || agent.log());
}
