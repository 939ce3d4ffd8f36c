//! `plumbd cni`: one call, from the environment and stdin to stdout and the exit code.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use tracing::warn;

use super::error::{self, CniError};
use super::netconf::NetConf;
use super::{Answer, CallRequest, Caller, Environment, Role, STATE_FOLDER, Services, result, serve};

/// More than any runtime sends; a bound for input that never ends.
const INPUT_MAX: u64 = 16 * 1024 * 1024;

/// Serves the call that the environment and stdin describe.
pub(crate) fn run(role: Role) -> ExitCode {
    error::answer_even_when_panicking();
    let answer = match serve_process(role) {
        Ok(answer) => answer,
        Err(error) => Answer::failed(&error, result::NEWEST),
    };
    match say(&answer.text) {
        Ok(()) if answer.success => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        // The runtime has no answer, so it must not take this for a success.
        Err(error) => {
            warn!("cannot write the answer: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes an answer to stdout.
pub(super) fn say(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn serve_process(role: Role) -> Result<Answer, CniError> {
    let mut input = Vec::new();
    let environment = Environment::of_process();
    if environment.get("CNI_COMMAND").is_some() {
        std::io::stdin().take(INPUT_MAX).read_to_end(&mut input).map_err(CniError::input)?;
    }
    let config = String::from_utf8(input).map_err(|error| {
        CniError::new(error::code::NOT_DECODED, "the network configuration is not text").because(&error)
    })?;
    // What is wrong with it, the verb says.
    let netconf = NetConf::parse(config.as_bytes()).ok();
    start_log(netconf.as_ref().and_then(|netconf| netconf.log_level.as_deref()));
    let state = netconf.map_or_else(|| STATE_FOLDER.into(), |netconf| netconf.state_folder);
    let services = Services::one_shot(&state);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CniError::broken("cannot start").because(&error))?;
    let message = CallRequest { role, environment, config };
    Ok(runtime.block_on(async {
        let answer = serve(&message, &Caller::same_process(), &services).await;
        if answer.success && services.queue().has_any() {
            crate::queue::work_once(&services).await;
        }
        answer
    }))
}

/// Stderr is the log; stdout belongs to the answer.
fn start_log(level: Option<&str>) {
    let level = level.unwrap_or("info").to_ascii_lowercase();
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(level);
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}
