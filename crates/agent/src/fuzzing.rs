//! What a runtime and whoever reaches the socket sends, as a fuzz target: `fuzz/` builds this program a second time, around this function.
//!
//! Frames as they arrive on the agent's socket and, in the calls among them, the environment and the network configuration; and
//! network configurations alone, which need no frame around them.

use libfuzzer_sys::fuzz_target;

use crate::cni::{self, NetConf};

fuzz_target!(|data: &[u8]| {
    let Some((sort, bytes)) = data.split_first() else { return };
    if sort % 2 == 0 {
        let _ = NetConf::parse(bytes);
        return;
    }
    if let Some(call) = crate::node::request_of(bytes) {
        cni::read_call(&call);
    }
});
