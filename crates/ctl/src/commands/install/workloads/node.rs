//! The DaemonSet of the agents.

use std::path::Path;

use model::IpVersion;
use model::settings::AGENT_CAPABILITIES;
use serde_json::{Value, json};

use super::{
    Cluster, HOST, LABEL, PLUGINS, PLUMB, PLUMBD, api_server, bare_root, directory, existing, mount,
    read_only, requests, variable,
};
use crate::cli::install::Family;
use crate::cli::install_cluster::{ClusterOptions, Mode};

const NAME: &str = "plumb-node";
/// Of the agent, on the node's loopback device.
const HEALTH_PORT: u16 = 9099;

pub(in crate::commands::install) fn daemonset(cluster: &Cluster<'_>) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": cluster.metadata(NAME),
        "spec": {
            "selector": { "matchLabels": { LABEL: NAME } },
            // An agent counts as replaced when it is ready: then it has observed its node and serves calls.
            "minReadySeconds": 5,
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxUnavailable": share(&cluster.options().max_unavailable) },
            },
            "template": {
                "metadata": { "labels": { LABEL: NAME } },
                "spec": pod(cluster),
            },
        },
    })
}

/// A number is one in the API, too.
fn share(text: &str) -> Value {
    text.parse::<u32>().map_or_else(|_| json!(text), |number| json!(number))
}

fn pod(cluster: &Cluster<'_>) -> Value {
    json!({
        "serviceAccountName": model::kube::access::NODE_ACCOUNT,
        "priorityClassName": "system-node-critical",
        "nodeSelector": { "kubernetes.io/os": "linux" },
        // Also on nodes that are not ready, unreachable, or reserved: without an agent no pod there has a network.
        "tolerations": [{ "operator": "Exists" }],
        "hostNetwork": true,
        // The agent asks which processes are in a pod's network namespace.
        "hostPID": true,
        "dnsPolicy": "Default",
        // The agent ends within 3 seconds, and leaves the pods' network as it is. So it needs no preStop.
        "terminationGracePeriodSeconds": 10,
        "initContainers": [installer(cluster)],
        "containers": [agent(cluster)],
        "volumes": volumes(cluster),
    })
}

/// Puts plugins and then the network configuration in place. It has the capabilities of an ordinary user that owns root's files.
fn installer(cluster: &Cluster<'_>) -> Value {
    let (install, options) = (cluster.install, cluster.options());
    let families = [IpVersion::V4, IpVersion::V6].into_iter().filter(|version| options.has(*version));
    let families: Vec<&str> = families.map(|version| Family::of(version).word()).collect();
    let mut arguments = vec![
        PLUMB.to_owned(),
        "install".to_owned(),
        "--node".to_owned(),
        format!("--root={HOST}"),
        format!("--standard-plugins={PLUGINS}"),
        format!("--cni-bin-dir={}", install.cni_bin_dir.display()),
        format!("--cni-conf-dir={}", install.cni_conf_dir.display()),
        format!("--ip-versions={}", families.join(",")),
        "--replace-config".to_owned(),
    ];
    arguments.extend(options.mtu.map(|mtu| format!("--mtu={mtu}")));
    let on_host = |path: &Path| Path::new(HOST).join(path.strip_prefix("/").unwrap_or(path));
    json!({
        "name": "install",
        "image": options.image,
        "command": arguments,
        "resources": requests("10m", "16Mi"),
        "securityContext": bare_root(),
        "volumeMounts": [
            mount("cni-bin", on_host(&install.cni_bin_dir)),
            mount("cni-conf", on_host(&install.cni_conf_dir)),
            mount("state", on_host(Path::new(wire::STATE_DIR))),
        ],
    })
}

fn agent(cluster: &Cluster<'_>) -> Value {
    let options = cluster.options();
    let mut context = bare_root();
    let capabilities = AGENT_CAPABILITIES.map(|name| name.strip_prefix("CAP_").unwrap_or(name));
    context["capabilities"]["add"] = json!(capabilities);
    // The runtime's profile forbids to read which network namespace another process is in.
    context["appArmorProfile"] = json!({ "type": "Unconfined" });
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": { "host": "127.0.0.1", "port": HEALTH_PORT, "path": path },
            "periodSeconds": period, "failureThreshold": failures, "timeoutSeconds": 5,
        })
    };
    json!({
        "name": "plumbd",
        "image": options.image,
        "command": [PLUMBD, "node"],
        "env": environment(cluster),
        "resources": requests("50m", "64Mi"),
        "securityContext": context,
        "startupProbe": probe("/liveness", 2, 60),
        "livenessProbe": probe("/liveness", 10, 6),
        "readinessProbe": probe("/readiness", 5, 2),
        "volumeMounts": mounts(cluster),
    })
}

