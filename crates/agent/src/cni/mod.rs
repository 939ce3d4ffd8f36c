//! The CNI verbs, as functions of what a runtime says and of the [`Services`] at hand.
//!
//! ```text
//!   environment, configuration ─▶ request, netconf ─▶ add │ del │ check ─▶ result or error
//!                                                      │
//!                                      book (addresses) + endpoint: one commit in the store
//!                                      host (links, routes, neighbours): the kernel
//! ```
//!
//! `plumbd cni` serves one call this way and ends; `plumbd node` serves every call of its socket. The verbs do not
//! know which of the two they run in.
//!
//! In the role of an IPAM plugin only addresses are given and taken back.
//!
//! ADD writes its records before it gives a pod an address in the kernel (the bare veth is made meanwhile), DEL removes
//! from the kernel before it touches the records. So whatever a killed call leaves can be found by the sandbox's ID, in the handle's name and in the links' aliases.

mod add;
mod address_role;
mod caller;
mod check;
mod del;
mod delegate;
mod endpoint;
mod environment;
mod error;
mod gc;
mod message;
mod netconf;
mod node;
mod oneshot;
mod records;
mod request;
mod result;
mod services;
mod status;

use model::{Key, Sandbox};
use serde_json::Value;

pub(crate) use caller::Caller;
pub(crate) use endpoint::addresses as endpoint_addresses;
pub(crate) use environment::Environment;
pub(crate) use error::CniError;
pub(crate) use message::{BadRequest, CallRequest, REQUEST_BYTES_MAX, Role};
pub(crate) use netconf::{NetConf, STATE_FOLDER};
pub(crate) use oneshot::run;
pub(crate) use services::{Agent, Records, Services};

use del::Waiting;
use error::code;
use request::{Request, Verb};

use crate::failpoint::{self, Point};

/// Everything a verb needs to know about the call.
#[derive(Debug)]
struct Call {
    request: Request,
    netconf: NetConf,
    sandbox: Sandbox,
    /// The call as it came, to be kept if it cannot be finished.
    message: CallRequest,
}

/// What the runtime gets: the plugin's exit code and, if there is something to say, its stdout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) success: bool,
    pub(crate) text: String,
}

impl Answer {
    fn done(said: Option<Value>) -> Answer {
        Answer { success: true, text: said.map(|value| format!("{value}\n")).unwrap_or_default() }
    }

    /// An error, in the words of the caller's version.
    pub(crate) fn failed(error: &CniError, version: &str) -> Answer {
        Answer { success: false, text: format!("{}\n", error.document(version)) }
    }
}

/// Serves one call from start to end.
pub(crate) async fn serve(message: &CallRequest, caller: &Caller, services: &Services) -> Answer {
    let _under_way = services.begin_call();
    let mut version = result::NEWEST.to_owned();
    if services.agent().is_some_and(|agent| agent.only_observes()) {
        let error = CniError::new(code::CANNOT_SERVE, "the agent of this node only observes");
        return Answer::failed(&error, &version);
    }
    match answer(message, caller, services, &mut version).await {
        Ok(said) => Answer::done(said),
        Err(error) => Answer::failed(&error, &version),
    }
}

/// The answer to what is no call at all.
pub(crate) fn refuse(reason: &BadRequest) -> Answer {
    Answer::failed(&CniError::new(code::NOT_DECODED, reason.to_string()), result::NEWEST)
}

async fn answer(
    message: &CallRequest,
    caller: &Caller,
    services: &Services,
    version: &mut String,
) -> Result<Option<Value>, CniError> {
    let verb = Verb::from_environment(&message.environment)?;
    if verb == Verb::Version {
        return Ok(Some(result::versions(message.config.as_bytes())));
    }
    let netconf = NetConf::parse(message.config.as_bytes())?;
    result::check_version(&netconf.cni_version)?;
    result::check_verb(verb, &netconf.cni_version)?;
    version.clone_from(&netconf.cni_version);
    for key in &netconf.ignored {
        let network = &netconf.name;
        services.say_once(format!(
            "the key {key:?} in the configuration of network {network} has no effect here"
        ));
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
        (Role::Ipam, Verb::Del) => address_role::del(&call, services).await.map(|()| None),
        (Role::Ipam, Verb::Check) => address_role::check(&call, services).await.map(|()| None),
        (Role::Network, Verb::Add) => add::run(&call, caller, services).await.map(Some),
        (Role::Network, Verb::Del) => del::run(&call, services).await.map(|()| None),
        (Role::Network, Verb::Check) => check::run(&call, services).await.map(|()| None),
        (_, Verb::Gc | Verb::Status | Verb::Version) => unreachable!("answered above"),
    }
}

/// Does what a queued DEL asks for, or says why it cannot be done yet.
pub(crate) async fn finish_del(message: &CallRequest, services: &Services) -> Result<(), CniError> {
    let call = del_of(message)?;
    let _fenced = services.fences().enter(&call.sandbox).await;
    del::finish(&call, services, Waiting::Queue).await
}

/// A DEL of this very sandbox that is still queued came before this call, so it is done before it. To be called
/// inside the sandbox's fence.
async fn finish_queued(call: &Call, services: &Services) -> Result<(), CniError> {
    let broken = |error: std::io::Error| CniError::broken("the queue cannot be used").because(&error);
    for (name, message) in services.queue().waiting_for(&call.sandbox).map_err(broken)? {
        failpoint::hit(Point::AddBeforeQueued);
        del::finish(&del_of(&message)?, services, Waiting::Queue).await?;
        services.queue().done(&name).map_err(broken)?;
        failpoint::hit(Point::AddAfterQueued);
    }
    Ok(())
}

/// Removes everything of a sandbox that has no owner any more. To be called inside its fence.
pub(crate) async fn remove_attachment(
    sandbox: &Sandbox,
    endpoint: Option<Key>,
    services: &Services,
) -> Result<(), CniError> {
    del::remove(sandbox, endpoint, services).await
}

fn del_of(message: &CallRequest) -> Result<Call, CniError> {
    Call::new(Verb::Del, NetConf::parse(message.config.as_bytes())?, message)
}

impl Call {
    fn new(verb: Verb, mut netconf: NetConf, message: &CallRequest) -> Result<Call, CniError> {
        let request = Request::from_environment(verb, &message.environment)?;
        let sandbox = Sandbox::new(&netconf.name, &request.container_id, &request.interface)?;
        let (addresses, mac) = (request.asked_addresses.as_deref(), request.asked_mac.as_deref());
        if let Err(error) = netconf.asked.add_arguments(addresses, mac) {
            netconf.unsupported.get_or_insert(error);
        }
        Ok(Call { request, netconf, sandbox, message: message.clone() })
    }
}

/// Reads a call as the verbs do, for the fuzz target.
#[cfg(fuzzing)]
pub(crate) fn read_call(call: &CallRequest) {
    let _ = NetConf::parse(call.config.as_bytes());
    if let Ok(verb) = request::Verb::from_environment(&call.environment) {
        let _ = request::Request::from_environment(verb, &call.environment);
    }
}
