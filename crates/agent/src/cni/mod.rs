//! One CNI call from start to end.
//!
//! ```text
//!   environment, stdin ─▶ request, netconf ─▶ add │ del │ check ─▶ result or error on stdout
//!                                              │
//!                              book (addresses) + endpoint: one commit in the store
//!                              host (links, routes, neighbours): the kernel
//! ```
//!
//! ADD writes its records before it touches the kernel, DEL removes from the kernel before it touches the records.
//! So whatever a killed call leaves can be found by the sandbox's ID, in the handle's name and in the links' aliases.

mod add;
mod book;
mod check;
mod del;
mod endpoint;
mod error;
mod netconf;
mod node;
mod request;
mod result;

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use model::Sandbox;
use serde_json::Value;
use tracing::warn;

use error::CniError;
use netconf::NetConf;
use request::{Request, Verb};

/// More than any runtime sends; a bound for input that never ends.
const INPUT_MAX: u64 = 16 * 1024 * 1024;

/// Everything a verb needs to know about the call.
#[derive(Debug)]
struct Call {
    request: Request,
    netconf: NetConf,
    sandbox: Sandbox,
}

/// Serves the call that the environment and stdin describe.
pub(crate) fn run() -> ExitCode {
    error::answer_even_when_panicking();
    let mut version = result::NEWEST.to_owned();
    match serve(&mut version) {
        Ok(Some(answer)) => match say(&answer) {
            Ok(()) => ExitCode::SUCCESS,
            // The runtime has no answer, so it must not take this for a success.
            Err(error) => {
                warn!("cannot write the answer: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = say(&error.document(&version));
            ExitCode::FAILURE
        }
    }
}

/// Writes an answer to stdout.
fn say(answer: &Value) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{answer}")
}

fn serve(version: &mut String) -> Result<Option<Value>, CniError> {
    // What is no text is not the same as nothing: the rules for names refuse what becomes of it here.
    let environment = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        Some(value.to_string_lossy().into_owned())
    };
    let verb = Verb::from_environment(&environment)?;
    let mut input = Vec::new();
    std::io::stdin().take(INPUT_MAX).read_to_end(&mut input).map_err(CniError::input)?;
    if verb == Verb::Version {
        return Ok(Some(result::versions(&input)));
    }
    let netconf = NetConf::parse(&input)?;
    result::check_version(&netconf.cni_version)?;
    version.clone_from(&netconf.cni_version);
    start_log(&netconf);
    let request = Request::from_environment(verb, &environment)?;
    for key in &netconf.ignored {
        warn!("the network configuration's key {key:?} has no effect here");
    }
    let sandbox = Sandbox::new(&netconf.name, &request.container_id, &request.interface)?;
    let call = Call { request, netconf, sandbox };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CniError::broken("cannot start").because(&error))?;
    runtime.block_on(async {
        match verb {
            Verb::Add => add::run(&call).await.map(Some),
            Verb::Del => del::run(&call).await.map(|()| None),
            Verb::Check => check::run(&call).await.map(|()| None),
            Verb::Version => unreachable!("answered above"),
        }
    })
}

/// Stderr is the log; stdout belongs to the answer.
fn start_log(netconf: &NetConf) {
    let level = netconf.log_level.as_deref().unwrap_or("info").to_ascii_lowercase();
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(level);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A second call in one process (tests) keeps the first one's log.
    let _ = log.try_init();
}
