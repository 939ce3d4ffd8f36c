//! The API server goes away while pods come and go: DELs are queued, ADDs fail with "try again later", and no address leaks or is
//! released that lives.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use lab::{Lab, Pod};
use serde_json::{Value, json};

use crate::common::DelOutcome as _;
use crate::on_kubernetes::{OnKubernetes, noted, on_kubernetes};
use crate::running::{Agent, wait_until};

const NAMESPACE: &str = "shop";
const STAYING: usize = 4;
const ENDING: usize = 4;
/// CNI's code for "try again later".
const TRY_AGAIN: u64 = 11;

/// A pod that Kubernetes has put on the node, with the address that its ADD answered.
struct Running {
    pod: Pod,
    uid: String,
    address: IpAddr,
}

#[test]
fn an_api_server_that_is_away_costs_no_address() {
    on_kubernetes("an_api_server_that_is_away_costs_no_address", |mut place| {
        let agent = place.agent(&[]);
        place.namespace(NAMESPACE, json!({}));
        let staying = run_pods(&place, "staying", STAYING);
        let ending = run_pods(&place, "ending", ENDING);
        let coming: Vec<(Pod, String)> =
            (0..ENDING).map(|number| scheduled(&place, "coming", number)).collect();
        let before = objects(&place, &staying);

        place.cluster.server.kill();
        churn_without_server(&place, &ending, &coming);
        assert_reachable(&place, &staying);
        place.cluster.server.restart().unwrap();

        wait_until(|| place.books.allocations() == held_by(&staying), || agent.log());
        assert_eq!(place.books.handles().len(), staying.len(), "{}", agent.log());
        assert_eq!(objects(&place, &staying), before, "not even their revisions changed");
        let came = coming.into_iter().map(|(pod, uid)| add_again(&place, &agent, pod, uid));
        let all: Vec<Running> = staying.into_iter().chain(came).collect();
        assert_eq!(place.books.allocations(), held_by(&all));
        assert_reachable(&place, &all);
        for Running { pod, uid, .. } in &all {
            place.del(pod, uid).result_of_del();
        }
        wait_until(|| place.books.handles().is_empty(), || agent.log());
        assert_eq!(place.books.allocations(), BTreeMap::new());
        agent.stop();
    });
}

/// Pods end, and new ones are tried again and again, as a kubelet does: each failed ADD is followed by a DEL.
fn churn_without_server(place: &OnKubernetes<'_>, ending: &[Running], coming: &[(Pod, String)]) {
    let seconds = u64::try_from(testkit::count(5, 60)).unwrap();
    let (since, queued) = (Instant::now(), place.bench.metric("dels_queued_total"));
    let mut rounds = 0;
    while rounds < ending.len() || since.elapsed() < Duration::from_secs(seconds) {
        if let Some(Running { pod, uid, .. }) = ending.get(rounds) {
            place.del(pod, uid).result_of_del();
        }
        let (pod, uid) = &coming[rounds % coming.len()];
        let (code, message) = place.add(pod, uid).error().unwrap();
        assert_eq!(code, TRY_AGAIN, "{message}");
        place.del(pod, uid).result_of_del();
        rounds += 1;
    }
    let newly_queued = place.bench.metric("dels_queued_total") - queued;
    assert!(newly_queued >= i64::try_from(ending.len()).unwrap(), "{newly_queued} DELs were queued");
}

fn scheduled(place: &OnKubernetes<'_>, what: &str, number: usize) -> (Pod, String) {
    let name = format!("{what}-{number}");
    let uid = place.schedule(NAMESPACE, &name, json!({}));
    (place.bench.pod(NAMESPACE, &name), uid)
}

fn run_pods(place: &OnKubernetes<'_>, what: &str, count: usize) -> Vec<Running> {
    let run = |number| {
        let (pod, uid) = scheduled(place, what, number);
        let address = place.add(&pod, &uid).address().unwrap();
        Running { pod, uid, address }
    };
    (0..count).map(run).collect()
}

fn add_again(place: &OnKubernetes<'_>, agent: &Agent, pod: Pod, uid: String) -> Running {
    let mut address = None;
    let mut is_added = || {
        address = place.add(&pod, &uid).address().ok();
        address.is_some()
    };
    wait_until(&mut is_added, || agent.log());
    let address = address.expect("it was added");
    assert_eq!(noted(&place.read_pod(NAMESPACE, &pod.name), "podIP"), format!("{address}/32"));
    Running { pod, uid, address }
}

fn objects(place: &OnKubernetes<'_>, pods: &[Running]) -> Vec<Value> {
    pods.iter().map(|running| place.read_pod(NAMESPACE, &running.pod.name)).collect()
}

fn held_by(pods: &[Running]) -> BTreeMap<String, IpAddr> {
    let handle = |running: &Running| format!("{}.{}", Lab::NETWORK, running.pod.container_id);
    pods.iter().map(|running| (handle(running), running.address)).collect()
}

fn assert_reachable(place: &OnKubernetes<'_>, pods: &[Running]) {
    for Running { pod, .. } in pods {
        assert!(pod.netns().can_ping(place.bench.node.address()).unwrap(), "{}", pod.name);
    }
}
