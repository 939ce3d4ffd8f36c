//! Sends a call to the node's agent: one request and one reply per connection, each a frame.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use wire::{Call, Reply};

use crate::failpoint;

/// More than any reply to a call.
const REPLY_MAX: u32 = 1024 * 1024;
/// How often to try again while no agent answers.
const RETRY_EVERY: Duration = Duration::from_millis(20);
/// How many connections may end without a reply: an agent may stop again right after its start.
const LOST_MAX: usize = 2;

/// How long a call waits.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    /// For a missing agent, which may be restarting.
    agent: Duration,
    /// For the reply, in all.
    reply: Duration,
}

impl Timeouts {
    /// Runtimes give up after one minute at the earliest, and kubelets retry late. So a call reports its reason before that, and survives a
    /// restart of the agent.
    fn of(verb: &str) -> Timeouts {
        let (agent, reply) = match verb {
            // It is queued after that.
            "DEL" => (Duration::from_secs(2), Duration::from_secs(20)),
            // It asks whether an ADD would work now.
            "STATUS" => (Duration::from_millis(500), Duration::from_secs(20)),
            _ => (Duration::from_secs(10), Duration::from_secs(100)),
        };
        Timeouts { agent, reply }
    }
}

/// The agent's reply. The error says why there is none; the agent may have carried out the call all the same.
pub(crate) fn call(socket: &str, call: &Call) -> Result<Reply, String> {
    call_within(socket, &call.encode(), Timeouts::of(call.verb()))
}

/// Every verb may be repeated for the same sandbox, so a call that an agent did not complete before its end goes to the next agent.
fn call_within(socket: &str, request: &[u8], timeouts: Timeouts) -> Result<Reply, String> {
    let start = Instant::now();
    failpoint::hit("cni.before-connect");
    let mut lost = 0;
    loop {
        let error = match exchange(socket, request, start + timeouts.reply) {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        lost += usize::from(is_lost(&error));
        let may_come = is_absent(&error) || (is_lost(&error) && lost <= LOST_MAX);
        if may_come && start.elapsed() < timeouts.agent {
            std::thread::sleep(RETRY_EVERY);
            continue;
        }
        return Err(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("no reply from the agent on {socket} within {} s", timeouts.reply.as_secs())
            }
            _ => format!("no reply from the agent on {socket}: {error}"),
        });
    }
}

/// There is no agent, or only the socket of one that ended.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// The agent ended in the middle of the call.
fn is_lost(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

fn exchange(socket: &str, request: &[u8], deadline: Instant) -> io::Result<Reply> {
    let mut stream = connect(socket, deadline)?;
    failpoint::hit("cni.connected");
    let frame = wire::frame(request).map_err(io::Error::other)?;
    // An agent that refuses a request may reply and close before it has read everything, so the reply comes first.
    let sent = stream.write_all(&frame);
    failpoint::hit("cni.sent");
    match read_reply(&mut stream, deadline) {
        Ok(reply) => Ok(reply),
        Err(error) => Err(sent.err().unwrap_or(error)),
    }
}

/// Not std's, which has no timeout for a socket whose backlog is full.
fn connect(socket: &str, deadline: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let descriptor = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&descriptor, Timeout::Send, Some(left_until(deadline)))?;
    rustix::net::connect(&descriptor, &address)?;
    Ok(UnixStream::from(descriptor))
}

/// Never zero, which would mean no timeout.
fn left_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}

fn read_reply(stream: &mut UnixStream, deadline: Instant) -> io::Result<Reply> {
    let mut head = [0; 4];
    stream.set_read_timeout(Some(left_until(deadline)))?;
    stream.read_exact(&mut head).map_err(no_reply)?;
    let too_long = |_| io::Error::other("the reply is too long");
    let mut text = vec![0; wire::body_length(head, REPLY_MAX).map_err(too_long)?];
    stream.set_read_timeout(Some(left_until(deadline)))?;
    stream.read_exact(&mut text).map_err(no_reply)?;
    Reply::decode(&text).ok_or_else(|| io::Error::other("the reply is not valid"))
}

