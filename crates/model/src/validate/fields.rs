//! Reading the fields that rules look at. What is absent or of the wrong type reads as empty: the schema has
//! already complained about it.

use serde_json::{Map, Value};

use crate::Resource;
use crate::path::FieldPath;

/// An object inside a resource, and where it stands.
pub(super) struct Fields<'a> {
    values: Option<&'a Map<String, Value>>,
    path: FieldPath,
}

impl<'a> Fields<'a> {
    pub(super) fn of_spec(resource: &'a Resource) -> Fields<'a> {
        let path = FieldPath::root().key("spec");
        Fields { values: resource.body.get("spec").and_then(Value::as_object), path }
    }

    fn at(value: Option<&'a Value>, path: FieldPath) -> Fields<'a> {
        Fields { values: value.and_then(Value::as_object), path }
    }

    pub(super) fn path(&self, field: &str) -> FieldPath {
        self.path.key(field)
    }

    pub(super) fn own_path(&self) -> &FieldPath {
        &self.path
    }

    pub(super) fn value(&self, field: &str) -> Option<&'a Value> {
        self.values?.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, field: &str) -> &'a str {
        self.value(field).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn flag(&self, field: &str) -> bool {
        self.value(field).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Whether the field holds anything but the zero of its type.
    pub(super) fn has(&self, field: &str) -> bool {
        self.value(field).is_some_and(is_set)
    }

    pub(super) fn object(&self, field: &str) -> Fields<'a> {
        Fields::at(self.value(field), self.path(field))
    }

    /// Whether the object itself is there.
    pub(super) fn exists(&self) -> bool {
        self.values.is_some()
    }

    /// The keys of a map, whatever they hold.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.values.into_iter().flatten().map(|(key, _)| key.as_str())
    }

    /// The texts of a map, by their keys.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let values = self.values.into_iter().flatten();
        values.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }

    /// The names of the fields that hold anything.
    pub(super) fn set_fields(&self) -> impl Iterator<Item = &'a str> {
        let values = self.values.into_iter().flatten();
        values.filter(|(_, value)| is_set(value)).map(|(field, _)| field.as_str())
    }

    /// The items of a list, each with its place.
    pub(super) fn items(&self, field: &str) -> impl Iterator<Item = (FieldPath, &'a Value)> + use<'a> {
        let path = self.path(field);
        let items = self.value(field).and_then(Value::as_array).into_iter().flatten();
        items.enumerate().map(move |(index, item)| (path.index(index), item))
    }

    /// The items of a list of objects.
    pub(super) fn objects(&self, field: &str) -> impl Iterator<Item = Fields<'a>> + use<'a> {
        self.items(field).map(|(path, item)| Fields::at(Some(item), path))
    }

    /// The items of a list of texts.
    pub(super) fn texts(&self, field: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.items(field).filter_map(|(_, item)| item.as_str())
    }

    pub(super) fn contains(&self, field: &str, wanted: &str) -> bool {
        self.texts(field).any(|item| item == wanted)
    }
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(_) => true,
    }
}
