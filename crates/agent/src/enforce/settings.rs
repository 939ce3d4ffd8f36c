//! The settings of FelixConfiguration that network policy depends on.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::Resource;
use policy::Settings;
use policy::rendering::{DenyAction, EndpointToHost};
use serde_json::Value;

use crate::felix::FelixEnvironment;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicySettings {
    pub(super) rendering: Settings,
}

impl PolicySettings {
    /// The environment comes before the node's own settings, and those before the cluster's.
    pub(super) fn read(
        felix: &BTreeMap<String, Resource>,
        environment: &FelixEnvironment,
        node: &str,
    ) -> PolicySettings {
        let of_node = environment.before(felix.get(&format!("node.{node}")));
        let all: Vec<&Resource> = of_node.iter().chain(felix.get("default")).collect();
        let find = |field: &str| {
            all.iter().find_map(|settings| settings.spec(field).filter(|value| !value.is_null()))
        };
        let text = |field: &str| find(field).and_then(Value::as_str);
        let flag = |field: &str| find(field).and_then(Value::as_bool).unwrap_or(false);
        let defaults = Settings::default();
        let port = find("vxlanPort").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
        let prefixes = text("interfacePrefix").map(|text| {
            text.split(',')
                .map(str::trim)
                .filter(|prefix| !prefix.is_empty())
                .map(Arc::from)
                .collect::<Vec<Arc<str>>>()
        });
        let rendering = Settings {
            table: super::engine::TABLE.into(),
            device_prefixes: prefixes
                .filter(|all| !all.is_empty())
                .unwrap_or(defaults.device_prefixes.clone()),
            endpoint_to_host: endpoint_to_host(text("defaultEndpointToHostAction")),
            deny: match text("nftablesFilterDenyAction") {
                Some(action) if action.eq_ignore_ascii_case("reject") => DenyAction::Reject,
                _ => DenyAction::Drop,
            },
            drops_invalid: !flag("disableConntrackInvalidCheck"),
            vxlan_port: port.unwrap_or(defaults.vxlan_port),
            allows_vxlan: flag("allowVXLANPacketsFromWorkloads"),
            allows_ipip: flag("allowIPIPPacketsFromWorkloads"),
            log_prefix: text("logPrefix").map_or_else(|| defaults.log_prefix.clone(), str::to_owned),
            ..defaults
        };
        PolicySettings { rendering }
    }
}

/// Felix drops what a pod sends to its own node unless it is told otherwise, and Calico's manifests tell it otherwise. A cluster that says nothing
/// keeps the pods' way to their nodes.
fn endpoint_to_host(setting: Option<&str>) -> EndpointToHost {
    match setting.map(str::to_ascii_lowercase).as_deref() {
        Some("drop") => EndpointToHost::Drop,
        Some("return") => EndpointToHost::Return,
        _ => EndpointToHost::Accept,
    }
}

#[cfg(test)]
mod tests {
    use model::Kind;
    use serde_json::json;

    use super::*;

    fn felix(name: &str, spec: Value) -> (String, Resource) {
        let mut resource = Resource::new(Kind::FelixConfiguration, name);
        resource.body.insert("spec".to_owned(), spec);
        (name.to_owned(), resource)
    }

    #[test]
    fn the_nodes_own_settings_come_first() {
        let environment = FelixEnvironment::default();
        let read = |felix: &BTreeMap<_, _>| PolicySettings::read(felix, &environment, "a");
        let none = read(&BTreeMap::new());
        assert_eq!(none.rendering.endpoint_to_host, EndpointToHost::Accept);
        assert!(none.rendering.drops_invalid && !none.rendering.allows_vxlan);
        let cluster = json!({"defaultEndpointToHostAction": "Drop", "allowVXLANPacketsFromWorkloads": true, "interfacePrefix": "cali, tap"});
        let mut all = BTreeMap::from([felix("default", cluster)]);
        let of_cluster = read(&all);
        assert_eq!(of_cluster.rendering.endpoint_to_host, EndpointToHost::Drop);
        assert_eq!(of_cluster.rendering.device_prefixes, [Arc::from("cali"), Arc::from("tap")]);
        assert!(of_cluster.rendering.allows_vxlan);
        all.extend([felix(
            "node.a",
            json!({"defaultEndpointToHostAction": "Return", "nftablesFilterDenyAction": "Reject"}),
        )]);
        let of_node = read(&all).rendering;
        assert_eq!((of_node.endpoint_to_host, of_node.deny), (EndpointToHost::Return, DenyAction::Reject));
        all.extend([felix("node.b", json!({"allowVXLANPacketsFromWorkloads": false}))]);
        assert!(read(&all).rendering.allows_vxlan, "another node's");
    }
}
