//! Asks other hosts whether they are there: echo requests (ICMP) from an address of this node. An answer proves both ways: it came
//! back to the very address that it was asked from.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, ipproto, recvfrom, sendto,
    socket_with,
};

use crate::HostError;

/// Whom to ask, and from which address of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Echo {
    pub from: IpAddr,
    pub to: IpAddr,
}

const HEADER: usize = 8;
const ANSWER_MAX: usize = 1500;
/// Told apart from those of others by this and by who answers.
static IDENTIFIER: AtomicU16 = AtomicU16::new(0);
/// One lost packet is no proof, so they are asked again meanwhile.
const ASK_AGAIN: Duration = Duration::from_millis(150);

/// Those that answered until the time was up; ends before if all did. One that cannot be asked, as nobody has that address or no
/// route leads there, does not answer. Blocks. It is an error if packets of this kind may not be sent at all.
pub fn echo(asked: &[Echo], patience: Duration) -> Result<BTreeSet<Echo>, HostError> {
    let identifier = identifier();
    let mut sources: Vec<(IpAddr, OwnedFd)> = Vec::new();
    for from in asked.iter().map(|echo| echo.from).collect::<BTreeSet<_>>() {
        match open(from) {
            Ok(socket) => sources.push((from, socket)),
            Err(Errno::PERM | Errno::ACCESS) => return Err(refused(from, Errno::PERM.into())),
            Err(_) => {}
        }
    }
    let is_wanted = |echo: &&Echo| sources.iter().any(|(from, _)| *from == echo.from);
    let wanted: BTreeSet<Echo> = asked.iter().filter(is_wanted).copied().collect();
    let mut answered = BTreeSet::new();
    let end = Instant::now() + patience;
    let mut ask_at = Instant::now();
    while answered.len() < wanted.len() && Instant::now() < end {
        if ask_at <= Instant::now() {
            for echo in wanted.difference(&answered) {
                let socket = sources.iter().find(|(from, _)| *from == echo.from);
                socket.iter().for_each(|(_, socket)| ask(socket, echo.to, identifier));
            }
            ask_at = Instant::now() + ASK_AGAIN;
        }
        wait(&sources, ask_at.min(end)).map_err(|source| refused(asked[0].from, source))?;
        for (from, socket) in &sources {
            let heard = hear(socket, identifier).into_iter().map(|to| Echo { from: *from, to });
            answered.extend(heard.filter(|echo| wanted.contains(echo)));
        }
    }
    Ok(answered)
}

fn refused(from: IpAddr, source: io::Error) -> HostError {
    HostError::Refused { what: format!("ask other hosts from {from}"), detail: None, source }
}

fn identifier() -> u16 {
    let process = u16::try_from(std::process::id() & 0xffff).unwrap_or_default();
    process.wrapping_add(IDENTIFIER.fetch_add(1, Ordering::Relaxed).wrapping_mul(257))
}

fn open(from: IpAddr) -> Result<OwnedFd, Errno> {
    let (family, protocol) = match from {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    Ok(socket)
}

/// What cannot be sent is not answered either.
fn ask(socket: &OwnedFd, to: IpAddr, identifier: u16) {
    let question = question(identifier, to.is_ipv4());
    let _ = sendto(socket, &question, SendFlags::empty(), &SocketAddr::new(to, 0));
}

fn wait(sources: &[(IpAddr, OwnedFd)], until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
    let mut waiting: Vec<PollFd<'_>> =
        sources.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN)).collect();
    match poll(&mut waiting, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Who has answered by now.
fn hear(socket: &OwnedFd, identifier: u16) -> Vec<IpAddr> {
    let mut heard = Vec::new();
    let mut packet = [0; ANSWER_MAX];
    while let Ok((length, _, Some(who))) = recvfrom(socket, &mut packet[..], RecvFlags::empty()) {
        let Ok(who) = SocketAddr::try_from(who) else { continue };
        let packet = packet.get(..length).unwrap_or_default();
        if is_answer(packet, identifier, who.is_ipv4()) {
            heard.push(who.ip());
        }
    }
    heard
}

fn question(identifier: u16, is_ipv4: bool) -> [u8; HEADER] {
    const ECHO_REQUEST: u8 = 8;
    const ECHO_REQUEST_V6: u8 = 128;
    let mut packet = [0; HEADER];
    packet[0] = if is_ipv4 { ECHO_REQUEST } else { ECHO_REQUEST_V6 };
    packet[4..6].copy_from_slice(&identifier.to_be_bytes());
    if is_ipv4 {
        // The kernel does it by itself for IPv6 only.
        let sum = checksum(&packet);
        packet[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// IPv4 gives the packet with its own header.
fn is_answer(packet: &[u8], identifier: u16, is_ipv4: bool) -> bool {
    const ECHO_REPLY: u8 = 0;
    const ECHO_REPLY_V6: u8 = 129;
    let start = if is_ipv4 { usize::from(packet.first().unwrap_or(&0) & 0xf) * 4 } else { 0 };
    let Some(header) = packet.get(start..).and_then(|rest| rest.get(..HEADER)) else { return false };
    let kind = if is_ipv4 { ECHO_REPLY } else { ECHO_REPLY_V6 };
    header[0] == kind && header[4..6] == identifier.to_be_bytes()
}

fn checksum(packet: &[u8]) -> u16 {
    let words = packet
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or_default()])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !u16::try_from(sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_question_adds_up() {
        let packet = question(0x1234, true);
        assert_eq!(packet, [8, 0, 0xe5, 0xcb, 0x12, 0x34, 0, 0]);
        assert_eq!(checksum(&packet), 0, "whoever gets it adds everything up");
        assert_eq!(question(0x1234, false), [128, 0, 0, 0, 0x12, 0x34, 0, 0]);
    }

    #[test]
    fn only_our_own_answer_counts() {
        let mut packet = [0; 28];
        packet[0] = 0x45;
        packet[24..26].copy_from_slice(&7_u16.to_be_bytes());
        assert!(is_answer(&packet, 7, true));
        assert!(!is_answer(&packet, 8, true));
        packet[20] = 8;
        assert!(!is_answer(&packet, 7, true), "our own question on the way in");
        assert!(is_answer(&[129, 0, 0, 0, 0, 7, 0, 0], 7, false));
    }

    #[test]
    fn this_machine_answers_itself_and_nobody_else_does() {
        let local = |last: u8| IpAddr::from([127, 0, 0, last]);
        let there = Echo { from: local(1), to: local(2) };
        // An address that nobody here has.
        let nowhere = Echo { from: [192, 0, 2, 1].into(), to: local(2) };
        match echo(&[there, nowhere], Duration::from_secs(10)) {
            Ok(answered) => assert_eq!(answered, [there].into()),
            Err(error) => {
                testkit::skip("this_machine_answers_itself_and_nobody_else_does", &error.to_string())
            }
        }
    }

    proptest! {
        #[test]
        fn any_packet_can_be_heard(packet in prop::collection::vec(any::<u8>(), 0..64), is_ipv4 in any::<bool>()) {
            let _ = is_answer(&packet, 7, is_ipv4);
            let _ = checksum(&packet);
        }
    }
}
