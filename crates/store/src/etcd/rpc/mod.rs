//! etcd's v3 protocol, as much of it as a store needs: messages with etcd's field numbers, and the calls.
//!
//! Written by hand rather than generated, so that building needs no protobuf compiler. Fields that are never
//! read or written here are left out; protobuf skips them.

mod kv;
mod session;
mod watch;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::{self, StreamExt as _};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

pub(super) use kv::{
    CompactionRequest, Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse,
    RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse, compare, request_op, response_op,
};
pub(super) use session::{AuthenticateRequest, StatusRequest};
pub(super) use watch::{Event, WatchRequest, WatchResponse, event};

/// A request with one answer.
pub(super) trait Unary: prost::Message + Clone + 'static {
    type Answer: prost::Message + Default + 'static;
    const PATH: &'static str;
}

/// What goes along with a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Along {
    pub(super) token: Option<AsciiMetadataValue>,
    /// A member that knows no leader must decline at once: it could only keep us waiting, or show old news.
    pub(super) require_leader: bool,
}

/// One open connection to one member.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    grpc: Grpc<Channel>,
}

impl Connection {
    pub(super) fn new(channel: Channel) -> Connection {
        // Pages are as large as we ask for, so the usual bound of 4 MiB would only get in the way.
        Connection { grpc: Grpc::new(channel).max_decoding_message_size(usize::MAX) }
    }

    pub(super) async fn call<R: Unary>(&self, request: R, along: &Along) -> Result<R::Answer, Status> {
        let mut grpc = self.grpc.clone();
        ready(&mut grpc).await?;
        let codec: ProstCodec<R, R::Answer> = ProstCodec::default();
        let answer = grpc.unary(with(request, along), PathAndQuery::from_static(R::PATH), codec).await?;
        Ok(answer.into_inner())
    }

    /// Opens a stream that carries one watch. It lives until the answer is dropped.
    pub(super) async fn watch(
        &self,
        create: WatchRequest,
        along: &Along,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let mut grpc = self.grpc.clone();
        ready(&mut grpc).await?;
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        // Never ends: the end of our half of the stream would end the watch.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let codec: ProstCodec<WatchRequest, WatchResponse> = ProstCodec::default();
        Ok(grpc.streaming(with(requests, along), path, codec).await?.into_inner())
    }
}

async fn ready(grpc: &mut Grpc<Channel>) -> Result<(), Status> {
    grpc.ready().await.map_err(|error| Status::from_error(Box::new(error)))
}

fn with<T>(message: T, along: &Along) -> Request<T> {
    let mut request = Request::new(message);
    let metadata: &mut MetadataMap = request.metadata_mut();
    if let Some(token) = &along.token {
        metadata.insert("token", token.clone());
    }
    if along.require_leader {
        metadata.insert("hasleader", AsciiMetadataValue::from_static("true"));
    }
    request
}
