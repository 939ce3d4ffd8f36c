//! The network configuration on stdin. Calico's keys are understood, so that its conflist can be kept; what has no
//! effect here is collected for the log, never an error.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::{CniError, code};

type Object = Map<String, Value>;

/// What a call goes by.
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
    /// 0 if not said.
    pub(crate) mtu: u64,
    pub(crate) require_mtu_file: bool,
    /// Names or networks of pools.
    pub(crate) ipv4_pools: Vec<String>,
    /// Why ADD must not go on; a DEL does not care.
    pub(crate) unsupported: Option<CniError>,
    pub(crate) pod_forwards: bool,
    pub(crate) log_level: Option<String>,
    pub(crate) prev_result: Option<Value>,
    /// Keys that are there and change nothing.
    pub(crate) ignored: Vec<String>,
}

/// Keys of the store's settings, with the environment variable that means the same.
const STORE_KEYS: [(&str, &str); 7] = [
    ("datastore_type", "DATASTORE_TYPE"),
    ("sqlite_path", "SQLITE_PATH"),
    ("etcd_endpoints", "ETCD_ENDPOINTS"),
    ("etcd_discovery_srv", "ETCD_DISCOVERY_SRV"),
    ("etcd_key_file", "ETCD_KEY_FILE"),
    ("etcd_cert_file", "ETCD_CERT_FILE"),
    ("etcd_ca_cert_file", "ETCD_CA_CERT_FILE"),
];

/// Keys that are used, or that ask for nothing: the specification's own, and Calico's for a log file.
const KNOWN_KEYS: [&str; 24] = [
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
    "nodename",
    "nodename_file",
    "nodename_file_optional",
    "hostname",
    "mtu",
    "require_mtu_file",
    "ipam",
    "container_settings",
    "log_level",
    "kubernetes",
    "ipMasq",
    "ipam_lock_file",
];

const KNOWN_IPAM_KEYS: [&str; 4] = ["type", "assign_ipv4", "assign_ipv6", "ipv4_pools"];

impl NetConf {
    pub(crate) fn parse(input: &[u8]) -> Result<NetConf, CniError> {
        let document: Value = serde_json::from_slice(input).map_err(|error| {
            CniError::new(code::NOT_DECODED, "the network configuration is not JSON").because(&error)
        })?;
        let Value::Object(document) = document else {
            return Err(CniError::new(code::NOT_DECODED, "the network configuration is not a JSON object"));
        };
        let ipam = section(&document, "ipam")?;
        let container = section(&document, "container_settings")?;
        Ok(NetConf {
            cni_version: text(&document, "cniVersion")?.unwrap_or_default(),
            name: text(&document, "name")?
                .ok_or_else(|| CniError::configuration("the network configuration has no name"))?,
            store: store_settings(&document)?,
            nodename: text(&document, "nodename")?,
            nodename_file: text(&document, "nodename_file")?,
            hostname: text(&document, "hostname")?,
            mtu: number(&document, "mtu")?,
            require_mtu_file: flag(&document, "require_mtu_file")?,
            ipv4_pools: texts(&ipam, "ipv4_pools")?,
            unsupported: check_ipam(&ipam).and_then(|()| check_asked(&document)).err(),
            pod_forwards: flag(&container, "allow_ip_forwarding")?,
            log_level: text(&document, "log_level")?,
            prev_result: document.get("prevResult").filter(|value| !value.is_null()).cloned(),
            ignored: ignored_keys(&document, &ipam),
        })
    }
}

