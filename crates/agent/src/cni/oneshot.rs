//! `plumbd cni`: one call, from the environment and stdin to stdout and the exit code.

use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use tracing::warn;

use super::error::{self, CniError};
use super::{Answer, Environment, Services, result, serve};

/// More than any runtime sends; a bound for input that never ends.
const INPUT_MAX: u64 = 16 * 1024 * 1024;

/// Serves the call that the environment and stdin describe.
pub(crate) fn run() -> ExitCode {
    error::answer_even_when_panicking();
    let answer = match serve_process() {
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

fn serve_process() -> Result<Answer, CniError> {
    let mut input = Vec::new();
    let environment = Environment::of_process();
    if environment.get("CNI_COMMAND").is_some() {
        std::io::stdin().take(INPUT_MAX).read_to_end(&mut input).map_err(CniError::input)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CniError::broken("cannot start").because(&error))?;
    Ok(runtime.block_on(serve(&environment, &input, &Services::one_shot())))
}
