//! BIRD, asked over its control socket as `birdc` does.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Where our agent has BIRD listen.
pub const AGENTS_SOCKET: &str = "/run/plumb/bird.ctl";

/// Where BIRD listens: at our agent's, Debian's own, Calico's for both IP versions, and BIRD's default.
pub const USUAL_SOCKETS: [&str; 6] = [
    AGENTS_SOCKET,
    "/run/bird/bird.ctl",
    "/var/run/calico/bird.ctl",
    "/var/run/calico/bird6.ctl",
    "/run/bird.ctl",
    "/usr/local/var/run/bird.ctl",
];

/// BIRD answers from memory. Includes the time until it accepts the connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// A node of a large mesh has some thousand sessions of a line each.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Those of the usual sockets that are there; none twice, even if one is a link to another.
pub fn sockets() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in USUAL_SOCKETS {
        if let Ok(path) = Path::new(path).canonicalize()
            && !found.contains(&path)
        {
            found.push(path);
        }
    }
    found
}

/// Asks one question, and gives back the answer as `birdc` would print it. A BIRD that has not answered completely after [`PATIENCE`]
/// is [`io::ErrorKind::TimedOut`].
pub fn ask(socket: &Path, command: &str) -> io::Result<String> {
    let mut call = Call::open(socket, Instant::now() + PATIENCE)?;
    let mut received = Vec::new();
    // It greets first.
    read_answer(&mut call, &mut received)?;
    received.clear();
    call.write_all(format!("{command}\n").as_bytes())?;
    read_answer(&mut call, &mut received)?;
    Ok(printed(&String::from_utf8_lossy(&received)))
}

/// A connection that ends at its deadline, whatever it waits for.
struct Call {
    stream: UnixStream,
    deadline: Instant,
}

impl Call {
    /// A stopped BIRD accepts nobody, and its queue of callers is short. Connecting to a full queue waits as long as a write may.
    fn open(path: &Path, deadline: Instant) -> io::Result<Call> {
        let address = SocketAddrUnix::new(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let call = Call { stream: socket.into(), deadline };
        loop {
            set_socket_timeout(&call.stream, Timeout::Send, Some(call.time_left()?))?;
            match connect(&call.stream, &address) {
                Err(Errno::INTR) => {}
                connected => {
                    connected.map_err(|error| timed_out_if_blocked(error.into()))?;
                    return Ok(call);
                }
            }
        }
    }

    fn time_left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        // No time at all would mean to wait for ever.
        if left < Duration::from_micros(1) { Err(silence()) } else { Ok(left) }
    }
}

impl Read for Call {
    fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.time_left()?))?;
        self.stream.read(part).map_err(timed_out_if_blocked)
    }
}

impl Write for Call {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.time_left()?))?;
        self.stream.write(part).map_err(timed_out_if_blocked)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The kernel says of a time limit that the call would block.
fn timed_out_if_blocked(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { silence() } else { error }
}

fn silence() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("it did not answer within {} s", PATIENCE.as_secs()))
}

/// Reads up to the line that ends an answer.
fn read_answer(stream: &mut impl Read, received: &mut Vec<u8>) -> io::Result<()> {
    let mut part = [0; 4096];
    while !is_complete(received) {
        let length = match stream.read(&mut part) {
            // A read with a time limit is not started again after a signal.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.extend(part.iter().take(length));
        if received.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("the answer is too long"));
        }
    }
    Ok(())
}

/// The last line is the first with a blank after its number; lines that go on have a dash, or no number at all.
fn is_complete(received: &[u8]) -> bool {
    let Some(lines) = received.strip_suffix(b"\n") else { return false };
    let last = lines.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    number_of(last).is_some_and(|separator| separator == b' ')
}

/// What follows the four digits that begin a line: a blank, or a dash. Whatever else follows four digits, they are no number of BIRD's.
fn number_of(line: &[u8]) -> Option<u8> {
    let (number, rest) = line.split_at_checked(4)?;
    let separator = rest.first().copied().filter(|separator| matches!(separator, b' ' | b'-'))?;
    number.iter().all(u8::is_ascii_digit).then_some(separator)
}

/// An answer that a fuzz target made up.
#[cfg(fuzzing)]
pub(crate) fn printed_of(received: &[u8]) -> String {
    is_complete(received);
    printed(&String::from_utf8_lossy(received))
}

