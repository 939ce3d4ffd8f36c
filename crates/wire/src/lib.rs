//! The protocol of a node's agent: one request and one reply per connection, each a frame of JSON.
//!
//! | request | JSON | reply's `stdout` |
//! |---|---|---|
//! | a CNI call | `{"version":1,"role":…,"environment":…,"config":…}` | what the plugin prints |
//! | identity | `{"version":1,"ask":"identity"}` | an [`Identity`] |
//! | evidence | `{"version":1,"ask":"evidence"}` | a bundle |
//! | probe addresses | `{"version":1,"ask":"probe","addresses":[…]}` | a bundle |
//! | repair | `{"version":1,"ask":"repair","works":[…]}` | a list of results |
//!
//! The plugin links this crate and nothing else of ours, so it stays small: types, text and frames, no socket. A call has no `ask`: plugins and
//! queued DELs from before there was one must still be understood.

// What is read here was written by strangers: nothing may be cut at a place that need not be there.
#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod call;
pub mod failpoint;
mod frame;
mod request;

use std::hash::Hasher as _;

pub use call::{Call, Role};
pub use frame::{FrameError, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, body_length, frame};
pub use request::{BadRequest, Identity, Reply, Request};

/// Increased when an older program could misread a request.
pub const PROTOCOL: u32 = 1;
/// Where an agent listens unless it is configured otherwise.
pub const AGENT_SOCKET: &str = "/run/plumb/agent.sock";
/// Where an agent keeps its journal and its queue unless it is configured otherwise.
pub const STATE_DIR: &str = "/var/lib/plumb";
/// The directory of queued DELs, in the state directory.
pub const QUEUE_DIR: &str = "queue";
/// The versions of the CNI specification that the plugin and the agent support, oldest first.
pub const CNI_VERSIONS: [&str; 7] =
    ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", CNI_VERSION_NEWEST];
pub const CNI_VERSION_NEWEST: &str = "1.1.0";

/// The file name of a queued DEL, without its extension. The same request gets the same name, so repeating a DEL does not fill the disk.
pub fn queue_name(request: &[u8]) -> String {
    // FNV-1a: good enough to tell requests of one node apart.
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(request);
    format!("del-{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fnv_1a() {
        assert_eq!(queue_name(b""), "del-cbf29ce484222325");
        assert_eq!(queue_name(b"foobar"), "del-85944171f73967e8");
    }
}
