//! Pods that come and go on other nodes, with all that their agents write.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use book::{Addition, Additions, AssignRequest, Book, HandleRequest, Settings};
use ipam::Owner;
use jiff::Timestamp;
use model::names::EndpointName;
use model::{Cidr, IpVersion, Key, Kind};
use serde_json::json;
use sim::kubernetes::node_name;
use store::Store;
use store::kube::{KubeConfig, KubeStore};
use testkit::kube::{Api, KubeApiServer};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::side::credential;

/// Over so many nodes.
const SPREAD: usize = 20;
const LIFETIME: Duration = Duration::from_secs(5);
const NAMESPACE: &str = "default";

/// Names of nodes, each with the credential of its agent.
pub(crate) fn others(server: &KubeApiServer, nodes: usize) -> Result<Vec<(String, PathBuf)>> {
    let credential = |node: String| Ok((node.clone(), credential(server, &server.url(), &node)?));
    (1..nodes).take(SPREAD).map(|number| credential(node_name(number))).collect()
}

pub(crate) struct Churn {
    pub(crate) others: Vec<(String, PathBuf)>,
    pub(crate) per_second: u32,
}

impl Churn {
    /// Does something once as many pods go as come. The calling thread is where the server is.
    pub(crate) fn during<T: Send>(&self, api: &Api, act: impl FnOnce() -> T + Send) -> Result<T> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let (stop, gone) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let churning = scope.spawn(|| runtime.block_on(self.run(api, &stop, &gone)));
            while gone.load(Ordering::Relaxed) < self.per_second as usize && !churning.is_finished() {
                std::thread::sleep(Duration::from_millis(100));
            }
            let before = gone.load(Ordering::Relaxed);
            let started = std::time::Instant::now();
            let result = act();
            let rate = (gone.load(Ordering::Relaxed) - before) as f64 / started.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            churning.join().map_err(|_| anyhow::anyhow!("the churn broke"))??;
            eprintln!("{rate:.1} pods per second went, and as many came");
            Ok(result)
        })
    }

    async fn run(&self, api: &Api, stop: &AtomicBool, gone: &AtomicUsize) -> Result<()> {
        let mut agents = Vec::new();
        for (node, kubeconfig) in &self.others {
            let config = KubeConfig { kubeconfig: Some(kubeconfig.clone()), ..KubeConfig::default() };
            let store: Arc<dyn Store> = Arc::new(KubeStore::connect(config).await?);
            let book = Book::following(store, Settings::default(), node);
            book.in_sync().await;
            agents.push(Agent { api: api.clone(), book, node: node.clone() });
        }
        let mut ticks = interval(Duration::from_secs(1) / self.per_second);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut pods = JoinSet::new();
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            ticks.tick().await;
            let agent = agents.get(number % agents.len()).context("a cluster of several nodes")?.clone();
            pods.spawn(async move { agent.pod(format!("churn-{number}")).await });
            while let Some(done) = pods.try_join_next() {
                done??;
                gone.fetch_add(1, Ordering::Relaxed);
            }
        }
        pods.join_all().await.into_iter().collect()
    }
}

/// What a node's agent does for a pod.
#[derive(Clone)]
struct Agent {
    api: Api,
    book: Book,
    node: String,
}

impl Agent {
    /// From the creation of a pod to its end.
    async fn pod(self, name: String) -> Result<()> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        let spec = json!({ "nodeName": self.node, "containers": [{ "name": "c", "image": "i" }] });
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        let (api, created) = (self.api.clone(), path.clone());
        let pod = spawn_blocking(move || api.create(&created, &object)).await??;
        let uid = pod["metadata"]["uid"].as_str().context("a pod has a UID")?.to_owned();
        let endpoint = EndpointName::of_pod(&self.node, &name, "eth0").compute()?;
        let key = Key::namespaced(Kind::WorkloadEndpoint, NAMESPACE, endpoint);

        let owner = Owner::on_node(format!("k8s-pod-network.{name}"), &self.node, Timestamp::now());
        let owner = owner.of_pod(NAMESPACE, &name, Some(&uid));
        let handle = owner.handle.clone();
        let mut request = AssignRequest::new(&self.node, owner, &[IpVersion::V4]);
        let attached = key.clone();
        request.additions = Additions::new(1, move |granted| {
            let networks: Vec<String> =
                granted.iter().map(|granted| Cidr::single(granted.address).to_string()).collect();
            let spec = json!({ "containerID": name, "ipNetworks": networks });
            let metadata = json!({ "namespace": NAMESPACE });
            let value = json!({ "kind": "WorkloadEndpoint", "metadata": metadata, "spec": spec });
            Ok(vec![Addition::attach(attached.clone(), value.to_string(), uid.as_str())])
        });
        self.book.assign(request).await?;
        sleep(LIFETIME).await;
        let record = self.book.store().get(&key).await?.context("the pod is still there")?;
        self.book.release_handle(HandleRequest::all(handle).with(vec![Addition::delete(&record)])).await?;
        let path =
            format!("{path}/{}?gracePeriodSeconds=0", pod["metadata"]["name"].as_str().unwrap_or_default());
        spawn_blocking(move || self.api.delete(&path)).await?
    }
}
