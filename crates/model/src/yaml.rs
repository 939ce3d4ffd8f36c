//! Values as YAML text, for people and for other tools' readers.

use serde::Serialize;
use serde_json::Value;
use serde_saphyr::SerializerOptions;

/// A value as one YAML document, keys sorted. A text that some reader would take for something else (`yes`, `017`,
/// `1e3`, a date) is quoted, so that it stays a text for readers of YAML 1.1, as Go's are.
pub fn to_yaml(value: &Value) -> String {
    let mut options = SerializerOptions::default();
    options.prefer_block_scalars = false;
    // A closed set of types: nothing in a JSON value can fail to be written.
    let mut text = String::new();
    serde_saphyr::to_fmt_writer_with_options(&mut text, &Sorted(value), options)
        .expect("a JSON value can always be written as YAML");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Keys in order whatever map `serde_json` was built with: its `preserve_order` feature may be switched on by any
/// crate of the build.
struct Sorted<'a>(&'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(values) => {
                let mut entries: Vec<_> = values.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                serializer.collect_map(entries.into_iter().map(|(key, value)| (key, Sorted(value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Sorted)),
            scalar => scalar.serialize(serializer),
        }
    }
}
