//! `plumb lab`: runs `plumb-lab`, which lies beside this program. Most machines never need a lab, so it is not part of this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::{Failure, Failures};

const PROGRAM: &str = "plumb-lab";

/// Takes this process's place, so that signals, the terminal and the exit code are its own. Does not return unless it fails.
pub(super) fn run(words: &[OsString]) -> Result<(), Failures> {
    let program = program();
    let error = Command::new(&program).args(words).exec();
    Err(Failure::new(format!("cannot run {}", program.display()))
        .caused_by(&error)
        .hint("install plumb-lab into the directory of plumb, or into one of PATH")
        .into())
}

/// Beside this program, else wherever PATH leads.
fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(PROGRAM)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PROGRAM.into())
}
