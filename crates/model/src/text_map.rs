//! A map by text for records of which a hundred thousand are in memory at once. A tree's smallest node has room for eleven entries; the
//! maps of IPAM's records have one to six.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Index;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names that nearly all blocks have for every address. They take no memory of their own.
const COMMON: [&str; 7] = ["interface", "namespace", "node", "pod", "pod-uid", "timestamp", "type"];

type Name = Cow<'static, str>;

/// In the order of the names, each once.
#[derive(Clone, PartialEq, Eq)]
pub struct TextMap<V>(Vec<(Name, V)>);

impl<V> TextMap<V> {
    pub fn new() -> TextMap<V> {
        TextMap(Vec::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn get(&self, name: &str) -> Option<&V> {
        self.find(name).ok().map(|place| &self.0[place].1)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut V> {
        self.find(name).ok().map(|place| &mut self.0[place].1)
    }

    pub fn contains_key(&self, name: &str) -> bool {
        self.find(name).is_ok()
    }

    /// Gives back what was there.
    pub fn insert(&mut self, name: impl AsRef<str>, value: V) -> Option<V> {
        let name = name.as_ref();
        match self.find(name) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                self.0.reserve_exact(1);
                self.0.insert(place, (spelled(name), value));
                None
            }
        }
    }

    /// Leaves what is there.
    pub fn insert_if_absent(&mut self, name: impl AsRef<str>, value: V) {
        if !self.contains_key(name.as_ref()) {
            self.insert(name, value);
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<V> {
        self.find(name).ok().map(|place| self.0.remove(place).1)
    }

    pub fn retain(&mut self, mut is_wanted: impl FnMut(&str, &V) -> bool) {
        self.0.retain(|(name, value)| is_wanted(name, value));
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_ref().cmp(name))
    }
}

fn spelled(name: &str) -> Name {
    match COMMON.iter().find(|common| **common == name) {
        Some(common) => Cow::Borrowed(common),
        None => Cow::Owned(name.to_owned()),
    }
}

impl<V> Default for TextMap<V> {
    fn default() -> TextMap<V> {
        TextMap::new()
    }
}

impl<V: fmt::Debug> fmt::Debug for TextMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<V> Index<&str> for TextMap<V> {
    type Output = V;

    /// Panics if the name is not there, as any map does.
    fn index(&self, name: &str) -> &V {
        self.get(name).unwrap_or_else(|| panic!("{name:?} is not in the map"))
    }
}

/// Of the same name twice, the later one counts.
impl<K: AsRef<str>, V> FromIterator<(K, V)> for TextMap<V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> TextMap<V> {
        let mut map = TextMap::new();
        entries.into_iter().for_each(|(name, value)| drop(map.insert(name, value)));
        map
    }
}

impl<K: AsRef<str>, V, const N: usize> From<[(K, V); N]> for TextMap<V> {
    fn from(entries: [(K, V); N]) -> TextMap<V> {
        entries.into_iter().collect()
    }
}

impl<V: Clone> From<&BTreeMap<String, V>> for TextMap<V> {
    fn from(map: &BTreeMap<String, V>) -> TextMap<V> {
        TextMap(map.iter().map(|(name, value)| (spelled(name), value.clone())).collect())
    }
}

impl<V: Clone> From<&TextMap<V>> for BTreeMap<String, V> {
    fn from(map: &TextMap<V>) -> BTreeMap<String, V> {
        map.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }
}

impl<V: PartialEq> PartialEq<BTreeMap<String, V>> for TextMap<V> {
    fn eq(&self, other: &BTreeMap<String, V>) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter().map(|(name, value)| (name.as_str(), value)))
    }
}

impl<V> IntoIterator for TextMap<V> {
    type Item = (Name, V);
    type IntoIter = std::vec::IntoIter<(Name, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<V: Serialize> Serialize for TextMap<V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for TextMap<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TextMap<V>, D::Error> {
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

struct Reader<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Reader<V> {
    type Value = TextMap<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<TextMap<V>, A::Error> {
        let mut map = TextMap(Vec::with_capacity(COMMON.len()));
        while let Some((name, value)) = entries.next_entry::<Cow<'_, str>, V>()? {
            map.insert(name, value);
        }
        map.0.shrink_to_fit();
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_tree_with_less_memory(
            entries in prop::collection::vec(("pod|node|[a-c]{0,2}", any::<u8>()), 0..12),
            removed in "pod|node|[a-c]{0,2}",
        ) {
            let mut tree: BTreeMap<String, u8> = entries.iter().cloned().collect();
            let mut map: TextMap<u8> = entries.into_iter().collect();
            prop_assert_eq!(&map, &tree);
            prop_assert_eq!(map.get(&removed), tree.get(&removed));
            prop_assert_eq!(map.remove(&removed), tree.remove(&removed));
            prop_assert_eq!(&map, &tree);
            let text = serde_json::to_string(&tree).unwrap();
            prop_assert_eq!(serde_json::to_string(&map).unwrap(), &*text);
            let read: TextMap<u8> = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&read, &map);
            prop_assert_eq!(TextMap::from(&tree), read);
        }
    }

    #[test]
    fn the_later_of_two_counts_and_escapes_are_read() {
        let map: TextMap<u8> = serde_json::from_str(r#"{"a":1,"p\u006fd":2,"a":3}"#).unwrap();
        assert_eq!(map, TextMap::from([("a", 3), ("pod", 2)]));
        assert!(serde_json::from_str::<TextMap<u8>>("[]").is_err());
    }
}
