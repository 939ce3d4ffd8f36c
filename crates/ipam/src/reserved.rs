//! Addresses that are never given automatically.

use std::net::IpAddr;

use model::{Cidr, IpVersion, Resource};
use serde_json::Value;

/// Reserved addresses, as ranges that neither overlap nor touch. What several reservations cover together is covered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    v4: Vec<Range>,
    v6: Vec<Range>,
}

/// First and last address, as numbers.
type Range = (u128, u128);

impl Reservations {
    pub fn new(networks: &[Cidr]) -> Reservations {
        let of = |version: IpVersion| {
            let of_version = networks.iter().filter(|network| network.version() == version);
            merged(of_version.map(bounds).collect())
        };
        Reservations { v4: of(IpVersion::V4), v6: of(IpVersion::V6) }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.range_at(IpVersion::of(address), number(address)).is_some()
    }

    /// Whether every address of the network is reserved.
    pub fn covers(&self, network: &Cidr) -> bool {
        let (first, last) = bounds(network);
        self.range_at(network.version(), first).is_some_and(|range| last <= range.1)
    }

    /// How many addresses of the network are reserved; `u128::MAX` stands for all there could be.
    pub fn count_in(&self, network: &Cidr) -> u128 {
        let (first, last) = bounds(network);
        let inside = |range: &Range| {
            let (from, to) = (range.0.max(first), range.1.min(last));
            if from > to { 0 } else { (to - from).saturating_add(1) }
        };
        self.ranges(network.version()).iter().map(inside).fold(0, u128::saturating_add)
    }

    /// The last of the reserved addresses that follow without a gap, starting with the network's first.
    pub(crate) fn end_of_run(&self, network: &Cidr) -> Option<u128> {
        self.range_at(network.version(), bounds(network).0).map(|range| range.1)
    }

    fn range_at(&self, version: IpVersion, number: u128) -> Option<&Range> {
        let ranges = self.ranges(version);
        let after = ranges.partition_point(|range| range.0 <= number);
        ranges[..after].last().filter(|range| number <= range.1)
    }

    fn ranges(&self, version: IpVersion) -> &[Range] {
        match version {
            IpVersion::V4 => &self.v4,
            IpVersion::V6 => &self.v6,
        }
    }
}

/// The networks of an IPReservation. A bare address stands for itself; what cannot be read reserves nothing.
pub fn reserved_networks(reservation: &Resource) -> Vec<Cidr> {
    let read = |text: &str| {
        let text = text.trim();
        let address = text.parse().ok().map(Cidr::single);
        address.or_else(|| Cidr::parse_masked(text).ok())
    };
    let listed = reservation.spec("reservedCIDRs").and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(Value::as_str).filter_map(read).collect()
}

/// First and last address of a network, as numbers.
pub(crate) fn bounds(network: &Cidr) -> Range {
    let first = number(network.network());
    let host_bits = u32::from(network.version().bits() - network.prefix_len());
    let rest = 1u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1);
    (first, first | rest)
}

/// How many addresses a network has; `u128::MAX` where the number does not fit.
pub(crate) fn size(network: &Cidr) -> u128 {
    let (first, last) = bounds(network);
    (last - first).saturating_add(1)
}

pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use model::Kind;
    use serde_json::json;

    use super::*;

    fn reservations(networks: &[&str]) -> Reservations {
        Reservations::new(&networks.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>())
    }

    /// Checklist: `reserved_test.go`, `addr_filter_test.go`.
    #[test]
    fn several_reservations_cover_a_network_together() {
        let reserved =
            reservations(&["10.0.0.0/27", "10.0.0.32/28", "10.0.0.48/28", "10.0.0.48/30", "fd00::/64"]);
        let cases = [
            ("10.0.0.0/26", true, 64),
            ("10.0.0.0/25", false, 64),
            ("10.0.0.63/32", true, 1),
            ("10.0.0.64/26", false, 0),
            ("fd00::40/122", true, 64),
            ("fd01::/64", false, 0),
        ];
        for (network, is_covered, count) in cases {
            let network: Cidr = network.parse().unwrap();
            assert_eq!(
                (reserved.covers(&network), reserved.count_in(&network)),
                (is_covered, count),
                "{network}"
            );
        }
        assert!(
            reserved.contains("10.0.0.5".parse().unwrap())
                && !reserved.contains("10.0.0.64".parse().unwrap())
        );
    }

    #[test]
    fn huge_networks_saturate() {
        assert_eq!(reservations(&["::/0"]).count_in(&"::/0".parse().unwrap()), u128::MAX);
        assert_eq!(reservations(&["::/1", "8000::/1"]).count_in(&"::/0".parse().unwrap()), u128::MAX);
        assert_eq!(size(&"0.0.0.0/0".parse().unwrap()), 1 << 32);
        assert!(reservations(&["0.0.0.0/0"]).covers(&"255.255.255.255/32".parse().unwrap()));
    }

    #[test]
    fn bare_addresses_count_and_malformed_entries_do_not() {
        let mut resource = Resource::new(Kind::IpReservation, "r");
        let listed = json!({"reservedCIDRs": ["10.0.0.1", " 10.0.1.0/24 ", "x", "", "10.0.0.0/33", 7]});
        resource.body.insert("spec".to_owned(), listed);
        let networks: Vec<String> = reserved_networks(&resource).iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["10.0.0.1/32", "10.0.1.0/24"]);
    }
}
