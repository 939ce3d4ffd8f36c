//! A synchronous rtnetlink socket: several requests in one send, answers matched by sequence number.

pub(crate) mod frame;
pub(crate) mod message;
pub(crate) mod numbers;

use std::cell::Cell;
use std::io;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::HostError;
use frame::{FrameKind, Refusal};
pub(crate) use message::Message;
use numbers::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};

/// The kernel answers within the send itself, so this is only a bound for the unthinkable.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// A dump that kept changing under our eyes this many times is given back as an error.
const DUMP_TRIES: usize = 20;
/// Whoever works in a pod's namespace needs a handful of these, and a pod can make as many as it likes.
const POD_LIST_MAX: usize = 16_384;
const KERNEL: u32 = 0;
const HEADER: usize = 16;
/// The kernel never sends more at once.
const RECEIVE_MAX: usize = 64 * 1024;

/// A socket in the namespace of the thread that opened it. It stays there, whichever thread uses it later.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
    /// How many objects a list may have, if it is not this node's own but a pod's to fill.
    list_max: Option<usize>,
}

thread_local! {
    /// One for all sockets of a thread: each pod has a socket, and fresh memory is dearer than the answers in it.
    static RECEIVED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The thread's room for answers, for as long as somebody reads.
struct Received(Vec<u8>);

impl Received {
    fn take() -> Received {
        let mut room = RECEIVED.take();
        room.resize(RECEIVE_MAX, 0);
        Received(room)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        RECEIVED.set(std::mem::take(&mut self.0));
    }
}

/// One thing to ask of the kernel, with the words for it should it refuse.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) what: String,
    pub(crate) message: Message,
    pub(crate) flags: u16,
}

/// What the kernel listed.
#[derive(Debug)]
pub(crate) struct List<T> {
    pub(crate) objects: Vec<T>,
    /// There is more.
    pub(crate) is_cut: bool,
}

/// What one request led to. An object is there if it was asked for.
pub(crate) type Outcome = Result<Option<Message>, HostError>;

impl Request {
    pub(crate) fn new(what: impl Into<String>, message: Message, flags: u16) -> Request {
        Request { what: what.into(), message, flags }
    }
}

impl Netlink {
    pub(crate) fn open() -> Result<Netlink, HostError> {
        Netlink::open_to(NETLINK_ROUTE)
    }

    /// To another part of the kernel than that for links, addresses and routes.
    pub(crate) fn open_to(protocol: isize) -> Result<Netlink, HostError> {
        let socket = open_socket(protocol)
            .map_err(|source| HostError::Socket { what: "talk to the kernel".to_owned(), source })?;
        Ok(Netlink { socket, sequence: 0, list_max: None })
    }

    /// The same in a pod's namespace: longer lists than these are not read to their end, and are an error.
    pub(crate) fn open_in_pod() -> Result<Netlink, HostError> {
        Ok(Netlink { list_max: Some(POD_LIST_MAX), ..Netlink::open()? })
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// By which announcements name this socket.
    pub(crate) fn port(&self) -> Result<u32, HostError> {
        let mut address = SocketAddr::new(0, 0);
        let asked = self.socket.get_address(&mut address);
        asked.map_err(|source| HostError::Socket {
            what: "ask for a socket's own number".to_owned(),
            source,
        })?;
        Ok(address.port_number())
    }

    /// Sends all requests at once. The kernel works through all of them even if one fails. One outcome per request.
    pub(crate) fn transact(&mut self, requests: Vec<Request>) -> Result<Vec<Outcome>, HostError> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.sequence.wrapping_add(1);
        let last_position = requests.len() - 1;
        let mut outcomes: Vec<Outcome> = requests.iter().map(|_| Ok(None)).collect();
        let mut buffer = Vec::with_capacity(requests.len() * 128);
        for (position, request) in requests.iter().enumerate() {
            // Failures are always reported, so one acknowledgement, of the last, is enough to know of all.
            let ack = if position == last_position { NLM_F_ACK } else { 0 };
            self.append(&mut buffer, &request.message, request.flags | ack);
        }
        self.send(&buffer, &requests[0].what)?;
        let mut room = Received::take();
        loop {
            let what = &requests[last_position].what;
            let received = self.receive(what, &mut room)?;
            for frame in frame::split(received).map_err(|problem| malformed(what, problem))? {
                let position = frame.sequence.wrapping_sub(first) as usize;
                let Some(request) = requests.get(position) else { continue };
                match frame.kind {
                    FrameKind::Object { kind, payload } => {
                        outcomes[position] = Ok(Some(Message { kind, body: payload.to_vec() }));
                        continue;
                    }
                    FrameKind::Answer(Some(refusal)) => {
                        outcomes[position] = Err(refused(request.what.clone(), refusal));
                    }
                    FrameKind::Answer(None) | FrameKind::Done(_) => {}
                }
                if position == last_position {
                    return Ok(outcomes);
                }
            }
        }
    }

    /// Where the first failure is all that matters.
    pub(crate) fn execute_all(&mut self, requests: Vec<Request>) -> Result<(), HostError> {
        self.transact(requests)?.into_iter().try_for_each(|outcome| outcome.map(|_| ()))
    }

