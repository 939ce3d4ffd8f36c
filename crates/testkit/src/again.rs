//! A test that plays a part in another process: the test program runs itself again.
//!
//! ```text
//! if let Some(role) = testkit::role() {
//!     return writer(&role.argument);
//! }
//! let child = Process::spawn(testkit::again("module::name_of_this_test", "writer", "what it needs"));
//! ```

use std::process::{Command, Stdio};

use crate::process;

const ROLE: &str = "PLUMB_TEST_ROLE";
const ARGUMENT: &str = "PLUMB_TEST_ROLE_ARGUMENT";

/// The part to play in a process that [`again`] started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub name: String,
    pub argument: String,
}

/// The part this process has to play; `None` in the test itself.
pub fn role() -> Option<Role> {
    let name = std::env::var(ROLE).ok()?;
    Some(Role { name, argument: std::env::var(ARGUMENT).unwrap_or_default() })
}

/// A command that runs one test of this program as another process, which dies with this one.
pub fn again(test: &str, role: &str, argument: &str) -> Command {
    let this = std::env::current_exe().expect("the path of this program");
    let mut command = process::command(this);
    command.args(["--exact", "--nocapture", "--test-threads=1", test]);
    command.env(ROLE, role).env(ARGUMENT, argument).stdin(Stdio::null());
    command
}
