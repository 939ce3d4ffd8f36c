//! What the files of the five incidents hold, as evidence.

use evidence::Evidence;
use evidence::kernel::NeighbourState;
use evidence::log::{CniCommand, Happening};
use intake::Intake;

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {{
        let mut intake = Intake::default();
        $(
            let name = concat!($folder, "/", $name);
            intake.file(name).feed(include_bytes!(concat!("../../../../tests/incidents/", $folder, "/", $name)));
        )+
        intake.finish()
    }};
}

fn assert_all_read(evidence: &Evidence) {
    assert_eq!(evidence.unseen, []);
}

#[test]
fn shared_address() {
    let evidence = files!("shared-address":
        "etcd-2.workloadendpoint.yaml", "healthy-pod.txt", "pods.wide.txt", "slave-140.ip-neigh.txt",
        "slave-140.ip-route.txt", "store-mysql-0.workloadendpoint.yaml", "workloadendpoints.wide.txt",
    );
    assert_all_read(&evidence);
    let endpoints = evidence.endpoints.as_ref().unwrap();
    assert_eq!(endpoints.len(), 12, "table and records of the same endpoint are one");
    let mysql =
        endpoints.iter().find(|endpoint| endpoint.seen.pod.as_deref() == Some("store-mysql-0")).unwrap();
    assert_eq!(mysql.seen.mac.unwrap().to_string(), "c2:94:4b:7e:d0:fd");
    assert_eq!(mysql.seen.namespace.as_deref(), Some("adqsdxadc"));
    assert_eq!(evidence.pods.as_ref().unwrap().len(), 10);
    assert!(evidence.partial.pods && evidence.partial.endpoints);
    let node = evidence.node(&"slave-140".into()).unwrap();
    let neighbours = node.kernel.neighbours.as_ref().unwrap();
    assert_eq!(neighbours.len(), 11);
    assert_eq!(neighbours.iter().filter(|entry| entry.seen.state == NeighbourState::Permanent).count(), 10);
    assert_eq!(node.kernel.routes.as_ref().unwrap().len(), 1);
    assert!(node.kernel.partial.routes && node.kernel.partial.neighbours);

    assert_eq!(evidence.unplaced.len(), 1, "healthy-pod is no node");
    let healthy = &evidence.unplaced[0];
    let view = &healthy.pod_views.as_ref().unwrap()[0].kernel;
    assert_eq!(view.addresses.as_ref().unwrap()[0].seen.net.to_string(), "192.168.8.42/32");
    assert_eq!(view.routes.as_ref().unwrap().len(), 2);
    assert!(healthy.kernel.link("cali69de609d5af").is_some());
    assert_eq!(healthy.kernel.neighbours.as_ref().unwrap()[0].seen.state, NeighbourState::Permanent);
}

#[test]
fn ipam_drift() {
    let evidence = files!("ipam-drift": "block-192.168.106.64-26.excerpt.txt");
    assert_eq!(
        evidence.unseen.iter().map(|unseen| unseen.to_string()).collect::<Vec<_>>(),
        ["ipam-drift/block-192.168.106.64-26.excerpt.txt line 1: block 192.168.106.64/26 is cut off, \
             so only the part that exists was checked"]
    );
    let ipam = evidence.ipam.as_ref().unwrap();
    assert!(ipam.books.blocks.is_empty());
    let block = &ipam.cut_blocks[0].seen;
    assert_eq!(block.cidr, "192.168.106.64/26".parse().ok());
    let handles: Vec<_> = block.handles.iter().map(|handle| handle.seen.as_str()).collect();
    assert_eq!(
        handles,
        ["kube-system.prometheus-3355405412-iyww3", "kube-system.kubernetes-dashboard-2069275773-iun7h"]
    );
}