    /// Asks for one object.
    pub(crate) fn get(&mut self, request: Request) -> Result<Message, HostError> {
        let what = request.what.clone();
        let outcome = self.transact(vec![request])?.pop().unwrap_or(Ok(None))?;
        outcome.ok_or_else(|| malformed(&what, "there is no object in it".to_owned()))
    }

    /// Asks for all objects that `message` selects. `read` picks what is wanted of each.
    pub(crate) fn dump<T>(
        &mut self,
        what: &str,
        message: &Message,
        read: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<Vec<T>, HostError> {
        let max = self.list_max.unwrap_or(usize::MAX);
        let list = self.dump_at_most(max, what, message, read)?;
        if list.is_cut { Err(HostError::TooMany { what: what.to_owned(), max }) } else { Ok(list.objects) }
    }

    /// The same for at most so many: where the kernel has more, nothing further is read. This socket is then good for
    /// questions about single objects, but not for another list.
    pub(crate) fn dump_at_most<T>(
        &mut self,
        max: usize,
        what: &str,
        message: &Message,
        mut read: impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<List<T>, HostError> {
        for _ in 0..DUMP_TRIES {
            if let Some(objects) = self.dump_once(max, what, message, &mut read)? {
                return Ok(objects);
            }
        }
        Err(malformed(what, "it changed faster than it could be listed".to_owned()))
    }

    /// `None` if something changed while the kernel was listing: the list may have holes.
    fn dump_once<T>(
        &mut self,
        max: usize,
        what: &str,
        message: &Message,
        read: &mut impl FnMut(u16, &[u8]) -> Option<T>,
    ) -> Result<Option<List<T>>, HostError> {
        let mut buffer = Vec::new();
        let sequence = self.append(&mut buffer, message, NLM_F_DUMP);
        self.send(&buffer, what)?;
        let (mut objects, mut interrupted, mut seen) = (Vec::new(), false, 0);
        let mut room = Received::take();
        loop {
            let received = self.receive(what, &mut room)?;
            for frame in frame::split(received).map_err(|problem| malformed(what, problem))? {
                if frame.sequence != sequence {
                    continue;
                }
                interrupted |= frame.interrupted;
                match frame.kind {
                    FrameKind::Object { .. } if seen >= max => {
                        return Ok(Some(List { objects, is_cut: true }));
                    }
                    FrameKind::Object { kind, payload } => {
                        seen += 1;
                        objects.extend(read(kind, payload));
                    }
                    FrameKind::Answer(Some(refusal)) | FrameKind::Done(Some(refusal)) => {
                        return Err(refused(what.to_owned(), refusal));
                    }
                    FrameKind::Done(None) => {
                        return Ok((!interrupted).then_some(List { objects, is_cut: false }));
                    }
                    FrameKind::Answer(None) => {}
                }
            }
        }
    }

    /// One message with its header. Gives back by which number its answer goes.
    pub(crate) fn append(&mut self, buffer: &mut Vec<u8>, message: &Message, flags: u16) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADER + message.body.len()).expect("a message of ours is small");
        buffer.extend(length.to_ne_bytes());
        buffer.extend(message.kind.to_ne_bytes());
        buffer.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        buffer.extend(self.sequence.to_ne_bytes());
        buffer.extend([0; 4]);
        buffer.extend(&message.body);
        // Each message starts at a multiple of four.
        buffer.resize(buffer.len().next_multiple_of(4), 0);
        self.sequence
    }

    pub(crate) fn send(&self, buffer: &[u8], what: &str) -> Result<(), HostError> {
        let sent = self.socket.send(buffer, 0);
        sent.map(|_| ()).map_err(|source| HostError::Socket { what: what.to_owned(), source })
    }

    fn receive<'a>(&self, what: &str, room: &'a mut Received) -> Result<&'a [u8], HostError> {
        loop {
            match rustix::net::recv(&self.socket, &mut room.0[..], RecvFlags::empty()) {
                Ok((length, _)) => return Ok(room.0.get(..length).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(HostError::NoAnswer { what: what.to_owned() }),
                Err(errno) => {
                    return Err(HostError::Socket { what: what.to_owned(), source: errno.into() });
                }
            }
        }
    }
}

fn open_socket(protocol: isize) -> io::Result<Socket> {
    let socket = Socket::new(protocol)?;
    // From now on nobody but the kernel can send to it. The kernel gives it an address by the way.
    socket.connect(&SocketAddr::new(KERNEL, 0))?;
    // The kernel's own words for a refusal, and no copy of the request beside them.
    socket.set_ext_ack(true)?;
    socket.set_cap_ack(true)?;
    // Without this the kernel ignores what a dump asks for and lists everything.
    socket.set_netlink_get_strict_chk(true)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WAIT))?;
    Ok(socket)
}

fn refused(what: String, refusal: Refusal) -> HostError {
    let source = io::Error::from_raw_os_error(refusal.errno);
    HostError::Refused { what, detail: refusal.detail, source }
}

fn malformed(what: &str, problem: String) -> HostError {
    HostError::Malformed { what: what.to_owned(), problem }
}
