//! Made-up clusters on a real API server: Nodes, Pods, IPAM's records, all in agreement. The first node is made through the API; the
//! others are copies of what the server stored of it.

mod first;

use std::time::Instant;

use anyhow::Result;
use model::kube::{HOSTNAME_HASH_LABEL, Layout, affinity_labels, definitions};
use model::{AffinityOwner, IpVersion};
use testkit::kube::{KubeApiServer, Setup, Template};

/// How large a cluster is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub nodes: usize,
    /// Each with an address of the node's one block, and a handle.
    pub pods_per_node: usize,
}

/// Where objects of which there are many lie in etcd.
const PREFIXES: [&str; 5] = [
    "/registry/minions/",
    "/registry/pods/",
    "/registry/crd.projectcalico.org/ipamblocks/",
    "/registry/crd.projectcalico.org/blockaffinities/",
    "/registry/crd.projectcalico.org/ipamhandles/",
];

impl Cluster {
    /// One for each pair of two numbers with three digits.
    pub const NODES_MAX: usize = 128 * 156;

    pub fn pods(self) -> usize {
        self.nodes * self.pods_per_node
    }

    /// A server with an etcd that has room: 150,000 pods take more than half of what etcd allows by itself.
    pub fn server() -> Result<KubeApiServer> {
        let etcd_args = vec!["--quota-backend-bytes=8589934592".to_owned()];
        KubeApiServer::start(Setup { etcd_args, ..Setup::default() })
    }

    /// Writes everything to a server that has neither definitions nor objects yet, and starts it again: its caches are then those of
    /// a server that has found the cluster as it is.
    pub fn write(self, server: &mut KubeApiServer) -> Result<()> {
        assert!((1..=Cluster::NODES_MAX).contains(&self.nodes), "{} nodes", self.nodes);
        let started = Instant::now();
        server.api().define(&definitions(Layout::V1))?;
        let uids = first::create(&server.api(), self.pods_per_node)?;
        let etcd = server.etcd().endpoint(0);
        let texts = |number| texts(number, &uids);
        let template = Template::read(&etcd, &PREFIXES, &texts(0))?;
        server.kill();
        template.write(&etcd, self.nodes - 1, &|number| texts(number + 1))?;
        server.restart()?;
        let objects = template.len() * self.nodes;
        eprintln!(
            "wrote {objects} objects of {} nodes in {:.0} s",
            self.nodes,
            started.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

/// What a node's objects have in place of the first node's texts, each of the same length.
fn texts(number: usize, uids: &[String]) -> Vec<String> {
    let block = [128 + number / 156, 100 + number % 156];
    let node = node_name(number);
    let labels = affinity_labels(&AffinityOwner::Host(node.clone()), IpVersion::V4);
    let hash = labels.into_iter().find(|(name, _)| *name == HOSTNAME_HASH_LABEL).map(|(_, hash)| hash);
    let [second, third] = block;
    let mut texts = vec![
        node,
        format!("10.{second}.{third}."),
        format!("10-{second}-{third}-"),
        format!("172.16.{second}.{third}"),
        format!("-{number:05}x"),
        format!("c0ffee{number:05}"),
        hash.unwrap_or_default(),
    ];
    // The rest tells the objects of one node apart.
    texts.extend(
        uids.iter().map(|uid| if number == 0 { uid.clone() } else { format!("{number:08x}{}", &uid[8..]) }),
    );
    texts
}

/// The nodes are numbered from 0.
pub fn node_name(number: usize) -> String {
    format!("worker-{number:05}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ipam::check::{Evidence, analyse};
    use jiff::Timestamp;
    use testkit::kube::start_or_skip;

    use super::*;

    #[test]
    fn the_texts_of_all_nodes_are_as_long_and_differ() {
        let uids = ["d2b3fba4-aaaa-4bbb-8ccc-123456789012".to_owned()];
        let first = texts(0, &uids);
        let mut seen: std::collections::BTreeSet<String> = first.iter().cloned().collect();
        for number in [1, 155, 156, Cluster::NODES_MAX - 1] {
            let texts = texts(number, &uids);
            assert!(texts.iter().map(String::len).eq(first.iter().map(String::len)), "{texts:?}");
            let count = seen.len();
            seen.extend(texts.iter().cloned());
            assert_eq!(seen.len(), count + texts.len(), "{texts:?}");
        }
    }

    #[test]
    fn the_records_of_a_cluster_agree() {
        let Some(mut server) =
            start_or_skip("kubernetes::tests::the_records_of_a_cluster_agree", Setup::default())
        else {
            return;
        };
        Cluster { nodes: 3, pods_per_node: 4 }.write(&mut server).unwrap();
        let pods = server.api().read("/api/v1/pods").unwrap();
        let pods = pods["items"].as_array().unwrap();
        let uids: std::collections::BTreeSet<&str> =
            pods.iter().filter_map(|pod| pod["metadata"]["uid"].as_str()).collect();
        assert_eq!((pods.len(), uids.len()), (12, 12));
        let config = store::kube::KubeConfig {
            kubeconfig: Some(server.kubeconfig().unwrap()),
            ..store::kube::KubeConfig::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let facts = runtime.block_on(async {
            let store: Arc<dyn store::Store> =
                Arc::new(store::kube::KubeStore::connect(config).await.unwrap());
            book::load::facts(store.as_ref(), &book::load::Progress::default()).await.unwrap()
        });
        let book::load::Facts { books, pools, nodes, endpoints } = &facts;
        assert_eq!((nodes.len(), endpoints.len(), books.handles.len()), (3, 12, 12));
        assert_eq!((books.blocks.len(), books.affinities.len(), books.unreadable.len()), (3, 3, 0));
        let evidence = Evidence { books, pools, nodes, endpoints, services: &[], now: Timestamp::now() };
        let analysis = analyse(&evidence);
        assert_eq!(analysis.problems, []);
        assert_eq!((analysis.allocations.len(), analysis.in_use), (12, 12));
    }
}
