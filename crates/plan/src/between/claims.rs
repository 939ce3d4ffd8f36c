//! Things of which there can be one only, though several may ask for it. Who comes first by name wins, in whatever order they came.

use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub(super) struct Claims<K, C, V> {
    /// Sorted by claimant; hardly ever more than one.
    wanted: BTreeMap<K, Vec<(C, V)>>,
}

impl<K: Ord + Copy, C: Ord, V: Copy + PartialEq> Claims<K, C, V> {
    pub(super) fn get(&self, key: &K) -> Option<V> {
        Some(self.wanted.get(key)?.first()?.1)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, V)> {
        self.wanted.iter().filter_map(|(key, claims)| Some((*key, claims.first()?.1)))
    }

    pub(super) fn len(&self) -> usize {
        self.wanted.len()
    }

    pub(super) fn insert(&mut self, key: K, claimant: C, value: V) {
        let claims = self.wanted.entry(key).or_insert_with(|| Vec::with_capacity(1));
        match claims.binary_search_by(|(known, _)| known.cmp(&claimant)) {
            Ok(place) => claims[place].1 = value,
            Err(place) => claims.insert(place, (claimant, value)),
        }
    }

    pub(super) fn remove(&mut self, key: &K, claimant: &C) {
        let Some(claims) = self.wanted.get_mut(key) else { return };
        claims.retain(|(known, _)| known != claimant);
        if claims.is_empty() {
            self.wanted.remove(key);
        }
    }
}

impl<K, C, V> Default for Claims<K, C, V> {
    fn default() -> Claims<K, C, V> {
        Claims { wanted: BTreeMap::new() }
    }
}
