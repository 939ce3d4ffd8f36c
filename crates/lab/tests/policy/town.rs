//! Pods that serve ports, and a table of who reaches whom.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::cluster::Plan;
use lab::kubelet::PodReport;
use testkit::PATIENCE;

use crate::scene::{Scene, add};

/// What an attempt may take before it counts as denied. An allowed one that takes longer is tried again.
const ATTEMPT: Duration = Duration::from_millis(1500);
/// How often a server looks whether it is to end.
const TURN: Duration = Duration::from_millis(50);
pub(crate) const PORTS: [Port; 3] = [Port::Tcp(80), Port::Tcp(81), Port::Udp(80)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Port {
    Tcp(u16),
    Udp(u16),
}

/// One way that is tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Way {
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) port: Port,
    address: IpAddr,
}

impl Way {
    pub(crate) fn is_ipv6(&self) -> bool {
        self.address.is_ipv6()
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {} ({}) {:?}", self.from, self.to, self.address, self.port)
    }
}

/// `web/a` and `shop/b` share the first node, `shop/c` is on the second.
pub(crate) const PODS: [(&str, usize); 3] = [("web/a", 0), ("shop/b", 0), ("shop/c", 1)];

pub(crate) struct Town {
    pub(crate) scene: Scene,
    /// By name, with the position among the scene's pods.
    pods: BTreeMap<&'static str, usize>,
    is_over: Arc<AtomicBool>,
}

impl Drop for Town {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Town {
    /// `None`, with the reason reported, where a lab cannot run.
    pub(crate) fn new(test: &str, plan: impl FnOnce() -> Plan) -> Option<Town> {
        let mut scene = Scene::new(test, plan)?;
        let mut pods = BTreeMap::new();
        for (name, node) in PODS {
            let report = add(&scene.lab, scene.node(node), name);
            pods.insert(name, scene.pods.len());
            scene.pods.push(report);
        }
        let town = Town { scene, pods, is_over: Arc::default() };
        for (name, _) in PODS {
            for port in PORTS {
                town.serve(name, port);
            }
        }
        Some(town)
    }

    pub(crate) fn pod(&self, name: &str) -> &PodReport {
        &self.scene.pods[self.pods[name]]
    }

    pub(crate) fn addresses(&self, name: &str) -> Vec<IpAddr> {
        self.pod(name).addresses.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Runs in the network of a pod. A socket that is made there stays there.
    pub(crate) fn inside<T: Send>(&self, name: &str, act: impl FnOnce() -> T + Send) -> T {
        // The scene counts pods by their nodes; these are behind them.
        let node = PODS.iter().find(|(pod, _)| *pod == name).map(|(_, node)| *node).unwrap();
        self.scene.inside_of(node, self.pods[name], act)
    }

    fn serve(&self, name: &str, port: Port) {
        let is_over = Arc::clone(&self.is_over);
        match port {
            Port::Tcp(port) => {
                let listener = self.inside(name, || TcpListener::bind(("::", port)).unwrap());
                listener.set_nonblocking(true).unwrap();
                std::thread::spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        if listener.accept().is_err() {
                            std::thread::sleep(TURN);
                        }
                    }
                });
            }
            Port::Udp(port) => {
                let socket = self.inside(name, || UdpSocket::bind(("::", port)).unwrap());
                socket.set_read_timeout(Some(TURN)).unwrap();
                std::thread::spawn(move || {
                    let mut room = [0; 16];
                    while !is_over.load(Ordering::Relaxed) {
                        if let Ok((length, from)) = socket.recv_from(&mut room) {
                            let _ = socket.send_to(&room[..length], from);
                        }
                    }
                });
            }
        }
    }

    /// Every pod to every other, with each address and port.
    pub(crate) fn ways(&self) -> Vec<Way> {
        let mut ways = Vec::new();
        for (from, _) in PODS {
            for (to, _) in PODS.into_iter().filter(|(to, _)| *to != from) {
                for address in self.addresses(to) {
                    ways.extend(PORTS.map(|port| Way { from, to, port, address }));
                }
            }
        }
        ways
    }

    fn is_open(&self, way: &Way) -> bool {
        match way.port {
            Port::Tcp(port) => {
                let there = SocketAddr::new(way.address, port);
                match self.inside(way.from, || TcpStream::connect_timeout(&there, ATTEMPT)) {
                    Ok(_) => true,
                    Err(error) if is_denial(error.kind()) => false,
                    Err(error) => panic!("{way}: {error}"),
                }
            }
            Port::Udp(port) => {
                let any: IpAddr = if way.address.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
                let socket = self.inside(way.from, || UdpSocket::bind((any, 0)).unwrap());
                socket.set_read_timeout(Some(ATTEMPT / 3)).unwrap();
                (0..3).any(|_| {
                    let _ = socket.send_to(b"?", (way.address, port));
                    socket.recv_from(&mut [0; 16]).is_ok()
                })
            }
        }
    }

    /// Waits until exactly these ways are open: others may take a moment to be shut or opened.
    #[track_caller]
    pub(crate) fn assert_open(&self, what: &str, is_meant: impl Fn(&Way) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        let mut left = self.ways();
        loop {
            let open: Vec<bool> = std::thread::scope(|scope| {
                let tries: Vec<_> = left.iter().map(|way| scope.spawn(|| self.is_open(way))).collect();
                tries.into_iter().map(|tried| tried.join().unwrap()).collect()
            });
            let wrong: Vec<Way> = left
                .iter()
                .zip(open)
                .filter(|(way, open)| is_meant(way) != *open)
                .map(|(way, _)| way.clone())
                .collect();
            if wrong.is_empty() {
                return;
            }
            let list: Vec<String> = wrong
                .iter()
                .map(|way| format!("{way} must be {}", if is_meant(way) { "open" } else { "shut" }))
                .collect();
            assert!(Instant::now() < deadline, "{what}:\n{}{}", list.join("\n"), self.evidence());
            left = wrong;
        }
    }

    pub(crate) fn evidence(&self) -> String {
        let mut text = self.scene.evidence();
        for node in &self.scene.lab.description().nodes {
            let rules = self.scene.lab.run_on(&node.name, &["nft", "list", "table", "inet", "plumb-policy"]);
            text.push_str(&format!("\n=== {}\n{}", node.name, rules.unwrap_or_default()));
        }
        text
    }
}

fn is_denial(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::TimedOut
            | ErrorKind::WouldBlock
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::PermissionDenied
    )
}
