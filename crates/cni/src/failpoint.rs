//! The failpoints of `plumb-cni`, see [`wire::failpoint`]. `plumbd cni` and the agent read the same variable, so other names are ignored here.

pub(crate) use wire::failpoint::is_list_requested;

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

/// Marks a place.
pub(crate) fn hit(name: &str) {
    debug_assert!(ALL.contains(&name), "{name} is not in the list");
    wire::failpoint::hit(name);
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
