//! Faults that only logs tell: real lines of kubelets, plugins and controllers, beside the cluster that runs.

use std::net::IpAddr;

use anyhow::Result;
use ipam::{Owner, Reservations};
use model::FindingCode;

use crate::injection::{Fault, Injection, Takes};

pub(crate) const FAULTS: &[Fault] = &[
    Fault { code: FindingCode::AddFailing, takes: Takes::Pod, inject: add_failing },
    Fault { code: FindingCode::DelRetried, takes: Takes::Pod, inject: del_retried },
    Fault { code: FindingCode::KubeletFailing, takes: Takes::Setup, inject: kubelet_failing },
    Fault { code: FindingCode::KubeletRefusesSwap, takes: Takes::Setup, inject: kubelet_refuses_swap },
    Fault { code: FindingCode::PodReplacedWithoutDel, takes: Takes::Pod, inject: pod_replaced_without_del },
    Fault { code: FindingCode::StaleDel, takes: Takes::Pod, inject: stale_del },
    Fault { code: FindingCode::StoreUnstable, takes: Takes::Cluster, inject: store_unstable },
];

/// Lines as journald prints them, in a file of the node's.
fn write(i: &Injection<'_>, unit: &str, lines: &[String]) -> Result<()> {
    let stamp =
        |(at, line): (usize, &String)| format!("Dec 12 20:{:02}:18 {} {unit}[1]: {line}\n", at + 10, i.node);
    let text: String = lines.iter().enumerate().map(stamp).collect();
    i.scene.write_text(&format!("{}.{unit}-{}-{}.log", i.node, i.code, i.number), &text)
}

/// A line of the plugin's log: which call it serves.
fn call(i: &Injection<'_>, minute: u32, command: &str, id: &str) -> String {
    let (netns, pod) = (if command == "ADD" { "/proc/16707/ns/net" } else { "" }, i.pod());
    format!(
        "time=\"2017-12-12T20:{minute}:00+08:00\" level=info msg=\"Configured environment: [CNI_COMMAND={command} \
         CNI_CONTAINERID={id} CNI_NETNS={netns} CNI_ARGS=K8S_POD_NAMESPACE={};K8S_POD_NAME={} CNI_IFNAME=eth0]\"",
        pod.namespace, pod.name
    )
}

fn stop_failed(i: &Injection<'_>, id: &str) -> String {
    let pod = i.pod();
    format!(
        "E1212 20:00:18.678639 1 remote_runtime.go:114] StopPodSandbox \"{id}\" from runtime service failed: rpc \
         error: code = 2 desc = NetworkPlugin cni failed to teardown pod \"{}_{}\" network: resource does not exist",
        pod.name, pod.namespace
    )
}

fn old_sandbox(i: &Injection<'_>) -> String {
    format!("{:02x}94feeebc95fbcf081f75", i.lot())
}

fn add_failing(i: &mut Injection<'_>) -> Result<()> {
    let failed = format!(
        "E1212 20:00:18.678639 1 cni.go:301] Error adding network: no address is free, workload={}.{}, x",
        i.pod().namespace,
        i.pod().name
    );
    write(i, "kubelet", &[failed.clone(), failed.clone(), failed])?;
    i.expect(i.pod_subject())
}

fn del_retried(i: &mut Injection<'_>) -> Result<()> {
    let id = old_sandbox(i);
    let failed = stop_failed(i, &id);
    write(i, "kubelet", &[failed.clone(), call(i, 20, "DEL", &id), failed])?;
    i.expect(format!("sandbox {}", &id[..12]))
}

fn kubelet_failing(i: &mut Injection<'_>) -> Result<()> {
    let failed = "kubelet.service: Failed with result 'exit-code'.".to_owned();
    write(i, "systemd", &[failed.clone(), failed.clone(), failed])?;
    i.expect(format!("node {}", i.node))
}

fn kubelet_refuses_swap(i: &mut Injection<'_>) -> Result<()> {
    let fatal = "F0526 05:33:01.977085  886002 server.go:274] failed to run Kubelet: running with swap on is not \
                 supported, please disable swap! or set --fail-swap-on flag to false.";
    write(i, "kubelet", &[fatal.to_owned()])?;
    i.expect(format!("node {}", i.node))
}

/// The books still hold the old one's address.
fn pod_replaced_without_del(i: &mut Injection<'_>) -> Result<()> {
    let handle = format!("{}.{:02x}{}", lab::cluster::NETWORK, i.lot(), "9".repeat(62));
    let mut leaked: Vec<IpAddr> = Vec::new();
    i.edit_block(i.block(), |block| {
        let owner = Owner { handle: handle.clone().into(), attributes: Default::default() };
        leaked = ipam::take(block, &owner, 1, &Reservations::default());
    })?;
    i.put_handle(&handle, i.block())?;
    let determined = |address: IpAddr, uid: &str| {
        format!(
            "INFO:1204 10:09:10.421593 5448 kuberuntime_manager.go:636] Determined the ip \"{address}\" for pod \
             \"{}_{}({uid}-d898-11e7-b1cd-5254171bf8db)\" after sandbox changed",
            i.pod().name,
            i.pod().namespace
        )
    };
    write(i, "kubelet", &[determined(leaked[0], "1d402e65"), determined(i.address(), "4f663934")])?;
    i.expect_symptom(FindingCode::AddressLeaked, leaked[0]);
    i.expect(i.pod_subject())
}

/// The pod has lost its endpoint by it.
fn stale_del(i: &mut Injection<'_>) -> Result<()> {
    let (old, new) = (old_sandbox(i), i.pod().container_id.clone());
    let assigned = format!(
        "time=\"2017-12-12T20:21:27+08:00\" level=info msg=\"Auto-assigned 1 out of 1 IPv4s: [{}]\"",
        i.address()
    );
    let deleted = format!(
        "time=\"2017-12-12T20:22:24+08:00\" level=info msg=\"Delete Key: \
         /calico/v1/host/{}/workload/k8s/{}.{}/endpoint/eth0\"",
        i.node,
        i.pod().namespace,
        i.pod().name
    );
    let lines = [stop_failed(i, &old), call(i, 21, "ADD", &new), assigned, call(i, 22, "DEL", &old), deleted];
    write(i, "kubelet", &lines)?;
    i.remove(i.endpoint_key())?;
    i.expect_symptom(FindingCode::PodWithoutEndpoint, i.pod_subject());
    i.expect_symptom(FindingCode::DelRetried, format!("sandbox {}", &old[..12]));
    i.expect(i.pod_subject())
}

fn store_unstable(i: &mut Injection<'_>) -> Result<()> {
    let line = "2020-05-26 12:42:35.947 [ERROR][1] client.go 255: Error getting cluster information config \
                ClusterInformation=\"default\" error=etcdserver: ";
    let text = format!("{line}leader changed\n{line}request timed out\n{line}request timed out\n");
    i.scene.write_text("kube-controllers.log", &text)?;
    i.expect("cluster")
}
