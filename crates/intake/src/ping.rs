//! What `ping` prints, of several calls in one text: whether packets of a size arrive.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// As large as this is large. Smaller ones fit through every tunnel.
const LARGE: u32 = 1_000;
const SMALL: u32 = 200;

/// Reads calls of ping, one after the other.
#[derive(Debug, Default)]
pub(crate) struct PingReader {
    current: Option<(IpAddr, u32)>,
    /// The machine itself, or a router, said why: then nobody has to guess.
    is_explained: bool,
    /// For each address the size that arrived, and the one that was lost.
    results: BTreeMap<IpAddr, (Option<u32>, Option<u32>)>,
}

impl PingReader {
    /// Takes in a line. `None`: it is none of ping's. Words, once large packets are lost where small ones arrive.
    pub(crate) fn line(&mut self, text: &str) -> Option<Option<String>> {
        let text = text.trim();
        if let Some(head) = head(text) {
            (self.current, self.is_explained) = (Some(head), false);
            return Some(None);
        }
        let (address, size) = self.current?;
        if text.contains("message too long") || text.contains("Frag needed") || text.contains("nreachable") {
            self.is_explained = true;
            return Some(None);
        }
        if let Some(lost) = loss(text) {
            let result = self.results.entry(address).or_default();
            match lost {
                100 if size >= LARGE && !self.is_explained => result.1 = Some(size),
                lost if lost < 100 && size <= SMALL => result.0 = Some(size),
                _ => {}
            }
            let (Some(small), Some(large)) = *result else { return Some(None) };
            *result = (None, None);
            return Some(Some(format!(
                "ping: large packets are lost: {large} bytes to {address}, while {small} bytes arrive"
            )));
        }
        let is_own = text.starts_with("---")
            || text.contains(" bytes from ")
            || text.starts_with("rtt ")
            || text.starts_with("round-trip");
        is_own.then_some(None)
    }
}

/// `PING 10.0.1.7 (10.0.1.7) 1400(1428) bytes of data.`, or `PING 10.0.1.7 (10.0.1.7): 56 data bytes`.
fn head(text: &str) -> Option<(IpAddr, u32)> {
    let rest = text.strip_prefix("PING ")?;
    let (_, rest) = rest.split_once('(')?;
    let (address, rest) = rest.split_once(')')?;
    let rest = rest.trim_start_matches([':', ' ']);
    let size: String = rest.chars().take_while(char::is_ascii_digit).collect();
    (rest.contains("bytes")).then_some((address.parse().ok()?, size.parse().ok()?))
}

/// `3 packets transmitted, 0 received, 100% packet loss, time 2031ms`
fn loss(text: &str) -> Option<u32> {
    let (before, _) = text.split_once("% packet loss").filter(|_| text.contains("packets transmitted"))?;
    let lost = before.rsplit(' ').next()?;
    lost.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let mut reader = PingReader::default();
        text.lines().filter_map(|line| reader.line(line).flatten()).collect()
    }

    const SMALL_ARRIVES: &str = "PING 10.0.1.7 (10.0.1.7) 56(84) bytes of data.\n64 bytes from 10.0.1.7: icmp_seq=1 ttl=62 time=0.5 ms\n\
        2 packets transmitted, 2 received, 0% packet loss, time 1001ms\n";
    const LARGE_LOST: &str = "PING 10.0.1.7 (10.0.1.7) 1400(1428) bytes of data.\n\
        3 packets transmitted, 0 received, 100% packet loss, time 2031ms\n";

    #[test]
    fn large_ones_are_lost_where_small_ones_arrive() {
        let words = ["ping: large packets are lost: 1400 bytes to 10.0.1.7, while 56 bytes arrive"];
        assert_eq!(read(&format!("{SMALL_ARRIVES}{LARGE_LOST}")), words);
        assert_eq!(read(&format!("{LARGE_LOST}{SMALL_ARRIVES}")), words);
        let none: [&str; 0] = [];
        assert_eq!(read(LARGE_LOST), none);
        assert_eq!(read(&LARGE_LOST.replace("1400(1428)", "56(84)")), none);
        let explained =
            LARGE_LOST.replace("data.\n", "data.\nping: local error: message too long, mtu=1430\n");
        assert_eq!(read(&format!("{SMALL_ARRIVES}{explained}")), none);
    }
}
