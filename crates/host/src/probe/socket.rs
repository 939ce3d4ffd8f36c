//! Sockets for echo requests.
//!
//! A raw one where this process may have it, because it also hears who says "unreachable"; else the one that Linux has for
//! ordinary users' ping, where `net.ipv4.ping_group_range` allows it (not even root has it in a new namespace).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, ipproto, recvfrom, sendto,
    socket_with,
};

use super::packet::{self, Answer};
use crate::HostError;

/// More than any answer to a packet of ours has.
const PACKET_BYTES_MAX: usize = 2048;
/// How many packets are taken from one socket before the next one has its turn: a raw one hears other pings, too.
const PACKETS_AT_ONCE: usize = 256;

#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    is_v4: bool,
    is_raw: bool,
}

impl Socket {
    pub(super) fn open(is_v4: bool) -> Result<Socket, Errno> {
        let (family, protocol) = if is_v4 {
            (AddressFamily::INET, ipproto::ICMP)
        } else {
            (AddressFamily::INET6, ipproto::ICMPV6)
        };
        let open =
            |kind| socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, Some(protocol));
        match open(SocketType::RAW) {
            Ok(fd) => Ok(Socket { fd, is_v4, is_raw: true }),
            Err(_) => open(SocketType::DGRAM).map(|fd| Socket { fd, is_v4, is_raw: false }),
        }
    }

    pub(super) fn bind(&self, source: IpAddr) -> Result<(), Errno> {
        bind(&self.fd, &SocketAddr::new(source, 0))
    }

    pub(super) fn send(&self, request: &[u8], target: IpAddr) -> Result<(), Errno> {
        match sendto(&self.fd, request, SendFlags::empty(), &SocketAddr::new(target, 0)) {
            // A full queue loses packets, like any other place on the way.
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// What has arrived, and from whom.
    fn arrived(&self) -> Vec<(Answer, IpAddr)> {
        let mut buffer = [0; PACKET_BYTES_MAX];
        let mut answers = Vec::new();
        for _ in 0..PACKETS_AT_ONCE {
            let (length, from) = match recvfrom(&self.fd, &mut buffer, RecvFlags::empty()) {
                Ok((length, _, from)) => (length, from),
                Err(Errno::AGAIN) => break,
                // An error that arrived as one, and not as a packet.
                Err(_) => continue,
            };
            let Some(from) = from.and_then(|from| SocketAddr::try_from(from).ok()) else { continue };
            let packet = buffer.get(..length).unwrap_or_default();
            let packet =
                if self.is_raw && self.is_v4 { packet::after_v4_header(packet) } else { Some(packet) };
            answers.extend(
                packet.and_then(|packet| packet::read(self.is_v4, packet)).map(|answer| (answer, from.ip())),
            );
        }
        answers
    }
}

/// Waits until something arrives on one of these, for no longer than that.
pub(super) fn receive<'a>(
    sockets: impl Iterator<Item = &'a Socket>,
    patience: Duration,
) -> Result<Vec<(Answer, IpAddr)>, HostError> {
    let sockets: Vec<&Socket> = sockets.collect();
    let mut polled: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::new(&socket.fd, PollFlags::IN)).collect();
    let patience = Timespec::try_from(patience).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
    match poll(&mut polled, Some(&patience)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(refused("wait for answers to echo requests", errno)),
    }
    let ready = sockets.iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
    Ok(ready.flat_map(|(socket, _)| socket.arrived()).collect())
}

pub(super) fn refused(what: &str, errno: Errno) -> HostError {
    HostError::Refused { what: what.to_owned(), detail: None, source: errno.into() }
}
