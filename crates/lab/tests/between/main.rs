//! Pods of different nodes: over every sort of network, and while things happen.

#[expect(dead_code, reason = "shared with the tests of hostile pods, which use more of it")]
#[path = "../guard/packet.rs"]
mod packet;
#[path = "../guard/raw.rs"]
mod raw;

mod address;
mod arrivals;
mod bird;
mod crashes;
mod hostile;
mod killed;
mod modes;
mod partition;
mod scene;
mod strangers;
mod traffic;
