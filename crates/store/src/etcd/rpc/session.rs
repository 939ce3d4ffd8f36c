//! Messages that open a session with a member: who are you, who am I.

use prost::Message;

use super::{ResponseHeader, Unary};

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct StatusRequest {}

impl Unary for StatusRequest {
    type Answer = StatusResponse;
    const PATH: &'static str = "/etcdserverpb.Maintenance/Status";
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(in crate::etcd) header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub(in crate::etcd) version: String,
    /// The leader's member ID, 0 if this member knows none.
    #[prost(uint64, tag = "4")]
    pub(in crate::etcd) leader: u64,
    #[prost(bool, tag = "10")]
    pub(in crate::etcd) is_learner: bool,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(in crate::etcd) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(in crate::etcd) name: String,
    #[prost(string, tag = "2")]
    pub(in crate::etcd) password: String,
}

impl std::fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Unary for AuthenticateRequest {
    type Answer = AuthenticateResponse;
    const PATH: &'static str = "/etcdserverpb.Auth/Authenticate";
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(in crate::etcd) token: String,
}
