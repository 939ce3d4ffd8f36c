//! One of several replicas leads, whatever becomes of it.

use serde_json::json;
use store::{OpenMode, StoreConfig};
use testkit::etcd::{self, EtcdCluster};
use testkit::forwarder::{Forwarder, Traffic};
use testkit::process::wait_until;

use crate::program::{Controller, Start};
use crate::world;

/// Short, so that a test need not wait for long, and long enough for a busy machine.
const QUICK: [&str; 6] = ["--lease-duration", "6s", "--renew-deadline", "4s", "--retry-period", "500ms"];

#[track_caller]
fn one_leads(controllers: &mut [&mut Controller]) -> usize {
    let mut leader = None;
    let waited = wait_until("a leader", || {
        leader = controllers.iter().position(|controller| controller.leads());
        leader.is_some()
    });
    let logs: Vec<String> = controllers.iter().map(|controller| controller.log()).collect();
    assert!(waited.is_ok(), "{logs:?}");
    let leader = leader.unwrap();
    // All have asked by now, or will find the seat taken.
    for (number, controller) in controllers.iter_mut().enumerate().filter(|(number, _)| *number != leader) {
        controller.wait("to stand by", |controller| controller.log().contains("stands by"));
        assert!(!controller.leads(), "both lead: {leader}, {number}");
    }
    leader
}

/// The leader is killed, and comes back: the other one leads and goes on leading.
fn the_other_leads_when_the_leader_is_killed(start: &Start) {
    let (mut one, mut two) = (start.run(), start.run());
    let leader = one_leads(&mut [&mut one, &mut two]);
    let (mut leader, mut other) = if leader == 0 { (one, two) } else { (two, one) };
    leader.kill();
    other.wait("to lead", Controller::leads);
    let mut again = start.run();
    again.wait("to stand by", |controller| controller.log().contains("stands by"));
    assert!(other.leads() && !again.leads());
}

/// The leader cannot reach the store: it stops before the other one leads. With time stamps of one clock in both logs.
fn a_leader_without_a_store_stops_first(start: impl Fn(u16) -> Start, port: u16) {
    let forwarder = Forwarder::to(port);
    let mut leader = start(forwarder.port()).run();
    leader.wait("to lead", Controller::leads);
    let mut other = start(port).run();
    other.wait("to stand by", |controller| controller.log().contains("stands by"));
    forwarder.set(Traffic::AnswersLost);
    other.wait("to lead", Controller::leads);
    leader.wait("to stop", |controller| controller.log().contains("stopped acting"));
    let time_of = |log: &str, words: &str| {
        let line = log.lines().rfind(|line| line.contains(words)).unwrap();
        line.split_whitespace().next().unwrap().parse::<jiff::Timestamp>().unwrap()
    };
    let (stopped, leads) = (time_of(&leader.log(), "stopped acting"), time_of(&other.log(), "leads"));
    assert!(stopped < leads, "it stopped at {stopped}, and the other one led at {leads}");
    forwarder.set(Traffic::Cut);
    forwarder.set(Traffic::Flows);
    leader.wait("to stand by", |controller| controller.log().contains("stands by"));
    assert!(other.leads() && !leader.leads());
}

fn on_etcd(endpoint: String) -> Start {
    Start::default().with("ETCD_ENDPOINTS", endpoint).and(&QUICK)
}

fn etcd(test: &str) -> Option<EtcdCluster> {
    etcd::start_or_skip(test, etcd::Setup::default())
}

#[test]
fn with_etcd_one_leads_at_a_time() {
    let Some(cluster) = etcd("with_etcd_one_leads_at_a_time") else { return };
    the_other_leads_when_the_leader_is_killed(&on_etcd(cluster.endpoint(0)));
}

#[test]
fn with_etcd_a_leader_without_a_store_stops_first() {
    let Some(cluster) = etcd("with_etcd_a_leader_without_a_store_stops_first") else { return };
    let start = |port: u16| on_etcd(format!("http://127.0.0.1:{port}"));
    a_leader_without_a_store_stops_first(start, cluster.client_port(0));
}

