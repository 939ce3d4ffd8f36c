//! Listens to what the kernel announces, on a thread of its own: whoever works on the network causes announcements with nearly
//! every step, and must not be interrupted by each of them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::Socket;
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use plan::Notice;
use plan::between::BetweenNotice;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use tokio::sync::mpsc;

use crate::HostError;
use crate::between::guard::{RulesTouched, read_touched};
use crate::netlink::frame::{FrameKind, split};
use crate::netlink::message::{Attributes, read_u32};
use crate::netlink::numbers::*;
use crate::nftables::{is_of_nftables, touched};
use crate::objects::{NETCONF_HEADER, read_address, read_link, read_neighbour, read_pod_route};

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
/// `NFNLGRP_NFTABLES`.
const GROUP_RULES: u32 = 7;
/// Room for more than ten thousand announcements. The kernel takes the memory only when it is needed.
const BUFFER: usize = 8 * 1024 * 1024;
const RECEIVE_MAX: usize = 32 * 1024;
/// How long a bunch of announcements is waited for once the first has come.
const BUNCH: Duration = Duration::from_millis(5);
/// So that nobody gets too much at once, however much is going on.
const MESSAGES_AT_ONCE: usize = 512;
const THREAD: &str = "announcements";

/// Announcements about links, addresses, routes, neighbours and settings of the namespace it was opened in, from
/// then on: open it first, look at everything next, then listen, and nothing is missed.
#[derive(Debug)]
pub struct Monitor<N = Notice> {
    heard: mpsc::Receiver<Result<Vec<N>, HostError>>,
    stop: Arc<OwnedFd>,
}

impl Monitor {
    pub fn open() -> Result<Monitor, HostError> {
        Monitor::start(
            NETLINK_ROUTE,
            &GROUPS,
            Reading { read: read_notice, overrun: || Notice::Overrun, own_port: None },
        )
    }
}

impl Monitor<BetweenNotice> {
    /// For announcements about routes between nodes. What a [`crate::Host`] with this port does to routes and neighbours is not
    /// announced: it knows that itself, and by the time it would hear of it something else may be wanted.
    pub fn open_between(own_port: u32) -> Result<Monitor<BetweenNotice>, HostError> {
        let (read, overrun) = (crate::between::read::notice, || BetweenNotice::Overrun);
        // Nought stands for the kernel itself.
        let own_port = Some(own_port).filter(|port| *port != 0);
        Monitor::start(NETLINK_ROUTE, &GROUPS_BETWEEN, Reading { read, overrun, own_port })
    }
}

impl Monitor<RulesTouched> {
    /// For changes of our table of nftables, by whomever.
    pub fn open_rules() -> Result<Monitor<RulesTouched>, HostError> {
        let reading = Reading { read: read_touched, overrun: || RulesTouched, own_port: None };
        Monitor::start(NETLINK_NETFILTER, &[GROUP_RULES], reading)
    }
}

impl Monitor<TableTouched> {
    /// For changes of any table of nftables of the family `inet`, except those of the socket with this port: what a [`crate::nftables::Nftables`]
    /// does it knows itself.
    pub fn open_tables(own_port: u32) -> Result<Monitor<TableTouched>, HostError> {
        let read = |kind, body: &[u8]| touched(kind, body).map(TableTouched::Table);
        let own_port = Some(own_port).filter(|port| *port != 0);
        let reading = Reading { read, overrun: || TableTouched::Any, own_port };
        Monitor::start(NETLINK_NETFILTER, &[GROUP_RULES], reading)
    }
}

/// Somebody changed something in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableTouched {
    Table(String),
    /// There was too much to hear it all.
    Any,
}

