//! What the kubelet stand-in can be told and asked, over its socket.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::chain::Attachment;

/// Every answer is the list of the pods concerned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum KubeletRequest {
    /// All pods of the node.
    Pods,
    /// Runs pods; waits until they do, if asked to.
    Add { pods: Vec<NewPod>, waits: bool },
    /// Ends pods.
    Delete { pods: Vec<PodKey>, waits: bool },
    /// While held, no DEL is made for sandboxes that end.
    HoldDels { is_held: bool },
    /// Forgets pods and their sandboxes without a DEL, as after an upgrade gone wrong. Kubernetes forgets the pods, too.
    Lose { pods: Vec<PodKey>, leaves: LeftBehind },
    /// One more DEL for a sandbox, with an empty `CNI_NETNS`, whatever became of it.
    RepeatDel { sandbox: SandboxKey },
    /// CHECK of every sandbox.
    Check,
    /// CNI's GC, with all sandboxes there are.
    Gc,
}

/// What of a lost sandbox stays behind besides its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftBehind {
    /// The namespace goes, and the pair of devices with it.
    Nothing,
    /// The namespace goes, but the pod's end was moved out of it before: the pair of devices stays.
    Devices,
    /// The namespace stays, with the pod's end in it: whatever runs there goes on, unknown to the runtime.
    Namespace,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewPod {
    pub namespace: String,
    pub name: String,
    /// What plugins that declare the capability get as runtimeConfig.
    pub offers: Map<String, Value>,
    /// Of the pod in Kubernetes, where the lab has it: what the pod asks of the plugin.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// A pod by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodKey {
    pub namespace: String,
    pub name: String,
}

/// A sandbox, and whose it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxKey {
    pub container_id: String,
    pub pod: PodKey,
    pub uid: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodState {
    Starting,
    Running,
    Ending,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodReport {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub state: PodState,
    /// Of its sandbox, if it has one that is ready; empty otherwise, and so are the next three.
    pub container_id: String,
    pub netns: String,
    pub device: String,
    pub addresses: Vec<String>,
    /// Sandboxes tried.
    pub attempts: u32,
    pub last_error: Option<String>,
}

impl PodReport {
    pub fn key(&self) -> PodKey {
        PodKey { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    pub fn sandbox(&self) -> SandboxKey {
        SandboxKey { container_id: self.container_id.clone(), pod: self.key(), uid: self.uid.clone() }
    }
}

impl NewPod {
    pub fn new(key: &PodKey) -> NewPod {
        let (namespace, name) = (key.namespace.clone(), key.name.clone());
        NewPod { namespace, name, offers: Map::new(), annotations: BTreeMap::new() }
    }
}

impl SandboxKey {
    pub(super) fn attachment(&self) -> Attachment {
        let arguments = [
            ("K8S_POD_NAME", &self.pod.name),
            ("K8S_POD_UID", &self.uid),
            ("K8S_POD_NAMESPACE", &self.pod.namespace),
            ("K8S_POD_INFRA_CONTAINER_ID", &self.container_id),
        ];
        Attachment {
            container_id: self.container_id.clone(),
            netns: String::new(),
            interface: "eth0".to_owned(),
            arguments: arguments.map(|(name, value)| (name.to_owned(), value.clone())).into(),
            offers: Map::new(),
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a pod name: use NAME or NAMESPACE/NAME, of lower-case letters, digits, dots and dashes"
)]
pub struct PodKeyError {
    text: String,
}

/// `NAME` in the namespace `default`, or `NAMESPACE/NAME`.
impl FromStr for PodKey {
    type Err = PodKeyError;

    fn from_str(text: &str) -> Result<PodKey, PodKeyError> {
        let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
        let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        let is_name = |word: &str| {
            let ends_well = word.bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric());
            let starts_well = word.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
            word.len() <= 63 && starts_well && ends_well && word.bytes().all(is_fit)
        };
        if is_name(namespace) && is_name(name) {
            Ok(PodKey { namespace: namespace.to_owned(), name: name.to_owned() })
        } else {
            Err(PodKeyError { text: text.to_owned() })
        }
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pods_are_named_with_or_without_namespace() {
        let check =
            |text: &str, expected: &str| assert_eq!(text.parse::<PodKey>().unwrap().to_string(), expected);
        check("web-0", "default/web-0");
        check("shop/web-0", "shop/web-0");
        for bad in ["", "/", "a/", "/a", "a/b/c", "A", "a b", "-a", "a-", "a;b", "a=b", &"x".repeat(64)] {
            assert!(bad.parse::<PodKey>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_pod_or_refused(text in ".*") {
            if let Ok(key) = text.parse::<PodKey>() {
                prop_assert_eq!(key.to_string().parse::<PodKey>(), Ok(key));
            }
        }
    }
}
