//! Talks to the node's agent: one request and one answer per connection, each with its length before it.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde_json::Value;

use crate::failpoint;
use crate::request::Request;

/// The longest answer that makes sense.
const ANSWER_MAX: u32 = 1024 * 1024;
/// How often to look whether an agent has come.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How many connections may break off without an answer: the agent may be stopped once more right after its start.
const LOST_MAX: usize = 2;

/// How long a call waits.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// For an agent that is not there: it may be starting anew.
    agent: Duration,
    /// For its answer, and for all of it.
    answer: Duration,
}

impl Patience {
    /// Runtimes give up after one minute at the earliest; kubelets try again late. So they hear a reason before that, and
    /// do not hear of a restart.
    fn of(verb: &str) -> Patience {
        let (agent, answer) = match verb {
            // It is queued instead.
            "DEL" => (Duration::from_secs(2), Duration::from_secs(20)),
            // It asks whether an ADD would work now.
            "STATUS" => (Duration::from_millis(500), Duration::from_secs(20)),
            _ => (Duration::from_secs(10), Duration::from_secs(100)),
        };
        Patience { agent, answer }
    }
}

/// What the agent wants this process to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) exit: u8,
    pub(crate) stdout: String,
}

/// Asks the agent. The error says why there is no answer; whether the call was carried out is then not known.
pub(crate) fn call(socket: &str, request: &Request) -> Result<Answer, String> {
    call_within(socket, &request.text(), Patience::of(request.verb()))
}

/// Every verb may be repeated for the same sandbox, so a call that an agent took down with it goes to the next agent.
fn call_within(socket: &str, request: &str, patience: Patience) -> Result<Answer, String> {
    let start = Instant::now();
    failpoint::hit("cni.before-connect");
    let mut lost = 0;
    loop {
        let error = match exchange(socket, request.as_bytes(), start + patience.answer) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        lost += usize::from(is_lost(&error));
        let may_come = is_absent(&error) || (is_lost(&error) && lost <= LOST_MAX);
        if may_come && start.elapsed() < patience.agent {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        return Err(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("{socket}: no answer within {} s", patience.answer.as_secs())
            }
            _ => format!("{socket}: {error}"),
        });
    }
}

/// No agent is there, or the one that was is gone and its socket stays.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// The agent went away in the middle of the call.
fn is_lost(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

fn exchange(socket: &str, request: &[u8], deadline: Instant) -> io::Result<Answer> {
    let mut stream = connect(socket, deadline)?;
    failpoint::hit("cni.connected");
    let length = u32::try_from(request.len()).map_err(|_| io::Error::other("the request is too long"))?;
    let mut frame = Vec::with_capacity(4 + request.len());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(request);
    // An agent that refuses early answers and closes before it has read everything; the answer is worth more.
    let sent = stream.write_all(&frame);
    failpoint::hit("cni.sent");
    match read_answer(&mut stream, deadline) {
        Ok(answer) => Ok(answer),
        Err(error) => Err(sent.err().unwrap_or(error)),
    }
}

/// Not std's: to connect to a socket whose backlog is full has no limit of time there.
fn connect(socket: &str, deadline: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let descriptor = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&descriptor, Timeout::Send, Some(left_until(deadline)))?;
    rustix::net::connect(&descriptor, &address)?;
    Ok(UnixStream::from(descriptor))
}

/// Never nothing, which would mean for ever.
fn left_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

fn read_answer(stream: &mut UnixStream, deadline: Instant) -> io::Result<Answer> {
    let mut length = [0; 4];
    stream.set_read_timeout(Some(left_until(deadline)))?;
    stream.read_exact(&mut length).map_err(no_answer)?;
    let length = u32::from_be_bytes(length);
    if length > ANSWER_MAX {
        return Err(io::Error::other("the answer is too long"));
    }
    let mut text = vec![0; length as usize];
    stream.set_read_timeout(Some(left_until(deadline)))?;
    stream.read_exact(&mut text).map_err(no_answer)?;
    parse(&text).ok_or_else(|| io::Error::other("the answer cannot be understood"))
}

fn no_answer(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(io::ErrorKind::ConnectionAborted, "it closed the connection without an answer")
        }
        _ => error,
    }
}

