//! A page of a list, read object by object: a page of whole pods or blocks takes ten times its own size once it is a tree of values, and
//! of each object only the record is kept.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::range::{Collection, Form};
use super::read::record;
use crate::Record;

/// The records of a page, in no particular order, and how the list goes on.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) metadata: PageMetadata,
    pub(super) records: Vec<Record>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMetadata {
    pub(super) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(super) next: String,
}

impl Page {
    /// What is not of the collection's range or is marked as removed is passed over.
    pub(super) fn read(
        form: Form<'_>,
        collection: &Collection,
        answer: &[u8],
    ) -> Result<Page, serde_json::Error> {
        let mut deserializer = serde_json::Deserializer::from_slice(answer);
        let page = Reader { form, collection }.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(page)
    }
}

/// Reads a whole answer, or the items in it.
#[derive(Clone, Copy)]
struct Reader<'c> {
    form: Form<'c>,
    collection: &'c Collection,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Page;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page, A::Error> {
        let (mut metadata, mut records) = (None, Vec::new());
        while let Some(field) = map.next_key::<String>()? {
            match field.as_str() {
                "metadata" => metadata = Some(map.next_value()?),
                "items" => records = map.next_value_seed(Items(self))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let metadata = metadata.ok_or_else(|| serde::de::Error::missing_field("metadata"))?;
        Ok(Page { metadata, records })
    }
}

struct Items<'c>(Reader<'c>);

impl<'de> DeserializeSeed<'de> for Items<'_> {
    type Value = Vec<Record>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Record>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_> {
    type Value = Vec<Record>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("objects")
    }

    /// `null` in an empty list of metadata.
    fn visit_unit<E>(self) -> Result<Vec<Record>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<Record>, A::Error> {
        let Items(Reader { form, collection }) = self;
        let mut records = Vec::new();
        while let Some(item) = items.next_element::<Map<String, Value>>()? {
            let decoded = collection.decode(form, item).filter(|decoded| !decoded.is_tombstone);
            records.extend(decoded.map(record));
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use model::kube::Layout;
    use model::{DevicePrefixes, Key, KeyRange};

    use super::super::range::collections;
    use super::*;

    fn read(range: &KeyRange, text: &str) -> Result<Page, serde_json::Error> {
        let form = Form { layout: Layout::V1, prefixes: &DevicePrefixes::default() };
        Page::read(form, &collections(range)[0], text.as_bytes())
    }

    #[test]
    fn an_empty_page_may_have_no_items() {
        for text in [
            r#"{"metadata":{"resourceVersion":"7"},"items":null}"#,
            r#"{"metadata":{"resourceVersion":"7"}}"#,
            r#"{"kind":"List","items":[],"metadata":{"resourceVersion":"7","remainingItemCount":3}}"#,
        ] {
            let page = read(&KeyRange::Handles, text).unwrap();
            assert_eq!((page.records.len(), page.metadata.resource_version.as_str()), (0, "7"));
            assert_eq!(page.metadata.next, "");
        }
    }

    #[test]
    fn records_are_read_and_everything_else_is_passed_over() {
        let page = read(
            &KeyRange::Handles,
            r#"{"items":[
                {"metadata":{"name":"a","resourceVersion":"3"},"spec":{"handleID":"a","block":{}}},
                {"metadata":{"name":"b","resourceVersion":"4"},"spec":{"handleID":"b","deleted":"true"}},
                {"metadata":{"name":"c","resourceVersion":"5"},"spec":{"handleID":"other"}},
                {"metadata":{"name":"d"},"spec":{"handleID":"other","deleted":true}},
                {"spec":{}}],
              "metadata":{"continue":"next","resourceVersion":"7"}}"#,
        )
        .unwrap();
        let names: Vec<String> = page.records.iter().map(|record| record.key.to_string()).collect();
        assert_eq!((names.len(), page.metadata.next.as_str()), (2, "next"), "{names:?}");
        assert_eq!(page.records[0].revision.as_str(), "3");
        assert_eq!(page.records[1].key, Key::Handle("c".into()), "it is not what its name says");
        assert!(model::ipam::Handle::decode(&"c".into(), &page.records[1].value).is_err());
    }

    #[test]
    fn what_is_no_page_is_refused() {
        for text in
            ["", "[]", "{}", r#"{"items":[]}"#, r#"{"metadata":{"resourceVersion":"7"},"items":[1]}"#, "{} x"]
        {
            assert!(read(&KeyRange::Handles, text).is_err(), "{text}");
        }
    }
}
