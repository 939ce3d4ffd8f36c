//! The records that every cluster has, and what must be in them: Calico's tools cannot do without.

use serde_json::{Value, json};

use crate::{Cidr, IpVersion, Kind, Resource};

/// The one ClusterInformation there is.
pub const CLUSTER_INFORMATION: &str = "default";

/// On a Node: the version of the agent of ours that last started there.
pub const AGENT_VERSION_ANNOTATION: &str = "plumbline.io/agent-version";

/// Name, order and default action of the tiers that are always there.
const TIERS: [(&str, u64, &str); 3] =
    [("default", 1_000_000, "Deny"), ("kube-admin", 1_000, "Pass"), ("kube-baseline", 10_000_000, "Pass")];

/// The tiers that policies may name in every cluster, without the metadata that storing gives them.
pub fn basic_tiers() -> Vec<Resource> {
    let tier = |(name, order, action): (&str, u64, &str)| {
        resource(Kind::Tier, name, json!({"order": order, "defaultAction": action}))
    };
    TIERS.into_iter().map(tier).collect()
}

/// The cluster's own record, without the metadata that storing gives it. The version is left out: calicoctl refuses to
/// work with one that is not its own. `guid` must be one that no other cluster has.
pub fn new_cluster_information(guid: &str) -> Resource {
    let spec = json!({"clusterGUID": guid, "datastoreReady": true});
    resource(Kind::ClusterInformation, CLUSTER_INFORMATION, spec)
}

/// Whether the cluster's own record says that no addresses may be allocated or released: the store is being migrated.
pub fn is_locked(information: &Resource) -> bool {
    information.spec("datastoreReady") == Some(&Value::Bool(false))
}

/// Adds what is missing in the cluster's own record; whether anything was. Calico's tools read these without asking
/// whether they are there. A store that is locked stays locked.
pub fn complete_cluster_information(information: &mut Resource, guid: impl FnOnce() -> String) -> bool {
    let spec = information.spec_mut();
    let has_guid = spec.get("clusterGUID").and_then(Value::as_str).is_some_and(|guid| !guid.is_empty());
    let has_ready = spec.get("datastoreReady").is_some_and(Value::is_boolean);
    if !has_guid {
        spec.insert("clusterGUID".to_owned(), guid().into());
    }
    if !has_ready {
        spec.insert("datastoreReady".to_owned(), true.into());
    }
    !has_guid || !has_ready
}

/// A pool that a cluster starts with, one of each IP version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultPool {
    pub network: Cidr,
    pub block_size: u64,
    /// As pools call it: `Never`, `CrossSubnet` or `Always`.
    pub vxlan_mode: &'static str,
    pub ipip_mode: &'static str,
    pub nat_outgoing: bool,
    pub disable_bgp_export: bool,
    pub node_selector: String,
}

impl DefaultPool {
    /// Calico's defaults for a network: nothing encapsulated, and only IPv4 masqueraded.
    pub fn of(network: Cidr) -> DefaultPool {
        let is_v4 = network.version() == IpVersion::V4;
        DefaultPool {
            network,
            block_size: if is_v4 { 26 } else { 122 },
            vxlan_mode: "Never",
            ipip_mode: "Never",
            nat_outgoing: is_v4,
            disable_bgp_export: false,
            node_selector: "all()".to_owned(),
        }
    }

    pub fn name(version: IpVersion) -> &'static str {
        match version {
            IpVersion::V4 => "default-ipv4-ippool",
            IpVersion::V6 => "default-ipv6-ippool",
        }
    }

    /// Without the metadata that storing gives it.
    pub fn resource(&self) -> Resource {
        let spec = json!({
            "cidr": self.network.to_string(),
            "blockSize": self.block_size,
            "vxlanMode": self.vxlan_mode,
            "ipipMode": self.ipip_mode,
            "natOutgoing": self.nat_outgoing,
            "disableBGPExport": self.disable_bgp_export,
            "nodeSelector": self.node_selector,
        });
        let mut pool = resource(Kind::IpPool, DefaultPool::name(self.network.version()), spec);
        pool.fill_defaults();
        pool
    }
}

/// The settings that every cluster has, without the metadata that storing gives them: no usage reports.
pub fn basic_settings() -> [Resource; 2] {
    let felix = json!({"reportingInterval": "0s", "logSeverityScreen": "Info"});
    [
        resource(Kind::FelixConfiguration, "default", felix),
        resource(Kind::BgpConfiguration, "default", json!({})),
    ]
}

fn resource(kind: Kind, name: &str, spec: Value) -> Resource {
    let mut resource = Resource::new(kind, name);
    resource.body.insert("spec".to_owned(), spec);
    resource
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_record_is_complete() {
        let mut information = new_cluster_information("0123");
        let before = information.clone();
        assert!(!complete_cluster_information(&mut information, || unreachable!("it has one")));
        assert_eq!(information, before);
    }

    #[test]
    fn only_what_is_missing_is_added() {
        let check = |spec: Value, expected: Value| {
            let mut information = resource(Kind::ClusterInformation, CLUSTER_INFORMATION, spec.clone());
            let is_changed = complete_cluster_information(&mut information, || "new".to_owned());
            assert_eq!(information.body["spec"], expected);
            assert_eq!(is_changed, spec != expected);
        };
        check(
            json!({"clusterGUID": "0", "datastoreReady": false}),
            json!({"clusterGUID": "0", "datastoreReady": false}),
        );
        check(
            json!({"clusterGUID": "", "later": 9007199254740993u64}),
            json!({"clusterGUID": "new", "datastoreReady": true, "later": 9007199254740993u64}),
        );
        check(json!({"datastoreReady": "yes"}), json!({"clusterGUID": "new", "datastoreReady": true}));
    }

    #[test]
    fn the_tiers_pass_our_own_rules() {
        let tiers = basic_tiers();
        assert_eq!(
            tiers.iter().map(|tier| tier.metadata.name.as_str()).collect::<Vec<_>>(),
            ["default", "kube-admin", "kube-baseline"]
        );
        for tier in &tiers {
            assert_eq!(crate::validate::validate(tier), [], "{}", tier.metadata.name);
        }
    }
}
