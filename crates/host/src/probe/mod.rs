//! Asks other hosts whether they are there: echo requests (ICMP) from the network namespace of the calling thread.
//!
//! It sends packets, so nobody does it without a reason. What goes out is bounded: a few requests per way, one after the
//! other with a pause in between, and none any more to whoever has answered.
//!
//! ```text
//!   answered = echo(&[Echo { from, to }], patience)     which of these answer, to the very address they were asked from
//!   outcomes = send(&[Way::to(address)], &Pace::default())     what came of each, and the kernel chooses where from
//! ```

mod packet;
mod round;
mod socket;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::HostError;
use round::Round;

/// More ways at once are refused: requests are told apart by a number of 16 bits.
pub const WAYS_MAX: usize = 1 << 16;

/// Whom to ask, and from which address of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Echo {
    pub from: IpAddr,
    pub to: IpAddr,
}

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    pub target: IpAddr,
    /// An address of this namespace; `None` leaves it to the kernel.
    pub source: Option<IpAddr>,
}

/// How many packets, and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Requests to one that does not answer.
    pub tries: u32,
    /// Between two packets, whoever they go to.
    pub pause: Duration,
    /// How long the answers to one round of requests are waited for.
    pub patience: Duration,
}

/// What came of one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered {
        after: Duration,
        /// Which request it was, from 1 on.
        tries: u32,
    },
    /// Nothing came back.
    Silent { tries: u32 },
    /// Somebody on the way (or the target) said that it cannot be reached.
    Unreachable { said_by: IpAddr },
    /// The kernel did not send: no route, an address that is not this node's, or a rule against it.
    NotSent { problem: String },
}

/// One lost packet is no proof, so they are asked again meanwhile.
const ASK_AGAIN: Duration = Duration::from_millis(150);

/// Those that answered until the time was up; ends before if all did. One that cannot be asked, as nobody has that address or no
/// route leads there, does not answer. Blocks. It is an error if packets of this kind may not be sent at all.
pub fn echo(asked: &[Echo], patience: Duration) -> Result<BTreeSet<Echo>, HostError> {
    let ways: Vec<Way> = asked.iter().map(|echo| Way { target: echo.to, source: Some(echo.from) }).collect();
    let tries = patience.as_millis().div_ceil(ASK_AGAIN.as_millis());
    let pace = Pace {
        tries: u32::try_from(tries).unwrap_or(u32::MAX).max(1),
        pause: Duration::ZERO,
        patience: patience.min(ASK_AGAIN),
    };
    let outcomes = send(&ways, &pace)?;
    let answered = asked.iter().zip(outcomes).filter(|(_, outcome)| outcome.is_answered());
    Ok(answered.map(|(echo, _)| *echo).collect())
}

/// Sends echo requests on each way until it is answered or the tries are used up. One outcome per way, in their order.
/// Blocks. Fails only if no request can be made at all, as without the right to it.
pub fn send(ways: &[Way], pace: &Pace) -> Result<Vec<Outcome>, HostError> {
    if ways.len() > WAYS_MAX {
        let what = format!("probe {} ways at once, more than {WAYS_MAX}", ways.len());
        return Err(socket::refused(&what, rustix::io::Errno::INVAL));
    }
    let mut round = Round::open(ways)?;
    for _ in 0..pace.tries {
        if !round.ask(pace)? {
            break;
        }
    }
    Ok(round.outcomes())
}

impl Way {
    pub fn to(target: IpAddr) -> Way {
        Way { target, source: None }
    }
}

impl Default for Pace {
    /// Three requests within three seconds, and at most 200 packets a second.
    fn default() -> Pace {
        Pace { tries: 3, pause: Duration::from_millis(5), patience: Duration::from_secs(1) }
    }
}

impl Outcome {
    pub fn is_answered(&self) -> bool {
        matches!(self, Outcome::Answered { .. })
    }
}

