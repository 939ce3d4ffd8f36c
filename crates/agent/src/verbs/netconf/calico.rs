//! Calico's further keys: what a pod is looked up with, what is waited for, and who wires it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ipnet::IpNet;
use serde_json::Value;

use super::CniError;
use super::read::{Object, flag, section, text, texts, wrong};

/// Where Felix says which endpoints have their policy.
const STATUS_DIR: &str = "/var/run/calico/endpoint-status";
const DEVICE_TYPES: [&str; 2] = ["veth", "netkit"];
/// The label with which Mesos names a namespace.
const NAMESPACE_LABEL: &str = "projectcalico.org/namespace";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CalicoConf {
    pub(crate) policy: PolicyType,
    pub(crate) kubernetes: KubernetesConf,
    /// Whether pods may ask for floating addresses.
    pub(crate) floating_ips: bool,
    /// URLs that must answer before a pod is added.
    pub(crate) readiness_gates: Vec<String>,
    /// Another program that makes the interfaces.
    pub(crate) backend: Option<Backend>,
    /// Of a container that is no pod, as its orchestrator named them.
    pub(crate) labels: BTreeMap<String, String>,
    /// The namespace that the orchestrator gives such a container.
    pub(crate) namespace: Option<String>,
    pub(crate) policy_wait: Option<PolicyWait>,
    /// A DEL fails while the store is locked. Otherwise it is queued.
    pub(crate) del_fails_while_locked: bool,
}

/// Who decides about the profiles of endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PolicyType {
    /// The network: each has a profile of its own.
    #[default]
    Network,
    Kubernetes,
    /// Another program makes the profile.
    Other,
}

/// How to reach the API server, and as what it knows this node.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct KubernetesConf {
    pub(crate) kubeconfig: Option<String>,
    pub(crate) server: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) certificate: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) authority: Option<String>,
    pub(crate) node_name: Option<String>,
}

/// Without the token, which is a secret.
impl std::fmt::Debug for KubernetesConf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (file, server) = (&self.kubeconfig, &self.server);
        f.debug_struct("KubernetesConf")
            .field("kubeconfig", file)
            .field("server", server)
            .finish_non_exhaustive()
    }
}

/// A program that is asked over gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    pub(crate) socket: String,
    pub(crate) options: BTreeMap<String, String>,
}

/// How long an ADD waits for the pod's policy, and where it is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyWait {
    pub(crate) seconds: u64,
    pub(crate) directory: PathBuf,
}

impl CalicoConf {
    pub(super) fn read(document: &Object) -> Result<CalicoConf, CniError> {
        check_device_type(document)?;
        let policy = section(document, "policy")?;
        let features = section(document, "feature_control")?;
        let (labels, namespace) = mesos_labels(document);
        Ok(CalicoConf {
            policy: match text(&policy, "type")?.as_deref() {
                None => PolicyType::Network,
                Some("k8s") => PolicyType::Kubernetes,
                Some(_) => PolicyType::Other,
            },
            kubernetes: KubernetesConf::read(&policy, &section(document, "kubernetes")?)?,
            floating_ips: flag(&features, "floating_ips", false)?,
            readiness_gates: texts(document, "readiness_gates")?,
            backend: Backend::read(document)?,
            labels,
            namespace,
            policy_wait: PolicyWait::read(document)?,
            del_fails_while_locked: del_while_locked(document)?,
        })
    }
}

impl KubernetesConf {
    fn read(policy: &Object, kubernetes: &Object) -> Result<KubernetesConf, CniError> {
        let server = match text(kubernetes, "k8s_api_root")? {
            Some(server) => Some(server),
            // Old configurations name a path below the server.
            None => text(policy, "k8s_api_root")?
                .map(|server| server.split("/api/").next().unwrap_or_default().to_owned()),
        };
        Ok(KubernetesConf {
            kubeconfig: text(kubernetes, "kubeconfig")?,
            server,
            token: text(policy, "k8s_auth_token")?,
            certificate: text(policy, "k8s_client_certificate")?,
            key: text(policy, "k8s_client_key")?,
            authority: text(policy, "k8s_certificate_authority")?,
            node_name: text(kubernetes, "node_name")?,
        })
    }

    /// Whether it says where the API server is.
    pub(crate) fn names_a_server(&self) -> bool {
        self.kubeconfig.is_some() || self.server.is_some()
    }
}

