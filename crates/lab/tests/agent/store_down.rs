//! The store goes away and comes back: DELs end, ADDs say so, nothing is lost.

use lab::Pod;
use serde_json::json;
use testkit::etcd::{EtcdCluster, Setup, start_or_skip};

use crate::common::{Bench, DelOutcome as _};
use crate::running::wait_until;

#[test]
fn a_del_without_the_store_cleans_the_kernel_and_is_finished_later() {
    let test = "a_del_without_the_store_cleans_the_kernel_and_is_finished_later";
    let Some(bench) = Bench::empty(test) else { return };
    // Etcd runs on the node's own loopback, where the agent can reach it.
    let run = || {
        let Some(mut etcd) = start_or_skip(test, Setup::default()) else { return };
        put_pool(&etcd);
        let settings = [("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", &etcd.endpoint(0))];
        let agent = bench.agent(&settings);
        let (web, db) = (bench.pod("shop", "web-0"), bench.pod("shop", "db-0"));
        bench.agent_add(&web).result().unwrap();
        let address = bench.agent_add(&db).address().unwrap();
        etcd.stop_all();
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
        let agent = bench.start_agent(&settings);
        wait_until(|| bench.socket().exists(), || agent.log());
        bench.agent_del(&db).result_of_del();
        etcd.restart(0).unwrap();
        etcd.wait_healthy().unwrap();
        wait_until(|| keys(&etcd, "/handle/").is_empty(), || agent.log());
        assert_eq!(keys(&etcd, "workloadendpoints"), [] as [String; 0]);
        assert_eq!(bench.agent_add(&late).address().unwrap().is_ipv4(), address.is_ipv4());
        bench.agent_del(&late).result_of_del();
        assert_eq!(keys(&etcd, "/handle/"), [] as [String; 0]);
    };
    bench.node.namespace().visit(run).unwrap();
}

#[test]
fn a_store_that_is_known_to_be_away_keeps_no_del_waiting() {
    let test = "a_store_that_is_known_to_be_away_keeps_no_del_waiting";
    let Some(bench) = Bench::empty(test) else { return };
    let run = || {
        let Some(mut etcd) = start_or_skip(test, Setup::default()) else { return };
        put_pool(&etcd);
        let settings = [("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", &etcd.endpoint(0))];
        let agent = bench.agent(&settings);
        let pods: Vec<Pod> = (0..6).map(|number| bench.pod("shop", &format!("web-{number}"))).collect();
        for pod in &pods {
            bench.agent_add(pod).result().unwrap();
        }
        etcd.stop_all();
        let (last, first) = pods.split_last().unwrap();
        for pod in first {
            bench.agent_del(pod).result_of_del();
        }
        let log = agent.log();
        let waited = log.matches("the DEL is queued: the store did not answer").count();
        let not_waited = log.matches("the DEL is queued: the store is away").count();
        assert_eq!((waited, not_waited), (1, first.len() - 1), "{log}");
        assert_eq!(bench.metric("store_away"), 1);
        etcd.restart(0).unwrap();
        etcd.wait_healthy().unwrap();
        wait_until(|| keys(&etcd, "/handle/").len() == 1, || agent.log());
        wait_until(|| bench.metric("store_away") == 0, || agent.log());
        // From now on it is asked again.
        let queued = bench.metric("dels_queued_total");
        bench.agent_del(last).result_of_del();
        assert_eq!((bench.metric("dels_queued_total"), keys(&etcd, "/handle/").len()), (queued, 0));
    };
    bench.node.namespace().visit(run).unwrap();
}

fn put_pool(etcd: &EtcdCluster) {
    let pool = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": "pods"},
        "spec": {"cidr": "10.244.0.0/16"},
    });
    let key = "/calico/resources/v3/projectcalico.org/ippools/pods";
    assert!(etcd.etcdctl().args(["put", key, &pool.to_string()]).output().unwrap().status.success());
}

/// The keys that hold this word.
fn keys(etcd: &EtcdCluster, word: &str) -> Vec<String> {
    let output = etcd.etcdctl().args(["get", "/calico/", "--prefix", "--keys-only"]).output().unwrap();
    let keys = String::from_utf8(output.stdout).unwrap();
    keys.lines().filter(|key| key.contains(word)).map(str::to_owned).collect()
}
