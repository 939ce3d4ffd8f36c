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
//! ADD writes its records before it touches the kernel, DEL removes from the kernel before it touches the records.
//! So whatever a killed call leaves can be found by the sandbox's ID, in the handle's name and in the links' aliases.

mod add;
mod book;
mod check;
mod del;
mod endpoint;
mod environment;
mod error;
mod netconf;
mod node;
mod oneshot;
mod request;
mod result;
mod services;

use model::Sandbox;
use serde_json::Value;
use tracing::warn;

pub(crate) use environment::Environment;
pub(crate) use oneshot::run;
pub(crate) use services::Services;

use error::CniError;
use netconf::NetConf;
use request::{Request, Verb};

/// Everything a verb needs to know about the call.
#[derive(Debug)]
struct Call {
    request: Request,
    netconf: NetConf,
    sandbox: Sandbox,
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
pub(crate) async fn serve(environment: &Environment, input: &[u8], services: &Services) -> Answer {
    let mut version = result::NEWEST.to_owned();
    match answer(environment, input, services, &mut version).await {
        Ok(said) => Answer::done(said),
        Err(error) => Answer::failed(&error, &version),
    }
}

async fn answer(
    environment: &Environment,
    input: &[u8],
    services: &Services,
    version: &mut String,
) -> Result<Option<Value>, CniError> {
    let verb = Verb::from_environment(environment)?;
    if verb == Verb::Version {
        return Ok(Some(result::versions(input)));
    }
    let netconf = NetConf::parse(input)?;
    result::check_version(&netconf.cni_version)?;
    version.clone_from(&netconf.cni_version);
    services.hear(&netconf);
    let request = Request::from_environment(verb, environment)?;
    for key in &netconf.ignored {
        warn!("the network configuration's key {key:?} has no effect here");
    }
    let sandbox = Sandbox::new(&netconf.name, &request.container_id, &request.interface)?;
    let call = Call { request, netconf, sandbox };
    match verb {
        Verb::Add => add::run(&call, services).await.map(Some),
        Verb::Del => del::run(&call, services).await.map(|()| None),
        Verb::Check => check::run(&call, services).await.map(|()| None),
        Verb::Version => unreachable!("answered above"),
    }
}
