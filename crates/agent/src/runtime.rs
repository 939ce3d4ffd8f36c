//! Which container runtime to ask.

use std::path::PathBuf;

use host::cri::{RuntimeClient, USUAL_SOCKETS};

/// The runtime of this node: one whose socket was named, or the first of those that are there when it is asked.
#[derive(Debug)]
pub(crate) enum Runtime {
    Named(RuntimeClient),
    FirstOf(Vec<PathBuf>),
}

impl Runtime {
    /// Whichever has its socket in a usual place.
    pub(crate) fn usual() -> Runtime {
        Runtime::FirstOf(USUAL_SOCKETS.map(PathBuf::from).into())
    }

    /// Looked for anew each time: a runtime may come up after the agent, and most do after a boot.
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
    fn a_runtime_that_comes_up_later_is_asked_then() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("first.sock"), folder.path().join("second.sock"));
        let runtime = Runtime::FirstOf(vec![first.clone(), second.clone()]);
        let socket = || runtime.client().map(|client| client.socket().to_owned());
        assert_eq!(socket(), None);
        std::fs::write(&second, "").unwrap();
        assert_eq!(socket(), Some(second));
        std::fs::write(&first, "").unwrap();
        assert_eq!(socket(), Some(first));
    }

    #[test]
    fn one_that_was_named_is_asked_also_while_it_is_not_there() {
        let runtime = Runtime::Named(RuntimeClient::new("/nowhere/cri.sock"));
        assert!(runtime.client().is_some());
    }
}
