//! The network configuration on stdin. Calico's keys are supported, so its conflist can be kept; keys without effect are logged and never an
//! error.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod asked;
mod calico;
mod read;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::Value;

pub(crate) use asked::Asked;
pub(super) use asked::annotations_of_pod;
pub(crate) use calico::{Backend, CalicoConf, KubernetesConf, PolicyType, PolicyWait};
use read::{Object, flag, number, section, text, texts};

use super::error::{CniError, code};

/// The key under which a runtime lists the attachments to keep.
const VALID_ATTACHMENTS: &str = "cni.dev/valid-attachments";

/// The settings of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NetConf {
    pub(crate) cni_version: String,
    /// The network's name: part of the sandbox's identity.
    pub(crate) name: String,
    /// Settings of the store, by the name of the environment variable that means the same.
    pub(crate) store: BTreeMap<String, String>,
    pub(crate) nodename: Option<String>,
    pub(crate) nodename_file: Option<String>,
    pub(crate) hostname: Option<String>,
    /// 0 if not set.
    pub(crate) mtu: u64,
    pub(crate) require_mtu_file: bool,
    /// How long an ADD waits for the pod's network policy; `None` if not set, or 0.
    pub(crate) policy_timeout: Option<Duration>,
    pub(crate) ipam: IpamConf,
    pub(crate) asked: Asked,
    /// Pods may ask for addresses that are in no pool.
    pub(crate) may_go_without_ipam: bool,
    /// Why ADD must fail; a DEL goes on.
    pub(crate) unsupported: Option<CniError>,
    pub(crate) pod_forwards: bool,
    /// What the pod reaches through its gateway; empty means everything.
    pub(crate) pod_routes: Vec<IpNet>,
    pub(crate) calico: CalicoConf,
    /// The plugin that is meant: in the role of an IPAM plugin, the one that asks for addresses.
    pub(crate) plugin: Option<String>,
    pub(crate) log_level: Option<String>,
    pub(crate) prev_result: Option<Value>,
    /// Container IDs and interfaces that a GC must keep; `None` if the runtime sent no list.
    pub(crate) valid_attachments: Option<Vec<(String, String)>>,
    pub(crate) state_dir: PathBuf,
    /// Keys without effect.
    pub(crate) ignored: Vec<String>,
    /// All of it, for other plugins.
    pub(crate) document: Object,
}

/// Who allocates addresses, and which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IpamConf {
    /// Another plugin's name; `None` if the addresses come from our pools.
    pub(crate) other: Option<String>,
    /// It is to allocate from the networks that Kubernetes gave the node.
    pub(crate) uses_pod_cidrs: bool,
    pub(crate) assign_v4: bool,
    pub(crate) assign_v6: bool,
    /// Names or networks of pools.
    pub(crate) ipv4_pools: Vec<String>,
    pub(crate) ipv6_pools: Vec<String>,
}

/// The version of a configuration that names none, as with Calico.
const VERSION_DEFAULT: &str = "0.2.0";

/// Keys of the store's settings, with the equivalent environment variable.
const STORE_KEYS: [(&str, &str); 8] = [
    ("datastore_type", "DATASTORE_TYPE"),
    ("sqlite_path", "SQLITE_PATH"),
    ("etcd_endpoints", "ETCD_ENDPOINTS"),
    ("etcd_discovery_srv", "ETCD_DISCOVERY_SRV"),
    ("etcd_key_file", "ETCD_KEY_FILE"),
    ("etcd_cert_file", "ETCD_CERT_FILE"),
    ("etcd_ca_cert_file", "ETCD_CA_CERT_FILE"),
    ("calico_api_group", "CALICO_API_GROUP"),
];

/// The same in the section `kubernetes`.
const KUBERNETES_KEYS: [(&str, &str); 2] =
    [("kubeconfig", "KUBECONFIG"), ("k8s_api_root", "K8S_API_ENDPOINT")];

/// Keys that are used, or that change nothing: the specification's own, and Calico's for a log file.
const KNOWN_KEYS: [&str; 34] = [
    "cniVersion",
    "cniVersions",
    "name",
    "type",
    "args",
    "capabilities",
    "runtimeConfig",
    "dns",
    "prevResult",
    "disableCheck",
    "disableGC",
    "agent_socket",
    "state_dir",
    "nodename",
    "nodename_file",
    "nodename_file_optional",
    "hostname",
    "mtu",
    "require_mtu_file",
    "policy_setup_timeout_seconds",
    "ipam",
    "container_settings",
    "feature_control",
    "log_level",
    "kubernetes",
    "ipMasq",
    "ipam_lock_file",
    "policy",
    "readiness_gates",
    "dataplane_options",
    "device_type",
    "include_default_routes",
    "endpoint_status_dir",
    "del_while_not_ready",
];

