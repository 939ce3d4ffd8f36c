//! How many requests the ADDs and DELs of an agent's address book cost the API server of Kubernetes, by the server's own count.

use std::collections::BTreeMap;
use std::sync::Arc;

use book::{Addition, Additions, Book, HandleRequest, Settings};
use serde_json::json;
use store::Store;
use store::wrap::CountingStore;
use testkit::kube::Api;
use tokio::task::JoinSet;

use crate::common::{assert_clean, holders, one, put_pools, wait_for};
use crate::kubernetes::{self, Cluster, Pod};

const NODE: &str = "node-a";

type Requests = BTreeMap<(String, String), u64>;

/// An agent's book, with counts on both sides of the wire.
struct Agent {
    cluster: Arc<Cluster>,
    api: Api,
    counting: Arc<CountingStore>,
    book: Book,
}

impl Agent {
    async fn start(cluster: Arc<Cluster>) -> Agent {
        cluster.put_node(NODE, &[]);
        let store = kubernetes::connect(cluster.kubeconfig()).await;
        put_pools(&store, &[json!({"cidr": "10.0.0.0/16", "blockSize": 26})]).await;
        let counting = Arc::new(CountingStore::new(store));
        let book = Book::following(counting.clone(), Settings::default(), NODE);
        book.in_sync().await;
        Agent { api: cluster.api(), cluster, counting, book }
    }

    fn pods(&self, name: &str, count: usize) -> Vec<Pod> {
        (0..count).map(|number| Pod::create(&self.api, NODE, &format!("{name}-{number}"))).collect()
    }

    /// What the work costs, as the server counts it. What the store was asked for is all of it.
    async fn cost(&self, work: impl Future<Output = ()>) -> Requests {
        self.book.at_rest().await;
        let (sent, answered) = (self.counting.counts(), self.cluster.requests());
        work.await;
        self.book.at_rest().await;
        let sent = (self.counting.counts() - sent).round_trips();
        let mut cost = Requests::new();
        // The server counts a request a moment after it has answered it.
        wait_for("the server's count", || {
            cost = self.cluster.requests();
            cost.retain(|what, count| {
                *count -= answered.get(what).copied().unwrap_or_default();
                *count > 0
            });
            let is_all = cost.values().sum::<u64>() >= sent;
            async move { is_all }
        })
        .await;
        assert_eq!(cost.values().sum::<u64>(), sent, "{cost:?}");
        for what in cost.keys() {
            assert_ne!(what.0, "LIST", "{cost:?}");
        }
        cost
    }

    /// All at once, as a runtime asks for the pods of a node that starts.
    async fn add(&self, pods: &[Pod]) {
        let mut burst = JoinSet::new();
        for pod in pods.iter().cloned() {
            let (book, handle) = (self.book.clone(), pod.name.clone());
            let mut request = one(NODE, &pod.name);
            request.additions = Additions::new(1, move |granted| Ok(vec![pod.attach(&handle, granted)]));
            burst.spawn(async move { book.assign(request).await });
        }
        for done in burst.join_all().await {
            assert_eq!(done.unwrap().addresses.len(), 1);
        }
    }

    /// With the endpoints that the agent has in its cache.
    async fn delete(&self, endpoints: Vec<(String, Addition)>) {
        let mut burst = JoinSet::new();
        for (handle, endpoint) in endpoints {
            let book = self.book.clone();
            let request = HandleRequest::all(handle).with(vec![endpoint]);
            burst.spawn(async move { book.release_handle(request).await });
        }
        for done in burst.join_all().await {
            assert_eq!(done.unwrap().addresses.len(), 1);
        }
    }

    async fn endpoints(&self, pods: &[Pod]) -> Vec<(String, Addition)> {
        let mut endpoints = Vec::new();
        for pod in pods {
            let record = self.counting.get(&pod.key).await.unwrap().unwrap();
            endpoints.push((pod.name.clone(), Addition::delete(&record)));
        }
        endpoints
    }
}

fn per_pod(cost: &Requests, pods: &[Pod]) -> f64 {
    cost.values().sum::<u64>() as f64 / pods.len() as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adds_and_dels_cost_few_requests() {
    const TEST: &str = "requests::adds_and_dels_cost_few_requests";
    let Some((cluster, _turn)) = kubernetes::take_turn(TEST).await else { return };
    let agent = Agent::start(cluster).await;
    let store = kubernetes::connect(agent.cluster.kubeconfig()).await;
    agent.add(&agent.pods("first", 1)).await;
    let mut figures = Vec::new();
    for (count, add_max, delete_max) in [(1, 3.0, 3.0), (30, 2.2, 2.2), (110, 2.2, 2.2)] {
        let pods = agent.pods(&format!("burst-of-{count}"), count);
        let cost = agent.cost(agent.add(&pods)).await;
        let add = per_pod(&cost, &pods);
        assert!(add <= add_max, "{count} ADDs: {add} requests each: {cost:?}");
        assert_eq!(holders(&store).await.len(), 1 + count);
        let endpoints = agent.endpoints(&pods).await;
        let cost = agent.cost(agent.delete(endpoints)).await;
        let delete = per_pod(&cost, &pods);
        assert!(delete <= delete_max, "{count} DELs: {delete} requests each: {cost:?}");
        figures.push(format!("{count} pods: ADD {add:.2}, DEL {delete:.2}"));
        assert_clean(&store).await;
    }
    testkit::note(TEST, &format!("API requests per pod: {}", figures.join("; ")));
}