fn parse(text: &[u8]) -> Option<Answer> {
    let document: Value = serde_json::from_slice(text).ok()?;
    Some(Answer {
        exit: u8::try_from(document.get("exit")?.as_u64()?).ok()?,
        stdout: document.get("stdout")?.as_str()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const AT_ONCE: Patience = Patience { agent: Duration::ZERO, answer: LONG };

    /// An agent that reads a request, if it does, and says these bytes.
    fn agent(name: &str, says: &'static [u8], reads: bool) -> (PathBuf, std::thread::JoinHandle<()>) {
        let path = std::env::temp_dir().join(format!("plumb-cni-{}-{name}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let serving = path.clone();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            std::fs::remove_file(serving).unwrap();
            if reads {
                let mut length = [0; 4];
                stream.read_exact(&mut length).unwrap();
                let mut request = vec![0; u32::from_be_bytes(length) as usize];
                stream.read_exact(&mut request).unwrap();
                assert_eq!(request, b"request");
            }
            stream.write_all(says).unwrap();
        });
        (path, thread)
    }

    fn ask(name: &str, says: &'static [u8], reads: bool) -> Result<Answer, String> {
        let (path, thread) = agent(name, says, reads);
        let place = path.display().to_string();
        let answer = call_within(&place, "request", AT_ONCE);
        thread.join().unwrap();
        answer.map_err(|error| error.replace(&place, "agent"))
    }

    #[test]
    fn an_answer_arrives() {
        let answer = ask("answer", b"\0\0\0\x1a{\"exit\":1,\"stdout\":\"said\"}", true).unwrap();
        assert_eq!(answer, Answer { exit: 1, stdout: "said".to_owned() });
    }

    #[test]
    fn whatever_else_an_agent_says_is_no_answer() {
        for (name, says, expected) in [
            ("nothing", &b""[..], "agent: it closed the connection without an answer"),
            ("half", b"\0\0\0\x20{\"exit\"", "agent: it closed the connection without an answer"),
            ("long", b"\xff\xff\xff\xff{", "agent: the answer is too long"),
            ("garbage", b"\0\0\0\x02{}", "agent: the answer cannot be understood"),
            ("exit", b"\0\0\0\x1a{\"exit\":999,\"stdout\":\"xy\"}", "agent: the answer cannot be understood"),
        ] {
            assert_eq!(ask(name, says, true).unwrap_err(), expected, "{name}");
        }
    }

    #[test]
    fn nobody_there_is_said_when_nobody_comes() {
        let error = call_within("/nowhere/agent.sock", "", AT_ONCE);
        assert!(error.unwrap_err().starts_with("/nowhere/agent.sock: "));
    }

    #[test]
    fn an_agent_that_comes_back_serves_who_waited() {
        let path = std::env::temp_dir().join(format!("plumb-cni-{}-back", std::process::id()));
        let place = path.display().to_string();
        let calling = std::thread::spawn({
            let place = place.clone();
            move || call_within(&place, "request", Patience { agent: LONG, answer: LONG })
        });
        // First nobody is there, then one who goes in the middle of the call, then its socket alone, then the next agent.
        std::thread::sleep(LOOK_EVERY * 3);
        let first = UnixListener::bind(&path).unwrap();
        drop(first.accept().unwrap());
        drop(first);
        std::thread::sleep(LOOK_EVERY * 3);
        std::fs::remove_file(&path).unwrap();
        let (_, next) = agent("back", b"\0\0\0\x1a{\"exit\":0,\"stdout\":\"said\"}", true);
        next.join().unwrap();
        assert_eq!(calling.join().unwrap().unwrap().stdout, "said");
    }

    #[test]
    fn an_agent_that_keeps_hanging_up_is_given_up() {
        let path = std::env::temp_dir().join(format!("plumb-cni-{}-hangs-up", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let place = path.display().to_string();
        let calling = std::thread::spawn(move || {
            call_within(&place, "request", Patience { agent: LONG, answer: LONG })
        });
        for _ in 0..=LOST_MAX {
            drop(listener.accept().unwrap());
        }
        assert!(calling.join().unwrap().is_err());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_silent_agent_is_given_up() {
        let path = std::env::temp_dir().join(format!("plumb-cni-{}-silent", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let patience = Patience { agent: LONG, answer: Duration::from_millis(50) };
        let error = call_within(&path.display().to_string(), "x", patience);
        assert!(error.unwrap_err().contains("no answer within"));
        drop(listener);
        std::fs::remove_file(path).unwrap();
    }
}
