//! See the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    agent::run()
}
