//! The blocks of the cluster, found by name, by address and by what they overlap.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::{Cidr, IpVersion};

use super::records::BlockView;

#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    all: BTreeMap<Cidr, BlockView>,
    /// How many there are of each length: hardly ever more than one length, so few places need to be searched.
    lengths: BTreeMap<(IpVersion, u8), usize>,
}

impl Blocks {
    pub(super) fn get(&self, cidr: &Cidr) -> Option<&BlockView> {
        self.all.get(cidr)
    }

    pub(super) fn cidrs(&self) -> impl Iterator<Item = &Cidr> {
        self.all.keys()
    }

    /// A block's record, or that there is none any more.
    pub(super) fn set(&mut self, cidr: Cidr, block: Option<BlockView>) {
        let length = (cidr.version(), cidr.prefix_len());
        let (is_there, before) = match block {
            Some(block) => (true, self.all.insert(cidr, block)),
            None => (false, self.all.remove(&cidr)),
        };
        match (is_there, before.is_some()) {
            (true, false) => *self.lengths.entry(length).or_default() += 1,
            (false, true) => {
                let count = self.lengths.entry(length).or_default();
                *count -= 1;
                if *count == 0 {
                    self.lengths.remove(&length);
                }
            }
            _ => {}
        }
    }

    /// Those that hold an address, the widest first.
    pub(super) fn around(&self, address: IpAddr) -> impl Iterator<Item = (Cidr, &BlockView)> {
        let version = IpVersion::of(address);
        let lengths = self.lengths.range((version, 0)..=(version, u8::MAX));
        lengths.filter_map(move |((_, length), _)| {
            let cidr = Cidr::containing(address, *length)?;
            Some((cidr, self.all.get(&cidr)?))
        })
    }

    /// Those that share addresses with a network, itself among them.
    pub(super) fn overlapping(&self, cidr: Cidr) -> impl Iterator<Item = Cidr> {
        let wider = self.around(cidr.network()).map(|(around, _)| around);
        let wider = wider.filter(move |around| around.prefix_len() < cidr.prefix_len());
        let has_narrower = || {
            let lengths = (cidr.version(), cidr.prefix_len().saturating_add(1))..=(cidr.version(), u8::MAX);
            self.lengths.range(lengths).next().is_some()
        };
        // Networks are sorted by their first address: what lies inside follows.
        let inside = has_narrower().then(|| {
            let after = self.all.range(cidr..).map(|(inside, _)| *inside);
            after.take_while(move |inside| cidr.contains(inside.network()))
        });
        let own = self.all.contains_key(&cidr).then_some(cidr).filter(|_| inside.is_none());
        let inside = inside.into_iter().flatten().filter(move |inside| cidr.contains_cidr(inside));
        wider.chain(own).chain(inside)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_cidr() -> impl Strategy<Value = Cidr> {
        prop_oneof![
            (0..8u32, 20..33u8).prop_map(|(place, length)| {
                Cidr::containing(IpAddr::from((0x0a00_0000_u32 + place * 16).to_be_bytes()), length).unwrap()
            }),
            (0..8u128, 116..129u8).prop_map(|(place, length)| {
                Cidr::containing(IpAddr::from(((0xfd00_u128 << 112) + place * 16).to_be_bytes()), length)
                    .unwrap()
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_overlaps_is_found(
            changes in proptest::collection::vec((any_cidr(), any::<bool>()), 0..60),
            asked in any_cidr(),
        ) {
            let mut blocks = Blocks::default();
            for (cidr, is_there) in changes {
                blocks.set(cidr, is_there.then(BlockView::default));
            }
            let expected: Vec<Cidr> = blocks.cidrs().filter(|cidr| cidr.overlaps(&asked)).copied().collect();
            let mut found: Vec<Cidr> = blocks.overlapping(asked).collect();
            found.sort();
            prop_assert_eq!(found, expected);
            let address = asked.network();
            let expected: Vec<Cidr> = blocks.cidrs().filter(|cidr| cidr.contains(address)).copied().collect();
            let mut found: Vec<Cidr> = blocks.around(address).map(|(cidr, _)| cidr).collect();
            found.sort();
            prop_assert_eq!(found, expected);
        }
    }
}
