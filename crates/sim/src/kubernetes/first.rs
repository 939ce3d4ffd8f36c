//! The first node of a cluster, through the API: as a kubelet, a controller and Calico's plugin write it.

use std::net::IpAddr;

use anyhow::{Context as _, Result, ensure};
use ipam::{Owner, Reservations};
use jiff::Timestamp;
use model::ipam::{Affinity, AffinityState, Block, Handle};
use model::kube::{Layout, encode, place};
use model::{AffinityOwner, Cidr, Key, Kind, Resource};
use serde_json::{Value, json};
use testkit::kube::Api;

use super::node_name;

/// Every block of a cluster is in it.
const POOL: &str = "10.128.0.0/9";
/// Of the first node, in which every number has three digits: so have those of the copies.
const BLOCK: &str = "10.128.100.128/26";
const ADDRESS: &str = "172.16.128.100";
const NAMESPACES: usize = 30;
/// 2026-08-22T06:33:20Z.
const MADE_AT: i64 = 1_787_380_400;
const STARTED: &str = "2026-08-22T06:33:20Z";
const IMAGES: usize = 12;

/// Makes everything, and names the UIDs that the server gave.
pub(super) fn create(api: &Api, pods: usize) -> Result<Vec<String>> {
    let pool = Key::cluster(Kind::IpPool, "pods");
    let mut resource = Resource::new(Kind::IpPool, "pods");
    resource.body.insert("spec".into(), json!({ "cidr": POOL, "blockSize": 26, "nodeSelector": "all()" }));
    record(api, &pool, &resource.encode())?;
    for number in 0..NAMESPACES.min(pods) {
        api.create("/api/v1/namespaces", &json!({ "metadata": { "name": namespace(number) } }))?;
    }
    let mut uids = vec![uid(&node(api)?)?];
    let owner = AffinityOwner::Host(node_name(0));
    let made_at = Timestamp::from_second(MADE_AT)?;
    let mut block = ipam::new_block(BLOCK.parse()?, &owner, None, made_at);
    for number in 0..pods {
        let pod = Pod::create(api, number)?;
        let owner = Owner::on_node(pod.handle(), &node_name(0), made_at);
        let owner = owner.of_pod(&pod.namespace, &pod.name, Some(&pod.uid));
        let address = ipam::take(&mut block, &owner, 1, &Reservations::default());
        let address = *address.first().context("a block has 64 addresses")?;
        pod.run(api, address)?;
        uids.push(pod.handle_record(api, &block)?);
        uids.push(pod.uid);
    }
    let affinity = Affinity::new(AffinityState::Confirmed).encode();
    uids.push(record(api, &Key::Affinity { owner, block: block.cidr }, &affinity)?);
    uids.push(record(api, &block.key(), &block.encode())?);
    Ok(uids)
}

fn namespace(number: usize) -> String {
    format!("team-{:02}", number % NAMESPACES)
}

/// Creates a custom resource.
fn record(api: &Api, key: &Key, value: &[u8]) -> Result<String> {
    let place = place(key).context("a custom resource keeps it")?;
    let document = encode(Layout::V1, key, value)?;
    let path = format!("/apis/{}/{}", Layout::V1.api_version(), Layout::V1.plural(place.kind));
    uid(&api.create(&path, &document.into())?)
}

fn uid(object: &Value) -> Result<String> {
    Ok(object["metadata"]["uid"].as_str().context("an object has a UID")?.to_owned())
}

/// Patches the status of an object, whose annotations are there for whoever may patch it.
fn report(api: &Api, path: &str, change: &Value) -> Result<()> {
    let answer = api.patch("strategic-merge", &format!("{path}/status"), change)?;
    ensure!(answer.status == 200, "{path}: {}", answer.text);
    Ok(())
}

fn node(api: &Api) -> Result<Value> {
    let name = node_name(0);
    let labels = json!({
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "m5.2xlarge", "topology.kubernetes.io/zone": "eu-central-1a",
        "topology.kubernetes.io/region": "eu-central-1",
    });
    let node = api.create("/api/v1/nodes", &json!({ "metadata": { "name": name, "labels": labels } }))?;
    let resources = json!({ "cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi" });
    let images: Vec<Value> = (0..IMAGES).map(image).collect();
    let change = json!({
        "metadata": { "annotations": { "projectcalico.org/IPv4Address": format!("{ADDRESS}/12") } },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": ADDRESS }, { "type": "Hostname", "address": name }],
            "capacity": resources, "allocatable": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "images": images,
        },
    });
    report(api, &format!("/api/v1/nodes/{name}"), &change)?;
    Ok(node)
}

