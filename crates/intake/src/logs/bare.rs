//! Lines without a log's prefix that name a trouble all the same: what a tool prints about itself, counters, tables of managers.

use evidence::Trouble;

/// More characters than these of a line say nothing new.
const CHARS_MAX: usize = 400;
/// Fewer connections than these are lost to the race by any busy node.
const INSERT_FAILED_MIN: u64 = 1_000;
/// A disk as full as this takes no more.
const FULL_PERCENT: u8 = 99;

/// The trouble that a row of a known tool shows, with words for it.
pub(super) fn of_tool(text: &str) -> Option<(Trouble, String)> {
    counters(text).or_else(|| managed(text)).or_else(|| disk(text))
}

/// The trouble that any other line names.
pub(super) fn named(text: &str) -> Option<(Trouble, String)> {
    let trouble = Trouble::named_in(text)?;
    Some((trouble, text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(CHARS_MAX).collect()))
}

/// `conntrack -S`: `cpu=0 found=1 … insert_failed=91022 drop=…`.
fn counters(text: &str) -> Option<(Trouble, String)> {
    text.trim_start().strip_prefix("cpu=")?;
    let count = text.split_whitespace().find_map(|word| word.strip_prefix("insert_failed="))?;
    let count: u64 = count.parse().ok()?;
    let words = format!("conntrack: insert_failed is high: {count} on one CPU");
    (count >= INSERT_FAILED_MIN).then_some((Trouble::ConnectionsNotInserted, words))
}

/// `networkctl`: `5 vxlan.calico vxlan routable configured`.
fn managed(text: &str) -> Option<(Trouble, String)> {
    const OURS: [&str; 4] = ["cali", "vxlan.calico", "tunl0", "wireguard.cali"];
    let words: Vec<&str> = text.split_whitespace().collect();
    let [index, link, _, _, setup] = words.as_slice() else { return None };
    let is_managed = matches!(*setup, "configured" | "configuring" | "failed");
    let is_ours = OURS.iter().any(|start| link.starts_with(start));
    (index.parse::<u32>().is_ok() && is_ours && is_managed)
        .then(|| (Trouble::DevicesManaged, format!("systemd-networkd manages {link} ({setup})")))
}

/// `df`: `/dev/sda2 79G 77G 1.1G 99% /`. Images that are mounted are always full.
fn disk(text: &str) -> Option<(Trouble, String)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [device, _, _, _, used, place] = words.as_slice() else { return None };
    let used: u8 = used.strip_suffix('%')?.parse().ok()?;
    let is_disk =
        device.starts_with("/dev/") && !device.starts_with("/dev/loop") && !device.starts_with("/dev/sr");
    (is_disk && used >= FULL_PERCENT)
        .then(|| (Trouble::DiskFull, format!("{device} at {place} is {used}% full")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_tools() {
        for (text, words) in [
            (
                "cpu=0   \tfound=2911 invalid=8401 insert=0 insert_failed=91022 drop=91022",
                Some("conntrack: insert_failed is high: 91022 on one CPU"),
            ),
            ("cpu=0   \tfound=2911 invalid=8401 insert=0 insert_failed=12 drop=12", None),
            (
                "  5 vxlan.calico    vxlan    routable    configured",
                Some("systemd-networkd manages vxlan.calico (configured)"),
            ),
            ("  8 cali0a1b2c3d4e5 ether    degraded    unmanaged", None),
            ("  2 ens3            ether    routable    configured", None),
            ("/dev/sda2        79G   77G  1.1G  99% /", Some("/dev/sda2 at / is 99% full")),
            ("/dev/loop3       64M   64M     0 100% /snap/core20/2318", None),
            ("/dev/sda2        79G   47G   32G  60% /", None),
        ] {
            assert_eq!(of_tool(text).map(|(_, words)| words).as_deref(), words, "{text}");
        }
    }
}
