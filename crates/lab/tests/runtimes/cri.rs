//! As much of the Container Runtime Interface as it takes to make pods and to see them go: what kubelet calls.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use prost::Message;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// A connection to a runtime. Its calls block, and may be made by many threads at once.
#[derive(Debug)]
pub(crate) struct Cri {
    runtime: Runtime,
    channel: Channel,
}

impl Cri {
    pub(crate) fn connect(socket: &Path) -> Result<Cri> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let endpoint = Endpoint::new(format!("unix://{}", socket.display()))?;
        let channel = runtime.block_on(endpoint.connect())?;
        Ok(Cri { runtime, channel })
    }

    pub(crate) fn call<R: Call>(&self, request: R) -> Result<R::Answer> {
        let mut grpc = Grpc::new(self.channel.clone());
        let codec: ProstCodec<R, R::Answer> = ProstCodec::default();
        self.runtime.block_on(async {
            grpc.ready().await?;
            let path = PathAndQuery::from_static(R::PATH);
            let answer = grpc.unary(tonic::Request::new(request), path, codec).await;
            Ok(answer.with_context(|| R::PATH)?.into_inner())
        })
    }
}

/// A request and what answers it.
pub(crate) trait Call: Message + 'static {
    type Answer: Message + Default + 'static;
    const PATH: &'static str;
}

macro_rules! call {
    ($request:ty => $answer:ty, $path:literal) => {
        impl Call for $request {
            type Answer = $answer;
            const PATH: &'static str = concat!("/runtime.v1.RuntimeService/", $path);
        }
    };
}

call!(RunPodSandbox => SandboxId, "RunPodSandbox");
call!(StopPodSandbox => Nothing, "StopPodSandbox");
call!(RemovePodSandbox => Nothing, "RemovePodSandbox");
call!(PodSandboxStatus => PodSandboxStatusAnswer, "PodSandboxStatus");
call!(ListPodSandbox => PodSandboxList, "ListPodSandbox");
call!(Status => StatusAnswer, "Status");

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Nothing {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RunPodSandbox {
    #[prost(message, optional, tag = "1")]
    pub(crate) config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<PodSandboxMetadata>,
    #[prost(string, tag = "3")]
    pub(crate) log_directory: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) port_mappings: Vec<PortMapping>,
    #[prost(map = "string, string", tag = "7")]
    pub(crate) annotations: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub(crate) linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) uid: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(uint32, tag = "4")]
    pub(crate) attempt: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PortMapping {
    /// 0 is TCP.
    #[prost(int32, tag = "1")]
    pub(crate) protocol: i32,
    #[prost(int32, tag = "2")]
    pub(crate) container_port: i32,
    #[prost(int32, tag = "3")]
    pub(crate) host_port: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LinuxPodSandboxConfig {
    #[prost(string, tag = "1")]
    pub(crate) cgroup_parent: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SandboxId {
    #[prost(string, tag = "1")]
    pub(crate) pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StopPodSandbox {
    #[prost(string, tag = "1")]
    pub(crate) pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RemovePodSandbox {
    #[prost(string, tag = "1")]
    pub(crate) pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodSandboxStatus {
    #[prost(string, tag = "1")]
    pub(crate) pod_sandbox_id: String,
    #[prost(bool, tag = "2")]
    pub(crate) verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodSandboxStatusAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<SandboxState>,
    /// With `verbose`: the runtime's own words, as JSON under `info`.
    #[prost(map = "string, string", tag = "2")]
    pub(crate) info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SandboxState {
    #[prost(message, optional, tag = "5")]
    pub(crate) network: Option<SandboxNetwork>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SandboxNetwork {
    #[prost(string, tag = "1")]
    pub(crate) ip: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListPodSandbox {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodSandboxList {
    #[prost(message, repeated, tag = "1")]
    pub(crate) items: Vec<PodSandbox>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PodSandbox {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    /// 0 is ready.
    #[prost(int32, tag = "3")]
    pub(crate) state: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<RuntimeStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    pub(crate) conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RuntimeCondition {
    #[prost(string, tag = "1")]
    pub(crate) kind: String,
    #[prost(bool, tag = "2")]
    pub(crate) is_met: bool,
}
