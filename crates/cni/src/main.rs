//! `plumb-cni`: the plugin a container runtime calls. Small and without a runtime of its own: it looks at the
//! request just enough to know who serves it, and hands it over untouched.
//!
//! Without an agent in the network configuration the request goes to `plumbd cni`, which takes this process's place:
//! a runtime that kills the plugin kills the work with it, and never finds an ADD running behind its DEL.

mod answer;
mod oneshot;

use std::io::Read as _;
use std::process::ExitCode;

use answer::CniError;
use serde_json::Value;

/// More than any runtime sends; a bound for input that never ends.
const INPUT_MAX: u64 = 16 * 1024 * 1024;

fn main() -> ExitCode {
    answer::answer_even_when_panicking();
    let mut input = Vec::new();
    match serve(&mut input) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.print(answer::version_of(&input));
            ExitCode::FAILURE
        }
    }
}

fn serve(input: &mut Vec<u8>) -> Result<(), CniError> {
    let Some(verb) = std::env::var_os("CNI_COMMAND") else {
        return Err(CniError::new(answer::BAD_ENVIRONMENT, "CNI_COMMAND is not set")
            .details("this is a CNI plugin: container runtimes call it, with the verb in CNI_COMMAND"));
    };
    let read = std::io::stdin().take(INPUT_MAX).read_to_end(input);
    read.map_err(|error| {
        CniError::new(answer::IO_FAILURE, "cannot read the network configuration").details(error.to_string())
    })?;
    if verb == "VERSION" {
        return answer::say(&answer::versions(input)).map_err(|error| {
            CniError::new(answer::IO_FAILURE, "cannot write the answer").details(error.to_string())
        });
    }
    let netconf: Value = serde_json::from_slice(input).map_err(|error| {
        CniError::new(answer::NOT_DECODED, "the network configuration is not JSON").details(error.to_string())
    })?;
    match agent_socket(&netconf) {
        Some(socket) => {
            let message = format!("the agent at {socket} cannot be used: this release has no node agent yet");
            let details =
                "remove agent_socket from the network configuration; pods are then served by `plumbd cni`";
            Err(CniError::new(answer::TRY_LATER, message).details(details))
        }
        None => Err(oneshot::become_plumbd(input)),
    }
}

fn agent_socket(netconf: &Value) -> Option<&str> {
    netconf.get("agent_socket").and_then(Value::as_str).filter(|socket| !socket.is_empty())
}
