//! The store goes away and comes back: DELs end, ADDs say so, nothing is lost.

use lab::Pod;

use crate::common::DelOutcome as _;
use crate::on_etcd::{OnEtcd, on_etcd};
use crate::running::wait_until;

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
        let waited = log.matches("the DEL is queued: the store did not answer").count();
        let not_waited = log.matches("the DEL is queued: the store is away").count();
        assert_eq!((waited, not_waited), (1, first.len() - 1), "{log}");
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

fn restart(place: &mut OnEtcd<'_>) {
    place.etcd.restart(0).unwrap();
    place.etcd.wait_healthy().unwrap();
}
