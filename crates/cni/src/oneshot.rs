//! Becomes `plumbd cni`, with the same environment and with the input put back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::answer::{self, CniError};
use crate::failpoint;
use crate::request::Role;

const PLUMBD: &str = "plumbd";

/// A pipe holds this much without a reader.
const PIPE_MAX: usize = 64 * 1024;

/// Does not return unless it fails.
pub(crate) fn become_plumbd(role: Role, input: &[u8]) -> CniError {
    let stdin = match input_again(input) {
        Ok(stdin) => stdin,
        Err(error) => {
            return CniError::new(answer::IO_FAILURE, "cannot hand the network configuration to plumbd")
                .details(error.to_string());
        }
    };
    let program = plumbd();
    failpoint::hit("cni.before-exec");
    let error = Command::new(&program).args(["cni", "--role", role.as_str()]).stdin(stdin).exec();
    let message = format!("cannot run {}", program.display());
    let hint = "plumbd must lie beside plumb-cni or in PATH";
    CniError::new(answer::TRY_LATER, message).details(format!("{error}; {hint}"))
}

/// Beside this program, else wherever PATH leads.
fn plumbd() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PLUMBD)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PLUMBD.into())
}

/// What was read can be read once more: from a pipe, or from a file without a name if it is too much for one.
fn input_again(input: &[u8]) -> io::Result<Stdio> {
    if input.len() <= PIPE_MAX {
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(input)?;
        return Ok(Stdio::from(reader));
    }
    let mut file = nameless_file()?;
    file.write_all(input)?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

fn nameless_file() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("plumb-cni-input-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_amount_of_input_arrives() {
        for length in [0, 1, PIPE_MAX, PIPE_MAX + 1, 300_000] {
            let input = vec![b'x'; length];
            let output =
                Command::new("cat").stdin(input_again(&input).unwrap()).output().expect("cat can be run");
            assert!(output.stdout == input, "{length}");
        }
    }
}
