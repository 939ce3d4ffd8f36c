//! `plumbd cni`: one call, from the environment and stdin to stdout and the exit code.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use tracing::warn;

use super::error::{self, CniError};
use super::netconf::NetConf;
use wire::{Reply, Role};

use super::{Caller, failed, result, serve};
use crate::del_queue;
use crate::services::{OneShot, Services};

/// More than any runtime sends; a bound for input that never ends.
const INPUT_MAX: u64 = 16 * 1024 * 1024;

/// Serves the call that the environment and stdin describe.
pub(crate) fn run(role: Role) -> ExitCode {
    error::answer_even_when_panicking();
    let answer = match serve_process(role) {
        Ok(answer) => answer,
        Err(error) => failed(&error, result::NEWEST),
    };
    match write_answer(&answer.stdout) {
        Ok(()) if answer.is_success() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        // The runtime has no answer, so it must not see a success.
        Err(error) => {
            warn!(%error, "cannot write the answer");
            ExitCode::FAILURE
        }
    }
}

/// Writes an answer to stdout.
pub(super) fn write_answer(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn serve_process(role: Role) -> Result<Reply, CniError> {
    // Invalid UTF-8 is replaced, not dropped: the rules for names refuse what becomes of it.
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    let mut message = wire::Call::new(role, variables, "");
    let mut input = Vec::new();
    if !message.verb().is_empty() {
        std::io::stdin().take(INPUT_MAX).read_to_end(&mut input).map_err(CniError::input)?;
    }
    let config = String::from_utf8(input).map_err(|error| {
        CniError::new(error::code::NOT_DECODED, "the network configuration is not UTF-8").because(&error)
    })?;
    // The verb reports what is wrong with it.
    let netconf = NetConf::parse(config.as_bytes()).ok();
    // Stderr is the log; stdout belongs to the answer.
    let level = netconf.as_ref().and_then(|netconf| netconf.log_level.as_deref());
    crate::log::start(&level.unwrap_or("info").to_ascii_lowercase());
    let state_dir = netconf.map_or_else(|| wire::STATE_DIR.into(), |netconf| netconf.state_dir);
    let one_shot = OneShot::new(&state_dir);
    let services = Services::OneShot(&one_shot);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CniError::internal("cannot start the async runtime").because(&error))?;
    message.config = config;
    Ok(runtime.block_on(async {
        let answer = serve(&message, &Caller::same_process(), services).await;
        if answer.is_success() && one_shot.queue.has_any() {
            del_queue::work_once(services).await;
        }
        answer
    }))
}