const KNOWN_IPAM_KEYS: [&str; 5] = ["type", "assign_ipv4", "assign_ipv6", "ipv4_pools", "ipv6_pools"];

impl NetConf {
    pub(crate) fn parse(input: &[u8]) -> Result<NetConf, CniError> {
        let document: Value = serde_json::from_slice(input).map_err(|error| {
            CniError::new(code::NOT_DECODED, "the network configuration is not JSON").because(&error)
        })?;
        match document {
            Value::Object(document) => NetConf::read(document),
            _ => Err(CniError::new(code::NOT_DECODED, "the network configuration is not a JSON object")),
        }
    }

    /// The same with annotations of the pod as if the runtime had passed them. Those that it really passed count more.
    pub(super) fn with_annotations(
        &self,
        annotations: &BTreeMap<String, String>,
    ) -> Result<NetConf, CniError> {
        let mut document = self.document.clone();
        asked::pass_annotations(&mut document, annotations);
        NetConf::read(document)
    }

    fn read(document: Object) -> Result<NetConf, CniError> {
        let container = section(&document, "container_settings")?;
        let of_ipam = section(&document, "ipam")?;
        let (mut ipam, mut unsupported) = or_default(IpamConf::read(&of_ipam));
        let (asked, problem) = or_default(Asked::read(&document, &mut ipam));
        unsupported = unsupported.or(problem).or_else(|| ipam.gives_nothing());
        let (calico, problem) = or_default(CalicoConf::read(&document));
        unsupported = unsupported.or(problem);
        let (pod_routes, problem) = or_default(calico::pod_routes(&document, &of_ipam));
        unsupported = unsupported.or(problem);
        Ok(NetConf {
            cni_version: text(&document, "cniVersion")?.unwrap_or_else(|| VERSION_DEFAULT.to_owned()),
            name: text(&document, "name")?
                .ok_or_else(|| CniError::configuration("the network configuration has no name"))?,
            store: store_settings(&document)?,
            nodename: text(&document, "nodename")?,
            nodename_file: text(&document, "nodename_file")?,
            hostname: text(&document, "hostname")?,
            mtu: number(&document, "mtu")?,
            require_mtu_file: flag(&document, "require_mtu_file", false)?,
            policy_timeout: Some(number(&document, "policy_setup_timeout_seconds")?)
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            ignored: ignored_keys(&document, &ipam),
            ipam,
            asked,
            unsupported,
            pod_forwards: flag(&container, "allow_ip_forwarding", false)?,
            pod_routes,
            may_go_without_ipam: flag(&section(&document, "feature_control")?, "ip_addrs_no_ipam", false)?,
            calico,
            plugin: text(&document, "type")?,
            log_level: text(&document, "log_level")?,
            prev_result: document.get("prevResult").filter(|value| !value.is_null()).cloned(),
            valid_attachments: valid_attachments(&document)?,
            state_dir: text(&document, "state_dir")?.unwrap_or_else(|| wire::STATE_DIR.to_owned()).into(),
            document,
        })
    }
}

impl NetConf {
    /// Whether an ADD can do what is asked.
    pub(crate) fn check(&self) -> Result<(), CniError> {
        self.unsupported.clone().map_or(Ok(()), Err)
    }

    /// The routes that the configuration gives to whoever allocates the addresses, and that it answers.
    pub(crate) fn configured_routes(&self) -> Vec<Value> {
        let routes = self.document.get("ipam").and_then(|ipam| ipam.get("routes")?.as_array());
        routes.cloned().unwrap_or_default().into_iter().filter(Value::is_object).collect()
    }

    /// Whether the attachment's addresses are not from our pools.
    pub(crate) fn goes_without_book(&self) -> bool {
        self.ipam.other.is_some() || !self.asked.without_ipam.is_empty()
    }
}

