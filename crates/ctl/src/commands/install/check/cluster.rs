//! What the cluster is, and what this credential may do in it.

use std::collections::BTreeMap;

use serde_json::Value;
use store::StoreError;
use store::kube::{KubeConfig, Prospect};

use super::line::Line;
use crate::commands::node::checksystem;
use crate::failure::Failure;

/// The first with admission policies, and the first with everything.
const OLDEST: (u32, u32) = (1, 30);
const COMPLETE: (u32, u32) = (1, 31);
/// What `kubectl apply` of the manifests does.
const CREATES: [(&str, &str); 6] = [
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("", "serviceaccounts"),
    ("apps", "daemonsets"),
    ("apps", "deployments"),
];
/// DaemonSets of other pod networks.
const NETWORKS: [&str; 9] = [
    "antrea-agent",
    "aws-node",
    "calico-node",
    "canal",
    "cilium",
    "kindnet",
    "kube-flannel-ds",
    "kube-router",
    "weave-net",
];

pub(super) async fn lines(config: &KubeConfig) -> Vec<Line> {
    let prospect = match Prospect::connect(config).await {
        Ok(prospect) => prospect,
        Err(error) => return vec![unable("cluster", error)],
    };
    let version = match prospect.version().await {
        Ok(version) => version_line(&version),
        Err(error) => return vec![unable("cluster", error)],
    };
    let mut lines = vec![version, rights(&prospect).await];
    match prospect.list("/api/v1/nodes").await {
        Ok(nodes) => lines.extend(node_lines(&nodes)),
        Err(error) => lines.push(unable("nodes", error)),
    }
    match prospect.list("/apis/apps/v1/daemonsets").await {
        Ok(sets) => lines.push(networks(&sets)),
        Err(error) => lines.push(unable("networks", error)),
    }
    lines
}

fn unable(name: &'static str, error: StoreError) -> Line {
    let failure = Failure::from(error);
    Line::fail(name, failure.words(), "check the kubeconfig, and the rights of its user")
}

fn version_line(version: &str) -> Line {
    let mut numbers = version.trim_start_matches('v').split('.').map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return Line::warn("cluster", format!("Kubernetes {version:?}"), "this is no version that we know");
    };
    let found = format!("Kubernetes {version}");
    match (major, minor) {
        older if older < OLDEST => Line::fail(
            "cluster",
            found,
            "it has no ValidatingAdmissionPolicy: print without admission, where nodes trust each other (docs/kubernetes.md)",
        ),
        older if older < COMPLETE => {
            Line::warn("cluster", found, "agents must run as pods: tokens cannot be bound to nodes yet")
        }
        _ => Line::ok("cluster", found),
    }
}

async fn rights(prospect: &Prospect) -> Line {
    let mut missing = Vec::new();
    for (group, resource) in CREATES {
        match prospect.may("create", group, resource).await {
            Ok(true) => {}
            Ok(false) => missing.push(resource),
            Err(error) => return unable("RBAC", error),
        }
    }
    match missing.as_slice() {
        [] => Line::ok("RBAC", "this credential may create everything that is printed"),
        some => Line::fail(
            "RBAC",
            format!("this credential may not create {}", some.join(", ")),
            "use that of a cluster administrator",
        ),
    }
}

/// What nodes say of themselves.
fn node_lines(nodes: &[Value]) -> Vec<Line> {
    let info =
        |node: &Value, field: &str| node["status"]["nodeInfo"][field].as_str().unwrap_or_default().to_owned();
    let count = |field: &str| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        nodes.iter().for_each(|node| *counts.entry(info(node, field)).or_default() += 1);
        counts.iter().map(|(word, count)| format!("{count} × {word}")).collect::<Vec<_>>().join(", ")
    };
    let named = |is_meant: &dyn Fn(&&Value) -> bool| {
        let names = nodes.iter().filter(is_meant).filter_map(|node| node["metadata"]["name"].as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let mut lines = vec![
        Line::ok("nodes", format!("{} nodes; kubelet {}", nodes.len(), count("kubeletVersion"))),
        Line::ok("runtimes", count("containerRuntimeVersion")),
    ];
    let other =
        named(&|node| info(node, "operatingSystem") == "linux" && info(node, "architecture") != "amd64");
    if !other.is_empty() {
        lines.push(Line::fail(
            "nodes",
            format!("the image is for amd64 only, and these nodes are not: {other}"),
            "keep the DaemonSet from them with a nodeSelector",
        ));
    }
    let old = named(&|node| {
        let release = info(node, "kernelVersion");
        !release.is_empty() && !checksystem::is_new_enough(&release)
    });
    if !old.is_empty() {
        let advice = format!("update them to {} or later", checksystem::oldest_kernel());
        lines.push(Line::fail("kernels", format!("the kernels of these nodes are too old: {old}"), advice));
    }
    lines
}

fn networks(sets: &[Value]) -> Line {
    let names = sets.iter().filter_map(|set| {
        let name = set["metadata"]["name"].as_str()?;
        let namespace = set["metadata"]["namespace"].as_str()?;
        NETWORKS.contains(&name).then(|| format!("{namespace}/{name}"))
    });
    let names: Vec<String> = names.collect();
    match names.as_slice() {
        [] => Line::ok("networks", "no other pod network that we know runs here"),
        some => Line::warn(
            "networks",
            format!("another pod network runs here: {}", some.join(", ")),
            "two networks on one node disturb each other: remove it first, or observe only (PLUMB_OBSERVE=true)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::line::Verdict;
    use super::*;

    #[test]
    fn versions_are_judged() {
        for (version, verdict) in [
            ("v1.35.4", Verdict::Ok),
            ("v1.31.0+k3s1", Verdict::Ok),
            ("v1.30.9", Verdict::Warn),
            ("v1.29.0", Verdict::Fail),
            ("", Verdict::Warn),
        ] {
            assert_eq!(version_line(version).verdict, verdict, "{version}");
        }
    }

    #[test]
    fn nodes_that_will_not_do_are_named() {
        let node = |name: &str, architecture: &str, kernel: &str| {
            json!({ "metadata": { "name": name }, "status": { "nodeInfo": { "operatingSystem": "linux",
                "architecture": architecture, "kernelVersion": kernel, "kubeletVersion": "v1.35.4" } } })
        };
        let verdicts =
            |nodes: &[Value]| node_lines(nodes).iter().map(|line| line.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&[node("a", "amd64", "6.1.0"), json!({})]), [Verdict::Ok, Verdict::Ok]);
        let lines = node_lines(&[node("a", "arm64", "6.1.0"), node("b", "amd64", "4.4.0")]);
        assert!(lines[2].verdict == Verdict::Fail && lines[2].found.ends_with(": a"), "{lines:?}");
        assert!(lines[3].verdict == Verdict::Fail && lines[3].found.ends_with(": b"), "{lines:?}");
    }

    #[test]
    fn other_networks_are_named() {
        let set = |name: &str| json!({ "metadata": { "name": name, "namespace": "kube-system" } });
        assert_eq!(networks(&[set("kube-proxy"), set("plumb-node")]).verdict, Verdict::Ok);
        assert!(networks(&[set("calico-node")]).found.contains("kube-system/calico-node"));
    }
}