fn no_reply(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(io::ErrorKind::ConnectionAborted, "it closed the connection")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const AT_ONCE: Timeouts = Timeouts { agent: Duration::ZERO, reply: LONG };

    /// An agent that reads a request, or does not, and sends these bytes.
    fn agent(name: &str, sends: &'static [u8], reads: bool) -> (PathBuf, std::thread::JoinHandle<()>) {
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
            stream.write_all(sends).unwrap();
        });
        (path, thread)
    }

    fn ask(name: &str, sends: &'static [u8], reads: bool) -> Result<Reply, String> {
        let (path, thread) = agent(name, sends, reads);
        let place = path.display().to_string();
        let reply = call_within(&place, b"request", AT_ONCE);
        thread.join().unwrap();
        reply.map_err(|error| error.replace(&place, "SOCKET"))
    }

    #[test]
    fn a_reply_arrives() {
        let reply = ask("reply", b"\0\0\0\x1a{\"exit\":1,\"stdout\":\"said\"}", true).unwrap();
        assert_eq!(reply, Reply { exit: 1, stdout: "said".to_owned() });
    }

    #[test]
    fn anything_else_is_an_error() {
        for (name, sends, expected) in [
            ("nothing", &b""[..], "it closed the connection"),
            ("half", b"\0\0\0\x20{\"exit\"", "it closed the connection"),
            ("long", b"\xff\xff\xff\xff{", "the reply is too long"),
            ("garbage", b"\0\0\0\x02{}", "the reply is not valid"),
            ("exit", b"\0\0\0\x1a{\"exit\":999,\"stdout\":\"xy\"}", "the reply is not valid"),
        ] {
            let error = ask(name, sends, true).unwrap_err();
            assert_eq!(error, format!("no reply from the agent on SOCKET: {expected}"), "{name}");
        }
    }

    #[test]
    fn a_missing_agent_is_an_error() {
        let error = call_within("/nowhere/agent.sock", b"", AT_ONCE);
        assert!(error.unwrap_err().starts_with("no reply from the agent on /nowhere/agent.sock: "));
    }

    #[test]
    fn an_agent_that_comes_back_serves_the_waiting_call() {
        let path = std::env::temp_dir().join(format!("plumb-cni-{}-back", std::process::id()));
        let place = path.display().to_string();
        let calling = std::thread::spawn({
            let place = place.clone();
            move || call_within(&place, b"request", Timeouts { agent: LONG, reply: LONG })
        });
        // First no agent, then one that ends in the middle of the call, then only its socket, then the next agent.
        std::thread::sleep(RETRY_EVERY * 3);
        let first = UnixListener::bind(&path).unwrap();
        drop(first.accept().unwrap());
        drop(first);
        std::thread::sleep(RETRY_EVERY * 3);
        std::fs::remove_file(&path).unwrap();
        let (_, next) = agent("back", b"\0\0\0\x1a{\"exit\":0,\"stdout\":\"said\"}", true);
        next.join().unwrap();
        assert_eq!(calling.join().unwrap().unwrap().stdout, "said");
    }

    #[test]
    fn an_agent_that_keeps_closing_connections_is_given_up() {
        let path = std::env::temp_dir().join(format!("plumb-cni-{}-hangs-up", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let place = path.display().to_string();
        let calling = std::thread::spawn(move || {
            call_within(&place, b"request", Timeouts { agent: LONG, reply: LONG })
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
        let timeouts = Timeouts { agent: LONG, reply: Duration::from_millis(50) };
        let error = call_within(&path.display().to_string(), b"x", timeouts);
        assert!(error.unwrap_err().starts_with("no reply from the agent on "));
        drop(listener);
        std::fs::remove_file(path).unwrap();
    }
}
