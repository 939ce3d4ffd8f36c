//! Listens to what the kernel announces.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use plan::between::BetweenNotice;
use plan::{Notice, ObservedRoute};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::HostError;
use crate::netlink::frame::{FrameKind, split};
use crate::netlink::message::{Attributes, read_u32};
use crate::netlink::numbers::*;
use crate::objects::{NETCONF_HEADER, read_address, read_link, read_neighbour, read_route};

const GROUPS: [u32; 8] = [
    RTNLGRP_LINK,
    RTNLGRP_NEIGH,
    RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE,
    RTNLGRP_IPV4_NETCONF,
    RTNLGRP_IPV6_NETCONF,
];
/// What concerns routes between nodes.
const GROUPS_BETWEEN: [u32; 6] = [
    RTNLGRP_LINK,
    RTNLGRP_NEIGH,
    RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV6_IFADDR,
    RTNLGRP_IPV6_ROUTE,
];
/// Room for more than ten thousand announcements. The kernel takes the memory only when it is needed.
const BUFFER: usize = 8 * 1024 * 1024;
const RECEIVE_MAX: usize = 32 * 1024;
/// How long a bunch of announcements is waited for once the first has come.
const BUNCH: Duration = Duration::from_millis(5);
/// So that who listens can also do something, however much is going on.
const MESSAGES_AT_ONCE: usize = 512;

/// Announcements about links, addresses, routes, neighbours and settings of the namespace it was opened in, from
/// then on: open it first, look at everything next, then listen, and nothing is missed.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    received: Vec<u8>,
}

impl Monitor {
    /// Needs a tokio runtime around it.
    pub fn open() -> Result<Monitor, HostError> {
        Monitor::open_for(&GROUPS)
    }

    /// The same, for announcements about routes between nodes.
    pub fn open_between() -> Result<Monitor, HostError> {
        Monitor::open_for(&GROUPS_BETWEEN)
    }

    fn open_for(groups: &[u32]) -> Result<Monitor, HostError> {
        let socket = open_socket(groups).map_err(failed)?;
        Ok(Monitor { socket, received: vec![0; RECEIVE_MAX] })
    }

    /// Waits for announcements and hands over those that have come, some milliseconds after the first and not without
    /// bound. May be cancelled.
    pub async fn next(&mut self, each: impl FnMut(Notice)) -> Result<(), HostError> {
        self.next_as(read_notice, || Notice::Overrun, each).await
    }

    /// The same, as far as routes between nodes are concerned.
    pub async fn next_between(&mut self, each: impl FnMut(BetweenNotice)) -> Result<(), HostError> {
        self.next_as(crate::between::read::notice, || BetweenNotice::Overrun, each).await
    }

    async fn next_as<N>(
        &mut self,
        read: impl Fn(u16, &[u8]) -> Option<N>,
        overrun: impl Fn() -> N,
        mut each: impl FnMut(N),
    ) -> Result<(), HostError> {
        if self.hand_over(&read, &overrun, &mut each)? == 0 {
            // Only while there is nothing: whoever makes a bunch of changes would wake us up for each of them.
            let first = register(&self.socket).map_err(failed)?;
            drop(first.readable().await.map_err(failed)?);
            drop(first);
            tokio::time::sleep(BUNCH).await;
            self.hand_over(&read, &overrun, &mut each)?;
        }
        Ok(())
    }

    /// What has come so far. Says how many messages that were.
    fn hand_over<N>(
        &mut self,
        read: &impl Fn(u16, &[u8]) -> Option<N>,
        overrun: &impl Fn() -> N,
        each: &mut impl FnMut(N),
    ) -> Result<usize, HostError> {
        for count in 0..MESSAGES_AT_ONCE {
            match rustix::net::recv(&self.socket, &mut self.received[..], RecvFlags::empty()) {
                Ok((length, _)) => {
                    if !read_notices(&self.received[..length], read, each) {
                        each(overrun());
                    }
                }
                Err(Errno::AGAIN) => return Ok(count),
                Err(Errno::NOBUFS) => each(overrun()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        Ok(MESSAGES_AT_ONCE)
    }
}

fn open_socket(groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    // More than an ordinary process may have; with less there are more overruns, and no harm otherwise.
    if set_socket_recv_buffer_size_force(&socket, BUFFER).is_err() {
        set_socket_recv_buffer_size(&socket, BUFFER)?;
    }
    socket.set_non_blocking(true)?;
    socket.bind_auto()?;
    for group in groups {
        socket.add_membership(*group)?;
    }
    Ok(socket)
}

#[expect(unsafe_code, reason = "tokio leaves it to us that a descriptor stays open while it waits for it")]
fn register(socket: &Socket) -> io::Result<AsyncFd<BorrowedFd<'_>>> {
    // SAFETY: the socket owns its one descriptor, and is borrowed, so not closed, for as long as the `AsyncFd` lives.
    let registered = unsafe { AsyncFd::register_with_interest(socket.as_fd(), Interest::READABLE) };
    registered.map_err(io::Error::from)
}

fn failed(source: io::Error) -> HostError {
    HostError::Socket { what: "listen to the kernel's announcements".to_owned(), source }
}

/// Whether it could be read. If not: whatever it was, it is not known now.
fn read_notices<N>(bytes: &[u8], read: &impl Fn(u16, &[u8]) -> Option<N>, each: &mut impl FnMut(N)) -> bool {
    let Ok(frames) = split(bytes) else { return false };
    for frame in frames {
        if let FrameKind::Object { kind, payload } = frame.kind
            && let Some(notice) = read(kind, payload)
        {
            each(notice);
        }
    }
    true
}

fn read_notice(kind: u16, body: &[u8]) -> Option<Notice> {
    match kind {
        RTM_NEWLINK | RTM_DELLINK => {
            let link = read_link(kind, body)?;
            let gone = kind == RTM_DELLINK;
            Some(Notice::Link { index: link.index, name: link.name, alias: link.alias, gone })
        }
        RTM_NEWADDR | RTM_DELADDR => {
            let (index, address) = read_address(kind, body)?;
            Some(Notice::Address { index, address })
        }
        RTM_NEWROUTE | RTM_DELROUTE => {
            let ObservedRoute { device, route } = read_route(kind, body)?;
            Some(Notice::Route { device, route })
        }
        RTM_NEWNEIGH | RTM_DELNEIGH => {
            let (index, address, _) = read_neighbour(kind, body)?;
            Some(Notice::Neighbour { index, address })
        }
        RTM_NEWNETCONF => {
            let mut attributes = Attributes::after(body, NETCONF_HEADER);
            let index = attributes.find(|(kind, _)| *kind == NETCONFA_IFINDEX).map(|(_, value)| value)?;
            match read_u32(index, 0)? {
                NETCONFA_IFINDEX_ALL => Some(Notice::NodeSetting),
                // What new devices start with.
                NETCONFA_IFINDEX_DEFAULT => None,
                index => Some(Notice::Setting { index }),
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_announcement_can_be_read(
            kind in 16u16..90,
            body in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            let _ = read_notice(kind, &body);
            read_notices(&body, &read_notice, &mut |_| {});
        }
    }
}
