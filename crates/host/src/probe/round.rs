//! Ways under way: who was asked when, and who has answered.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use rustix::io::Errno;

use super::packet::{self, Answer};
use super::socket::{self, Socket};
use super::{Outcome, Pace, Way};
use crate::HostError;

/// All ways with their sockets: one per source and version of the protocol.
pub(super) struct Round<'a> {
    ways: &'a [Way],
    sockets: BTreeMap<(bool, Option<IpAddr>), Socket>,
    trips: Vec<Trip>,
    cookie: u64,
}

/// One way under way.
#[derive(Clone, Debug, Default)]
struct Trip {
    tries: u32,
    sent_at: Option<Instant>,
    /// What came of the last request. Only an answer is for good: a neighbour may be slow to be found.
    last: Option<Outcome>,
}

impl<'a> Round<'a> {
    pub(super) fn open(ways: &'a [Way]) -> Result<Round<'a>, HostError> {
        let mut sockets = BTreeMap::new();
        let mut trips = vec![Trip::default(); ways.len()];
        for (way, trip) in ways.iter().zip(&mut trips) {
            if way.source.is_some_and(|source| source.is_ipv4() != way.target.is_ipv4()) {
                trip.last = Some(not_sent("source and target are of different versions"));
                continue;
            }
            let of = (way.target.is_ipv4(), way.source);
            if sockets.contains_key(&of) {
                continue;
            }
            match open(way) {
                Ok(socket) => drop(sockets.insert(of, socket)),
                Err(errno @ (Errno::PERM | Errno::ACCESS)) => {
                    return Err(socket::refused("send echo requests", errno));
                }
                // Not this node's address (any more), or no IPv6 here: that is an outcome of this way alone.
                Err(errno) => trip.last = Some(not_sent(errno)),
            }
        }
        Ok(Round { ways, sockets, trips, cookie: packet::cookie() })
    }

    /// Asks those that have not answered, and waits. `false` if nobody was left to ask.
    pub(super) fn ask(&mut self, pace: &Pace) -> Result<bool, HostError> {
        let mut is_asked = false;
        for number in 0..self.ways.len() {
            if self.trips[number].is_answered() || !self.send(number) {
                continue;
            }
            is_asked = true;
            let deadline = Instant::now() + pace.pause;
            // Also when there is nothing to wait for: it is the pause between packets.
            while Instant::now() < deadline {
                self.listen(deadline)?;
            }
        }
        let deadline = Instant::now() + pace.patience;
        while self.trips.iter().any(Trip::is_waiting) && Instant::now() < deadline {
            self.listen(deadline)?;
        }
        Ok(is_asked)
    }

    pub(super) fn outcomes(self) -> Vec<Outcome> {
        self.trips.into_iter().map(Trip::outcome).collect()
    }

    /// Whether there is a way to ask on.
    fn send(&mut self, number: usize) -> bool {
        let way = self.ways[number];
        let Some(socket) = self.sockets.get(&(way.target.is_ipv4(), way.source)) else { return false };
        let sequence = u16::try_from(number).expect("there are no more ways than sequence numbers");
        let request = packet::request(way.target.is_ipv4(), sequence, self.cookie);
        let trip = &mut self.trips[number];
        trip.tries += 1;
        trip.sent_at = Some(Instant::now());
        trip.last = socket.send(&request, way.target).err().map(not_sent);
        true
    }

    fn listen(&mut self, deadline: Instant) -> Result<(), HostError> {
        let left = deadline.saturating_duration_since(Instant::now());
        for (answer, from) in socket::receive(self.sockets.values(), left)? {
            self.take(answer, from);
        }
        Ok(())
    }

    fn take(&mut self, answer: Answer, from: IpAddr) {
        let (sequence, asked) = match answer {
            Answer::Echo { sequence, cookie } if cookie == self.cookie => (sequence, from),
            Answer::Unreachable { sequence, identifier, target }
                if identifier == packet::identifier(self.cookie) =>
            {
                (sequence, target)
            }
            _ => return,
        };
        let number = usize::from(sequence);
        let Some(trip) = self.trips.get_mut(number).filter(|trip| !trip.is_answered()) else { return };
        if self.ways[number].target != asked {
            return;
        }
        trip.last = Some(match answer {
            Answer::Echo { .. } => Outcome::Answered {
                after: trip.sent_at.map(|at| at.elapsed()).unwrap_or_default(),
                tries: trip.tries,
            },
            Answer::Unreachable { .. } => Outcome::Unreachable { said_by: from },
        });
    }
}

impl Trip {
    fn is_answered(&self) -> bool {
        self.last.as_ref().is_some_and(Outcome::is_answered)
    }

    fn is_waiting(&self) -> bool {
        self.last.is_none() && self.tries > 0
    }

    fn outcome(self) -> Outcome {
        self.last.unwrap_or(Outcome::Silent { tries: self.tries })
    }
}

fn open(way: &Way) -> Result<Socket, Errno> {
    let socket = Socket::open(way.target.is_ipv4())?;
    way.source.map_or(Ok(()), |source| socket.bind(source)).map(|()| socket)
}

fn not_sent(problem: impl std::fmt::Display) -> Outcome {
    Outcome::NotSent { problem: problem.to_string() }
}
