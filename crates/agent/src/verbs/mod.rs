//! The CNI verbs, as functions of a call and of the [`Services`] that serve it.
//!
//! ```text
//!   environment, configuration ─▶ request, netconf ─▶ add │ del │ check ─▶ result or error
//!                                                      │
//!                                      book (addresses) + endpoint: one commit in the store
//!                                      host (links, routes, neighbours): the kernel
//! ```
//!
//! `plumbd cni` serves one call this way and ends; `plumbd node` serves every call on its socket. In the role of an IPAM plugin the verbs only
//! allocate and release addresses.
//!
//! ADD writes its records before it gives a pod an address in the kernel (the bare veth is made at the same time). DEL removes from the
//! kernel before it touches the records. So what a killed call leaves behind can be found by the sandbox's ID, in the handle's name and in the
//! links' aliases.

mod add;
mod address_role;
mod backend;
mod caller;
mod check;
pub(crate) mod confirm;
mod del;
mod delegate;
mod endpoint;
mod error;
mod gates;
mod gateways;
mod gc;
mod known;
mod kubernetes;
mod netconf;
pub(crate) mod node;
mod old_handles;
mod one_shot;
mod pod;
mod profile;
mod queued;
mod ready;
pub(crate) mod records;
mod request;
mod result;
mod status;
mod test;

use std::collections::BTreeMap;

use model::{Key, Sandbox};
use serde_json::Value;

pub(crate) use caller::Caller;
pub(crate) use endpoint::{addresses as endpoint_addresses, is_never_recorded};
pub(crate) use error::{CniError, code};
pub(crate) use netconf::NetConf;
pub(crate) use one_shot::run;
pub(crate) use queued::retry as retry_queued_del;
pub(crate) use test::run as run_test;

use request::{Request, Verb};

use wire::{BadRequest, Reply, Role};

use crate::services::{Agent, Services};

/// Everything a verb needs to know about the call.
#[derive(Debug)]
struct Call {
    request: Request,
    netconf: NetConf,
    sandbox: Sandbox,
    /// The call as it was received, to queue it if it cannot be completed.
    message: wire::Call,
}

fn done(result: Option<Value>) -> Reply {
    Reply::success(result.map(|value| format!("{value}\n")).unwrap_or_default())
}

/// An error in the form of the caller's CNI version.
pub(crate) fn failed(error: &CniError, version: &str) -> Reply {
    Reply::failure(format!("{}\n", error.document(version)))
}

/// The sandbox of a call; `None` if the call does not name one.
pub(crate) fn sandbox_of(call: &wire::Call) -> Option<Sandbox> {
    let config: Value = serde_json::from_str(&call.config).ok()?;
    let (container, interface) = (call.variable("CNI_CONTAINERID")?, call.variable("CNI_IFNAME")?);
    Sandbox::new(config.get("name")?.as_str()?, container, interface).ok()
}

/// Serves one call from start to end.
pub(crate) async fn serve(message: &wire::Call, caller: &Caller, services: Services<'_>) -> Reply {
    let _in_progress = services.begin_call();
    let mut version = result::NEWEST.to_owned();
    if services.agent().is_some_and(Agent::only_observes) {
        let error = CniError::new(code::CANNOT_SERVE, "the agent of this node only observes");
        return failed(&error, &version);
    }
    match answer(message, caller, services, &mut version).await {
        Ok(result) => done(result),
        Err(error) => failed(&error, &version),
    }
}

/// The answer to a request that is not a call.
pub(crate) fn refuse(reason: &BadRequest) -> Reply {
    failed(&CniError::new(code::NOT_DECODED, reason.to_string()), result::NEWEST)
}

