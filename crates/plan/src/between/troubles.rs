//! What cannot be reached as it should be, by block, and how often each reason occurs. Who wants the reasons need not go through
//! the blocks: in a cluster where something is wrong that may be all of them.

use std::collections::BTreeMap;

use model::Cidr;

use super::trouble::Trouble;

#[derive(Clone, Debug, Default)]
pub(super) struct Troubles {
    /// With the nodes.
    of_blocks: BTreeMap<Cidr, Box<[(String, Trouble)]>>,
    counts: BTreeMap<Trouble, usize>,
}

impl Troubles {
    /// All there is to say about a block now.
    pub(super) fn set(&mut self, cidr: Cidr, found: Vec<(String, Trouble)>) {
        for (_, trouble) in &found {
            *self.counts.entry(*trouble).or_default() += 1;
        }
        let before = match found.is_empty() {
            true => self.of_blocks.remove(&cidr),
            false => self.of_blocks.insert(cidr, found.into()),
        };
        for (_, trouble) in before.iter().flatten() {
            if let Some(count) = self.counts.get_mut(trouble) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(trouble);
                }
            }
        }
    }

    /// Something is wrong with the record of this block.
    pub(super) fn is_of_record(&self, cidr: &Cidr) -> bool {
        self.of_blocks.get(cidr).into_iter().flatten().any(|(_, trouble)| trouble.is_of_record())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Cidr, &str, Trouble)> {
        self.of_blocks.iter().flat_map(|(cidr, found)| {
            found.iter().map(move |(node, trouble)| (cidr, node.as_str(), *trouble))
        })
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = (Trouble, usize)> {
        self.counts.iter().map(|(trouble, count)| (*trouble, *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_as_blocks_come_and_go() {
        let mut troubles = Troubles::default();
        let (a, b): (Cidr, Cidr) = ("10.0.0.0/26".parse().unwrap(), "10.0.1.0/26".parse().unwrap());
        let of = |trouble| ("n".to_owned(), trouble);
        troubles.set(a, vec![of(Trouble::Apart), of(Trouble::NoTunnel)]);
        troubles.set(b, vec![of(Trouble::Apart)]);
        assert_eq!(troubles.counts().collect::<Vec<_>>(), [(Trouble::Apart, 2), (Trouble::NoTunnel, 1)]);
        troubles.set(a, vec![of(Trouble::NoPool)]);
        assert_eq!(troubles.counts().collect::<Vec<_>>(), [(Trouble::Apart, 1), (Trouble::NoPool, 1)]);
        troubles.set(a, Vec::new());
        troubles.set(b, Vec::new());
        assert_eq!((troubles.counts().count(), troubles.iter().count()), (0, 0));
    }
}
