//! Transactions: many changes in one step of the kernel, or none of them.

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force};

use super::Nftables;
use super::change::{Sent, messages};
use super::numbers::*;
use super::object::Step;
use crate::HostError;
use crate::netlink::Message;
use crate::netlink::frame::{FrameKind, Refusal, split};
use crate::netlink::numbers::NLM_F_ACK;

/// Not for a family, and for this part of netfilter: the last two bytes, in the order of the network.
const BATCH_HEADER: [u8; 4] = [0, 0, 0, NFNL_SUBSYS_NFTABLES as u8];
/// After one refusal others follow, of what depends on it.
const REFUSALS_MAX: usize = 100;
/// What the kernel keeps of a socket's buffer for itself, and more.
const SEND_RESERVE: usize = 4096;
/// The kernel never sends more at once.
const RECEIVE_MAX: usize = 64 * 1024;

/// Why a transaction changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// Since the generation that the caller knows, somebody changed some rules.
    #[error("the nftables rules of this node changed in between")]
    Moved,
    /// The first one is the cause, and the others may follow from it.
    #[error("the kernel refused to {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<RefusedChange>),
    #[error(transparent)]
    Host(#[from] HostError),
}

/// A step that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {}{}", std::io::Error::from_raw_os_error(*.errno), .detail.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
pub struct RefusedChange {
    /// Its position in the transaction. `None`: the transaction as a whole.
    pub position: Option<usize>,
    pub what: String,
    pub errno: i32,
    pub detail: Option<String>,
}

/// A transaction as it is sent.
struct Batch {
    bytes: Vec<u8>,
    /// The sequence number of the message that opens it.
    begin: u32,
    /// Of each further message, the step that it belongs to.
    steps: Vec<usize>,
}

impl Nftables {
    /// Applies all steps at once. With a generation, only if the kernel still has that one.
    pub fn apply(&mut self, steps: &[Step], generation: Option<u32>) -> Result<(), TransactionError> {
        let Some(batch) = self.batch(steps, generation) else { return Ok(()) };
        self.make_room(batch.bytes.len());
        let what = "change nftables rules";
        self.netlink.send(&batch.bytes, what)?;
        let refusals = self.answers(&batch, what)?;
        let of_begin = refusals.iter().find(|(sequence, _)| *sequence == batch.begin);
        if let Some((_, refusal)) = of_begin
            && is_moved(refusal.errno)
        {
            return Err(TransactionError::Moved);
        }
        if refusals.is_empty() {
            return Ok(());
        }
        let refused = refusals.into_iter().map(|(sequence, refusal)| {
            let message = sequence.wrapping_sub(batch.begin).checked_sub(1);
            let position = message.and_then(|message| batch.steps.get(message as usize).copied());
            let step = position.and_then(|position| steps.get(position));
            let what = step.map_or_else(|| what.to_owned(), |step| step.change.to_string());
            RefusedChange { position, what, errno: refusal.errno, detail: refusal.detail }
        });
        let mut refused: Vec<RefusedChange> = refused.collect();
        refused.sort_by_key(|refused| refused.position.map_or(usize::MAX, |position| position));
        Err(TransactionError::Refused(refused))
    }

    /// `None` without a step.
    fn batch(&mut self, steps: &[Step], generation: Option<u32>) -> Option<Batch> {
        let mut bytes = Vec::new();
        let begin = Message::new(NFNL_MSG_BATCH_BEGIN, &BATCH_HEADER);
        let begin =
            generation.iter().fold(begin, |begin, generation| begin.with_be32(NFNL_BATCH_GENID, *generation));
        let begin = self.netlink.append(&mut bytes, &begin, 0);
        let mut of_steps = Vec::new();
        // One message behind, because the last one asks for an answer.
        let mut held: Option<Sent> = None;
        for (position, step) in steps.iter().enumerate() {
            messages(&step.table, &step.change, position, |sent| {
                of_steps.push(position);
                if let Some((message, flags)) = held.replace(sent) {
                    self.netlink.append(&mut bytes, &message, flags);
                }
            });
        }
        let (last, flags) = held?;
        self.netlink.append(&mut bytes, &last, flags | NLM_F_ACK);
        let end = Message::new(NFNL_MSG_BATCH_END, &BATCH_HEADER);
        self.netlink.append(&mut bytes, &end, 0);
        Some(Batch { bytes, begin, steps: of_steps })
    }

    /// The kernel takes a transaction only as a whole, in one packet.
    fn make_room(&mut self, length: usize) {
        let wanted = length + SEND_RESERVE;
        if wanted <= self.room {
            return;
        }
        // Where it is refused, so is what is sent next, which tells more.
        let socket = self.netlink.socket();
        if set_socket_send_buffer_size_force(socket, wanted).is_ok()
            || set_socket_send_buffer_size(socket, wanted).is_ok()
        {
            self.room = wanted;
        }
    }

    /// What was refused, with sequence numbers. Refusals come first, and at last the answer that was asked for.
    fn answers(&mut self, batch: &Batch, what: &str) -> Result<Vec<(u32, Refusal)>, HostError> {
        let mut refusals = Vec::new();
        let mut has_lost = false;
        let last = u32::try_from(batch.steps.len()).unwrap_or(u32::MAX);
        loop {
            let received = match self.receive(has_lost) {
                Ok(received) => received,
                // More refusals than the socket holds: the first ones are there, and the answer may be lost.
                Err(Errno::NOBUFS) => {
                    has_lost = true;
                    continue;
                }
                Err(Errno::AGAIN) if has_lost && !refusals.is_empty() => return Ok(refusals),
                Err(Errno::AGAIN) => return Err(HostError::NoAnswer { what: what.to_owned() }),
                Err(errno) => {
                    return Err(HostError::Socket { what: what.to_owned(), source: errno.into() });
                }
            };
            let frames = split(&received)
                .map_err(|problem| HostError::Malformed { what: what.to_owned(), problem })?;
            for frame in frames {
                let FrameKind::Answer(answer) = frame.kind else { continue };
                let place = frame.sequence.wrapping_sub(batch.begin);
                if place > last {
                    continue;
                }
                // A refusal of the whole comes alone, or as the last one.
                let is_last = place == last || (place == 0 && answer.is_some());
                refusals.extend(
                    answer.filter(|_| refusals.len() < REFUSALS_MAX).map(|refusal| (frame.sequence, refusal)),
                );
                if is_last {
                    return Ok(refusals);
                }
            }
        }
    }

    fn receive(&mut self, is_over: bool) -> Result<Vec<u8>, Errno> {
        let flags = if is_over { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let mut room = vec![0; RECEIVE_MAX];
        loop {
            match rustix::net::recv(self.netlink.socket(), &mut room[..], flags) {
                Ok((length, _)) => {
                    room.truncate(length);
                    return Ok(room);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn is_moved(errno: i32) -> bool {
    // The kernel's own number for "try again", which no program is meant to see.
    const ERESTART: i32 = 85;
    [ERESTART, Errno::AGAIN.raw_os_error(), Errno::BUSY.raw_os_error()].contains(&errno)
}
