//! A port in front of another port, with a switch: connections can be cut, kept out, or left without answers.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::free_port;

/// What happens to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    Flows,
    /// Requests arrive, answers do not.
    AnswersLost,
    /// Nobody gets in.
    Cut,
}

#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: AtomicU16,
    state: Mutex<State>,
    /// Bytes that have come from the target.
    answered: AtomicU64,
}

#[derive(Debug)]
struct State {
    traffic: Traffic,
    listening: bool,
    open: Vec<TcpStream>,
}

impl Forwarder {
    /// Forwards a free port of loopback to `target` on loopback.
    pub fn to(target: u16) -> Forwarder {
        let port = free_port();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is free");
        Forwarder::on(listener, target)
    }

    /// The same from IPv6's loopback; `None` on a machine without.
    pub fn from_ipv6(target: u16) -> Option<Forwarder> {
        let port = free_port();
        let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, port)).ok()?;
        Some(Forwarder::on(listener, target))
    }

    fn on(listener: TcpListener, target: u16) -> Forwarder {
        let address = listener.local_addr().expect("it listens");
        let state = State { traffic: Traffic::Flows, listening: true, open: Vec::new() };
        let shared =
            Arc::new(Shared { target: target.into(), state: Mutex::new(state), answered: AtomicU64::new(0) });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accepting.accept(&listener));
        Forwarder { address, shared }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many bytes have come from the target so far, those of TLS included.
    pub fn answered_bytes(&self) -> u64 {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Turns the switch. `Cut` also ends the connections there are.
    pub fn set(&self, traffic: Traffic) {
        let mut state = self.shared.lock();
        state.traffic = traffic;
        if traffic == Traffic::Cut {
            state.end_all();
        }
    }

    /// New connections go to another port of loopback; the others stay where they are.
    pub fn turn_to(&self, target: u16) {
        self.shared.target.store(target, Ordering::Relaxed);
    }

    /// Ends the connections there are; new ones may come.
    pub fn interrupt(&self) {
        self.shared.lock().end_all();
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.listening = false;
            state.end_all();
        }
        // Wakes the thread that accepts, which then ends.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn end_all(&mut self) {
        for stream in self.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Shared>, listener: &TcpListener) {
        for client in listener.incoming().flatten() {
            if !self.lock().listening {
                return;
            }
            // A client that cannot be served finds its connection closed.
            let _ = self.connect(client);
        }
    }

    fn connect(self: &Arc<Shared>, client: TcpStream) -> std::io::Result<()> {
        let server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target.load(Ordering::Relaxed)))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        {
            let mut state = self.lock();
            if state.traffic == Traffic::Cut {
                return Ok(());
            }
            state.open.extend([client.try_clone()?, server.try_clone()?]);
        }
        let (requests, answers) = (Arc::clone(self), Arc::clone(self));
        let (from_client, to_client) = (client.try_clone()?, client);
        let (from_server, to_server) = (server.try_clone()?, server);
        std::thread::spawn(move || requests.pump(from_client, to_server, false));
        std::thread::spawn(move || answers.pump(from_server, to_client, true));
        Ok(())
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, answers: bool) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if answers {
                self.answered.fetch_add(length as u64, Ordering::Relaxed);
            }
            let lost = answers && self.lock().traffic == Traffic::AnswersLost;
            if !lost && to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