impl IpamConf {
    fn read(ipam: &Object) -> Result<IpamConf, CniError> {
        let kind = text(ipam, "type")?.filter(|kind| !["plumb-ipam", "calico-ipam"].contains(&kind.as_str()));
        Ok(IpamConf {
            uses_pod_cidrs: kind.as_deref() == Some(HOST_LOCAL) && uses_pod_cidrs(ipam),
            other: kind,
            assign_v4: flag(ipam, "assign_ipv4", true)?,
            assign_v6: flag(ipam, "assign_ipv6", false)?,
            ipv4_pools: texts(ipam, "ipv4_pools")?,
            ipv6_pools: texts(ipam, "ipv6_pools")?,
        })
    }

    fn gives_nothing(&self) -> Option<CniError> {
        let nothing = self.other.is_none() && !self.assign_v4 && !self.assign_v6;
        nothing.then(|| {
            CniError::configuration(
                "assign_ipv4 and assign_ipv6 are both off, so the pod would get no address",
            )
        })
    }
}

/// The one plugin for which Calico puts the node's networks in the place of words.
const HOST_LOCAL: &str = "host-local";

fn uses_pod_cidrs(ipam: &Object) -> bool {
    subnets(ipam).any(|subnet| PodCidr::of_word(subnet).is_some())
}

/// Every subnet that is named, in the old form and in ranges.
fn subnets(ipam: &Object) -> impl Iterator<Item = &str> {
    let sets = ipam.get("ranges").and_then(Value::as_array).into_iter().flatten();
    let ranges = sets.filter_map(Value::as_array).flatten();
    let old = ipam.get("subnet").into_iter();
    old.chain(ranges.filter_map(|range| range.get("subnet"))).filter_map(Value::as_str)
}

/// A word that stands for a network of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodCidr {
    V4,
    V6,
}

impl PodCidr {
    fn of_word(word: &str) -> Option<PodCidr> {
        let words = [("usePodCidr", PodCidr::V4), ("usePodCidrIPv6", PodCidr::V6)];
        words.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, meant)| meant)
    }
}

/// A configuration with networks in the place of the words for them.
pub(crate) fn with_pod_cidrs(
    document: &Object,
    network: impl Fn(PodCidr) -> Result<String, CniError>,
) -> Result<Object, CniError> {
    let mut document = document.clone();
    let Some(ipam) = document.get_mut("ipam").and_then(Value::as_object_mut) else { return Ok(document) };
    let put = |range: &mut Object| -> Result<(), CniError> {
        let Some(Value::String(subnet)) = range.get_mut("subnet") else { return Ok(()) };
        if let Some(meant) = PodCidr::of_word(subnet) {
            *subnet = network(meant)?;
        }
        Ok(())
    };
    put(ipam)?;
    let sets = ipam.get_mut("ranges").and_then(Value::as_array_mut).into_iter().flatten();
    for range in sets.filter_map(Value::as_array_mut).flatten().filter_map(Value::as_object_mut) {
        put(range)?;
    }
    Ok(document)
}

/// Such an error fails an ADD, but no other verb.
fn or_default<T: Default>(read: Result<T, CniError>) -> (T, Option<CniError>) {
    match read {
        Ok(value) => (value, None),
        Err(error) => (T::default(), Some(error)),
    }
}

fn valid_attachments(document: &Object) -> Result<Option<Vec<(String, String)>>, CniError> {
    let Some(listed) = document.get(VALID_ATTACHMENTS) else { return Ok(None) };
    if listed.is_null() {
        // libcni writes an empty list like this.
        return Ok(Some(Vec::new()));
    }
    let text = |entry: &Value, key: &str| Some(entry.get(key)?.as_str()?.to_owned());
    let attachment = |entry: &Value| Some((text(entry, "containerID")?, text(entry, "ifname")?));
    let all = listed.as_array().and_then(|listed| listed.iter().map(attachment).collect::<Option<Vec<_>>>());
    // Skipping an entry would mean that a pod loses its network.
    all.map(Some).ok_or_else(|| {
        CniError::configuration(format!(
            "the network configuration's {VALID_ATTACHMENTS} must be a list in which each entry has a containerID \
             and an ifname"
        ))
    })
}

/// A path or endpoint of a store also selects the kind of store, whatever the environment says.
fn store_settings(document: &Object) -> Result<BTreeMap<String, String>, CniError> {
    let mut settings = BTreeMap::new();
    for (key, variable) in STORE_KEYS {
        if let Some(value) = text(document, key)? {
            settings.insert(variable.to_owned(), value);
        }
    }
    let kubernetes = section(document, "kubernetes")?;
    for (key, variable) in KUBERNETES_KEYS {
        if let Some(value) = text(&kubernetes, key)? {
            settings.insert(variable.to_owned(), value);
        }
    }
    let implied = if settings.contains_key("SQLITE_PATH") {
        Some("sqlite")
    } else if settings.contains_key("ETCD_ENDPOINTS") {
        Some("etcdv3")
    } else {
        None
    };
    if let Some(kind) = implied {
        settings.entry("DATASTORE_TYPE".to_owned()).or_insert_with(|| kind.to_owned());
    }
    Ok(settings)
}

