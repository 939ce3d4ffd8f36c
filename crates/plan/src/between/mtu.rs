//! How large packets of pods may be, so that they fit the node's cards and its tunnels: what Calico leaves in `/var/lib/calico/mtu`.

use regex_lite::Regex;

use super::tunnel::{IPIP_DEVICE, VXLAN_DEVICES};

/// Cards as kernels name them. Bonds, bridges and names of somebody's own are not among them, as with Calico.
const PATTERN: &str = "^((en|wl|ww|sl|ib)[Pcopsvx].*|(eth|wlan|wwan).*)";
/// Where no card is found.
const FALLBACK: u32 = 1460;

/// What the header of a tunnel takes of each packet, in bytes.
pub(super) const VXLAN_V4_OVERHEAD: u32 = 50;
pub(super) const VXLAN_V6_OVERHEAD: u32 = 70;
pub(super) const IPIP_OVERHEAD: u32 = 20;

/// The same by the tunnel's device. `None`: it is no device of a tunnel between nodes.
pub fn tunnel_overhead(device: &str) -> Option<u32> {
    let [vxlan_v4, vxlan_v6] = VXLAN_DEVICES;
    [(vxlan_v4, VXLAN_V4_OVERHEAD), (vxlan_v6, VXLAN_V6_OVERHEAD), (IPIP_DEVICE, IPIP_OVERHEAD)]
        .into_iter()
        .find_map(|(name, bytes)| (name == device).then_some(bytes))
}

/// What encapsulation takes, by the tunnels that there are, and what was said instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overhead {
    pub(super) bytes: u32,
    /// The tunnel's own MTU, if that was said.
    pub(super) said: Option<u32>,
}

/// The largest packet that fits everywhere. `cards`: devices that are up, with their MTU.
pub(super) fn pod_mtu<'a>(
    cards: impl Iterator<Item = (&'a str, u32)>,
    pattern: Option<&str>,
    tunnels: &[Overhead],
) -> u32 {
    // One that cannot be understood is as good as none.
    let pattern = pattern.and_then(|text| Regex::new(text).ok());
    let pattern = pattern.unwrap_or_else(|| Regex::new(PATTERN).expect("it is an expression"));
    let card = cards.filter(|(name, _)| pattern.is_match(name)).map(|(_, mtu)| mtu).min().unwrap_or(FALLBACK);
    let of_tunnel = |tunnel: &Overhead| tunnel.said.unwrap_or(card.saturating_sub(tunnel.bytes));
    tunnels.iter().map(of_tunnel).min().unwrap_or(card)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cards: &[(&str, u32)], pattern: Option<&str>, tunnels: &[(u32, Option<u32>)], expected: u32) {
        let tunnels: Vec<Overhead> =
            tunnels.iter().map(|(bytes, said)| Overhead { bytes: *bytes, said: *said }).collect();
        assert_eq!(pod_mtu(cards.iter().copied(), pattern, &tunnels), expected, "{cards:?} {pattern:?}");
    }

    #[test]
    fn the_smallest_card_and_the_greediest_tunnel_decide() {
        let cards = [("lo", 65536), ("eth0", 1500), ("enp3s0", 9000), ("docker0", 1400)];
        check(&cards, None, &[], 1500);
        check(&cards, None, &[(50, None)], 1450);
        check(&cards, None, &[(50, None), (70, None)], 1430);
        check(&cards, None, &[(50, Some(1300)), (20, None)], 1300);
        check(&cards, Some("^enp"), &[], 9000);
        check(&cards, Some("("), &[], 1500);
        check(&[("bond0", 9000)], None, &[(50, None)], 1410);
    }
}
