//! The container runtime as a witness: which sandboxes it has, asked over the container runtime interface (CRI v1).
//!
//! An answer is the runtime's word. A [`CriError`] is no answer: the runtime said nothing, which is not the same as
//! "there are no sandboxes", and the types keep the two apart.
//!
//! A sandbox whose network is just being made is not listed yet (containerd lists it once its ADD has succeeded),
//! so one look never proves that a sandbox is gone.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod error;
pub mod messages;
mod namespace;
mod sandboxes;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

pub use error::CriError;
use messages::{Call, ListPodSandboxRequest, PodSandboxStatusRequest, StatusRequest, VersionRequest};
pub use sandboxes::{PodSandbox, SandboxState, Sandboxes};

/// Where runtimes listen unless they are told otherwise, in the order in which they are looked for.
pub const USUAL_SOCKETS: [&str; 3] =
    ["/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock"];

/// A runtime answers from memory; one that needs longer is not well.
const PATIENCE: Duration = Duration::from_secs(10);

/// As kubelet: a node full of sandboxes with many labels stays below it.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A container runtime on this node.
///
/// Each question opens its own connection: looks are minutes apart, and a runtime that was restarted in between is
/// then nothing special. Questions are asked inside a tokio runtime.
#[derive(Clone, Debug)]
pub struct RuntimeClient {
    socket: PathBuf,
    patience: Duration,
}

/// Which runtime it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeVersion {
    pub name: String,
    pub version: String,
    pub api_version: String,
}

/// What the runtime says about the node's network (its CNI configuration and plugins).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkCondition {
    pub is_ready: bool,
    pub reason: String,
    pub message: String,
}

impl RuntimeClient {
    pub fn new(socket: impl Into<PathBuf>) -> RuntimeClient {
        RuntimeClient { socket: socket.into(), patience: PATIENCE }
    }

    /// From an endpoint as kubelet and crictl write it: `unix:///path`, or the path alone.
    pub fn from_endpoint(endpoint: &str) -> Result<RuntimeClient, CriError> {
        socket_of_endpoint(endpoint)
            .map(RuntimeClient::new)
            .map_err(|problem| CriError::Endpoint { endpoint: endpoint.to_owned(), problem })
    }

    /// The first of the usual sockets that exists.
    pub fn usual() -> Option<RuntimeClient> {
        USUAL_SOCKETS.iter().find(|path| Path::new(path).exists()).map(RuntimeClient::new)
    }

    /// How long one question may take, the connection included.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> RuntimeClient {
        RuntimeClient { patience, ..self }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub async fn version(&self) -> Result<RuntimeVersion, CriError> {
        let answer = self.call(VersionRequest { version: String::new() }).await?;
        Ok(RuntimeVersion {
            name: answer.runtime_name,
            version: answer.runtime_version,
            api_version: answer.runtime_api_version,
        })
    }

    /// Every sandbox the runtime has, ready or not.
    pub async fn sandboxes(&self) -> Result<Sandboxes, CriError> {
        let answer = self.call(ListPodSandboxRequest { filter: None }).await?;
        Ok(Sandboxes::of(answer))
    }

    /// `None` if the runtime says nothing about its network.
    pub async fn network(&self) -> Result<Option<NetworkCondition>, CriError> {
        let answer = self.call(StatusRequest { verbose: false }).await?;
        let conditions = answer.status.unwrap_or_default().conditions;
        let network = conditions.into_iter().find(|condition| condition.r#type == "NetworkReady");
        Ok(network.map(|condition| NetworkCondition {
            is_ready: condition.status,
            reason: condition.reason,
            message: condition.message,
        }))
    }

    /// The network namespace of a sandbox, where the runtime tells (containerd and CRI-O do).
    pub async fn namespace_of(&self, container_id: &str) -> Result<Option<PathBuf>, CriError> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: container_id.to_owned(), verbose: true };
        let answer = self.call(request).await?;
        Ok(answer.info.values().find_map(|text| namespace::network_namespace(text)))
    }

    /// Asks anything of the interface.
    pub async fn call<R: Call>(&self, request: R) -> Result<R::Answer, CriError> {
        let call = R::PATH.rsplit('/').next().unwrap_or(R::PATH);
        tokio::time::timeout(self.patience, self.ask(call, request)).await.unwrap_or_else(|_| {
            Err(CriError::NoAnswer { socket: self.socket.clone(), call, patience: self.patience })
        })
    }

    async fn ask<R: Call>(&self, call: &'static str, request: R) -> Result<R::Answer, CriError> {
        let unreachable = |source| CriError::Unreachable { socket: self.socket.clone(), source };
        let uri = format!("unix://{}", self.socket.display());
        let channel =
            Endpoint::from_shared(uri).map_err(unreachable)?.connect().await.map_err(unreachable)?;
        let refused = |status: Status| CriError::Refused {
            socket: self.socket.clone(),
            call,
            code: status.code(),
            message: status.message().to_owned(),
        };
        unary(channel, request).await.map_err(refused)
    }
}

