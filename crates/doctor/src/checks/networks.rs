//! Networks in order, to be asked which of them lie around another one or within it without a comparison with each.

use std::collections::{BTreeMap, BTreeSet};

use model::{Cidr, IpVersion};

/// Each network with its places in the list that it came from.
#[derive(Debug, Default)]
pub(super) struct Networks {
    places: BTreeMap<Cidr, Vec<usize>>,
    lengths: BTreeSet<(IpVersion, u8)>,
}

impl Networks {
    pub(super) fn new(networks: impl IntoIterator<Item = Cidr>) -> Networks {
        let mut made = Networks::default();
        for (place, network) in networks.into_iter().enumerate() {
            made.places.entry(network).or_default().push(place);
            made.lengths.insert((network.version(), network.prefix_len()));
        }
        made
    }

    /// The places of those that contain a network, in the order of the list.
    pub(super) fn around(&self, network: &Cidr) -> Vec<usize> {
        let mut found: Vec<usize> = self.groups_around(network).flatten().copied().collect();
        found.sort_unstable();
        found
    }

    /// The first of them in the list.
    pub(super) fn first_around(&self, network: &Cidr) -> Option<usize> {
        self.groups_around(network).filter_map(|group| group.first()).min().copied()
    }

    /// The places of those that lie in a network, in the order of the list.
    pub(super) fn within(&self, network: &Cidr) -> Vec<usize> {
        // In their order all that lie in a network follow it.
        let following = self.places.range(*network..).take_while(|(other, _)| network.contains_cidr(other));
        let mut found: Vec<usize> = following.flat_map(|(_, group)| group).copied().collect();
        found.sort_unstable();
        found
    }

    fn groups_around(&self, network: &Cidr) -> impl Iterator<Item = &Vec<usize>> {
        let (version, address) = (network.version(), network.network());
        let lengths = self.lengths.range((version, 0)..=(version, network.prefix_len()));
        lengths.filter_map(move |(_, length)| self.places.get(&Cidr::containing(address, *length)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network() -> impl Strategy<Value = Cidr> {
        let v4 = (0u32..16, 0u8..=32)
            .prop_map(|(bits, length)| (std::net::Ipv4Addr::from(bits << 28).into(), length));
        let v6 = (0u128..16, 0u8..=128)
            .prop_map(|(bits, length)| (std::net::Ipv6Addr::from(bits << 124).into(), length));
        prop_oneof![v4, v6].prop_map(|(address, length)| Cidr::containing(address, length).unwrap())
    }

    proptest! {
        #[test]
        fn the_same_are_found_as_by_comparing_each(
            networks in proptest::collection::vec(network(), 0..20),
            asked in network(),
        ) {
            let made = Networks::new(networks.iter().copied());
            let places = |is_found: &dyn Fn(&Cidr) -> bool| -> Vec<usize> {
                (0..networks.len()).filter(|place| is_found(&networks[*place])).collect()
            };
            let around = places(&|network| network.contains_cidr(&asked));
            prop_assert_eq!(made.first_around(&asked), around.first().copied());
            prop_assert_eq!(made.around(&asked), around);
            prop_assert_eq!(made.within(&asked), places(&|network| asked.contains_cidr(network)));
        }
    }
}