fn ignored_keys(document: &Object, ipam: &IpamConf) -> Vec<String> {
    let is_known = |key: &&String| {
        KNOWN_KEYS.contains(&key.as_str())
            || STORE_KEYS.iter().any(|(known, _)| known == key)
            || key.starts_with("cni.dev/")
            || key.starts_with("log_file_")
    };
    let top = document.keys().filter(|key| !is_known(key)).cloned();
    // Another plugin's settings are not checked.
    let inner = document.get("ipam").and_then(Value::as_object).filter(|_| ipam.other.is_none());
    let inner = inner.into_iter().flat_map(Object::keys);
    let inner = inner.filter(|key| !KNOWN_IPAM_KEYS.contains(&key.as_str()));
    let features = document.get("feature_control").and_then(Value::as_object);
    let features = features.into_iter().flat_map(Object::keys);
    let features = features.filter(|key| !["ip_addrs_no_ipam", "floating_ips"].contains(&key.as_str()));
    let inner = inner.map(|key| format!("ipam.{key}"));
    top.chain(inner).chain(features.map(|key| format!("feature_control.{key}"))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn parse(document: Value) -> Result<NetConf, CniError> {
        NetConf::parse(document.to_string().as_bytes())
    }

    #[test]
    fn calicos_conflist_entry_is_understood() {
        let netconf = parse(json!({
            "cniVersion": "0.3.1", "name": "k8s-pod-network", "type": "calico", "log_level": "info",
            "log_file_path": "/var/log/calico/cni/cni.log", "datastore_type": "etcdv3",
            "etcd_endpoints": "https://10.0.0.1:2379", "etcd_key_file": "/k", "etcd_cert_file": "/c",
            "etcd_ca_cert_file": "/ca", "mtu": 1440, "nodename": "node-a",
            "ipam": {"type": "calico-ipam", "assign_ipv4": "true", "ipv4_pools": ["10.1.0.0/16", "second"]},
            "container_settings": {"allow_ip_forwarding": true},
            "policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "/kc"}, "device_type": "veth",
            "feature_control": {"ip_addrs_no_ipam": true, "floating_ips": true},
        }))
        .unwrap();
        assert_eq!(netconf.mtu, 1440);
        assert_eq!(netconf.ipam.ipv4_pools, ["10.1.0.0/16", "second"]);
        assert_eq!(netconf.store["ETCD_ENDPOINTS"], "https://10.0.0.1:2379");
        assert_eq!(netconf.store["DATASTORE_TYPE"], "etcdv3");
        assert_eq!(netconf.store["KUBECONFIG"], "/kc");
        assert!(netconf.pod_forwards);
        assert_eq!(netconf.ignored, [] as [&str; 0]);
        assert!(netconf.calico.floating_ips && netconf.calico.policy == PolicyType::Kubernetes);
    }

    #[test]
    fn a_kubernetes_store_is_configured_as_with_calico() {
        let netconf = parse(json!({
            "name": "n", "datastore_type": "kubernetes", "calico_api_group": "projectcalico.org/v3",
            "kubernetes": {"kubeconfig": "/kc", "k8s_api_root": "https://10.0.0.1:6443", "node_name": "x"},
            "policy": {"type": "k8s"},
        }))
        .unwrap();
        let expected = [
            ("CALICO_API_GROUP", "projectcalico.org/v3"),
            ("DATASTORE_TYPE", "kubernetes"),
            ("K8S_API_ENDPOINT", "https://10.0.0.1:6443"),
            ("KUBECONFIG", "/kc"),
        ];
        assert!(netconf.store.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
    }

    #[test]
    fn a_stores_place_says_which_store() {
        let netconf = parse(json!({"name": "n", "sqlite_path": "/x.db"})).unwrap();
        assert_eq!(netconf.store["DATASTORE_TYPE"], "sqlite");
        assert_eq!(parse(json!({"name": "n"})).unwrap().store, BTreeMap::new());
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (document, message) in [
            (
                json!({"name": "n", "ipam": {"assign_ipv4": "false"}}),
                "assign_ipv4 and assign_ipv6 are both off, so the pod would get no address",
            ),
            (
                json!({"name": "n", "runtimeConfig": {"ips": ["10.0.0.7/24", "x"]}}),
                "runtimeConfig.ips asks for \"x\", which is not an address",
            ),
            (
                json!({"name": "n", "cni.dev/valid-attachments": [{"containerID": "a"}]}),
                "the network configuration's cni.dev/valid-attachments must be a list in which each entry has a \
                 containerID and an ifname",
            ),
            (json!({}), "the network configuration has no name"),
            (
                json!({"name": "n", "mtu": "big"}),
                "the network configuration's mtu must be a number, not \"big\"",
            ),
            (json!({"name": 5}), "the network configuration's name must be a string, not 5"),
            (json!([]), "the network configuration is not a JSON object"),
        ] {
            let refused = match parse(document) {
                Ok(netconf) => netconf.unsupported,
                Err(error) => Some(error),
            };
            assert_eq!(refused.unwrap().message, message);
        }
    }

    #[test]
    fn words_for_the_nodes_networks_are_replaced_wherever_they_stand() {
        let ipam = json!({"type": "host-local", "subnet": "usePodCidr",
            "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "usepodcidripv6", "x": 1}], 5, [6]]});
        let netconf = parse(json!({"name": "n", "ipam": ipam})).unwrap();
        assert!(netconf.ipam.uses_pod_cidrs);
        let network = |meant| match meant {
            PodCidr::V4 => Ok("10.7.0.0/24".to_owned()),
            PodCidr::V6 => Ok("fd07::/64".to_owned()),
        };
        let replaced = with_pod_cidrs(&netconf.document, network).unwrap();
        let expected = json!({"type": "host-local", "subnet": "10.7.0.0/24",
            "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd07::/64", "x": 1}], 5, [6]]});
        assert_eq!(replaced["ipam"], expected);
        let none = |_| Err(CniError::configuration("no network"));
        assert!(with_pod_cidrs(&netconf.document, none).is_err());
        for plain in [json!({"type": "host-local", "subnet": "10.1.0.0/24"}), json!({"subnet": "usePodCidr"})]
        {
            assert!(!parse(json!({"name": "n", "ipam": plain})).unwrap().ipam.uses_pod_cidrs);
        }
    }

    #[test]
    fn what_stays_at_a_gc_is_listed() {
        let netconf = parse(json!({
            "name": "n", "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0", "x": 1}],
        }));
        assert_eq!(netconf.unwrap().valid_attachments, Some(vec![("a".to_owned(), "eth0".to_owned())]));
        assert_eq!(parse(json!({"name": "n"})).unwrap().valid_attachments, None);
        let nobody = parse(json!({"name": "n", "cni.dev/valid-attachments": null})).unwrap();
        assert_eq!(nobody.valid_attachments, Some(Vec::new()));
    }

    #[test]
    fn another_plugin_may_give_the_addresses() {
        let ipam = json!({"type": "host-local", "subnet": "10.1.0.0/24"});
        let netconf = parse(json!({"name": "n", "ipam": ipam})).unwrap();
        assert_eq!(netconf.ipam.other.as_deref(), Some("host-local"));
        assert_eq!(netconf.ignored, [] as [&str; 0]);
        for ours in ["plumb-ipam", "calico-ipam", ""] {
            assert_eq!(parse(json!({"name": "n", "ipam": {"type": ours}})).unwrap().ipam.other, None);
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z_]{1,8}", inner, 0..4)
                    .prop_map(|map| map.into_iter().collect::<Object>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_tried(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = NetConf::parse(&input);
        }

        #[test]
        fn known_keys_may_hold_anything(
            keys in proptest::sample::subsequence(
                [&KNOWN_KEYS[..], &["sqlite_path", "datastore_type", "etcd_endpoints", VALID_ATTACHMENTS]].concat(),
                0..10,
            ),
            values in proptest::collection::vec(any_json(), 10),
        ) {
            let mut document: Object =
                keys.iter().map(|key| (*key).to_owned()).zip(values).collect();
            document.entry("name").or_insert_with(|| "n".into());
            if let Ok(netconf) = NetConf::parse(Value::Object(document).to_string().as_bytes()) {
                prop_assert!(!netconf.name.is_empty());
            }
        }
    }
}
