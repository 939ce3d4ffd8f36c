//! Replaces this process with `plumbd cni`, with the same environment and the same input.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use wire::Role;

use crate::answer::{self, CniError};
use crate::failpoint;

const PLUMBD: &str = "plumbd";

/// How much a pipe holds without a reader.
const PIPE_MAX: usize = 64 * 1024;

/// Lets `plumbd` test whether the network configuration leads to a store that is ready. Returns only if that cannot be started.
pub(crate) fn exec_test(input: &[u8]) -> CniError {
    exec(&["cni", "--test"], input)
}

/// Returns only if it fails.
pub(crate) fn exec_plumbd(role: Role, input: &[u8]) -> CniError {
    exec(&["cni", "--role", role.as_str()], input)
}

fn exec(arguments: &[&str], input: &[u8]) -> CniError {
    let stdin = match input_as_stdin(input) {
        Ok(stdin) => stdin,
        Err(error) => {
            return CniError::new(answer::IO_FAILURE, "cannot pass the network configuration to plumbd")
                .details(error.to_string());
        }
    };
    let program = plumbd();
    failpoint::hit("cni.before-exec");
    let error = Command::new(&program).args(arguments).stdin(stdin).exec();
    let message = format!("cannot run {}", program.display());
    let hint = "install plumbd in the directory of plumb-cni or in PATH";
    CniError::new(answer::TRY_LATER, message).details(format!("{error}; {hint}"))
}

/// In the directory of this program, or in PATH.
fn plumbd() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PLUMBD)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PLUMBD.into())
}

/// A pipe with the input, or a memory file if it is too long for one.
fn input_as_stdin(input: &[u8]) -> io::Result<Stdio> {
    if input.len() <= PIPE_MAX {
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(input)?;
        return Ok(Stdio::from(reader));
    }
    let mut file = memory_file()?;
    file.write_all(input)?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

fn memory_file() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("plumb-cni-input", rustix::fs::MemfdFlags::CLOEXEC)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_amount_of_input_arrives() {
        for length in [0, 1, PIPE_MAX, PIPE_MAX + 1, 300_000] {
            let input = vec![b'x'; length];
            let output =
                Command::new("cat").stdin(input_as_stdin(&input).unwrap()).output().expect("cat can be run");
            assert!(output.stdout == input, "{length}");
        }
    }
}
