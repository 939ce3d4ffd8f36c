//! Places at which a test can kill or hold a program, to check that the next start finds what it left.
//!
//! `PLUMB_FAILPOINT=NAME` or `NAME:abort` ends the process there, as `kill -9` would. `NAME:pause` holds the thread, so that a test can observe and
//! kill. `NAME:wait:FILE` holds it until the file exists. `list` makes a program print its names. A number at the end of a name (`repair.begun.3`) means
//! the third time. Release builds have no failpoints.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const VARIABLE: &str = "PLUMB_FAILPOINT";
const LIST: &str = "list";

/// What happens at a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Abort,
    Pause,
    WaitFor(PathBuf),
}

#[derive(Debug, PartialEq, Eq)]
struct Armed {
    name: String,
    /// From 1.
    time: usize,
    action: Action,
}

/// Whether this build has failpoints.
pub const ARE_BUILT: bool = cfg!(debug_assertions);

/// Whether the program must print its names.
pub fn is_list_requested() -> bool {
    ARE_BUILT && std::env::var(VARIABLE).is_ok_and(|setting| setting == LIST)
}

/// The action, if the environment names this point and the count is reached.
pub fn armed(name: &str) -> Option<&'static Action> {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    static PASSED: AtomicUsize = AtomicUsize::new(0);
    if !ARE_BUILT {
        return None;
    }
    let armed = ARMED.get_or_init(|| parse(&std::env::var(VARIABLE).ok()?)).as_ref()?;
    if armed.name != name || PASSED.fetch_add(1, Ordering::Relaxed) + 1 < armed.time {
        return None;
    }
    Some(&armed.action)
}

/// Marks a place. Does nothing unless the environment names it.
pub fn hit(name: &str) {
    if let Some(action) = armed(name) {
        act(name, action);
    }
}

/// Ends the process, or holds this thread.
#[cold]
pub fn act(name: &str, action: &Action) {
    eprintln!("failpoint {name} reached");
    match action {
        Action::Abort => std::process::abort(),
        Action::Pause => hold(|| false),
        Action::WaitFor(file) => hold(|| file.exists()),
    }
}

fn hold(is_over: impl Fn() -> bool) {
    while !is_over() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn parse(setting: &str) -> Option<Armed> {
    let (name, action) = match setting.split_once(':') {
        None => (setting, Action::Abort),
        Some((name, "abort")) => (name, Action::Abort),
        Some((name, "pause")) => (name, Action::Pause),
        Some((name, action)) => (name, Action::WaitFor(action.strip_prefix("wait:")?.into())),
    };
    let numbered = name.rsplit_once('.').and_then(|(name, time)| Some((name, time.parse().ok()?)));
    let (name, time) = numbered.unwrap_or((name, 1));
    (!name.is_empty()).then(|| Armed { name: name.to_owned(), time, action })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_names_a_point_a_time_and_what_to_do() {
        let armed =
            |name: &str, time: usize, action: Action| Some(Armed { name: name.to_owned(), time, action });
        assert_eq!(parse("add.start"), armed("add.start", 1, Action::Abort));
        assert_eq!(parse("add.start:abort"), armed("add.start", 1, Action::Abort));
        assert_eq!(parse("repair.begun.3"), armed("repair.begun", 3, Action::Abort));
        assert_eq!(parse("gc.end:pause"), armed("gc.end", 1, Action::Pause));
        assert_eq!(parse("gc.end:wait:/a:b"), armed("gc.end", 1, Action::WaitFor("/a:b".into())));
        for wrong in ["", "add.start:", "add.start:explode", ":abort"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
