//! The agent's readers of untrusted input, for the targets in `fuzz/`.

use crate::verbs::{self, NetConf};

/// Bytes from the agent's socket, with or without a frame, and the call in them.
pub fn request(data: &[u8]) {
    if let Some(call) = crate::node::request_of(data) {
        verbs::read_call(&call);
    }
}

/// A network configuration.
pub fn netconf(data: &[u8]) {
    let _ = NetConf::parse(data);
}
