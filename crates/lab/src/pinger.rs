//! A ping that goes on while other things happen, and knows every packet that got no answer.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Between two packets, in seconds.
const INTERVAL: &str = "0.02";

#[derive(Debug)]
pub struct Pinger {
    what: String,
    child: Child,
    answered: Arc<Mutex<BTreeSet<u64>>>,
    reader: Option<JoinHandle<()>>,
}

/// How a ping went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    pub answered: u64,
    pub lost: u64,
}

impl Pinger {
    /// Pings an address from wherever `command` leads, and has had an answer when it returns.
    pub fn start(what: &str, mut command: Command, address: &str) -> Result<Pinger> {
        command.args(["ping", "-n", "-i", INTERVAL, address]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().context("cannot run ping")?;
        let stdout = child.stdout.take().context("ping prints")?;
        let answered = Arc::new(Mutex::new(BTreeSet::new()));
        let noted = Arc::clone(&answered);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(number) = sequence_number(&line) {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).insert(number);
                }
            }
        });
        let pinger = Pinger { what: what.to_owned(), child, answered, reader: Some(reader) };
        pinger.wait_for_more(1)?;
        Ok(pinger)
    }

    /// Until so many more packets have been answered. As long as some are, it goes on.
    pub fn wait_for_more(&self, packets: usize) -> Result<()> {
        let count = || self.answered.lock().unwrap_or_else(PoisonError::into_inner).len();
        let (mut heard, mut heard_at) = (count(), Instant::now());
        let wanted = heard + packets;
        while heard < wanted {
            ensure!(heard_at.elapsed() < crate::wait::PATIENCE, "{}: no answer any more", self.what);
            std::thread::sleep(Duration::from_millis(10));
            let now = count();
            if now > heard {
                (heard, heard_at) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// How many packets have been answered so far.
    pub fn answered(&self) -> usize {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Stops, and counts. A packet that was under way at the end is not counted.
    pub fn stop(mut self) -> Result<Tally> {
        self.wait_for_more(5)?;
        self.interrupt();
        if let Some(reader) = self.reader.take() {
            reader.join().map_err(|_| anyhow::anyhow!("the reader of ping's output died"))?;
        }
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(tally(&answered))
    }

    fn interrupt(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself; collecting it is all that matters then.
            let _ = kill_process(pid, Signal::INT);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Pinger {
    fn drop(&mut self) {
        self.interrupt();
    }
}

/// Packets are numbered from 1; a number that is missing below the last answered one is a lost packet.
fn tally(answered: &BTreeSet<u64>) -> Tally {
    let last = answered.last().copied().unwrap_or_default();
    let count = answered.len() as u64;
    Tally { answered: count, lost: last.saturating_sub(count) }
}

fn sequence_number(line: &str) -> Option<u64> {
    // "64 bytes from 10.0.0.1: icmp_seq=7 ttl=64 time=0.05 ms"; errors carry a number too, but no bytes.
    if !line.contains(" bytes from ") {
        return None;
    }
    line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_losses() {
        let check = |numbers: &[u64], answered, lost| {
            assert_eq!(tally(&numbers.iter().copied().collect()), Tally { answered, lost }, "{numbers:?}");
        };
        check(&[], 0, 0);
        check(&[1, 2, 3], 3, 0);
        check(&[1, 3, 6], 3, 3);
        check(&[2], 1, 1);
    }

    #[test]
    fn only_answers_count() {
        assert_eq!(sequence_number("64 bytes from 10.0.0.1: icmp_seq=7 ttl=64 time=0.05 ms"), Some(7));
        assert_eq!(sequence_number("From 10.0.0.2 icmp_seq=3 Destination Host Unreachable"), None);
        assert_eq!(sequence_number("PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data."), None);
    }

    #[test]
    fn a_real_ping_is_counted() {
        if let Some(reason) = crate::missing() {
            eprintln!("not tried: {reason}");
            return;
        }
        let pinger = Pinger::start("loopback", Command::new("env"), "127.0.0.1").unwrap();
        pinger.wait_for_more(3).unwrap();
        let tally = pinger.stop().unwrap();
        assert!(tally.answered >= 4 && tally.lost == 0, "{tally:?}");
    }
}
