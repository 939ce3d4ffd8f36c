//! What strangers send, for the fuzz targets in `fuzz/`: their builds alone have this module.

use crate::netlink::frame::{self, FrameKind};

/// What the kernel sends: frames, and in them links, addresses, routes and neighbours.
pub fn netlink(bytes: &[u8]) {
    for frame in frame::split(bytes).into_iter().flatten() {
        let FrameKind::Object { kind, payload } = frame.kind else { continue };
        let _ = crate::objects::read_link(kind, payload);
        let _ = crate::objects::read_address(kind, payload);
        let _ = crate::objects::read_pod_route(kind, payload);
        let _ = crate::objects::is_local_route(payload);
        let _ = crate::objects::read_neighbour(kind, payload);
        let _ = crate::objects::read_permanent_neighbour(kind, payload);
        let _ = crate::objects::read_proxy_delay(kind, payload);
        let _ = crate::survey::read::address(kind, payload);
        let _ = crate::survey::read::route(kind, payload);
        let _ = crate::survey::read::neighbour(kind, payload);
        let _ = crate::between::read::notice(kind, payload);
        crate::nftables::read_anything(kind, payload);
    }
    crate::probe::read_anything(bytes);
}

/// What BIRD answers, as `birdc` would print it.
pub fn bird(bytes: &[u8]) -> String {
    crate::bird::printed_of(bytes)
}

/// What a runtime answers: its sandboxes, and where the namespace of one is.
pub fn cri(bytes: &[u8]) {
    crate::cri::read_anything(bytes);
}
