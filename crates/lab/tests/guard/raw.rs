//! Sends frames as a pod with `CAP_NET_RAW` can, and counts what arrives where.

use std::collections::BTreeMap;
use std::process::Command;

/// Whoever may open a packet socket can send this way.
const SEND: &str = "import socket, sys\n\
                    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
                    s.bind((sys.argv[1], 0))\n\
                    for frame in sys.argv[2:]: s.send(bytes.fromhex(frame))\n";

/// Why nothing can be sent; `None` if it can.
pub(crate) fn missing() -> Option<&'static str> {
    (!testkit::process::on_path("python3")).then_some("it needs python3, to send raw packets")
}

/// `command` runs in the network of the sender.
#[track_caller]
pub(crate) fn send(mut command: Command, device: &str, frames: &[Vec<u8>]) {
    let hex = |frame: &Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    command.args(["python3", "-c", SEND, device]).args(frames.iter().map(hex));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A script for `sh` that counts what gets past all rules and is delivered, by source port. Again makes all counts zero.
pub(crate) fn counting(ports: impl Iterator<Item = u16>) -> String {
    let rules: String = ports.map(|port| format!("udp sport {port} counter; ")).collect();
    format!(
        "nft 'table inet seen {{ }}; delete table inet seen; \
         table inet seen {{ chain arrived {{ type filter hook input priority 400; {rules} }}; }}'"
    )
}

pub(crate) const COUNTS: &str = "nft list chain inet seen arrived";

/// What [`COUNTS`] printed, by source port.
pub(crate) fn counts(text: &str) -> BTreeMap<u16, u64> {
    let count = |line: &str| {
        let rest = line.trim().strip_prefix("udp sport ")?;
        let (port, rest) = rest.split_once(" counter packets ")?;
        Some((port.parse().ok()?, rest.split(' ').next()?.parse().ok()?))
    };
    text.lines().filter_map(count).collect()
}
