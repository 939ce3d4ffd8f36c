//! BIRD on every node, each with a session to each other: the real one, with its sockets where the collector looks.

use anyhow::{Result, ensure};

use crate::scene::{NODES, Scene, address_of};

/// As Calico has it.
pub(crate) const AS: u32 = 64512;
const CONFIGURATION: &str = "/etc/cni/bird.conf";

/// How a node's BIRD is told to behave towards one peer, or in general.
#[derive(Clone, Copy, Default)]
pub(crate) struct Habits {
    /// Expects another AS of this peer than it has.
    pub(crate) wrong_as_of: Option<&'static str>,
    /// Listens and calls on this port.
    pub(crate) port: Option<u16>,
    /// Wants a password of this peer.
    pub(crate) password_of: Option<&'static str>,
}

/// Why there is no BIRD here.
pub(crate) fn missing() -> Option<String> {
    let found = std::process::Command::new("bird").arg("--version").output();
    found.is_err().then(|| "there is no bird (Debian package bird2)".to_owned())
}

fn configuration(node: &str, habits: Habits) -> String {
    let mut text = format!("router id {};\nprotocol device {{}}\n", address_of(node));
    for peer in NODES.iter().filter(|peer| **peer != node) {
        let (address, own) = (address_of(peer), address_of(node));
        let remote = if habits.wrong_as_of == Some(*peer) { AS + 7 } else { AS };
        let port = habits.port.map_or_else(String::new, |port| format!(" port {port}"));
        let password = if habits.password_of == Some(*peer) { " password \"x\";" } else { "" };
        text += &format!(
            "protocol bgp Mesh_{} {{ local {own}{port} as {AS}; neighbor {address} as {remote};{password} ipv4 {{ import all; export all; }}; \
             connect delay time 1; connect retry time 1; error wait time 1,1; }}\n",
            address.replace('.', "_"),
        );
    }
    text
}

/// The line of a shell that starts a node's BIRD.
pub(crate) fn start(node: &str, habits: Habits) -> String {
    format!(
        "mkdir -p /run/bird; cat > {CONFIGURATION} <<'END'\n{}END\n\
         bird -c {CONFIGURATION} -s /run/bird/bird.ctl -P /run/bird/bird.pid",
        configuration(node, habits)
    )
}

/// The line of a shell that ends it, as a power cut would.
pub(crate) fn kill() -> &'static str {
    "pid=$(cat /run/bird/bird.pid); kill -9 $pid || true; while kill -0 $pid 2> /dev/null; do sleep 0.01; done"
}

pub(crate) fn start_all(scene: &Scene) -> Result<()> {
    NODES.into_iter().try_for_each(|node| scene.on(node, &start(node, Habits::default())).map(|_| ()))?;
    wait_for_sessions(scene, NODES.len() * (NODES.len() - 1))
}

/// Until so many sessions, each counted at both ends, are established.
pub(crate) fn wait_for_sessions(scene: &Scene, wanted: usize) -> Result<()> {
    lab::wait_for("BGP sessions", || {
        let mut established = 0;
        for node in NODES {
            let shown = scene.on(node, "birdc -s /run/bird/bird.ctl show protocols || true")?;
            established += shown.matches("Established").count();
        }
        ensure!(established == wanted, "{established} of {wanted} sessions are established");
        Ok(())
    })
}

/// Until a session's line holds these words.
pub(crate) fn wait_for_words(scene: &Scene, node: &str, peer: &str, words: &str) -> Result<()> {
    let name = format!("Mesh_{}", address_of(peer).replace('.', "_"));
    lab::wait_for("BIRD's words", || {
        let shown = scene.on(node, &format!("birdc -s /run/bird/bird.ctl show protocols {name}"))?;
        ensure!(shown.contains(words), "{shown}");
        Ok(())
    })
}