impl Backend {
    fn read(document: &Object) -> Result<Option<Backend>, CniError> {
        let options = section(document, "dataplane_options")?;
        let Some(kind) = options.get("type") else { return Ok(None) };
        if kind.as_str() != Some("grpc") {
            let message = format!("dataplane_options.type {kind} is not a known dataplane");
            return Err(CniError::configuration(message).hint("leave it out, or set it to grpc"));
        }
        let socket = options.get("socket").and_then(Value::as_str).filter(|socket| !socket.is_empty());
        let socket = socket.ok_or_else(|| {
            CniError::configuration("dataplane_options of type grpc name no socket")
                .hint("set dataplane_options.socket to where the dataplane listens")
        })?;
        let texts =
            options.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        Ok(Some(Backend { socket: socket.to_owned(), options: texts.collect() }))
    }
}

impl PolicyWait {
    fn read(document: &Object) -> Result<Option<PolicyWait>, CniError> {
        let key = "policy_setup_timeout_seconds";
        let seconds = match document.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value.as_u64().ok_or_else(|| wrong(key, "a number of seconds", value))?,
        };
        let directory = text(document, "endpoint_status_dir")?.unwrap_or_else(|| STATUS_DIR.to_owned());
        Ok((seconds > 0).then(|| PolicyWait { seconds, directory: directory.into() }))
    }
}

fn check_device_type(document: &Object) -> Result<(), CniError> {
    match text(document, "device_type")? {
        Some(unknown) if !DEVICE_TYPES.contains(&unknown.as_str()) => {
            let message = format!("device_type {unknown:?} is not supported");
            Err(CniError::configuration(message)
                .hint("supported are veth and netkit; a pod gets a veth for both"))
        }
        _ => Ok(()),
    }
}

fn del_while_locked(document: &Object) -> Result<bool, CniError> {
    let key = "del_while_not_ready";
    match text(document, key)?.as_deref() {
        None | Some("queue") => Ok(false),
        Some("fail") => Ok(true),
        Some(other) => Err(wrong(key, "queue or fail", &other.into())),
    }
}

/// The networks that `host-local` is told to route, in place of the default route or beside it.
pub(super) fn pod_routes(document: &Object, ipam: &Object) -> Result<Vec<IpNet>, CniError> {
    if text(ipam, "type")?.as_deref() != Some("host-local") {
        return Ok(Vec::new());
    }
    let listed = match ipam.get("routes") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(listed)) => listed,
        Some(other) => return Err(wrong("ipam.routes", "a list", other)),
    };
    let mut routes = Vec::new();
    for route in listed {
        let Some(destination) = route.get("dst").filter(|destination| !destination.is_null()) else {
            continue;
        };
        let network = destination.as_str().and_then(|text| text.parse::<IpNet>().ok());
        routes.push(network.ok_or_else(|| wrong("ipam.routes[].dst", "a network", destination))?);
    }
    if !routes.is_empty() && flag(document, "include_default_routes", false)? {
        routes.splice(0..0, ["0.0.0.0/0", "::/0"].map(|all| all.parse::<IpNet>().expect("a network")));
    }
    Ok(routes)
}

/// Labels by name, and the namespace that is one of them.
fn mesos_labels(document: &Object) -> (BTreeMap<String, String>, Option<String>) {
    let of_mesos = document.get("args").and_then(|args| args.get("org.apache.mesos"));
    let listed = of_mesos.and_then(|mesos| mesos.pointer("/network_info/labels/labels")?.as_array());
    let (mut labels, mut namespace) = (BTreeMap::new(), None);
    for label in listed.into_iter().flatten() {
        let text = |key: &str| label.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("key") {
            NAMESPACE_LABEL => namespace = Some(as_label(text("value"))).filter(|name| !name.is_empty()),
            key => drop(labels.insert(as_label(key), as_label(text("value")))),
        }
    }
    labels.remove("");
    (labels, namespace)
}