fn image(number: usize) -> Value {
    let name = format!("registry.example.com/platform/component-{number:02}");
    let digest = format!("{name}@sha256:{:064x}", number + 1);
    json!({ "names": [digest, format!("{name}:v1.27.{number}")], "sizeBytes": 104_857_600 + number })
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": format!("kubelet: {reason}"),
        "lastHeartbeatTime": STARTED, "lastTransitionTime": STARTED })
}

struct Pod {
    namespace: String,
    name: String,
    container_id: String,
    uid: String,
}

impl Pod {
    /// As a controller makes it and a scheduler places it.
    fn create(api: &Api, number: usize) -> Result<Pod> {
        let namespace = namespace(number);
        let name = format!("web-7c5ddbdf54-{:05}x{number:02}", 0);
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7c5ddbdf54",
            "uid": "0b7c9f2e-2f4b-4b0c-9a55-6a5f3e1d9c11", "controller": true, "blockOwnerDeletion": true });
        let object = json!({
            "metadata": {
                "name": name, "generateName": "web-7c5ddbdf54-", "ownerReferences": [owner],
                "labels": { "app": "web", "pod-template-hash": "7c5ddbdf54", "team": namespace },
            },
            "spec": spec(),
        });
        let pod = api.create(&format!("/api/v1/namespaces/{namespace}/pods"), &object)?;
        let container_id = format!("{:047}c0ffee{:05}{number:06}", 0, 0);
        Ok(Pod { namespace, name, container_id, uid: uid(&pod)? })
    }

    /// As the plugin and the kubelet write onto it.
    fn run(&self, api: &Api, address: IpAddr) -> Result<()> {
        let network = Cidr::single(address).to_string();
        let running = json!({ "running": { "startedAt": STARTED } });
        let container = json!({
            "name": "web", "ready": true, "started": true, "restartCount": 0, "state": running,
            "image": "registry.example.com/shop/web:v1.27.3",
            "imageID": format!("registry.example.com/shop/web@sha256:{:064x}", 77),
            "containerID": format!("containerd://{}", self.container_id),
        });
        let conditions =
            ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
                .map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": STARTED }));
        let change = json!({
            "metadata": { "annotations": {
                "cni.projectcalico.org/containerID": self.container_id,
                "cni.projectcalico.org/podIP": network, "cni.projectcalico.org/podIPs": network,
            } },
            "status": {
                "phase": "Running", "conditions": conditions, "hostIP": ADDRESS, "hostIPs": [{ "ip": ADDRESS }],
                "podIP": address, "podIPs": [{ "ip": address }], "startTime": STARTED,
                "containerStatuses": [container], "qosClass": "Burstable",
            },
        });
        report(api, &format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name), &change)
    }

    fn handle(&self) -> String {
        format!("k8s-pod-network.{}", self.container_id)
    }

    fn handle_record(&self, api: &Api, block: &Block) -> Result<String> {
        let handle = Handle { block: [(block.cidr.to_string(), 1)].into(), ..Handle::default() };
        record(api, &Key::Handle(self.handle().into()), &handle.encode())
    }
}

fn spec() -> Value {
    let probe = json!({ "httpGet": { "path": "/healthz", "port": "http" }, "periodSeconds": 10 });
    let token = json!({ "name": "kube-api-access", "projected": { "defaultMode": 420, "sources": [
        { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
        { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
    ] } });
    let tolerations = ["not-ready", "unreachable"].map(|taint| {
        json!({ "key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300 })
    });
    json!({
        "nodeName": node_name(0), "serviceAccountName": "default", "restartPolicy": "Always",
        "containers": [{
            "name": "web", "image": "registry.example.com/shop/web:v1.27.3",
            "args": ["--listen", ":8080", "--log-format", "json"],
            "env": [{ "name": "GOMAXPROCS", "value": "2" }, { "name": "REGION", "value": "eu-central-1" }],
            "ports": [{ "name": "http", "containerPort": 8080 }],
            "resources": { "requests": { "cpu": "100m", "memory": "128Mi" }, "limits": { "memory": "256Mi" } },
            "livenessProbe": probe, "readinessProbe": probe,
            "volumeMounts": [{ "name": "kube-api-access", "readOnly": true,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }],
        }],
        "volumes": [token], "tolerations": tolerations,
    })
}
