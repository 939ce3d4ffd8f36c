//! The stand-in towards Kubernetes' API, where the lab has one: its node, its pods, and what becomes of them, as a kubelet tells it.
//! It also makes the pods, with their node already chosen, because neither a controller nor a scheduler runs here.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use testkit::kube::{Answer, Api};

use super::protocol::{NewPod, PodKey};
use super::records::PodRecord;
use crate::cluster::{Place, RENEW_EVERY, api, renew_token};

/// How often a kubelet says that its node lives, and how long its word counts.
const HEARTBEAT: Duration = Duration::from_secs(10);
const LEASE_SECONDS: u32 = 40;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const NODES: &str = "/api/v1/nodes";
/// How long a pod that is deleted may take to end. A lab's ends sooner.
const GRACE_SECONDS: u32 = 30;

const OK: u16 = 200;
const CREATED: u16 = 201;
const ACCEPTED: u16 = 202;
const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;

#[derive(Clone, Debug)]
pub(super) struct Kubernetes {
    api: Api,
    node: String,
    addresses: Vec<IpAddr>,
    place: Place,
}

/// A pod of this node, as the API has it.
#[derive(Clone, Debug)]
pub(super) struct ListedPod {
    pub(super) key: PodKey,
    pub(super) uid: String,
    pub(super) is_deleted: bool,
}

impl Kubernetes {
    pub(super) fn new(place: Place, node: &str, addresses: Vec<IpAddr>) -> Result<Kubernetes> {
        Ok(Kubernetes { api: api(&place)?, node: node.to_owned(), addresses, place })
    }

    /// Makes the node's object if there is none, gives the agent its token, and says that the node is ready. What others wrote on
    /// the node stays.
    pub(super) fn register(&self) -> Result<()> {
        let labels = json!({ "kubernetes.io/hostname": self.node, "kubernetes.io/os": "linux" });
        let node = json!({ "metadata": { "name": self.node, "labels": labels } });
        expect(&[CREATED, CONFLICT], "registering the node", self.api.request("POST", NODES, Some(&node))?)?;
        renew_token(&self.api, &self.place, &self.node)?;
        let internal =
            self.addresses.iter().map(|address| json!({ "type": "InternalIP", "address": address }));
        let hostname = json!({ "type": "Hostname", "address": self.node });
        let addresses: Vec<Value> = internal.chain([hostname]).collect();
        let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is a stand-in" });
        let status = json!({ "status": { "addresses": addresses, "conditions": [ready] } });
        let path = format!("{NODES}/{}/status", self.node);
        expect(&[OK], "reporting the node's status", self.api.patch("strategic-merge", &path, &status)?)
            .map(drop)
    }

    /// Renews the node's lease, and the agent's token, for as long as this process lives. While the API server is away, both grow
    /// old.
    pub(super) fn beat(&self) {
        let mut renewed = Instant::now();
        loop {
            if let Err(error) = self.renew_lease() {
                eprintln!("the lease of {}: {error:#}", self.node);
            }
            if renewed.elapsed() > RENEW_EVERY {
                match renew_token(&self.api, &self.place, &self.node) {
                    Ok(()) => renewed = Instant::now(),
                    Err(error) => eprintln!("the token for the agent of {}: {error:#}", self.node),
                }
            }
            std::thread::sleep(HEARTBEAT);
        }
    }

    fn renew_lease(&self) -> Result<()> {
        let spec =
            json!({ "holderIdentity": self.node, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now() });
        let path = format!("{LEASES}/{}", self.node);
        let answer = self.api.patch("merge", &path, &json!({ "spec": spec }))?;
        if answer.status != NOT_FOUND {
            return expect(&[OK], "renewing the lease", answer).map(drop);
        }
        let lease = json!({ "metadata": { "name": self.node }, "spec": spec });
        expect(&[CREATED, CONFLICT], "making the lease", self.api.request("POST", LEASES, Some(&lease))?)
            .map(drop)
    }

    /// Makes a pod on this node, and its namespace if there is none; the pod's UID.
    ///
    /// An earlier pod of the name that is still ending goes from the API first, as by `kubectl delete --force`: its sandbox may be
    /// there for long. A StatefulSet's controller makes the next pod only then.
    pub(super) fn create(&self, pod: &NewPod) -> Result<String> {
        let key = PodKey { namespace: pod.namespace.clone(), name: pod.name.clone() };
        let object = self.object(pod);
        let collection = pods_of(&key.namespace);
        for _ in 0..2 {
            let answer = self.post_pod(&key.namespace, &collection, &object)?;
            if answer.status != CONFLICT {
                let answer = expect(&[CREATED], &format!("creating pod {key}"), answer)?;
                return uid_of(&answer.json());
            }
            let existing = self.api.get(&path_of(&key))?;
            if existing.status == NOT_FOUND {
                continue;
            }
            let existing = expect(&[OK], &format!("reading pod {key}"), existing)?.json();
            ensure!(is_deleted(&existing), "pod {key} already exists");
            self.remove(&key, &uid_of(&existing)?, 0)?;
        }
        bail!("another program keeps creating pod {key}")
    }

