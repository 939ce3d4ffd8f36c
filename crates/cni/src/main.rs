//! `plumb-cni`: the plugin that a container runtime executes. Small and without an async runtime: it reads the request just enough to know who
//! serves it, and hands it over unchanged.
//!
//! If the network configuration names an agent (`agent_socket`), the request goes there. A DEL that the agent cannot take is queued on disk and
//! succeeds. Without an agent, `plumbd cni` replaces this process (exec): a runtime that kills the plugin kills the work with it, and no ADD is still
//! running after its DEL.

mod agent;
mod answer;
mod failpoint;
mod oneshot;
mod queue;
mod request;

use std::io::Read as _;
use std::process::ExitCode;

use answer::CniError;
use serde_json::Value;
use wire::Role;

/// More than any runtime sends. Limits input that never ends.
const INPUT_MAX: u64 = 16 * 1024 * 1024;

fn main() -> ExitCode {
    if failpoint::is_list_requested() {
        println!("{}", failpoint::ALL.join("\n"));
        return ExitCode::SUCCESS;
    }
    failpoint::hit("cni.start");
    answer::answer_even_when_panicking();
    let mut input = Vec::new();
    let served = match std::env::args().nth(1).as_deref() {
        Some("-v" | "--version") => {
            println!("{}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Some("-t") => test(&mut input),
        _ => serve(&mut input),
    };
    match served {
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
            .details("this is a CNI plugin: a container runtime executes it with the verb in CNI_COMMAND"));
    };
    let read = std::io::stdin().take(INPUT_MAX).read_to_end(input);
    read.map_err(|error| {
        CniError::new(answer::IO_FAILURE, "cannot read the network configuration").details(error.to_string())
    })?;
    failpoint::hit("cni.input-read");
    if verb == "VERSION" {
        answer::print(&format!("{}\n", answer::versions(input))).map_err(not_written)?;
        return Ok(ExitCode::SUCCESS);
    }
    let netconf: Value = serde_json::from_slice(input).map_err(|error| {
        CniError::new(answer::NOT_DECODED, "the network configuration is not JSON").details(error.to_string())
    })?;
    let role = request::role_of_process();
    match request::setting(&netconf, "agent_socket") {
        Some(socket) => hand_over(socket, role, &netconf, input),
        None => Err(oneshot::exec_plumbd(role, input)),
    }
}

/// `calico -t`: whether a call could be served now. Installers ask this before they let runtimes use the plugin.
fn test(input: &mut Vec<u8>) -> Result<ExitCode, CniError> {
    std::io::stdin().take(INPUT_MAX).read_to_end(input).map_err(|error| {
        CniError::new(answer::IO_FAILURE, "cannot read the network configuration").details(error.to_string())
    })?;
    let netconf: Value = serde_json::from_slice(input).map_err(|error| {
        CniError::new(answer::NOT_DECODED, "the network configuration is not JSON").details(error.to_string())
    })?;
    let Some(socket) = request::setting(&netconf, "agent_socket") else {
        return Err(oneshot::exec_test(input));
    };
    let reply = agent::call(socket, &request::status_of_process(&netconf)).map_err(|failure| {
        CniError::new(answer::CANNOT_ADD, "cannot reach the node's agent").details(failure)
    })?;
    answer::print(&reply.stdout).map_err(not_written)?;
    Ok(ExitCode::from(reply.exit))
}

/// Lets the agent serve the call. If it cannot, a DEL is queued; the runtime must retry everything else.
fn hand_over(socket: &str, role: Role, netconf: &Value, input: &[u8]) -> Result<ExitCode, CniError> {
    let call = request::call_of_process(role, input)?;
    let failure = match agent::call(socket, &call) {
        Ok(reply) => {
            failpoint::hit("cni.before-answer");
            answer::print(&reply.stdout).map_err(not_written)?;
            failpoint::hit("cni.answered");
            // Not a return: freeing memory piece by piece takes longer than ending the process.
            std::process::exit(reply.exit.into());
        }
        Err(failure) => failure,
    };
    match call.verb() {
        "DEL" => {
            let directory = queue::directory(netconf);
            queue::add(&directory, &call).map_err(|error| {
                let details = format!("{failure}; cannot write {}: {error}", directory.display());
                CniError::new(answer::TRY_LATER, "cannot reach the node's agent, and cannot queue the DEL")
                    .details(details)
            })?;
            eprintln!("plumb-cni: {failure}; queued the DEL in {}", directory.display());
            Ok(ExitCode::SUCCESS)
        }
        "STATUS" => Err(CniError::new(answer::CANNOT_ADD, "cannot reach the node's agent")
            .details(format!("{failure}; running pods keep their network"))),
        _ => Err(CniError::new(answer::TRY_LATER, "cannot reach the node's agent").details(failure)),
    }
}

fn not_written(error: std::io::Error) -> CniError {
    CniError::new(answer::IO_FAILURE, "cannot write the answer").details(error.to_string())
}