async fn unary<R: Call>(channel: Channel, request: R) -> Result<R::Answer, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec: ProstCodec<R, R::Answer> = ProstCodec::default();
    let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(R::PATH), codec).await?;
    Ok(answer.into_inner())
}

fn socket_of_endpoint(endpoint: &str) -> Result<PathBuf, &'static str> {
    let path = match endpoint.strip_prefix("unix:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None if endpoint.contains("://") => return Err("only unix sockets are supported"),
        None => endpoint,
    };
    if path.starts_with('/') { Ok(PathBuf::from(path)) } else { Err("the path must be absolute") }
}

/// Answers that a fuzz target made up.
#[cfg(fuzzing)]
pub(crate) fn read_anything(bytes: &[u8]) {
    use prost::Message as _;
    if let Ok(answer) = messages::ListPodSandboxResponse::decode(bytes) {
        let _ = Sandboxes::of(answer).iter().count();
    }
    if let Ok(answer) = messages::PodSandboxStatusResponse::decode(bytes) {
        let _ = answer.info.values().find_map(|text| namespace::network_namespace(text));
    }
    let _ = str::from_utf8(bytes).map(namespace::network_namespace);
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn endpoints_are_written_in_several_ways() {
        let check = |endpoint: &str, expected: Option<&str>| {
            let socket = RuntimeClient::from_endpoint(endpoint).ok().map(|client| client.socket().to_owned());
            assert_eq!(socket, expected.map(PathBuf::from), "{endpoint}");
        };
        check("unix:///run/x.sock", Some("/run/x.sock"));
        check("unix:/run/x.sock", Some("/run/x.sock"));
        check("/run/x.sock", Some("/run/x.sock"));
        for bad in ["", "run/x.sock", "unix://", "unix://run/x.sock", "tcp://localhost:1", "npipe:////x"] {
            check(bad, None);
        }
    }

    #[tokio::test]
    async fn a_socket_nobody_made_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let client = RuntimeClient::new(folder.path().join("none.sock"));
        let error = client.sandboxes().await.unwrap_err();
        assert!(matches!(error, CriError::Unreachable { .. }), "{error}");
        assert!(error.to_string().starts_with("cannot reach the container runtime at /"), "{error}");
    }

    #[tokio::test]
    async fn one_who_never_answers_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("silent.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        let client = RuntimeClient::new(&socket).with_patience(Duration::from_millis(50));
        let error = client.sandboxes().await.unwrap_err();
        assert!(matches!(error, CriError::NoAnswer { call: "ListPodSandbox", .. }), "{error}");
    }

    #[tokio::test]
    async fn one_who_talks_nonsense_says_nothing() {
        for nonsense in [&b""[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", &[0xff; 4096]] {
            let folder = tempfile::tempdir().unwrap();
            let socket = folder.path().join("nonsense.sock");
            let listener = UnixListener::bind(&socket).unwrap();
            let speaker = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                // It may have hung up already.
                let _ = stream.write_all(nonsense);
            });
            assert!(RuntimeClient::new(&socket).sandboxes().await.is_err(), "{nonsense:?}");
            speaker.join().unwrap();
        }
    }

    proptest! {
        #[test]
        fn any_endpoint_is_taken_or_refused(endpoint in ".*") {
            let _ = RuntimeClient::from_endpoint(&endpoint);
        }
    }
}
