//! The history of sandboxes, from the logs of the incidents and from logs of today.

use doctor::timeline::{Episode, Timeline};
use intake::read;
use model::HandleId;

const PRODUCTION: &[u8] = include_bytes!("../../../tests/incidents/stale-delete/kubelet-slave-197.log");
const REPRODUCTION: &[u8] = include_bytes!("../../../tests/incidents/stale-delete/kubelet-dev-slave-107.log");
const UPGRADE: &[u8] =
    include_bytes!("../../../tests/incidents/leaked-endpoints/kubelet-paas-slave-20-48.log");

fn timeline(log: &[u8]) -> Timeline {
    Timeline::of(read([("kubelet.log", log)]).log.as_deref().unwrap())
}

fn told(log: &[u8]) -> Vec<String> {
    let tell = |episode: &Episode| match episode {
        Episode::StaleDel(stale) => format!(
            "stale DEL {} {} old {} new {} {:?} {} endpoint {} handle {} {:?}{}",
            stale.deleted_at.unwrap(),
            stale.pod,
            &stale.old_sandbox[..12],
            &stale.new_sandbox[..12],
            stale.addresses,
            stale.device.as_deref().unwrap_or("-"),
            stale.is_endpoint_deleted,
            stale.handle.as_ref().map_or("-", HandleId::as_str),
            stale.fate,
            if stale.failed_before.is_some() { " retried" } else { "" },
        ),
        Episode::RetryLoop(retries) => format!(
            "retries {} {} {} of {} failed",
            retries.pod,
            &retries.sandbox[..12],
            retries.failures,
            retries.tries
        ),
        Episode::Replaced(replaced) => format!(
            "replaced {} {} by {} within {} misses {}",
            replaced.pod,
            replaced.old_address,
            replaced.new_address,
            replaced.within.unwrap().as_secs(),
            replaced.interface_missing.as_deref().unwrap_or("-"),
        ),
    };
    timeline(log).episodes().iter().map(tell).collect()
}

#[test]
fn the_fatal_del_of_production() {
    assert_eq!(
        told(PRODUCTION),
        [
            "retries lijiaob/etcd1-0 94feeebc95fb 1 of 2 failed",
            "stale DEL 2017-12-12T20:22:24 lijiaob/etcd1-0 old 94feeebc95fb new 291716a39be9 [192.168.252.66] \
             cali9118ebbb10b endpoint true handle lijiaob.etcd1-0 NotShown retried",
        ]
    );
    let lines: Vec<u32> = timeline(PRODUCTION)
        .episodes()
        .iter()
        .filter_map(|episode| match episode {
            Episode::StaleDel(stale) => Some(stale.evidence.iter().filter_map(|exhibit| exhibit.line)),
            _ => None,
        })
        .flatten()
        .collect();
    assert!(lines.len() >= 6 && lines.is_sorted(), "{lines:?}");
}

#[test]
fn the_fatal_del_of_the_reproduction() {
    assert_eq!(
        told(REPRODUCTION),
        [
            "retries lijiaob/stateful-new-pod-0 41857f70ed13 1 of 2 failed",
            "stale DEL 2017-12-13T10:28:09 lijiaob/stateful-new-pod-0 old 41857f70ed13 new 247d3c783345 [192.168.8.34] \
             cali91dded39638 endpoint true handle lijiaob.stateful-new-pod-0 Freed retried",
        ]
    );
}

#[test]
fn a_pod_that_was_replaced_without_a_del() {
    assert_eq!(
        told(UPGRADE),
        ["replaced XXXXX-system/XXXXX-0 192.168.247.220 by 192.168.247.231 within 84 misses eth0"]
    );
}

#[test]
fn plugins_of_today_do_no_harm() {
    let a = "a".repeat(64);
    let b = "b".repeat(64);
    let log = format!(
        "time=\"2024-03-01T10:00:00Z\" level=info msg=\"Configured environment: [CNI_COMMAND=ADD CNI_CONTAINERID={b} CNI_NETNS=/x CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0 CNI_IFNAME=eth0]\"\n\
         time=\"2024-03-01T10:01:00Z\" level=info msg=\"Configured environment: [CNI_COMMAND=DEL CNI_CONTAINERID={a} CNI_NETNS= CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0 CNI_IFNAME=eth0]\"\n\
         2024-03-01 10:01:00.000 [WARNING][77] cni-plugin/k8s.go 1: CNI_CONTAINERID does not match WorkloadEndpoint ContainerID, don't delete WEP. ContainerID=\"{a}\" Namespace=\"shop\" Pod=\"web-0\"\n\
         2024-03-01 10:01:01.000 [INFO][77] ipam/ipam_plugin.go 1: Releasing all IPs with handle 'k8s-pod-network.{a}'\n",
    );
    assert_eq!(told(log.as_bytes()), Vec::<String>::new());
    let pods = timeline(log.as_bytes()).pods;
    assert_eq!((pods.len(), pods[0].calls.len(), pods[0].sandboxes().len()), (1, 2, 2));
}

#[test]
fn an_ordinary_life_is_no_episode() {
    let call = |at: &str, command: &str, id: &str| {
        format!(
            "time=\"2024-03-01T10:0{at}:00Z\" level=info msg=\"Configured environment: [CNI_COMMAND={command} CNI_CONTAINERID={} CNI_NETNS=/x CNI_ARGS=K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0 CNI_IFNAME=eth0]\"\n\
             time=\"2024-03-01T10:0{at}:01Z\" level=info msg=\"{}\"\n",
            id.repeat(64),
            if command == "DEL" {
                "Delete Key: /calico/v1/host/n/workload/k8s/shop.web-0/endpoint/eth0"
            } else {
                "x"
            },
        )
    };
    let log = [
        call("0", "ADD", "a"),
        call("1", "DEL", "a"),
        call("2", "ADD", "b"),
        call("3", "DEL", "b"),
        call("4", "DEL", "b"),
    ];
    assert_eq!(told(log.concat().as_bytes()), Vec::<String>::new());
}
