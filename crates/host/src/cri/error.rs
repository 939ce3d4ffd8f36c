//! Why a runtime could not be asked. Whatever the reason: it said nothing, and nothing may be concluded from that.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// Nobody listens, or not one who speaks gRPC.
    #[error("cannot reach the container runtime at {}", .socket.display())]
    Unreachable {
        socket: PathBuf,
        #[source]
        source: tonic::transport::Error,
    },

    #[error("the container runtime at {} did not answer {call} within {} s", .socket.display(), .patience.as_secs_f32())]
    NoAnswer { socket: PathBuf, call: &'static str, patience: Duration },

    /// It answered, with an error.
    #[error("the container runtime at {} could not do {call}: {message} ({code:?})", .socket.display())]
    Refused { socket: PathBuf, call: &'static str, code: tonic::Code, message: String },

    #[error("{endpoint:?} is not the endpoint of a container runtime: {problem}")]
    Endpoint { endpoint: String, problem: &'static str },
}

impl CriError {
    /// The runtime knows no such sandbox.
    pub fn is_not_found(&self) -> bool {
        matches!(self, CriError::Refused { code: tonic::Code::NotFound, .. })
    }

    pub fn hint(&self) -> Option<&'static str> {
        match self {
            CriError::Unreachable { .. } => {
                Some("name the runtime's socket with CONTAINER_RUNTIME_ENDPOINT, and see that it runs")
            }
            CriError::Endpoint { .. } => Some("endpoints look like unix:///run/containerd/containerd.sock"),
            CriError::NoAnswer { .. } | CriError::Refused { .. } => None,
        }
    }
}