/// Packets that a fuzz target made up.
#[cfg(fuzzing)]
pub(crate) fn read_anything(bytes: &[u8]) {
    for is_v4 in [true, false] {
        let _ = packet::read(is_v4, bytes);
        let _ = packet::after_v4_header(bytes).and_then(|rest| packet::read(is_v4, rest));
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::netns::tests::new_namespace;

    /// A namespace of its own, where a few addresses are set up; `None` where that cannot be had.
    fn in_a_namespace<T: Send>(test: &str, act: impl FnOnce() -> T + Send) -> Option<T> {
        if !rustix::process::geteuid().is_root() {
            testkit::skip(test, "it needs root, to make a network namespace");
            return None;
        }
        let prepared = || {
            run("ip link set lo up");
            run("ip address add 192.0.2.1/32 dev lo");
            run("ip address add 192.0.2.2/32 dev lo");
            run("ip address add 2001:db8::1/128 dev lo nodad");
            act()
        };
        Some(new_namespace().visit(prepared).unwrap())
    }

    fn run(words: &str) {
        let mut words = words.split(' ');
        let status = Command::new(words.next().unwrap()).args(words.clone()).status().unwrap();
        assert!(status.success(), "{:?}", words.collect::<Vec<_>>());
    }

    fn way(target: &str, source: Option<&str>) -> Way {
        Way { target: target.parse().unwrap(), source: source.map(|text| text.parse().unwrap()) }
    }

    /// Short, because nothing here takes longer than a moment but what never comes.
    const PACE: Pace =
        Pace { tries: 2, pause: Duration::from_millis(1), patience: Duration::from_millis(500) };

    #[test]
    fn who_is_there_answers() {
        let echoes = in_a_namespace("who_is_there_answers", || {
            let ways = [
                way("192.0.2.1", None),
                way("2001:db8::1", None),
                way("192.0.2.2", Some("192.0.2.1")),
                way("192.0.2.1", Some("192.0.2.9")),
                way("203.0.113.1", None),
                way("192.0.2.1", Some("2001:db8::1")),
            ];
            // Answers come at once, but on a busy machine nobody promises when.
            let patient = Pace { patience: Duration::from_secs(20), ..PACE };
            send(&ways, &patient).unwrap()
        });
        let Some(echoes) = echoes else { return };
        assert!(echoes[..3].iter().all(Outcome::is_answered), "{echoes:?}");
        for (number, problem) in [(3, "assign"), (4, "unreachable"), (5, "versions")] {
            let Outcome::NotSent { problem: said } = &echoes[number] else { panic!("{echoes:?}") };
            assert!(said.contains(problem), "{said}");
        }
    }

    #[test]
    fn who_says_nothing_is_asked_again() {
        let echoes = in_a_namespace("who_says_nothing_is_asked_again", || {
            // Of the namespace of whoever writes.
            std::fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1").unwrap();
            send(&[way("192.0.2.1", None)], &PACE).unwrap()
        });
        let Some(echoes) = echoes else { return };
        assert_eq!(echoes, [Outcome::Silent { tries: 2 }]);
    }

    #[test]
    fn who_says_that_it_cannot_be_reached_is_named() {
        let echoes = in_a_namespace("who_says_that_it_cannot_be_reached_is_named", || {
            run("nft add table inet t");
            run("nft add chain inet t c { type filter hook input priority 0 ; }");
            run("nft add rule inet t c icmp type echo-request reject");
            run("nft add rule inet t c icmpv6 type echo-request reject");
            let ways = [way("192.0.2.1", None), way("2001:db8::1", None)];
            send(&ways, &Pace { patience: Duration::from_secs(20), ..PACE }).unwrap()
        });
        let Some(echoes) = echoes else { return };
        let said_by = |text: &str| Outcome::Unreachable { said_by: text.parse().unwrap() };
        assert_eq!(echoes, [said_by("192.0.2.1"), said_by("2001:db8::1")]);
    }

    #[test]
    fn nobody_probes_without_bounds() {
        let error = send(&vec![way("192.0.2.1", None); WAYS_MAX + 1], &PACE).unwrap_err();
        assert!(error.to_string().contains("65537 ways at once"), "{error}");
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
}
