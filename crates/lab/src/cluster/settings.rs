//! What a lab tells the programs on its nodes: environment and network configuration.

use std::net::IpAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::fabric::FABRIC;
use super::place::{self, Place};
use super::{Description, Mode, NodeDescription, StoreKind};

/// The network's name, in every lab.
pub const NETWORK: &str = "plumb-lab";
pub(crate) const AGENT_SOCKET: &str = "/run/plumb/agent.sock";
/// Tells `plumb doctor`, `repair` and `collect` whom to ask.
pub(crate) const AGENT_SOCKETS: &str = "PLUMB_AGENT_SOCKETS";
pub(crate) const ETCD_PORT: u16 = 2379;
/// Leaves room for VXLAN on IPv4, should the lab get it later.
const MTU: u32 = 1450;
/// The same on IPv6.
const MTU_V6: u32 = 1430;

/// Everything that programs on a node find in their environment.
pub(crate) fn environment(
    description: &Description,
    node: &NodeDescription,
    place: &Place,
) -> Vec<(String, String)> {
    let mut variables = store_settings(description, place);
    let mut set = |name: &str, value: String| variables.push((name.to_owned(), value));
    set("PATH", search_path(&description.programs));
    set("NODENAME", node.name.clone());
    set("PLUMB_GRACE", format!("{}ms", description.grace.as_millis()));
    if let Some(sockets) = agent_sockets(description, place) {
        set(AGENT_SOCKETS, sockets);
    }
    if let Some(address) = node.address() {
        set("IP", address.to_string());
    }
    if let Some(address) = node.address6() {
        set("IP6", address.to_string());
    }
    for pool in &description.pools {
        let family = if pool.contains(':') { "CALICO_IPV6POOL_CIDR" } else { "CALICO_IPV4POOL_CIDR" };
        set(family, pool.clone());
        set(&family.replace("_CIDR", "_VXLAN"), description.mode.vxlan().to_owned());
    }
    if description.mode == Mode::Bgp {
        set("CALICO_NETWORKING_BACKEND", "bird".to_owned());
    }
    for passed_on in [place::VARIABLE, "RUST_LOG", "RUST_BACKTRACE", "TERM", "HOME"] {
        if let Ok(value) = std::env::var(passed_on) {
            set(passed_on, value);
        }
    }
    variables
}

/// Where all agents of the lab are asked, from its nodes and from outside.
pub(crate) fn agent_sockets(description: &Description, place: &Place) -> Option<String> {
    let sockets = description.nodes.iter().map(|node| place.agent_socket(&node.name).display().to_string());
    description.has_agents.then(|| sockets.collect::<Vec<_>>().join(","))
}

/// How the lab's records are reached, from its nodes.
pub(crate) fn store_settings(description: &Description, place: &Place) -> Vec<(String, String)> {
    let settings = match description.store {
        StoreKind::Sqlite => {
            vec![
                ("DATASTORE_TYPE", "sqlite".to_owned()),
                ("SQLITE_PATH", place.store_file().display().to_string()),
            ]
        }
        StoreKind::Etcdv3 => {
            vec![("DATASTORE_TYPE", "etcdv3".to_owned()), ("ETCD_ENDPOINTS", etcd_endpoint(description))]
        }
        StoreKind::Kubernetes => vec![
            ("DATASTORE_TYPE", "kubernetes".to_owned()),
            ("KUBECONFIG", place.kubeconfig().display().to_string()),
        ],
    };
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// How a node's agent reaches the records, and the plugin where there is no agent: with no more rights than it needs.
pub(crate) fn agent_settings(
    description: &Description,
    node: &NodeDescription,
    place: &Place,
) -> Vec<(String, String)> {
    let mut settings = store_settings(description, place);
    for (_, value) in settings.iter_mut().filter(|(name, _)| name == "KUBECONFIG") {
        *value = place.agent_kubeconfig(&node.name).display().to_string();
    }
    settings
}

/// etcd stands on the fabric, where every node reaches it.
pub(super) fn etcd_endpoint(description: &Description) -> String {
    let address = fabric_address(description);
    address.map_or_else(|| format!("http://{FABRIC}"), |address| format!("http://{address}:{ETCD_PORT}"))
}

/// By which every node reaches the fabric.
pub(super) fn fabric_address(description: &Description) -> Option<IpAddr> {
    let networks = description.networks.iter();
    networks.flat_map(|network| &network.fabric_addresses).map(|(address, _)| *address).next()
}

/// What a runtime finds in the node's /etc/cni/net.d.
pub(crate) fn conflist(description: &Description, node: &NodeDescription, place: &Place) -> Value {
    let mut plugin = json!({
        "type": "plumb-cni",
        "nodename": node.name,
        "mtu": mtu(description),
        "log_level": "info",
        "ipam": {"type": "plumb-ipam", "assign_ipv4": "true",
                 "assign_ipv6": description.has_ipv6().to_string()},
    });
    if description.has_agents {
        plugin["agent_socket"] = json!(AGENT_SOCKET);
    }
    for (variable, value) in agent_settings(description, node, place) {
        match (&*variable, description.has_agents) {
            // The agent has it, and nobody else on the node needs it.
            ("KUBECONFIG", true) => {}
            ("KUBECONFIG", false) => plugin["kubernetes"] = json!({ "kubeconfig": value }),
            _ => plugin[variable.to_lowercase()] = json!(value),
        }
    }
    json!({"cniVersion": "1.1.0", "name": NETWORK, "plugins": [plugin]})
}

/// Of pods.
pub(crate) fn mtu(description: &Description) -> u32 {
    if description.has_ipv6() && !matches!(description.mode, Mode::Direct | Mode::Bgp) { MTU_V6 } else { MTU }
}

fn search_path(programs: &Path) -> String {
    let usual = std::env::var("PATH").unwrap_or_default();
    format!("{}:{usual}", programs.display())
}
