//! `plumb completion`: a script that completes plumb's commands in a shell.

use std::io::Write as _;

use clap_complete::Shell;

use crate::cli::{self, Completion};
use crate::failure::Failures;

pub(crate) fn run(completion: &Completion) -> Result<(), Failures> {
    // Into memory first: the generator does not expect a pipe to close.
    let mut script = Vec::new();
    clap_complete::generate(completion.shell, &mut cli::command(), "plumb", &mut script);
    script.extend_from_slice(with_names(completion.shell).as_bytes());
    std::io::stdout().write_all(&script)?;
    Ok(())
}

/// What a script needs to ask this program for names of resources, kinds and labs.
fn with_names(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("completion/names.bash"),
        Shell::Zsh => include_str!("completion/names.zsh"),
        Shell::Fish => include_str!("completion/names.fish"),
        _ => "",
    }
}
