//! The runtime's interface (CRI v1) over the stand-in's sandboxes.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use host::cri::messages::*;
use serde_json::json;
use tokio::net::UnixListener;
use tonic::codegen::async_trait;
use tonic::codegen::tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::generated::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use super::records::{PodRecord, SandboxRecord, State};
use super::runtime::Runtime;

/// Listens, and answers for ever on threads of its own.
pub(super) fn serve_in_background(socket: &Path, runtime: Arc<Runtime>) -> Result<()> {
    if let Some(folder) = socket.parent() {
        std::fs::create_dir_all(folder)?;
    }
    if socket.exists() {
        std::fs::remove_file(socket)?;
    }
    let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let bound = executor.block_on(async { UnixListener::bind(socket) });
    let listener = bound.with_context(|| format!("cannot listen at {}", socket.display()))?;
    std::thread::spawn(move || {
        let service = RuntimeServiceServer::new(Cri { runtime });
        let incoming = UnixListenerStream::new(listener);
        if let Err(error) = executor.block_on(Server::builder().serve_with_incoming(service, incoming)) {
            eprintln!("the runtime's socket accepts no more connections: {error}");
        }
    });
    Ok(())
}

struct Cri {
    runtime: Arc<Runtime>,
}

impl Cri {
    /// Where it may block: plugins run as long as they like.
    async fn answer<A: Send + 'static>(
        &self,
        work: impl FnOnce(&Runtime) -> Result<A, Status> + Send + 'static,
    ) -> Answer<A> {
        let runtime = Arc::clone(&self.runtime);
        let done = tokio::task::spawn_blocking(move || work(&runtime)).await;
        done.unwrap_or_else(|panic| Err(Status::unknown(panic.to_string()))).map(Response::new)
    }
}

type Answer<A> = Result<Response<A>, Status>;

#[async_trait]
impl RuntimeService for Cri {
    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        Ok(Response::new(VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "plumb-lab".to_owned(),
            runtime_version: env!("CARGO_PKG_VERSION").to_owned(),
            runtime_api_version: "v1".to_owned(),
        }))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Answer<StatusResponse> {
        self.answer(|runtime| Ok(status(runtime))).await
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Answer<ListPodSandboxResponse> {
        let wanted = request.into_inner().filter.map(|filter| filter.id).filter(|id| !id.is_empty());
        let memory = self.runtime.records.look();
        let listed = memory.sandboxes.values().filter(|sandbox| sandbox.state != State::Creating);
        let listed = listed.filter(|sandbox| wanted.as_ref().is_none_or(|id| *id == sandbox.id));
        Ok(Response::new(ListPodSandboxResponse { items: listed.map(message).collect() }))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Answer<PodSandboxStatusResponse> {
        let PodSandboxStatusRequest { pod_sandbox_id, verbose } = request.into_inner();
        let memory = self.runtime.records.look();
        let sandbox = memory.sandboxes.get(&pod_sandbox_id);
        let sandbox =
            sandbox.ok_or_else(|| Status::not_found(format!("sandbox {pod_sandbox_id} does not exist")))?;
        let ip = sandbox.addresses.first().cloned().unwrap_or_default();
        let status = PodSandboxStatus { network: Some(PodSandboxNetworkStatus { ip }) };
        let info = verbose.then(|| ("info".to_owned(), verbose_info(sandbox))).into_iter().collect();
        Ok(Response::new(PodSandboxStatusResponse { status: Some(status), info }))
    }

    async fn run_pod_sandbox(&self, request: Request<RunPodSandboxRequest>) -> Answer<RunPodSandboxResponse> {
        let metadata = request.into_inner().config.and_then(|config| config.metadata);
        let metadata = metadata.ok_or_else(|| Status::invalid_argument("a sandbox needs metadata"))?;
        let pod = PodRecord {
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            attempts: metadata.attempt,
            ..PodRecord::default()
        };
        self.answer(move |runtime| {
            let pod_sandbox_id = runtime.run_sandbox(&pod).map_err(failed)?;
            Ok(RunPodSandboxResponse { pod_sandbox_id })
        })
        .await
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Answer<StopPodSandboxResponse> {
        self.answer(move |runtime| {
            runtime.stop_sandbox(&request.get_ref().pod_sandbox_id).map_err(failed)?;
            Ok(StopPodSandboxResponse {})
        })
        .await
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Answer<RemovePodSandboxResponse> {
        self.answer(move |runtime| {
            runtime.remove_sandbox(&request.get_ref().pod_sandbox_id).map_err(failed)?;
            Ok(RemovePodSandboxResponse {})
        })
        .await
    }
}

fn failed(error: anyhow::Error) -> Status {
    Status::unknown(format!("{error:#}"))
}

fn status(runtime: &Runtime) -> StatusResponse {
    let ready = |kind: &str| RuntimeCondition { r#type: kind.to_owned(), status: true, ..Default::default() };
    let checked = runtime.network().and_then(|network| runtime.chain.status(&network));
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

/// As containerd writes it.
fn verbose_info(sandbox: &SandboxRecord) -> String {
    let namespace = json!({"type": "network", "path": sandbox.netns.clone().unwrap_or_default()});
    json!({
        "netNsClosed": sandbox.netns.is_none(),
        "runtimeSpec": {"linux": {"namespaces": [namespace]}},
    })
    .to_string()
}

fn message(sandbox: &SandboxRecord) -> PodSandbox {
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
    let state = match sandbox.state {
        State::Ready => PodSandboxState::SandboxReady,
        _ => PodSandboxState::SandboxNotready,
    };
    PodSandbox {
        id: sandbox.id.clone(),
        metadata: Some(metadata),
        state: state.into(),
        created_at: sandbox.created_at,
        labels: labels.map(|(name, value)| (name.to_owned(), value.clone())).into(),
        annotations: Default::default(),
    }
}
