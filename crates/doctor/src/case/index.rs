//! Things by a key, in sorted lists: made by one sort, and asked without following pointers.

/// Several things may have one key; they keep the order in which they came.
#[derive(Debug)]
pub struct Index<K, T> {
    keys: Vec<K>,
    things: Vec<T>,
}

impl<K: Copy + Ord, T: Copy> Index<K, T> {
    pub(super) fn new(entries: impl Iterator<Item = (K, T)>) -> Index<K, T> {
        let mut entries: Vec<(K, T)> = entries.collect();
        entries.sort_by_key(|(key, _)| *key);
        let (keys, things) = entries.into_iter().unzip();
        Index { keys, things }
    }

    pub fn get(&self, key: K) -> &[T] {
        let start = self.keys.partition_point(|known| *known < key);
        let count = self.keys[start..].iter().take_while(|known| **known == key).count();
        &self.things[start..start + count]
    }

    /// Every key with all of its things, in the keys' order.
    pub fn groups(&self) -> impl Iterator<Item = (K, &[T])> {
        let mut start = 0;
        self.keys.chunk_by(|one, other| one == other).map(move |keys| {
            let things = &self.things[start..start + keys.len()];
            start += keys.len();
            (keys[0], things)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_of_one_key_stay_together_in_their_order() {
        let index = Index::new([(2, 'x'), (1, 'a'), (2, 'b'), (3, 'c')].into_iter());
        assert_eq!(index.get(2), ['x', 'b']);
        assert_eq!(index.get(1), ['a']);
        assert!(index.get(0).is_empty() && index.get(4).is_empty());
        let groups: Vec<(i32, usize)> = index.groups().map(|(key, things)| (key, things.len())).collect();
        assert_eq!(groups, [(1, 1), (2, 2), (3, 1)]);
    }
}
