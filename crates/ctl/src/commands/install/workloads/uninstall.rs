//! The DaemonSet that takes everything off the nodes again.

use std::path::Path;

use serde_json::{Value, json};

use super::{Cluster, HOST, LABEL, PLUMB, bare_root, directory, mount, requests};

const NAME: &str = "plumb-uninstall";

/// A pod of it is ready when its node is clean.
pub(in crate::commands::install) fn uninstall(cluster: &Cluster<'_>) -> Value {
    let (install, options) = (cluster.install, cluster.options());
    let on_host = |path: &Path| Path::new(HOST).join(path.strip_prefix("/").unwrap_or(path));
    let mut command = vec![
        PLUMB.to_owned(),
        "uninstall".to_owned(),
        format!("--root={HOST}"),
        "--kernel".to_owned(),
        format!("--cni-bin-dir={}", install.cni_bin_dir.display()),
        format!("--cni-conf-dir={}", install.cni_conf_dir.display()),
    ];
    command.extend(options.force.then(|| "--force".to_owned()));
    let mut context = bare_root();
    context["capabilities"]["add"] = json!(["NET_ADMIN"]);
    let folders = [
        ("cni-bin", install.cni_bin_dir.as_path()),
        ("cni-conf", install.cni_conf_dir.as_path()),
        ("lib", Path::new("/var/lib")),
        ("run", Path::new("/run/plumb")),
    ];
    let container = |name: &str, command: Vec<String>| {
        json!({
            "name": name, "image": options.image, "command": command,
            "resources": requests("10m", "16Mi"), "securityContext": context,
            "volumeMounts": folders.iter().map(|(name, path)| mount(name, on_host(path))).collect::<Vec<_>>(),
        })
    };
    let wait = command.iter().cloned().chain(["--stay".to_owned()]).collect();
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": cluster.metadata(NAME),
        "spec": {
            "selector": { "matchLabels": { LABEL: NAME } },
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "100%" } },
            "template": {
                "metadata": { "labels": { LABEL: NAME } },
                "spec": {
                    "automountServiceAccountToken": false,
                    "priorityClassName": "system-node-critical",
                    "nodeSelector": { "kubernetes.io/os": "linux" },
                    "tolerations": [{ "operator": "Exists" }],
                    "hostNetwork": true,
                    "dnsPolicy": "Default",
                    "terminationGracePeriodSeconds": 5,
                    "initContainers": [container("uninstall", command)],
                    "containers": [container("wait", wait)],
                    "volumes": folders.iter().map(|(name, path)| directory(name, path)).collect::<Vec<_>>(),
                },
            },
        },
    })
}
