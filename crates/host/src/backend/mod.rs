//! A dataplane that another program provides: it makes a pod's interface when it is asked, over gRPC, as Calico's plugin asks it.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

/// Public, because a stand-in for such a program speaks them from the other side.
pub mod messages {
    pub use super::generated::*;
}

mod generated;

use std::time::Duration;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use messages::{AddReply, AddRequest, Call, DelReply, DelRequest};

/// As long as Calico's plugin waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// A program that makes interfaces. Each question opens a connection of its own, inside a tokio runtime.
#[derive(Clone, Debug)]
pub struct Backend {
    socket: String,
    patience: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    #[error("{socket:?} is not where a dataplane can listen: {problem}")]
    Socket { socket: String, problem: &'static str },

    #[error("cannot reach the dataplane at {socket}")]
    Unreachable {
        socket: String,
        #[source]
        source: tonic::transport::Error,
    },

    #[error("the dataplane at {socket} did not answer within {} s", .patience.as_secs_f32())]
    NoAnswer { socket: String, patience: Duration },

    #[error("the dataplane at {socket} could not do it: {message}")]
    Refused { socket: String, message: String },
}

impl Backend {
    pub fn new(socket: &str) -> Backend {
        Backend { socket: socket.to_owned(), patience: PATIENCE }
    }

    /// How long one question may take, the connection included.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Backend {
        Backend { patience, ..self }
    }

    /// Has an interface made. A refusal is an error.
    pub async fn add(&self, request: AddRequest) -> Result<AddReply, BackendError> {
        let reply = self.call(request).await?;
        if reply.successful { Ok(reply) } else { Err(self.refused(&reply.error_message)) }
    }

    /// Has an interface removed.
    pub async fn del(&self, request: DelRequest) -> Result<DelReply, BackendError> {
        let reply = self.call(request).await?;
        if reply.successful { Ok(reply) } else { Err(self.refused(&reply.error_message)) }
    }

    async fn call<R: Call>(&self, request: R) -> Result<R::Answer, BackendError> {
        tokio::time::timeout(self.patience, self.ask(request)).await.unwrap_or_else(|_| {
            Err(BackendError::NoAnswer { socket: self.socket.clone(), patience: self.patience })
        })
    }

    async fn ask<R: Call>(&self, request: R) -> Result<R::Answer, BackendError> {
        let uri = uri(&self.socket)
            .map_err(|problem| BackendError::Socket { socket: self.socket.clone(), problem })?;
        let unreachable = |source| BackendError::Unreachable { socket: self.socket.clone(), source };
        let channel =
            Endpoint::from_shared(uri).map_err(unreachable)?.connect().await.map_err(unreachable)?;
        unary(channel, request).await.map_err(|status| self.refused(status.message()))
    }

    fn refused(&self, message: &str) -> BackendError {
        let message = if message.is_empty() { "it gives no reason" } else { message };
        BackendError::Refused { socket: self.socket.clone(), message: message.to_owned() }
    }
}

async fn unary<R: Call>(channel: Channel, request: R) -> Result<R::Answer, Status> {
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec: ProstCodec<R, R::Answer> = ProstCodec::default();
    let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(R::PATH), codec).await?;
    Ok(answer.into_inner())
}

/// From how gRPC names places: `unix:///path`, `unix:/path`, `host:port`, `dns:///host:port`; or a path alone.
fn uri(socket: &str) -> Result<String, &'static str> {
    if let Some(rest) = socket.strip_prefix("unix:") {
        let path = rest.strip_prefix("//").unwrap_or(rest);
        return if path.starts_with('/') {
            Ok(format!("unix://{path}"))
        } else {
            Err("the path must be absolute")
        };
    }
    if socket.starts_with('/') {
        return Ok(format!("unix://{socket}"));
    }
    let place = ["dns:///", "passthrough:///", "ipv4:"].iter().find_map(|scheme| socket.strip_prefix(scheme));
    let place = place.unwrap_or(socket);
    let is_place = place
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok());
    if is_place {
        Ok(format!("http://{place}"))
    } else {
        Err("it looks like unix:///run/dataplane.sock or host:port")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn places_are_written_in_several_ways() {
        for (socket, expected) in [
            ("unix:///run/x.sock", "unix:///run/x.sock"),
            ("unix:/run/x.sock", "unix:///run/x.sock"),
            ("/run/x.sock", "unix:///run/x.sock"),
            ("127.0.0.1:5000", "http://127.0.0.1:5000"),
            ("dns:///localhost:5000", "http://localhost:5000"),
        ] {
            assert_eq!(uri(socket).as_deref(), Ok(expected));
        }
        for wrong in ["", "x", "unix:x", "unix://x/y", "host:", ":1", "ftp://x:1/y"] {
            assert!(uri(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn one_who_is_not_there_or_never_answers_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("x.sock");
        let backend = Backend::new(&socket.display().to_string());
        let error = backend.add(AddRequest::default()).await.unwrap_err();
        assert!(matches!(error, BackendError::Unreachable { .. }), "{error}");
        let _listener = UnixListener::bind(&socket).unwrap();
        let backend = backend.with_patience(Duration::from_millis(50));
        let error = backend.del(DelRequest::default()).await.unwrap_err();
        assert!(matches!(error, BackendError::NoAnswer { .. }), "{error}");
        let error = Backend::new("nowhere").add(AddRequest::default()).await.unwrap_err();
        assert!(matches!(error, BackendError::Socket { .. }), "{error}");
    }
}
