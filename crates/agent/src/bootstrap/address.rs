//! Which IPv4 addresses this machine has.

use std::net::Ipv4Addr;

/// Every address of this machine.
pub(super) fn own_addresses() -> Vec<Ipv4Addr> {
    local_addresses(&std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default())
}

/// The local addresses in `/proc/net/fib_trie`.
fn local_addresses(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in trie.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.ends_with("host LOCAL")
            && let Some(address) = last
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn local_addresses_are_read_once() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n\
                    Local:\n     |-- 10.0.0.7\n        /32 host LOCAL\n     |-- 10.0.0.7\n        /32 host LOCAL\n";
        assert_eq!(local_addresses(trie), ["10.0.0.7".parse::<Ipv4Addr>().unwrap()]);
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(text in "[0-9A-F\\t\\n |./-]{0,200}") {
            let _ = local_addresses(&text);
        }
    }
}