/// Stopped by a signal, it leaves the lead: the next one need not wait for the end of a lease.
#[test]
fn a_leader_that_is_stopped_leaves_the_lead() {
    let Some(cluster) = etcd("a_leader_that_is_stopped_leaves_the_lead") else { return };
    let start = Start::default().with("ETCD_ENDPOINTS", cluster.endpoint(0));
    // Longer than any test waits: only a lead that was left is ever taken.
    let start = start.and(&["--lease-duration", "2h", "--renew-deadline", "1h", "--retry-period", "500ms"]);
    let mut leader = start.run();
    leader.wait("to lead", Controller::leads);
    let mut other = start.run();
    other.wait("to stand by", |controller| controller.log().contains("stands by"));
    testkit::process::run(std::process::Command::new("kill").arg(leader.id().to_string())).unwrap();
    leader.wait_for_end();
    other.wait("to lead", Controller::leads);
}

#[test]
fn with_kubernetes_one_leads_at_a_time() {
    let Some(server) = world::server("with_kubernetes_one_leads_at_a_time") else { return };
    let token = world::token(&server.api());
    let kubeconfig = |name: &str, port: u16| {
        let url = format!("https://127.0.0.1:{port}");
        server.write_kubeconfig(name, &url, json!({ "token": token })).unwrap()
    };
    let start = |port: u16| {
        let path = kubeconfig(&format!("controller-{port}"), port);
        let start = Start::default()
            .with("DATASTORE_TYPE", "kubernetes")
            .with("CALICO_API_GROUP", "crd.projectcalico.org/v1");
        start.with("KUBECONFIG", path.display().to_string()).and(&QUICK)
    };
    the_other_leads_when_the_leader_is_killed(&start(server.port()));
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/plumb-controller";
    let lease = server.api().read(path).unwrap();
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 6, "{lease}");
    assert!(lease["spec"]["leaseTransitions"].as_i64() >= Some(1), "{lease}");
    assert!(lease["spec"]["renewTime"].is_string() && lease["spec"]["acquireTime"].is_string(), "{lease}");
    server.api().delete(path).unwrap();
    a_leader_without_a_store_stops_first(start, server.port());
}

#[test]
fn with_sqlite_one_leads_at_a_time() {
    let folder = testkit::scratch("sqlite").unwrap();
    let path = folder.path().join("plumb.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = StoreConfig::Sqlite { path: path.clone() };
    drop(runtime.block_on(store::open(&config, OpenMode::CreateIfMissing)).unwrap());
    let start =
        Start::default().with("DATASTORE_TYPE", "sqlite").with("SQLITE_PATH", path.display().to_string());
    the_other_leads_when_the_leader_is_killed(&start.and(&QUICK));
}

/// Two programs that collect do not know each other's observations.
#[test]
fn it_does_not_act_beside_calicos_controller() {
    let Some(server) = world::server("it_does_not_act_beside_calicos_controller") else { return };
    let api = server.api();
    let labels = json!({ "k8s-app": "calico-kube-controllers" });
    let template = json!({ "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let deployment = json!({ "metadata": { "name": "calico-kube-controllers" },
        "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": template } });
    let path = "/apis/apps/v1/namespaces/kube-system/deployments";
    api.create(path, &deployment).unwrap();
    let user = json!({ "token": world::token(&api) });
    let kubeconfig = server.write_kubeconfig("controller", &server.url(), user).unwrap();
    let start = Start::default()
        .with("DATASTORE_TYPE", "kubernetes")
        .with("CALICO_API_GROUP", "crd.projectcalico.org/v1");
    let start = start.with("KUBECONFIG", kubeconfig.display().to_string()).and(&QUICK);
    let mut refuses = start.run();
    let words = "does not act beside calico-kube-controllers (kube-system/calico-kube-controllers)";
    refuses.wait("to refuse", |controller| {
        controller.get("/readiness").is_some_and(|answer| answer.contains("503") && answer.contains(words))
    });
    let mut told = start.clone().and(&["--take-over"]).run();
    told.wait("to lead", Controller::leads);
    assert!(!refuses.leads());
    told.kill();
    let scaled = json!({ "spec": { "replicas": 0 } });
    assert_eq!(api.patch("merge", &format!("{path}/calico-kube-controllers"), &scaled).unwrap().status, 200);
    refuses.wait("to lead", Controller::leads);
    refuses.wait("to be ready", |controller| {
        controller.get("/readiness").is_some_and(|answer| answer.contains("200 OK"))
    });
}