/// Without the numbers, which are for programs.
fn printed(answer: &str) -> String {
    let mut text = String::new();
    for line in answer.lines() {
        let shown = match number_of(line.as_bytes()) {
            Some(_) => line.get(5..).unwrap_or_default(),
            None => line.strip_prefix(' ').unwrap_or(line),
        };
        // The end of an answer is an empty line with a number.
        if !(shown.is_empty() && line.starts_with("0000")) {
            text.push_str(shown);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;

    use super::*;

    const ANSWER: &str = "2002-Name       Proto      Table      State  Since         Info\n\
                          1002-device1    Device     ---        up     10:00:00.000  \n \
                          mesh_1     BGP        ---        up     10:00:01.000  Established   \n0000 \n";

    #[test]
    fn an_answer_is_what_birdc_prints() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("bird.ctl");
        let listener = UnixListener::bind(&socket).unwrap();
        let bird = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"0001 BIRD 2.0.12 ready.\n").unwrap();
            let mut question = [0; 15];
            stream.read_exact(&mut question).unwrap();
            // In two pieces, as it may well come.
            stream.write_all(&ANSWER.as_bytes()[..70]).unwrap();
            stream.write_all(&ANSWER.as_bytes()[70..]).unwrap();
            question
        });
        let answer = ask(&socket, "show protocols").unwrap();
        assert_eq!(&bird.join().unwrap(), b"show protocols\n");
        let lines: Vec<&str> = answer.lines().collect();
        assert_eq!(lines.len(), 3, "{answer}");
        assert!(lines[0].starts_with("Name ") && lines[2].starts_with("mesh_1 "), "{answer}");
    }

    /// Answers, but not at the first call.
    struct InterruptedOnce(Option<&'static [u8]>, bool);

    impl Read for InterruptedOnce {
        fn read(&mut self, part: &mut [u8]) -> io::Result<usize> {
            if !std::mem::replace(&mut self.1, true) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let answer = self.0.take().unwrap_or_default();
            part[..answer.len()].copy_from_slice(answer);
            Ok(answer.len())
        }
    }

    #[test]
    fn a_signal_does_not_end_an_answer() {
        let mut received = Vec::new();
        read_answer(&mut InterruptedOnce(Some(b"0001 BIRD 2.0.12 ready.\n"), false), &mut received).unwrap();
        assert_eq!(received, b"0001 BIRD 2.0.12 ready.\n");
    }

    #[test]
    fn one_who_hangs_up_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("bird.ctl");
        let listener = UnixListener::bind(&socket).unwrap();
        let bird = std::thread::spawn(move || drop(listener.accept()));
        assert!(ask(&socket, "show protocols").is_err());
        bird.join().unwrap();
        assert!(ask(&folder.path().join("none"), "x").is_err());
    }

    /// Each part comes in time, but the answer as a whole never does.
    #[test]
    fn one_deadline_holds_for_the_whole_answer() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("bird.ctl");
        let listener = UnixListener::bind(&socket).unwrap();
        let bird = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"0001 BIRD 2.0.12 ready.\n").unwrap();
            while stream.write_all(b"1007-10.0.0.0/26\n").is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        assert_eq!(ask(&socket, "show route").unwrap_err().kind(), io::ErrorKind::TimedOut);
        bird.join().unwrap();
    }

    /// Descriptions of peers are in these lines, too, in any alphabet.
    #[test]
    fn a_line_may_have_any_letter_behind_four_digits() {
        for (line, shown) in [
            ("1002\u{e9}x", "1002\u{e9}x\n"),
            ("1002\u{130}", "1002\u{130}\n"),
            ("1002-\u{e9}", "\u{e9}\n"),
            ("1002", "1002\n"),
            ("1002 ", "\n"),
        ] {
            assert_eq!(printed(line), shown);
            is_complete(line.as_bytes());
        }
        assert_eq!(printed(&String::from_utf8_lossy(b"1002\xff\xfe")), "1002\u{fffd}\u{fffd}\n");
    }

    proptest! {
        #[test]
        fn any_answer_can_be_printed(answer in any::<String>()) {
            let _ = (printed(&answer), is_complete(answer.as_bytes()));
        }

        #[test]
        fn any_numbered_line_can_be_printed(number in "[0-9]{3,5}", rest in any::<String>()) {
            let line = format!("{number}{rest}");
            let _ = (printed(&line), is_complete(line.as_bytes()));
        }
    }
}
