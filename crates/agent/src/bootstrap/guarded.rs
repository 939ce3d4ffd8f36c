//! Against a real API server, with the shipped role and under the shipped admission policies: what an agent creates is what they allow.

use std::sync::Arc;

use model::kube::{Layout, access, definitions};
use model::{Key, Kind};
use serde_json::json;
use store::Store;
use store::config::Reason;
use store::kube::{KubeConfig, KubeStore};
use testkit::kube::{Api, KubeApiServer, Setup, start_or_skip};
use testkit::process::wait_until;

use super::run_with;

const SYSTEM: &str = "kube-system";

fn environment(name: &str) -> Option<String> {
    let value = match name {
        "CALICO_IPV4POOL_CIDR" => "10.244.0.0/16",
        "CALICO_IPV4POOL_IPIP" => "CrossSubnet",
        "CALICO_IPV6POOL_CIDR" => "fd00:244::/48",
        "CALICO_IPV6POOL_VXLAN" => "Always",
        "CALICO_IPV6POOL_NAT_OUTGOING" => "true",
        "CLUSTER_TYPE" => "k8s,bgp",
        "IP" => "192.0.2.7/24",
        "AS" => "64512",
        _ => return None,
    };
    Some(value.to_owned())
}

fn install(api: &Api, layout: Layout) {
    api.define(&definitions(layout)).unwrap();
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-a" } });
    let rights = [access::policies(layout, SYSTEM), access::accounts_and_roles(layout, SYSTEM)].concat();
    rights.iter().chain([&node]).for_each(|manifest| api.apply(manifest, "").unwrap());
}

/// A tier that no agent creates.
fn wait_for_policies(server: &KubeApiServer, layout: Layout, token: &str) {
    let tier = json!({ "apiVersion": layout.api_version(), "kind": "Tier", "metadata": { "name": "x" }, "spec": {} });
    let path = format!("/apis/{}/tiers?dryRun=All", layout.api_version());
    let api = server.api_as(token);
    let is_refused = || api.request("POST", &path, Some(&tier)).is_ok_and(|answer| answer.status == 403);
    wait_until("the policies to be in force", is_refused).unwrap();
}

async fn connect(server: &KubeApiServer, layout: Layout, token: &str) -> Arc<dyn Store> {
    let kubeconfig = server.write_kubeconfig("agent", &server.url(), json!({ "token": token })).unwrap();
    let api_group = Some(layout.api_version());
    let config = KubeConfig { kubeconfig: Some(kubeconfig), api_group, ..KubeConfig::default() };
    Arc::new(KubeStore::connect(config).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_policies_allow_what_an_agent_creates_at_its_first_start() {
    let test = "the_policies_allow_what_an_agent_creates_at_its_first_start";
    for layout in [Layout::V1, Layout::V3] {
        let Some(server) = start_or_skip(test, Setup::default()) else { return };
        let api = server.api();
        install(&api, layout);
        let token = api.token_of(SYSTEM, access::NODE_ACCOUNT, "Node", "node-a").unwrap();
        wait_for_policies(&server, layout, &token);
        let store = connect(&server, layout, &token).await;
        for start in 0..2 {
            run_with(&*store, "node-a", Reason::Named, &environment)
                .await
                .unwrap_or_else(|error| panic!("start {start} with {}: {error:#}", layout.api_version()));
        }
        for key in [
            Key::cluster(Kind::ClusterInformation, "default"),
            Key::cluster(Kind::IpPool, "default-ipv4-ippool"),
            Key::cluster(Kind::Tier, "kube-baseline"),
            Key::cluster(Kind::FelixConfiguration, "default"),
            Key::cluster(Kind::BgpConfiguration, "default"),
            Key::IpamConfig,
        ] {
            assert!(store.get(&key).await.unwrap().is_some(), "{key}");
        }
    }
}