impl<N: Send + 'static> Monitor<N> {
    fn start(protocol: isize, groups: &[u32], reading: Reading<N>) -> Result<Monitor<N>, HostError> {
        let socket = open_socket(protocol, groups).map_err(failed)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stop = Arc::new(stop.map_err(|errno| failed(errno.into()))?);
        // One bunch ahead; what comes meanwhile waits in the socket.
        let (tell, heard) = mpsc::channel(1);
        let ear = Ear { socket, stop: Arc::clone(&stop), received: vec![0; RECEIVE_MAX], reading };
        let thread = std::thread::Builder::new().name(THREAD.to_owned()).spawn(move || ear.listen(&tell));
        thread.map_err(failed)?;
        Ok(Monitor { heard, stop })
    }

    /// Waits for announcements and hands over those that have come, some milliseconds after the first and not without
    /// bound. May be cancelled.
    pub async fn next(&mut self, each: impl FnMut(N)) -> Result<(), HostError> {
        let ended = || failed(io::ErrorKind::BrokenPipe.into());
        let heard = self.heard.recv().await.unwrap_or_else(|| Err(ended()))?;
        heard.into_iter().for_each(each);
        Ok(())
    }
}

impl<N> Drop for Monitor<N> {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }
}

/// What the thread has.
struct Ear<N> {
    socket: Socket,
    stop: Arc<OwnedFd>,
    received: Vec<u8>,
    reading: Reading<N>,
}

/// How announcements are understood.
struct Reading<N> {
    read: fn(u16, &[u8]) -> Option<N>,
    overrun: fn() -> N,
    /// Of the socket whose changes of routes, neighbours and nftables are no news.
    own_port: Option<u32>,
}

impl<N> Ear<N> {
    /// Until nobody wants to hear more, or nothing can be heard any more.
    fn listen(mut self, tell: &mpsc::Sender<Result<Vec<N>, HostError>>) {
        let mut is_more = false;
        loop {
            if !is_more {
                if !self.wait() {
                    return;
                }
                std::thread::sleep(BUNCH);
            }
            let mut notices = Vec::new();
            let heard = self.hand_over(&mut |notice| notices.push(notice));
            is_more = heard.as_ref().is_ok_and(|count| *count == MESSAGES_AT_ONCE);
            let is_over = heard.is_err();
            if (is_over || !notices.is_empty()) && tell.blocking_send(heard.map(|_| notices)).is_err() {
                return;
            }
            if is_over {
                return;
            }
        }
    }

    /// Whether there is something to hear. If not, it is over.
    fn wait(&self) -> bool {
        loop {
            let mut events =
                [PollFd::new(&self.socket, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
            match poll(&mut events, None) {
                Err(Errno::INTR) => {}
                Err(_) => return false,
                Ok(_) => return events[1].revents().is_empty(),
            }
        }
    }

    /// What has come so far. Says how many messages that were.
    fn hand_over(&mut self, each: &mut impl FnMut(N)) -> Result<usize, HostError> {
        for count in 0..MESSAGES_AT_ONCE {
            match rustix::net::recv(&self.socket, &mut self.received[..], RecvFlags::empty()) {
                Ok((length, _)) => {
                    let received = self.received.get(..length).unwrap_or_default();
                    if !self.reading.notices(received, each) {
                        each((self.reading.overrun)());
                    }
                }
                Err(Errno::AGAIN) => return Ok(count),
                Err(Errno::NOBUFS) => each((self.reading.overrun)()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        Ok(MESSAGES_AT_ONCE)
    }
}

fn open_socket(protocol: isize, groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
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

fn failed(source: io::Error) -> HostError {
    HostError::Socket { what: "listen to the kernel's announcements".to_owned(), source }
}

impl<N> Reading<N> {
    /// Whether it could be read. If not: whatever it was, it is not known now.
    fn notices(&self, bytes: &[u8], each: &mut impl FnMut(N)) -> bool {
        let Ok(frames) = split(bytes) else { return false };
        for frame in frames {
            if let FrameKind::Object { kind, payload } = frame.kind
                && !self.is_own(kind, frame.port)
                && let Some(notice) = (self.read)(kind, payload)
            {
                each(notice);
            }
        }
        true
    }

    fn is_own(&self, kind: u16, port: u32) -> bool {
        let is_of_routes = matches!(kind, RTM_NEWROUTE | RTM_DELROUTE | RTM_NEWNEIGH | RTM_DELNEIGH);
        self.own_port == Some(port) && (is_of_routes || is_of_nftables(kind))
    }
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
        RTM_NEWROUTE | RTM_DELROUTE => Some(Notice::Route { route: read_pod_route(kind, body)? }),
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
            let reading = Reading { read: read_notice, overrun: || Notice::Overrun, own_port: Some(0) };
            reading.notices(&body, &mut |_| {});
        }
    }
}
