//! `plumb-cni`: the plugin a container runtime calls. Small and without a runtime of its own: it looks at the
//! request just enough to know who serves it, and hands it over untouched.
//!
//! With an agent in the network configuration (`agent_socket`) the request goes there; a DEL that the agent cannot
//! take is queued on disk and succeeds. Without one, `plumbd cni` takes this process's place: a runtime that kills
//! the plugin kills the work with it, and never finds an ADD running behind its DEL.

mod agent;
mod answer;
mod failpoint;
mod oneshot;
mod queue;
mod request;

use std::io::Read as _;
use std::process::ExitCode;

use answer::CniError;
use request::{Request, Role};
use serde_json::Value;

/// More than any runtime sends; a bound for input that never ends.
const INPUT_MAX: u64 = 16 * 1024 * 1024;

fn main() -> ExitCode {
    if failpoint::is_list_wanted() {
        println!("{}", failpoint::ALL.join("\n"));
        return ExitCode::SUCCESS;
    }
    failpoint::hit("cni.start");
    answer::answer_even_when_panicking();
    let mut input = Vec::new();
    match serve(&mut input) {
        Ok(code) => code,
        Err(error) => {
            error.print(&answer::version_of(&input));
            ExitCode::FAILURE
        }
    }
}

fn serve(input: &mut Vec<u8>) -> Result<ExitCode, CniError> {
    let Some(verb) = std::env::var_os("CNI_COMMAND") else {
        return Err(CniError::new(answer::BAD_ENVIRONMENT, "CNI_COMMAND is not set")
            .details("this is a CNI plugin: container runtimes call it, with the verb in CNI_COMMAND"));
    };
    let read = std::io::stdin().take(INPUT_MAX).read_to_end(input);
    read.map_err(|error| {
        CniError::new(answer::IO_FAILURE, "cannot read the network configuration").details(error.to_string())
    })?;
    failpoint::hit("cni.input-read");
    if verb == "VERSION" {
        answer::say(&format!("{}\n", answer::versions(input))).map_err(unsaid)?;
        return Ok(ExitCode::SUCCESS);
    }
    let netconf: Value = serde_json::from_slice(input).map_err(|error| {
        CniError::new(answer::NOT_DECODED, "the network configuration is not JSON").details(error.to_string())
    })?;
    let role = Role::of_process();
    match request::setting(&netconf, "agent_socket") {
        Some(socket) => hand_over(socket, role, &netconf, input),
        None => Err(oneshot::become_plumbd(role, input)),
    }
}

/// Lets the agent serve the call. Where it cannot, a DEL is remembered; everything else must be tried again.
fn hand_over(socket: &str, role: Role, netconf: &Value, input: &[u8]) -> Result<ExitCode, CniError> {
    let request = Request::of_process(role, input)?;
    let failure = match agent::call(socket, &request) {
        Ok(answer) => {
            failpoint::hit("cni.before-answer");
            answer::say(&answer.stdout).map_err(unsaid)?;
            failpoint::hit("cni.answered");
            // Whatever is still held goes with the process; to give it back piece by piece takes longer.
            std::process::exit(answer.exit.into());
        }
        Err(failure) => failure,
    };
    match request.verb() {
        "DEL" => {
            let folder = queue::folder(netconf);
            queue::keep(&folder, &request).map_err(|error| {
                let details = format!("{failure}; {}: {error}", folder.display());
                CniError::new(answer::TRY_LATER, "the agent cannot be reached and the DEL cannot be queued")
                    .details(details)
            })?;
            eprintln!("plumb-cni: {failure}; the DEL is queued in {}", folder.display());
            Ok(ExitCode::SUCCESS)
        }
        "STATUS" => Err(CniError::new(answer::CANNOT_ADD, "the node's agent cannot be reached")
            .details(format!("{failure}; pods that run keep their network"))),
        _ => Err(CniError::new(answer::TRY_LATER, "the node's agent cannot be reached").details(failure)),
    }
}

fn unsaid(error: std::io::Error) -> CniError {
    CniError::new(answer::IO_FAILURE, "cannot write the answer").details(error.to_string())
}
