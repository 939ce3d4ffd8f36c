//! Messages of etcd's key-value service (package `etcdserverpb`, and `KeyValue` of `mvccpb`).
//!
//! Keys and values are `Bytes`, so that a decoded page shares the buffer it was received in.

use bytes::Bytes;
use prost::{Message, Oneof};

use super::Unary;

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(in crate::etcd) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(in crate::etcd) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(in crate::etcd) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(in crate::etcd) key: Bytes,
    #[prost(int64, tag = "3")]
    pub(in crate::etcd) mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(in crate::etcd) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(in crate::etcd) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(in crate::etcd) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(in crate::etcd) limit: i64,
    #[prost(int64, tag = "4")]
    pub(in crate::etcd) revision: i64,
}

impl Unary for RangeRequest {
    type Answer = RangeResponse;
    const PATH: &'static str = "/etcdserverpb.KV/Range";
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(in crate::etcd) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::etcd) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(in crate::etcd) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(in crate::etcd) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(in crate::etcd) value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(in crate::etcd) key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct RequestOp {
    #[prost(oneof = "request_op::Request", tags = "1, 2, 3")]
    pub(in crate::etcd) request: Option<request_op::Request>,
}

pub(in crate::etcd) mod request_op {
    use super::*;

    #[derive(Clone, PartialEq, Oneof)]
    pub(in crate::etcd) enum Request {
        #[prost(message, tag = "1")]
        Range(RangeRequest),
        #[prost(message, tag = "2")]
        Put(PutRequest),
        #[prost(message, tag = "3")]
        DeleteRange(DeleteRangeRequest),
    }
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct ResponseOp {
    /// Of the answers to a transaction only what was read matters; the others are left undecoded.
    #[prost(oneof = "response_op::Response", tags = "1")]
    pub(in crate::etcd) response: Option<response_op::Response>,
}

pub(in crate::etcd) mod response_op {
    use super::*;

    #[derive(Clone, PartialEq, Oneof)]
    pub(in crate::etcd) enum Response {
        #[prost(message, tag = "1")]
        Range(RangeResponse),
    }
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct Compare {
    #[prost(enumeration = "compare::Outcome", tag = "1")]
    pub(in crate::etcd) result: i32,
    #[prost(enumeration = "compare::Target", tag = "2")]
    pub(in crate::etcd) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(in crate::etcd) key: Bytes,
    #[prost(oneof = "compare::Value", tags = "4, 6")]
    pub(in crate::etcd) value: Option<compare::Value>,
}

pub(in crate::etcd) mod compare {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub(in crate::etcd) enum Outcome {
        Equal = 0,
        Greater = 1,
        Less = 2,
        NotEqual = 3,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub(in crate::etcd) enum Target {
        Version = 0,
        Create = 1,
        Mod = 2,
        Value = 3,
    }

    #[derive(Clone, PartialEq, Oneof)]
    pub(in crate::etcd) enum Value {
        #[prost(int64, tag = "4")]
        Version(i64),
        #[prost(int64, tag = "6")]
        ModRevision(i64),
    }
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(in crate::etcd) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(in crate::etcd) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::etcd) failure: Vec<RequestOp>,
}

impl Unary for TxnRequest {
    type Answer = TxnResponse;
    const PATH: &'static str = "/etcdserverpb.KV/Txn";
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(in crate::etcd) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(in crate::etcd) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(in crate::etcd) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(in crate::etcd) revision: i64,
    #[prost(bool, tag = "2")]
    pub(in crate::etcd) physical: bool,
}

impl Unary for CompactionRequest {
    type Answer = CompactionResponse;
    const PATH: &'static str = "/etcdserverpb.KV/Compact";
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct CompactionResponse {}
