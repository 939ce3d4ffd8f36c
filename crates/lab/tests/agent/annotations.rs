//! Whoever may edit a pod's annotations decides no address by them.

use std::net::IpAddr;

use lab::Pod;
use serde_json::json;

use crate::adoption::runtime;
use crate::common::DelOutcome as _;
use crate::on_kubernetes::{OnKubernetes, noted, on_kubernetes};
use crate::running::wait_until;

/// What a tenant may do who may edit the pod.
fn claim(place: &OnKubernetes<'_>, pod: &Pod, address: IpAddr) {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
    let network = format!("{address}/32");
    let annotations =
        json!({"cni.projectcalico.org/podIP": network, "cni.projectcalico.org/podIPs": network});
    place.api().patch("merge", &path, &json!({"metadata": {"annotations": annotations}})).unwrap();
    assert_eq!(noted(&place.read_pod(&pod.namespace, &pod.name), "podIP"), network);
}

#[test]
fn an_annotation_takes_no_pod_its_address() {
    on_kubernetes("an_annotation_takes_no_pod_its_address", |place| {
        let bench = place.bench;
        let endpoint = format!("unix://{}/cri.sock", bench.state_folder().display());
        let settings = [("CONTAINER_RUNTIME_ENDPOINT", endpoint.as_str()), ("PLUMB_GRACE", "1s")];
        place.namespace("shop", json!({}));
        let uids = ["greedy", "victim"].map(|name| place.schedule("shop", name, json!({})));
        let [greedy, victim] = ["greedy", "victim"].map(|name| bench.pod("shop", name));
        let _runtime = runtime(bench, &[&greedy, &victim]);
        let agent = place.agent(&settings);
        let own = place.add(&greedy, &uids[0]).address().unwrap();
        let theirs = place.add(&victim, &uids[1]).address().unwrap();

        claim(&place, &greedy, theirs);
        assert_eq!(place.add(&greedy, &uids[0]).address().unwrap(), own, "{}", agent.log());
        assert_eq!(noted(&place.read_pod("shop", "greedy"), "podIP"), format!("{own}/32"), "it is corrected");

        // Without a journal the agent adopts both.
        claim(&place, &greedy, theirs);
        agent.kill();
        std::fs::remove_dir_all(bench.state_folder().join("attachments")).unwrap();
        let agent = place.agent(&settings);
        wait_until(|| bench.metric("attachments") == 2, || agent.log());
        let node = bench.node.namespace();
        let routes = |address: IpAddr| node.ip(&["route", "show", &address.to_string()]).unwrap();
        let before = [own, theirs].map(routes);
        node.ip(&["route", "del", &own.to_string()]).unwrap();
        wait_until(|| [own, theirs].map(routes) == before, || agent.log());
        for pod in [&greedy, &victim] {
            assert!(pod.netns().can_ping(bench.node.address()).unwrap(), "{}", pod.name);
        }
        for (pod, uid) in [(&greedy, &uids[0]), (&victim, &uids[1])] {
            place.del(pod, uid).result_of_del();
        }
        assert_eq!(place.books.handles(), [] as [String; 0]);
        agent.stop();
    });
}
