//! Ports that stay free for whoever asked for them.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;

/// Below the range from which Linux takes ports for outgoing connections: a server that is restarted must not find
/// its port in use by some client, least of all by one that is trying to reach it.
const FIRST: u16 = 15_000;
const COUNT: u16 = 17_000;

/// Holds on to the claims; they end with the process, however it ends.
static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A TCP port on loopback that nothing listens on, and that no other test, in this process or another, will be
/// given while this process lives.
pub fn free_port() -> u16 {
    let mut claims = CLAIMS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Where to begin does not matter, as long as two processes rarely begin at the same place.
    let offset = (std::process::id() % u32::from(COUNT)) as u16;
    for step in 0..COUNT {
        let port = FIRST + (offset.wrapping_mul(13) % COUNT + step) % COUNT;
        let Some(claim) = claim(port) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            claims.push(claim);
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}

/// An abstract socket name is a claim without a file: it can be held once, and goes when its holder goes.
fn claim(port: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("plumb-test-port-{port}")).ok()?;
    UnixListener::bind_addr(&name).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ports_are_given_once() {
        let ports: Vec<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
        assert!(ports.iter().all(|port| claim(*port).is_none()));
    }
}