fn environment(cluster: &Cluster<'_>) -> Vec<Value> {
    let options = cluster.options();
    let backend = if options.mode == Mode::Bgp { "bird" } else { "none" };
    let cluster_type = if options.mode == Mode::Bgp { "k8s,bgp" } else { "k8s" };
    let mut list = vec![
        json!({ "name": "NODENAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }),
        variable("DATASTORE_TYPE", "kubernetes"),
        variable("CALICO_API_GROUP", cluster.layout.api_version()),
        variable("CALICO_NETWORKING_BACKEND", backend),
        variable("CLUSTER_TYPE", cluster_type),
        variable("CONTAINER_RUNTIME_ENDPOINT", options.cri_socket.to_string_lossy()),
    ];
    list.extend(addresses(options));
    list.extend([IpVersion::V4, IpVersion::V6].into_iter().flat_map(|version| pool(options, version)));
    if let Some(mtu) = options.mtu {
        list.extend(["FELIX_VXLANMTU", "FELIX_VXLANMTUV6"].map(|name| variable(name, mtu.to_string())));
    }
    list.extend(api_server(options));
    list
}

fn addresses(options: &ClusterOptions) -> Vec<Value> {
    let mut list = Vec::new();
    if !options.has(IpVersion::V4) {
        list.push(variable("IP", "none"));
    }
    if let Some(method) = &options.ip_autodetection {
        list.extend([variable("IP", "autodetect"), variable("IP_AUTODETECTION_METHOD", method)]);
    }
    if options.has(IpVersion::V6) {
        list.push(variable("IP6", "autodetect"));
        let method = options.ip6_autodetection.iter();
        list.extend(method.map(|method| variable("IP6_AUTODETECTION_METHOD", method)));
    }
    list
}

/// What the first agent makes the pool of this version of.
fn pool(options: &ClusterOptions, version: IpVersion) -> Vec<Value> {
    let prefix = match version {
        IpVersion::V4 => "CALICO_IPV4POOL",
        IpVersion::V6 => "CALICO_IPV6POOL",
    };
    let set = |name: &str, value: String| variable(&format!("{prefix}_{name}"), value);
    if !options.has(version) {
        return vec![set("CIDR", "none".to_owned())];
    }
    let mut list = Vec::new();
    if let Some((network, block_size)) = options.network(version) {
        list.push(set("CIDR", network.to_string()));
        list.extend(block_size.map(|size| set("BLOCK_SIZE", size.to_string())));
    }
    list.push(set("VXLAN", options.mode.vxlan_mode().to_owned()));
    list.push(set("NAT_OUTGOING", (!options.no_nat_outgoing).to_string()));
    list
}

fn mounts(cluster: &Cluster<'_>) -> Vec<Value> {
    let socket_directory = cluster.options().cri_socket.parent().unwrap_or(Path::new("/"));
    let mut network_namespaces = read_only(mount("netns", "/run/netns"));
    // Those of pods that start later must be seen, too.
    network_namespaces["mountPropagation"] = "HostToContainer".into();
    let mut list = vec![
        mount("state", wire::STATE_DIR),
        mount("run", "/run/plumb"),
        mount("calico", "/var/lib/calico"),
        network_namespaces,
        read_only(mount("runtime", socket_directory)),
        read_only(mount("cni-conf", &cluster.install.cni_conf_dir)),
        // In a container, /proc/sys itself is read-only.
        mount("sysctls", "/host/proc/sys/net"),
    ];
    let secrets = cluster.options().bgp_secret.iter().enumerate();
    list.extend(secrets.map(|(at, name)| {
        read_only(mount(&format!("secret-{at}"), Path::new("/etc/plumb/secrets").join(name)))
    }));
    list
}

fn volumes(cluster: &Cluster<'_>) -> Vec<Value> {
    let (install, options) = (cluster.install, cluster.options());
    let socket_directory = options.cri_socket.parent().unwrap_or(Path::new("/"));
    let mut list = vec![
        directory("cni-bin", &install.cni_bin_dir),
        directory("cni-conf", &install.cni_conf_dir),
        directory("state", Path::new(wire::STATE_DIR)),
        directory("run", Path::new("/run/plumb")),
        directory("calico", Path::new("/var/lib/calico")),
        directory("netns", Path::new("/run/netns")),
        existing("runtime", socket_directory),
        existing("sysctls", Path::new("/proc/sys/net")),
    ];
    let secrets = options.bgp_secret.iter().enumerate();
    list.extend(
        secrets.map(|(at, name)| json!({ "name": format!("secret-{at}"), "secret": { "secretName": name } })),
    );
    list
}
