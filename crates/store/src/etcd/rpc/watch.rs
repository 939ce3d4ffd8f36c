//! Messages of etcd's watch service.

use bytes::Bytes;
use prost::{Message, Oneof};

use super::{KeyValue, ResponseHeader};

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct WatchRequest {
    #[prost(oneof = "watch_request::Request", tags = "1")]
    request: Option<watch_request::Request>,
}

impl WatchRequest {
    pub(in crate::etcd) fn create(key: Bytes, range_end: Bytes, start_revision: i64) -> WatchRequest {
        let create =
            WatchCreateRequest { key, range_end, start_revision, progress_notify: true, fragment: true };
        WatchRequest { request: Some(watch_request::Request::Create(create)) }
    }
}

mod watch_request {
    use super::*;

    #[derive(Clone, PartialEq, Oneof)]
    pub(super) enum Request {
        #[prost(message, tag = "1")]
        Create(WatchCreateRequest),
    }
}

#[derive(Clone, PartialEq, Message)]
struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    range_end: Bytes,
    #[prost(int64, tag = "3")]
    start_revision: i64,
    #[prost(bool, tag = "4")]
    progress_notify: bool,
    #[prost(bool, tag = "8")]
    fragment: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(in crate::etcd) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(in crate::etcd) watch_id: i64,
    #[prost(bool, tag = "3")]
    pub(in crate::etcd) created: bool,
    #[prost(bool, tag = "4")]
    pub(in crate::etcd) canceled: bool,
    /// Not 0 if the watch was canceled because its history is gone.
    #[prost(int64, tag = "5")]
    pub(in crate::etcd) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(in crate::etcd) cancel_reason: String,
    /// More of the same follows.
    #[prost(bool, tag = "7")]
    pub(in crate::etcd) fragment: bool,
    #[prost(message, repeated, tag = "11")]
    pub(in crate::etcd) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::etcd) struct Event {
    #[prost(enumeration = "event::Type", tag = "1")]
    pub(in crate::etcd) r#type: i32,
    #[prost(message, optional, tag = "2")]
    pub(in crate::etcd) kv: Option<KeyValue>,
}

pub(in crate::etcd) mod event {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
    #[repr(i32)]
    pub(in crate::etcd) enum Type {
        Put = 0,
        Delete = 1,
    }
}
