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
/// How long a DEL waits before it is queued instead. Runtimes give up after one minute at the earliest.
const DEL_WAIT: Duration = Duration::from_secs(20);
/// Shorter than what runtimes allow, so that they hear a reason.
const OTHER_WAIT: Duration = Duration::from_secs(100);

/// What the agent wants this process to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) exit: u8,
    pub(crate) stdout: String,
}

/// Asks the agent. The error says why there is no answer; whether the call was carried out is then not known.
pub(crate) fn call(socket: &str, request: &Request) -> Result<Answer, String> {
    let wait = if request.verb() == "DEL" { DEL_WAIT } else { OTHER_WAIT };
    call_within(socket, &request.text(), wait)
}

fn call_within(socket: &str, request: &str, wait: Duration) -> Result<Answer, String> {
    exchange(socket, request.as_bytes(), Instant::now() + wait).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("{socket}: no answer within {} s", wait.as_secs())
        }
        _ => format!("{socket}: {error}"),
    })
}

fn exchange(socket: &str, request: &[u8], deadline: Instant) -> io::Result<Answer> {
    failpoint::hit("cni.before-connect");
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
        io::ErrorKind::UnexpectedEof => io::Error::other("it closed the connection without an answer"),
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
        let answer = call_within(&place, "request", Duration::from_secs(60));
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
    fn nobody_there_is_said_at_once() {
        let error = call_within("/nowhere/agent.sock", "", Duration::from_secs(60));
        assert!(error.unwrap_err().starts_with("/nowhere/agent.sock: "));
    }

    #[test]
    fn a_silent_agent_is_given_up() {
        let path = std::env::temp_dir().join(format!("plumb-cni-{}-silent", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let error = call_within(&path.display().to_string(), "x", Duration::from_millis(50));
        assert!(error.unwrap_err().contains("no answer within"));
        drop(listener);
        std::fs::remove_file(path).unwrap();
    }
}