#[test]
fn leaked_endpoints() {
    let evidence = files!("leaked-endpoints":
        "kubelet-paas-slave-20-48.log", "paas-slave-20-48.docker-ps.txt", "paas-slave-20-48.pod-arp.txt", "pods.wide.txt",
    );
    assert_all_read(&evidence);
    assert_eq!(evidence.nodes.len(), 1);
    let node = evidence.node(&"paas-slave-20-48".into()).unwrap();
    let containers = node.containers.as_ref().unwrap();
    assert!(containers.len() == 2 && containers.iter().any(|id| id.seen == "59436e9b460f"), "{containers:?}");
    let view = &node.pod_views.as_ref().unwrap()[0];
    assert_eq!(view.kernel.neighbours.as_ref().unwrap()[0].seen.state, NeighbourState::Missing);
    assert_eq!(node.kernel.neighbours, None);
    let told: Vec<String> = evidence
        .log
        .as_ref()
        .unwrap()
        .iter()
        .map(|event| match &event.seen.what {
            Happening::PodAddress { pod, pod_uid, address, containers, .. } => {
                let container = containers.first().map_or("", |id| &id[..12]);
                format!("{pod} {} {address} {container}", &pod_uid.as_ref().unwrap()[..8])
            }
            Happening::InterfaceMissing { pod, interface } => format!("{pod} misses {interface}"),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        told,
        [
            "XXXXX-system/XXXXX-0 1d402e65 192.168.247.220 ",
            "XXXXX-system/XXXXX-0 1d402e65 192.168.247.220 6a661302e272",
            "XXXXX-system/XXXXX-0 4f663934 192.168.247.231 f8189c4b982a",
            "XXXXX-system/XXXXX-0 misses eth0",
        ]
    );
}

#[test]
fn stale_delete() {
    let evidence = files!("stale-delete": "kubelet-dev-slave-107.log", "kubelet-slave-197.log");
    assert_all_read(&evidence);
    let log = evidence.log.as_ref().unwrap();
    let calls: Vec<String> = log
        .iter()
        .filter_map(|event| match &event.seen.what {
            Happening::CniCall { command, container_id, pod, netns, .. } => {
                let gone = if netns.as_deref() == Some("") { " without netns" } else { "" };
                let at = event.seen.at.unwrap();
                Some(format!(
                    "{at} {} {} {}{gone}",
                    command.as_str(),
                    &container_id[..12],
                    pod.as_ref().unwrap()
                ))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        calls,
        [
            "2017-12-13T10:27:49 ADD 247d3c783345 lijiaob/stateful-new-pod-0",
            "2017-12-13T10:28:09 DEL 41857f70ed13 lijiaob/stateful-new-pod-0 without netns",
            "2017-12-12T20:00:18 DEL 94feeebc95fb lijiaob/etcd1-0 without netns",
            "2017-12-12T20:00:18 DEL 94feeebc95fb lijiaob/etcd1-0 without netns",
            "2017-12-12T20:21:27 ADD 291716a39be9 lijiaob/etcd1-0",
            "2017-12-12T20:22:24 DEL 94feeebc95fb lijiaob/etcd1-0 without netns",
            "2017-12-12T20:22:24 DEL 94feeebc95fb lijiaob/etcd1-0 without netns",
        ]
    );
    let has = |wanted: &dyn Fn(&Happening) -> bool| log.iter().any(|event| wanted(&event.seen.what));
    assert!(has(&|what| matches!(what, Happening::CniFailed { command: CniCommand::Del, .. })));
    assert!(has(
        &|what| matches!(what, Happening::SandboxStopFailed { container_id, .. } if container_id.starts_with("94feeebc95fb"))
    ));
    assert!(has(
        &|what| matches!(what, Happening::HandleDecremented { handle, by: 1 } if handle == "lijiaob.stateful-new-pod-0")
    ));
    assert!(has(&|what| matches!(what, Happening::EndpointWritten { endpoint }
        if endpoint.device.as_deref() == Some("cali9118ebbb10b") && endpoint.addresses.len() == 1)));
    assert!(has(
        &|what| matches!(what, Happening::EndpointAbsent { node: Some(node), .. } if node.is("dev-slave-107"))
    ));
}

#[test]
fn wrong_nic() {
    let evidence = files!("wrong-nic":
        "k8scephnode.describe.txt", "k8scephnode.kubelet.log", "k8smaster2.addresses.txt", "k8smater1.addresses.txt",
        "k8smater1.bgp-status.txt", "kube-controllers.log", "nodes.txt", "pods.wide.txt", "readiness-event.txt",
    );
    assert_all_read(&evidence);
    assert_eq!(evidence.kube_nodes.as_ref().unwrap().len(), 3, "described and listed is one");
    let ceph =
        evidence.kube_nodes.as_ref().unwrap().iter().find(|node| node.seen.name.is("k8scephnode")).unwrap();
    assert_eq!(ceph.seen.annotations["projectcalico.org/IPv4Address"], "10.0.0.63/24");
    assert_eq!(ceph.seen.internal_ips[0].to_string(), "172.17.73.60");
    assert_eq!(ceph.seen.status, "NotReady");
    assert_eq!(ceph.seen.condition("Ready").unwrap().reason, "NodeStatusUnknown");
    let line = |fact: &str| ceph.place(fact).exhibit("").line;
    assert_eq!(
        (line("projectcalico.org/IPv4Address"), line("InternalIP"), line("Ready")),
        (Some(10), Some(30), Some(28))
    );
    assert_eq!(line("no such fact"), Some(1));
    assert!(ceph.seen.lease_renewed_at.is_some() && ceph.seen.conditions[0].heartbeat_at.is_some());
    let event = &evidence.events.as_ref().unwrap()[0].seen;
    assert_eq!((event.count, &event.node), (52_551, &Some("k8smaster2".into())));
    assert_eq!(
        evidence::readiness::peers_without_session(&event.message).unwrap()[0].to_string(),
        "10.0.0.66"
    );
    assert_eq!(evidence.pods.as_ref().unwrap().len(), 19);
    assert!(!evidence.partial.pods && !evidence.partial.kube_nodes);
    assert_eq!(evidence.node(&"k8smater1".into()).unwrap().kernel.addresses.as_ref().unwrap().len(), 2);
    assert_eq!(evidence.node(&"k8smater1".into()).unwrap().bgp.as_ref().unwrap().sessions.len(), 1);
    let log = evidence.log.as_ref().unwrap();
    assert!(log.iter().any(
        |event| matches!(&event.seen.what, Happening::Fatal { message, .. } if message.contains("swap on"))
    ));
    let stores = log.iter().filter(|event| matches!(event.seen.what, Happening::StoreTrouble { .. })).count();
    assert!(stores >= 5, "{stores}");
}

#[test]
fn wrong_nic_after() {
    let evidence = files!("wrong-nic-after": "k8smaster2.bgp-status.txt", "k8smater1.bgp-status.txt");
    assert_all_read(&evidence);
    for node in ["k8smaster2", "k8smater1"] {
        assert!(evidence.node(&node.into()).unwrap().bgp.as_ref().unwrap().sessions[0].seen.is_established());
    }
}