async fn answer(
    message: &wire::Call,
    caller: &Caller,
    services: Services<'_>,
    version: &mut String,
) -> Result<Option<Value>, CniError> {
    let verb = Verb::of(message)?;
    if verb == Verb::Version {
        return Ok(Some(result::versions(message.config.as_bytes())));
    }
    let netconf = NetConf::parse(message.config.as_bytes())?;
    result::check_version(&netconf.cni_version)?;
    result::check_verb(verb, &netconf.cni_version)?;
    version.clone_from(&netconf.cni_version);
    for key in &netconf.ignored {
        let network = &netconf.name;
        services.warn_once(format!("ignored the key {key:?} in the configuration of network {network}"));
    }
    if verb == Verb::Status {
        return status::run(&netconf, message, services).await.map(|()| None);
    }
    if verb == Verb::Gc {
        return gc::run(&netconf, message, services).await.map(|()| None);
    }
    let call = Call::new(verb, netconf, message)?;
    match (message.role, verb) {
        (Role::Ipam, Verb::Add) => address_role::add(&call, caller, services).await.map(Some),
        (Role::Ipam, Verb::Check) => address_role::check(&call, services).await.map(|()| None),
        (Role::Network, Verb::Add) => add::run(&call, caller, services).await.map(Some),
        (Role::Network, Verb::Check) => check::run(&call, services).await.map(|()| None),
        (_, Verb::Del) => del::run(&call, services).await.map(|()| None),
        (_, Verb::Gc | Verb::Status | Verb::Version) => unreachable!("answered above"),
    }
}

/// Removes everything of a sandbox that has no owner any more. To be called with the sandbox locked.
pub(crate) async fn remove_attachment(
    sandbox: &Sandbox,
    endpoint: Option<Key>,
    agent: &Agent,
) -> Result<(), CniError> {
    del::remove_ownerless(sandbox, endpoint, agent).await
}

impl Call {
    fn new(verb: Verb, mut netconf: NetConf, message: &wire::Call) -> Result<Call, CniError> {
        let request = Request::of(verb, message)?;
        let sandbox = Sandbox::new(&netconf.name, &request.container_id, &request.interface)?;
        netconf.add_arguments(&request);
        if request.pod.is_none() {
            netconf.without_kubernetes();
        }
        Ok(Call { request, netconf, sandbox, message: message.clone() })
    }

    /// The namespace that the caller of a container without a pod names.
    fn namespace(&self) -> Option<&str> {
        self.netconf.calico.namespace.as_deref().or(self.request.namespace.as_deref())
    }

    /// The same for a pod with these annotations.
    fn annotated(&self, annotations: &BTreeMap<String, String>) -> Result<Call, CniError> {
        let mut netconf = self.netconf.with_annotations(annotations)?;
        netconf.add_arguments(&self.request);
        let (request, sandbox, message) = (self.request.clone(), self.sandbox.clone(), self.message.clone());
        Ok(Call { request, netconf, sandbox, message })
    }
}

impl NetConf {
    /// What only counts for pods does not count.
    fn without_kubernetes(&mut self) {
        self.pod_routes.clear();
        if self.ipam.uses_pod_cidrs {
            let error = CniError::configuration(
                "ipam.subnet stands for a network of the Kubernetes node, but the call names no pod",
            );
            self.unsupported.get_or_insert(error.hint("write the network itself as ipam.subnet"));
        }
        if self.may_go_without_ipam {
            let error = CniError::configuration(
                "feature_control.ip_addrs_no_ipam is for pods, but the call names none",
            );
            self.unsupported
                .get_or_insert(error.hint("leave it out of the configuration of other containers"));
        }
    }

    /// Adds what `CNI_ARGS` asks for.
    fn add_arguments(&mut self, request: &Request) {
        let (addresses, mac) = (request.asked_addresses.as_deref(), request.asked_mac.as_deref());
        if let Err(error) = self.asked.add_arguments(addresses, mac) {
            self.unsupported.get_or_insert(error);
        }
    }
}

/// Reads a call as the verbs do, for the fuzz target.
#[cfg(fuzzing)]
pub(crate) fn read_call(call: &wire::Call) {
    let _ = NetConf::parse(call.config.as_bytes());
    if let Ok(verb) = request::Verb::of(call) {
        let _ = request::Request::of(verb, call);
    }
}
