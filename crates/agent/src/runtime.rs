//! The container runtime of this node.

use std::path::PathBuf;

use host::cri::{RuntimeClient, USUAL_SOCKETS};

/// A runtime whose socket was configured, or the first of the usual sockets that exists.
#[derive(Debug)]
pub(crate) enum Runtime {
    Named(RuntimeClient),
    FirstOf(Vec<PathBuf>),
}

impl Runtime {
    /// The first with a socket in a usual place.
    pub(crate) fn usual() -> Runtime {
        Runtime::FirstOf(USUAL_SOCKETS.map(PathBuf::from).into())
    }

    /// Searched again each time: after a boot, most runtimes start after the agent.
    pub(crate) fn client(&self) -> Option<RuntimeClient> {
        match self {
            Runtime::Named(client) => Some(client.clone()),
            Runtime::FirstOf(sockets) => {
                sockets.iter().find(|socket| socket.exists()).map(RuntimeClient::new)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_starts_later_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("first.sock"), directory.path().join("second.sock"));
        let runtime = Runtime::FirstOf(vec![first.clone(), second.clone()]);
        let socket = || runtime.client().map(|client| client.socket().to_owned());
        assert_eq!(socket(), None);
        std::fs::write(&second, "").unwrap();
        assert_eq!(socket(), Some(second));
        std::fs::write(&first, "").unwrap();
        assert_eq!(socket(), Some(first));
    }

    #[test]
    fn a_configured_runtime_is_used_although_its_socket_is_missing() {
        let runtime = Runtime::Named(RuntimeClient::new("/nowhere/cri.sock"));
        assert!(runtime.client().is_some());
    }
}
