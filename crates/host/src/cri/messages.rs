//! Messages of the container runtime interface (package `runtime.v1`), with its field numbers.
//!
//! Written by hand, so that building needs no protobuf compiler. Fields that nobody here reads or writes are left
//! out; protobuf skips them. Public, because a stand-in for a runtime speaks them from the other side.

use std::collections::HashMap;

use prost::Message;

/// A request with one answer.
pub trait Call: Message + Clone + Default + 'static {
    type Answer: Message + Default + 'static;
    const PATH: &'static str;
}

macro_rules! call {
    ($request:ty => $answer:ty, $method:literal) => {
        impl Call for $request {
            type Answer = $answer;
            const PATH: &'static str = concat!("/runtime.v1.RuntimeService/", $method);
        }
    };
}

call!(VersionRequest => VersionResponse, "Version");
call!(StatusRequest => StatusResponse, "Status");
call!(ListPodSandboxRequest => ListPodSandboxResponse, "ListPodSandbox");
call!(PodSandboxStatusRequest => PodSandboxStatusResponse, "PodSandboxStatus");
call!(RunPodSandboxRequest => RunPodSandboxResponse, "RunPodSandbox");
call!(StopPodSandboxRequest => StopPodSandboxResponse, "StopPodSandbox");
call!(RemovePodSandboxRequest => RemovePodSandboxResponse, "RemovePodSandbox");

#[derive(Clone, PartialEq, Message)]
pub struct VersionRequest {
    #[prost(string, tag = "1")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct VersionResponse {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    #[prost(string, tag = "4")]
    pub runtime_api_version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {
    #[prost(bool, tag = "1")]
    pub verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<RuntimeStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    pub conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, Message)]
pub struct RuntimeCondition {
    /// Required ones are `RuntimeReady` and `NetworkReady`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(bool, tag = "2")]
    pub status: bool,
    #[prost(string, tag = "3")]
    pub reason: String,
    #[prost(string, tag = "4")]
    pub message: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub filter: Option<PodSandboxFilter>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxFilter {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ListPodSandboxResponse {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<PodSandboxMessage>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxMessage {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// 0 is ready, everything else is not.
    #[prost(int32, tag = "3")]
    pub state: i32,
    /// In nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    #[prost(map = "string, string", tag = "5")]
    pub labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "6")]
    pub annotations: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// Counts the sandboxes that the same pod has had.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatusRequest {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<PodSandboxStatusMessage>,
    /// Only if asked for, and in the runtime's own form: text by key, commonly JSON under `info`.
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
}

/// What the list does not say. The rest of the message is the same as there, and passed over.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatusMessage {
    #[prost(message, optional, tag = "5")]
    pub network: Option<PodSandboxNetworkStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxNetworkStatus {
    #[prost(string, tag = "1")]
    pub ip: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "2")]
    pub hostname: String,
    #[prost(string, tag = "3")]
    pub log_directory: String,
    #[prost(message, repeated, tag = "5")]
    pub port_mappings: Vec<PortMapping>,
    #[prost(map = "string, string", tag = "6")]
    pub labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "7")]
    pub annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub struct LinuxPodSandboxConfig {
    /// Below which the runtime makes the sandbox's control groups.
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct PortMapping {
    /// 0 TCP, 1 UDP, 2 SCTP.
    #[prost(int32, tag = "1")]
    pub protocol: i32,
    #[prost(int32, tag = "2")]
    pub container_port: i32,
    #[prost(int32, tag = "3")]
    pub host_port: i32,
    #[prost(string, tag = "4")]
    pub host_ip: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct RunPodSandboxResponse {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct StopPodSandboxRequest {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct StopPodSandboxResponse {}

#[derive(Clone, PartialEq, Message)]
pub struct RemovePodSandboxRequest {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct RemovePodSandboxResponse {}
