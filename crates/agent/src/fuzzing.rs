//! The agent's readers of untrusted input, for the target in `fuzz/`.

use crate::verbs::{self, NetConf};

/// Bytes from the agent's socket with or without a frame, and the call in them; or a network configuration alone.
pub fn request(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    if kind % 2 == 0 {
        let _ = NetConf::parse(bytes);
        return;
    }
    if let Some(call) = crate::node::request_of(bytes) {
        verbs::read_call(&call);
    }
}