    fn object(&self, pod: &NewPod) -> Value {
        json!({
            "metadata": { "namespace": pod.namespace, "name": pod.name, "annotations": pod.annotations },
            "spec": {
                "nodeName": self.node,
                "containers": [{ "name": "main", "image": "none" }],
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": GRACE_SECONDS,
            },
        })
    }

    fn post_pod(&self, namespace: &str, collection: &str, object: &Value) -> Result<Answer> {
        let answer = self.api.request("POST", collection, Some(object))?;
        if answer.status != NOT_FOUND {
            return Ok(answer);
        }
        let made = json!({ "metadata": { "name": namespace } });
        let made = self.api.request("POST", "/api/v1/namespaces", Some(&made))?;
        expect(&[CREATED, CONFLICT], &format!("creating namespace {namespace}"), made)?;
        self.api.request("POST", collection, Some(object))
    }

    /// Says that a pod runs, with these addresses.
    pub(super) fn report(&self, pod: &PodRecord, addresses: &[String]) -> Result<()> {
        // A list of addresses is merged, not replaced, unless told so.
        let mut listed = vec![json!({ "$patch": "replace" })];
        listed.extend(addresses.iter().map(|address| json!({ "ip": address })));
        let ready = json!({ "type": "Ready", "status": "True" });
        let container = json!({ "name": "main", "image": "none", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "running": { "startedAt": now() } } });
        let status = json!({ "phase": "Running", "conditions": [ready], "containerStatuses": [container],
            "hostIP": self.addresses.first(), "podIP": addresses.first(),
            "podIPs": listed });
        // One of the same name that came later is another pod.
        let patch = json!({ "metadata": { "uid": pod.uid }, "status": status });
        let path = format!("{}/status", path_of(&pod.key()));
        let answer = self.api.patch("strategic-merge", &path, &patch)?;
        // Gone from the API: whoever looks for it next notices.
        let is_gone = answer.status == NOT_FOUND || answer.status == CONFLICT;
        if is_gone {
            Ok(())
        } else {
            expect(&[OK], &format!("reporting pod {}", pod.key()), answer).map(drop)
        }
    }

    /// Marks a pod as deleted, as `kubectl delete pod` does. It stays until its sandboxes are gone.
    pub(super) fn begin_deletion(&self, pod: &PodRecord) -> Result<()> {
        self.remove(&pod.key(), &pod.uid, GRACE_SECONDS)
    }

    /// Nothing of the pod is left on this node, or nobody here knows of it any more.
    pub(super) fn finish_deletion(&self, pod: &PodRecord) -> Result<()> {
        self.remove(&pod.key(), &pod.uid, 0)
    }

    fn remove(&self, key: &PodKey, uid: &str, grace: u32) -> Result<()> {
        let options = json!({ "gracePeriodSeconds": grace, "preconditions": { "uid": uid } });
        let answer = self.api.request("DELETE", &path_of(key), Some(&options))?;
        // Gone, or another pod has its name by now.
        let fine = [OK, ACCEPTED, NOT_FOUND, CONFLICT];
        expect(&fine, &format!("deleting pod {key}"), answer).map(drop)
    }

    /// The pods that are to be on this node.
    pub(super) fn pods(&self) -> Result<Vec<ListedPod>> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", self.node);
        let list = expect(&[OK], "listing the node's pods", self.api.get(&path)?)?.json();
        let listed = |pod: &Value| {
            let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
            let key = PodKey { namespace: text("namespace"), name: text("name") };
            Ok(ListedPod { key, uid: uid_of(pod)?, is_deleted: is_deleted(pod) })
        };
        list["items"].as_array().context("a list has items")?.iter().map(listed).collect()
    }
}

fn pods_of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

fn path_of(key: &PodKey) -> String {
    format!("{}/{}", pods_of(&key.namespace), key.name)
}

fn uid_of(pod: &Value) -> Result<String> {
    pod["metadata"]["uid"].as_str().map(str::to_owned).context("a pod has a UID")
}

fn is_deleted(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

fn expect(fine: &[u16], what: &str, answer: Answer) -> Result<Answer> {
    ensure!(
        fine.contains(&answer.status),
        "{what}: the API server answers {}: {}",
        answer.status,
        answer.text
    );
    Ok(answer)
}

/// As Kubernetes writes a moment, with microseconds.
fn now() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
