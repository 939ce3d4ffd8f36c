//! The runtime's interface (CRI v1) over the stand-in's sandboxes.

use std::sync::Arc;

use host::cri::messages::*;
use prost::Message as _;
use serde_json::{Map, json};

use super::grpc::{Code, Refusal, Service};
use super::records::{PodRecord, SandboxRecord, State};
use super::runtime::Runtime;

#[derive(Debug)]
pub(super) struct Cri {
    runtime: Arc<Runtime>,
}

impl Cri {
    pub(super) fn new(runtime: Arc<Runtime>) -> Cri {
        Cri { runtime }
    }

    fn version(&self) -> VersionResponse {
        VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "plumb-lab".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        }
    }

    fn status(&self) -> StatusResponse {
        let ready =
            |kind: &str| RuntimeCondition { r#type: kind.to_owned(), status: true, ..Default::default() };
        let checked = self.runtime.network().and_then(|network| self.runtime.chain.status(&network));
        let network = match checked {
            Ok(()) => ready("NetworkReady"),
            Err(error) => RuntimeCondition {
                status: false,
                reason: "NetworkPluginNotReady".to_owned(),
                message: format!("{error:#}"),
                ..ready("NetworkReady")
            },
        };
        StatusResponse { status: Some(RuntimeStatus { conditions: vec![ready("RuntimeReady"), network] }) }
    }

    fn list(&self, request: &ListPodSandboxRequest) -> ListPodSandboxResponse {
        let wanted = request.filter.as_ref().map(|filter| filter.id.as_str()).filter(|id| !id.is_empty());
        let memory = self.runtime.records.look();
        let listed = memory.sandboxes.values().filter(|sandbox| sandbox.state != State::Creating);
        let items = listed.filter(|sandbox| wanted.is_none_or(|id| id == sandbox.id)).map(message).collect();
        ListPodSandboxResponse { items }
    }

    fn sandbox_status(&self, request: &PodSandboxStatusRequest) -> Result<PodSandboxStatusResponse, Refusal> {
        let memory = self.runtime.records.look();
        let sandbox = memory.sandboxes.get(&request.pod_sandbox_id).ok_or_else(|| Refusal {
            code: Code::NotFound,
            message: format!("sandbox {} does not exist", request.pod_sandbox_id),
        })?;
        let status = PodSandboxStatusMessage {
            network: Some(PodSandboxNetworkStatus {
                ip: sandbox.addresses.first().cloned().unwrap_or_default(),
            }),
        };
        let namespace = json!({"type": "network", "path": sandbox.netns.clone().unwrap_or_default()});
        let info = json!({
            "netNsClosed": sandbox.netns.is_none(),
            "runtimeSpec": {"linux": {"namespaces": [namespace]}},
        });
        let info =
            if request.verbose { [("info".to_owned(), info.to_string())].into() } else { Default::default() };
        Ok(PodSandboxStatusResponse { status: Some(status), info })
    }

    fn run(&self, request: RunPodSandboxRequest) -> Result<RunPodSandboxResponse, Refusal> {
        let metadata = request.config.and_then(|config| config.metadata).ok_or_else(|| Refusal {
            code: Code::InvalidArgument,
            message: "a sandbox needs metadata".to_owned(),
        })?;
        let pod = PodRecord {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            is_deleted: false,
            attempts: metadata.attempt,
            last_error: None,
            offers: Map::new(),
        };
        let pod_sandbox_id = self.runtime.run_sandbox(&pod).map_err(failed)?;
        Ok(RunPodSandboxResponse { pod_sandbox_id })
    }
}

impl Service for Cri {
    fn call(&self, path: &str, message: &[u8]) -> Result<Vec<u8>, Refusal> {
        match path {
            VersionRequest::PATH => Ok(self.version().encode_to_vec()),
            StatusRequest::PATH => Ok(self.status().encode_to_vec()),
            ListPodSandboxRequest::PATH => Ok(self.list(&decode(message)?).encode_to_vec()),
            PodSandboxStatusRequest::PATH => Ok(self.sandbox_status(&decode(message)?)?.encode_to_vec()),
            RunPodSandboxRequest::PATH => Ok(self.run(decode(message)?)?.encode_to_vec()),
            StopPodSandboxRequest::PATH => {
                let request: StopPodSandboxRequest = decode(message)?;
                self.runtime.stop_sandbox(&request.pod_sandbox_id).map_err(failed)?;
                Ok(StopPodSandboxResponse {}.encode_to_vec())
            }
            RemovePodSandboxRequest::PATH => {
                let request: RemovePodSandboxRequest = decode(message)?;
                self.runtime.remove_sandbox(&request.pod_sandbox_id).map_err(failed)?;
                Ok(RemovePodSandboxResponse {}.encode_to_vec())
            }
            other => Err(Refusal { code: Code::Unimplemented, message: format!("{other} is not served") }),
        }
    }
}

fn decode<M: prost::Message + Default>(message: &[u8]) -> Result<M, Refusal> {
    M::decode(message).map_err(|error| Refusal { code: Code::InvalidArgument, message: error.to_string() })
}

fn failed(error: anyhow::Error) -> Refusal {
    Refusal { code: Code::Unknown, message: format!("{error:#}") }
}

fn message(sandbox: &SandboxRecord) -> PodSandboxMessage {
    let pod = &sandbox.pod;
    let metadata = PodSandboxMetadata {
        name: pod.name.clone(),
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        attempt: pod.attempts,
    };
    // kubelet's own labels, by which its sandboxes are told from others'.
    let labels = [
        ("io.kubernetes.pod.name", &pod.name),
        ("io.kubernetes.pod.namespace", &pod.namespace),
        ("io.kubernetes.pod.uid", &pod.uid),
    ];
    PodSandboxMessage {
        id: sandbox.id.clone(),
        metadata: Some(metadata),
        state: i32::from(sandbox.state != State::Ready),
        created_at: sandbox.created_at,
        labels: labels.map(|(name, value)| (name.to_owned(), value.clone())).into(),
        annotations: Default::default(),
    }
}
