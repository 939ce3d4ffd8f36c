//! A synchronous rtnetlink socket: several requests in one send, answers matched by sequence number.

mod frame;

use std::io;
use std::time::{Duration, Instant};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable as _, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::HostError;
use frame::{Frame, FrameKind, Refusal};

/// The kernel answers within the send itself, so this is only a bound for the unthinkable.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// A dump that kept changing under our eyes this many times is given back as an error.
const DUMP_TRIES: usize = 20;
const KERNEL: u32 = 0;

/// A socket in the namespace of the thread that opened it. It stays there, whichever thread uses it later.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// One thing to ask of the kernel, with the words for it should it refuse.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) what: String,
    pub(crate) message: RouteNetlinkMessage,
    pub(crate) flags: u16,
}

impl Request {
    pub(crate) fn new(what: impl Into<String>, message: RouteNetlinkMessage, flags: u16) -> Request {
        Request { what: what.into(), message, flags }
    }
}

impl Netlink {
    pub(crate) fn open() -> Result<Netlink, HostError> {
        let socket = open_socket()
            .map_err(|source| HostError::Socket { what: "talk to the kernel".to_owned(), source })?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends all requests at once. The kernel works through all of them even if one fails, and nothing can come
    /// between two of them. One outcome per request.
    pub(crate) fn execute(
        &mut self,
        requests: Vec<Request>,
    ) -> Result<Vec<Result<(), HostError>>, HostError> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.sequence.wrapping_add(1);
        let last_position = requests.len() - 1;
        let mut outcomes: Vec<Result<(), HostError>> = requests.iter().map(|_| Ok(())).collect();
        let mut buffer = Vec::new();
        let mut words = Vec::with_capacity(requests.len());
        for (position, request) in requests.into_iter().enumerate() {
            // Failures are always reported, so one acknowledgement, of the last, is enough to know of all.
            let ack = if position == last_position { NLM_F_ACK } else { 0 };
            self.append(&mut buffer, request.message, request.flags | ack);
            words.push(request.what);
        }
        self.send(&buffer, &words[0])?;
        loop {
            for frame in self.receive(&words[last_position])? {
                let position = frame.sequence.wrapping_sub(first) as usize;
                let FrameKind::Answer(refusal) = frame.kind else { continue };
                let Some(what) = words.get(position) else { continue };
                if let Some(refusal) = refusal {
                    outcomes[position] = Err(refused(what.clone(), refusal));
                }
                if position == last_position {
                    return Ok(outcomes);
                }
            }
        }
    }

    /// Like [`Netlink::execute`], where the first failure is all that matters.
    pub(crate) fn execute_all(&mut self, requests: Vec<Request>) -> Result<(), HostError> {
        self.execute(requests)?.into_iter().collect()
    }

    /// Asks for one object.
    pub(crate) fn get(&mut self, request: Request) -> Result<RouteNetlinkMessage, HostError> {
        let mut buffer = Vec::new();
        let sequence = self.append(&mut buffer, request.message, request.flags);
        self.send(&buffer, &request.what)?;
        loop {
            for frame in self.receive(&request.what)? {
                match frame.kind {
                    _ if frame.sequence != sequence => {}
                    FrameKind::Answer(Some(refusal)) => return Err(refused(request.what, refusal)),
                    FrameKind::Object { kind, payload } => return decode(kind, &payload, &request.what),
                    FrameKind::Answer(None) | FrameKind::Done(_) => {}
                }
            }
        }
    }

    /// Asks for all objects that `message` selects.
    pub(crate) fn dump(
        &mut self,
        what: &str,
        message: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, HostError> {
        for _ in 0..DUMP_TRIES {
            if let Some(objects) = self.dump_once(what, message.clone())? {
                return Ok(objects);
            }
        }
        let problem = "it changed faster than it could be listed".to_owned();
        Err(HostError::Malformed { what: what.to_owned(), problem })
    }

    /// `None` if something changed while the kernel was listing: the list may have holes.
    fn dump_once(
        &mut self,
        what: &str,
        message: RouteNetlinkMessage,
    ) -> Result<Option<Vec<RouteNetlinkMessage>>, HostError> {
        let mut buffer = Vec::new();
        let sequence = self.append(&mut buffer, message, NLM_F_DUMP);
        self.send(&buffer, what)?;
        let (mut objects, mut interrupted) = (Vec::new(), false);
        loop {
            for frame in self.receive(what)? {
                if frame.sequence != sequence {
                    continue;
                }
                interrupted |= frame.interrupted;
                match frame.kind {
                    FrameKind::Object { kind, payload } => objects.push(decode(kind, &payload, what)?),
                    FrameKind::Answer(Some(refusal)) | FrameKind::Done(Some(refusal)) => {
                        return Err(refused(what.to_owned(), refusal));
                    }
                    FrameKind::Done(None) => return Ok((!interrupted).then_some(objects)),
                    FrameKind::Answer(None) => {}
                }
            }
        }
    }

    fn append(&mut self, buffer: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags | NLM_F_REQUEST;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let start = buffer.len();
        // Each message starts at a multiple of four.
        buffer.resize(start + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut buffer[start..]);
        self.sequence
    }

    fn send(&self, buffer: &[u8], what: &str) -> Result<(), HostError> {
        let sent = self.socket.send(buffer, 0);
        sent.map(|_| ()).map_err(|source| HostError::Socket { what: what.to_owned(), source })
    }

    fn receive(&self, what: &str) -> Result<Vec<Frame>, HostError> {
        self.wait_for_answer(what)?;
        let (bytes, sender) = self
            .socket
            .recv_from_full()
            .map_err(|source| HostError::Socket { what: what.to_owned(), source })?;
        if sender.port_number() != KERNEL {
            return Ok(Vec::new());
        }
        frame::split(&bytes).map_err(|problem| HostError::Malformed { what: what.to_owned(), problem })
    }

    fn wait_for_answer(&self, what: &str) -> Result<(), HostError> {
        let deadline = Instant::now() + ANSWER_WAIT;
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).expect("ten seconds fit");
            match rustix::event::poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Err(HostError::NoAnswer { what: what.to_owned() }),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => {
                    let source = io::Error::from(errno);
                    return Err(HostError::Socket { what: what.to_owned(), source });
                }
            }
        }
    }
}

fn open_socket() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(KERNEL, 0))?;
    // The kernel's own words for a refusal, and no copy of the request beside them.
    socket.set_ext_ack(true)?;
    socket.set_cap_ack(true)?;
    // Without this the kernel ignores what a dump asks for and lists everything.
    socket.set_netlink_get_strict_chk(true)?;
    Ok(socket)
}

fn refused(what: String, refusal: Refusal) -> HostError {
    let source = io::Error::from_raw_os_error(refusal.errno);
    HostError::Refused { what, detail: refusal.detail, source }
}

fn decode(kind: u16, payload: &[u8], what: &str) -> Result<RouteNetlinkMessage, HostError> {
    let mut header = NetlinkHeader::default();
    header.message_type = kind;
    RouteNetlinkMessage::deserialize(&header, payload)
        .map_err(|error| HostError::Malformed { what: what.to_owned(), problem: error.to_string() })
}
