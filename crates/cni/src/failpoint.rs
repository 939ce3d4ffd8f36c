//! Places at which a test may end this program, to see that what it leaves behind is found again.
//!
//! `PLUMB_FAILPOINT=NAME` or `NAME:abort` ends it there, as `kill -9` would; `NAME:pause` holds it until it is killed;
//! `list` prints the names. The variable is the agent's, too, and goes on to `plumbd cni`: other names mean nothing here.

use std::sync::OnceLock;

const VARIABLE: &str = "PLUMB_FAILPOINT";
const LIST: &str = "list";

pub(crate) const ALL: [&str; 12] = [
    "cni.start",
    "cni.input-read",
    "cni.before-connect",
    "cni.connected",
    "cni.sent",
    "cni.before-answer",
    "cni.answered",
    "cni.before-queue",
    "cni.queue-written",
    "cni.queue-renamed",
    "cni.queue-synced",
    "cni.before-exec",
];

pub(crate) fn is_list_wanted() -> bool {
    setting() == Some(LIST)
}

/// Marks a place. Does nothing unless the environment names it.
pub(crate) fn hit(name: &str) {
    debug_assert!(ALL.contains(&name), "{name} is not in the list");
    let Some((armed, action)) =
        setting().map(|setting| setting.split_once(':').unwrap_or((setting, "abort")))
    else {
        return;
    };
    if armed != name {
        return;
    }
    eprintln!("plumb-cni: failpoint {name} reached");
    match action {
        "pause" => loop {
            std::thread::park();
        },
        _ => std::process::abort(),
    }
}

fn setting() -> Option<&'static str> {
    static SETTING: OnceLock<Option<String>> = OnceLock::new();
    SETTING.get_or_init(|| std::env::var(VARIABLE).ok().filter(|setting| !setting.is_empty())).as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_passed_somewhere() {
        let sources = [
            include_str!("main.rs"),
            include_str!("agent.rs"),
            include_str!("queue.rs"),
            include_str!("oneshot.rs"),
        ]
        .concat();
        for name in ALL {
            assert_eq!(sources.matches(&format!("hit(\"{name}\")")).count(), 1, "{name}");
        }
    }
}
