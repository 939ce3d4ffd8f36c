//! `plumb completion`: a script that completes plumb's commands in a shell.

use std::io::Write as _;

use crate::cli::{self, Completion};
use crate::failure::Failures;

pub(crate) fn run(completion: &Completion) -> Result<(), Failures> {
    // Into memory first: the generator does not expect a pipe to close.
    let mut script = Vec::new();
    clap_complete::generate(completion.shell, &mut cli::command(), "plumb", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}
