//! The texts that are installed: network configuration, systemd unit, the agent's settings.

use std::path::Path;

use serde_json::{Value, json};

const AGENT_SOCKET: &str = "/run/plumb/agent.sock";

/// By these the agent is told about its store and its node; whoever installs has them in the environment.
const SETTINGS: [&str; 11] = [
    "NODENAME",
    "IP",
    "IP6",
    "DATASTORE_TYPE",
    "SQLITE_PATH",
    "ETCD_ENDPOINTS",
    "ETCD_KEY_FILE",
    "ETCD_CERT_FILE",
    "ETCD_CA_CERT_FILE",
    "CALICO_IPV4POOL_CIDR",
    "CALICO_IPV6POOL_CIDR",
];

/// Our plugin, then those that are customary after it, where the node has them.
pub(super) fn conflist(cni_bin: &Path) -> String {
    let mut plugins = vec![json!({
        "type": "plumb-cni",
        "agent_socket": AGENT_SOCKET,
        "log_level": "info",
        "ipam": {"type": "plumb-ipam"},
    })];
    let customary = [
        json!({"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}),
        json!({"type": "bandwidth", "capabilities": {"bandwidth": true}}),
    ];
    let is_there = |plugin: &Value| plugin["type"].as_str().is_some_and(|name| cni_bin.join(name).is_file());
    plugins.extend(customary.into_iter().filter(is_there));
    // Older containerds call plugins of version 1.1.0 and then refuse their answers.
    let list = json!({"cniVersion": "1.0.0", "name": "k8s-pod-network", "plugins": plugins});
    format!("{list:#}\n")
}

pub(super) fn unit(plumbd: &Path, settings: &Path) -> String {
    format!(
        "[Unit]
Description=Plumbline node agent
Wants=network-online.target
After=network-online.target

[Service]
EnvironmentFile=-{settings}
ExecStart={plumbd} node
Restart=always
RestartSec=1
# Stopping the agent leaves the pods' network as it is.
KillMode=process
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
",
        settings = settings.display(),
        plumbd = plumbd.display(),
    )
}

/// What is set now is written down; the rest is there to be filled in.
pub(super) fn settings(variable: impl Fn(&str) -> Option<String>) -> String {
    let mut text = "# Settings of the node agent, as environment variables.\n".to_owned();
    for name in SETTINGS {
        match variable(name).filter(|value| !value.is_empty() && !value.contains('\n')) {
            Some(value) => {
                text.push_str(&format!("{name}=\"{}\"\n", value.replace('\\', "\\\\").replace('"', "\\\"")))
            }
            None => text.push_str(&format!("#{name}=\n")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_names_only_plugins_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        let types = || {
            let list: Value = serde_json::from_str(&conflist(folder.path())).unwrap();
            let plugins = list["plugins"].as_array().unwrap().iter();
            plugins.map(|plugin| plugin["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(types(), ["plumb-cni"]);
        std::fs::write(folder.path().join("portmap"), "").unwrap();
        assert_eq!(types(), ["plumb-cni", "portmap"]);
    }

    #[test]
    fn settings_keep_what_is_set() {
        let text = settings(|name| (name == "ETCD_ENDPOINTS").then(|| "http://a:1,\"b\"".to_owned()));
        assert!(text.contains("\nETCD_ENDPOINTS=\"http://a:1,\\\"b\\\"\"\n"), "{text}");
        assert!(text.contains("\n#NODENAME=\n"), "{text}");
        assert!(!settings(|_| Some("a\nEVIL=1".to_owned())).contains("EVIL"));
    }
}