/// A setting that names a store's place also says which store is meant, whatever the environment holds.
fn store_settings(document: &Object) -> Result<BTreeMap<String, String>, CniError> {
    let mut settings = BTreeMap::new();
    for (key, variable) in STORE_KEYS {
        if let Some(value) = text(document, key)? {
            settings.insert(variable.to_owned(), value);
        }
    }
    if let Some(path) = text(&section(document, "kubernetes")?, "kubeconfig")? {
        settings.insert("KUBECONFIG".to_owned(), path);
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

/// What cannot be done yet must not be passed over in silence: the pod would start with another network than asked.
fn check_ipam(ipam: &Object) -> Result<(), CniError> {
    match text(ipam, "type")?.as_deref() {
        None | Some("plumb-ipam" | "calico-ipam") => {}
        Some(other) => {
            return Err(CniError::configuration(format!("ipam.type {other:?} is not supported yet"))
                .hint("leave ipam.type out, or use plumb-ipam or calico-ipam"));
        }
    }
    if flag(ipam, "assign_ipv6")? {
        return Err(CniError::configuration(
            "ipam.assign_ipv6 is not supported yet: pods get IPv4 addresses",
        ));
    }
    let wants_none = ipam.contains_key("assign_ipv4") && !flag(ipam, "assign_ipv4")?;
    if wants_none {
        return Err(CniError::configuration("ipam.assign_ipv4 is false, which leaves no address to give"));
    }
    Ok(())
}

/// A runtime may ask for addresses in two places. Another address than the one asked for would be a wrong answer.
fn check_asked(document: &Object) -> Result<(), CniError> {
    for place in ["/runtimeConfig/ips", "/args/cni/ips"] {
        let (top, rest) = place[1..].split_once('/').expect("two parts at least");
        let asked = document.get(top).and_then(|value| value.pointer(&format!("/{rest}")));
        if asked.is_some_and(|asked| asked.as_array().is_none_or(|asked| !asked.is_empty())) {
            let place = place[1..].replace('/', ".");
            return Err(CniError::configuration(format!(
                "asking for addresses ({place}) is not supported yet"
            )));
        }
    }
    Ok(())
}

fn ignored_keys(document: &Object, ipam: &Object) -> Vec<String> {
    let is_known = |key: &&String| {
        KNOWN_KEYS.contains(&key.as_str())
            || STORE_KEYS.iter().any(|(known, _)| known == key)
            || key.starts_with("cni.dev/")
            || key.starts_with("log_file_")
    };
    let top = document.keys().filter(|key| !is_known(key)).cloned();
    let inner = ipam.keys().filter(|key| !KNOWN_IPAM_KEYS.contains(&key.as_str()));
    top.chain(inner.map(|key| format!("ipam.{key}"))).collect()
}

fn section(document: &Object, key: &str) -> Result<Object, CniError> {
    match document.get(key) {
        None | Some(Value::Null) => Ok(Object::new()),
        Some(Value::Object(section)) => Ok(section.clone()),
        Some(other) => Err(wrong(key, "an object", other)),
    }
}

/// Empty counts as not said.
fn text(document: &Object, key: &str) -> Result<Option<String>, CniError> {
    match document.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(other) => Err(wrong(key, "a string", other)),
    }
}

fn texts(document: &Object, key: &str) -> Result<Vec<String>, CniError> {
    let listed = match document.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(listed)) => listed,
        Some(other) => return Err(wrong(key, "a list of strings", other)),
    };
    let texts = listed.iter().map(|entry| entry.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().ok_or_else(|| wrong(key, "a list of strings", &document[key]))
}

fn number(document: &Object, key: &str) -> Result<u64, CniError> {
    match document.get(key) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => value.as_u64().ok_or_else(|| wrong(key, "a number", value)),
    }
}

/// Calico writes some flags as strings.
fn flag(document: &Object, key: &str) -> Result<bool, CniError> {
    match document.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::String(text)) if text == "true" => Ok(true),
        Some(Value::String(text)) if text == "false" || text.is_empty() => Ok(false),
        Some(other) => Err(wrong(key, "true or false", other)),
    }
}

fn wrong(key: &str, wanted: &str, found: &Value) -> CniError {
    CniError::configuration(format!("the network configuration's {key} must be {wanted}, not {found}"))
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
        }))
        .unwrap();
        assert_eq!(netconf.mtu, 1440);
        assert_eq!(netconf.ipv4_pools, ["10.1.0.0/16", "second"]);
        assert_eq!(netconf.store["ETCD_ENDPOINTS"], "https://10.0.0.1:2379");
        assert_eq!(netconf.store["DATASTORE_TYPE"], "etcdv3");
        assert_eq!(netconf.store["KUBECONFIG"], "/kc");
        assert!(netconf.pod_forwards);
        assert_eq!(netconf.ignored, ["device_type", "policy"]);
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
                json!({"name": "n", "ipam": {"type": "host-local"}}),
                "ipam.type \"host-local\" is not supported yet",
            ),
            (
                json!({"name": "n", "ipam": {"assign_ipv6": "true"}}),
                "ipam.assign_ipv6 is not supported yet: pods get IPv4 addresses",
            ),
            (
                json!({"name": "n", "runtimeConfig": {"ips": ["10.0.0.7/24"]}}),
                "asking for addresses (runtimeConfig.ips) is not supported yet",
            ),
            (
                json!({"name": "n", "args": {"cni": {"ips": ["10.0.0.7"]}}}),
                "asking for addresses (args.cni.ips) is not supported yet",
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
                [&KNOWN_KEYS[..], &["sqlite_path", "datastore_type", "etcd_endpoints"]].concat(), 0..10),
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