/// Mesos allows any text; a label is what Calico makes of it: `/` becomes a dot, other characters a dash, dots and dashes around a dot
/// are that dot, and those at the ends go.
fn as_label(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let mut allowed = String::new();
    let mut is_in_gap = false;
    for letter in text.chars().map(|letter| if letter == '/' { '.' } else { letter }) {
        if is_plain(letter) {
            allowed.push(letter);
        } else if !is_in_gap {
            allowed.push('-');
        }
        is_in_gap = !is_plain(letter);
    }
    let mut label = String::new();
    let mut run = String::new();
    for letter in allowed.chars() {
        if matches!(letter, '.' | '-') {
            run.push(letter);
            continue;
        }
        label.push_str(if run.contains('.') { "." } else { &run });
        run.clear();
        label.push(letter);
    }
    label.trim_start_matches(['.', '-']).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(document: Value) -> Result<CalicoConf, CniError> {
        let Value::Object(document) = document else { unreachable!("tests give objects") };
        CalicoConf::read(&document)
    }

    #[test]
    fn the_api_server_is_found_in_several_places() {
        let conf = read(json!({
            "policy": {"type": "k8s", "k8s_api_root": "http://10.0.0.1:8080/api/v1/", "k8s_auth_token": "t0ken"},
            "kubernetes": {"node_name": "n-1"},
        }))
        .unwrap();
        assert_eq!(conf.policy, PolicyType::Kubernetes);
        assert_eq!(conf.kubernetes.server.as_deref(), Some("http://10.0.0.1:8080"));
        assert_eq!(conf.kubernetes.node_name.as_deref(), Some("n-1"));
        assert!(!format!("{conf:?}").contains("t0ken"), "a secret in a log");
        let conf = read(json!({
            "policy": {"k8s_api_root": "http://old"}, "kubernetes": {"k8s_api_root": "https://new"},
        }));
        assert_eq!(conf.unwrap().kubernetes.server.as_deref(), Some("https://new"));
        assert_eq!(read(json!({"policy": {"type": "x"}})).unwrap().policy, PolicyType::Other);
        assert!(!read(json!({})).unwrap().kubernetes.names_a_server());
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (document, part) in [
            (json!({"dataplane_options": {"type": "vpp"}}), "dataplane_options.type \"vpp\""),
            (json!({"dataplane_options": {"type": 5}}), "dataplane_options.type 5"),
            (json!({"dataplane_options": {"type": "grpc"}}), "name no socket"),
            (json!({"dataplane_options": {"type": "grpc", "socket": 5}}), "name no socket"),
            (json!({"device_type": "ipvlan"}), "device_type \"ipvlan\""),
            (json!({"policy_setup_timeout_seconds": -1}), "must be a number of seconds, not -1"),
            (json!({"readiness_gates": "http://x"}), "readiness_gates must be a list"),
            (json!({"del_while_not_ready": "x"}), "must be queue or fail"),
        ] {
            let error = read(document).unwrap_err();
            assert!(error.message.contains(part), "{}", error.message);
        }
    }

    #[test]
    fn a_backend_gets_every_option_that_is_a_text() {
        let options = json!({"type": "grpc", "socket": "unix:///run/x", "n": 5, "colour": "red"});
        let backend = read(json!({"dataplane_options": options})).unwrap().backend.unwrap();
        assert_eq!(backend.socket, "unix:///run/x");
        assert_eq!(backend.options.keys().collect::<Vec<_>>(), ["colour", "socket", "type"]);
    }

    #[test]
    fn routes_of_host_local_replace_the_default_or_stand_beside_it() {
        let routes = |more: bool, ipam: Value| {
            let document = json!({"include_default_routes": more});
            let routes = pod_routes(document.as_object().unwrap(), ipam.as_object().unwrap());
            routes.map(|routes| routes.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let of_host_local = |listed: Value| json!({"type": "host-local", "routes": listed});
        let listed = json!([{"dst": "10.9.0.0/16", "gw": "1.1.1.1"}, {"gw": "x"}]);
        assert_eq!(routes(false, of_host_local(listed.clone())).unwrap(), ["10.9.0.0/16"]);
        let both = routes(true, of_host_local(listed.clone())).unwrap();
        assert_eq!(both, ["0.0.0.0/0", "::/0", "10.9.0.0/16"]);
        assert!(routes(true, of_host_local(json!([]))).unwrap().is_empty());
        assert!(routes(true, json!({"type": "static", "routes": listed})).unwrap().is_empty());
        for wrong in [json!("x"), json!([{"dst": 5}]), json!([{"dst": "10.9.0.0"}])] {
            assert!(routes(false, of_host_local(wrong)).is_err());
        }
    }

    #[test]
    fn labels_of_mesos_become_labels() {
        let label = |key: &str, value: &str| json!({"key": key, "value": value});
        let listed = [
            label("key/with:strange", "v/1"),
            label("-.a..-b-.", "plain_ok"),
            label("projectcalico.org/namespace", "shop"),
            label("::", "nothing is left of its name"),
        ];
        let args = json!({"org.apache.mesos": {"network_info": {"labels": {"labels": listed}}}});
        let conf = read(json!({"args": args})).unwrap();
        let expected = [("a.b", "plain_ok"), ("key.with-strange", "v.1")];
        assert!(conf.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
        assert_eq!(conf.namespace.as_deref(), Some("shop"));
        assert_eq!(read(json!({"args": {"org.apache.mesos": 5}})).unwrap().labels.len(), 0);
    }
}
