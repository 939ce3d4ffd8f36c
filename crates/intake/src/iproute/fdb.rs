//! `bridge fdb`: `66:05:a1:0b:0c:0d dev vxlan.calico dst 10.0.0.2 self permanent`.

use evidence::kernel::Forward;
use model::Mac;

pub(super) enum Entry {
    /// Behind which node a VXLAN device has a hardware address.
    Forward(Forward),
    /// Of a bridge, or of groups: they lead to no node.
    Other,
}

/// `None`: it is no such line. Where the command asks for one device, its lines do not name it: the one that Calico makes.
pub(super) fn read(text: &str) -> Option<Entry> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mac: Mac = words.first()?.parse().ok()?;
    let after = |word: &str| {
        let at = words.iter().position(|found| *found == word)?;
        words.get(at + 1).copied()
    };
    let is_entry = words.contains(&"self") || words.contains(&"permanent") || words.contains(&"master");
    let device =
        after("dev").or_else(|| (is_entry && words.contains(&"dst")).then_some("vxlan.calico"))?.to_owned();
    let node = after("dst").and_then(|text| text.parse().ok());
    Some(node.map_or(Entry::Other, |node| Entry::Forward(Forward { device, mac, node })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_tunnels_are_told_from_others() {
        let Some(Entry::Forward(entry)) =
            read("66:05:a1:0b:0c:0d dev vxlan.calico dst 10.0.0.2 self permanent")
        else {
            panic!("an entry of a tunnel");
        };
        assert_eq!((entry.device.as_str(), entry.node.to_string().as_str()), ("vxlan.calico", "10.0.0.2"));
        assert!(matches!(read("33:33:00:00:00:01 dev eth0 self permanent"), Some(Entry::Other)));
        assert!(read("10.0.0.2 dev eth0 lladdr 66:05:a1:0b:0c:0d REACHABLE").is_none());
    }
}
