//! Nodes of a manifest made into JSON values, each as the type its schema gives it.

use serde_json::{Map, Number, Value};

use super::error::{ManifestError, Place};
use super::tree::{Content, Entry, Node};
use crate::path::FieldPath;
use crate::schema::{Object, Type};
use crate::{Kind, suggest};

/// Types the nodes of one resource.
pub(super) struct Typist {
    pub(super) kind: Kind,
    pub(super) document: usize,
    pub(super) path: FieldPath,
}

impl Typist {
    /// The fields of an object. A field that is null counts as absent, as everywhere in Kubernetes.
    pub(super) fn object(
        &mut self,
        entries: &[Entry],
        object: &Object,
    ) -> Result<Map<String, Value>, ManifestError> {
        let mut values = Map::new();
        for entry in entries {
            self.path.push_key(&entry.key);
            let Some(field) = object.field_in_any_case(&entry.key) else {
                return Err(self.unknown(entry, object));
            };
            // Only the spelling may differ from another key: equal keys are refused when the text is read.
            if values.contains_key(field.name) {
                return Err(self.given_twice(entry));
            }
            if let Some(value) = self.value(&entry.value, &field.ty)? {
                values.insert(field.name.to_owned(), value);
            }
            self.path.pop();
        }
        Ok(values)
    }

    /// The value of a node, or none for null.
    fn value(&mut self, node: &Node, ty: &Type) -> Result<Option<Value>, ManifestError> {
        if node.is_null() {
            return Ok(matches!(ty, Type::Nullable(_)).then_some(Value::Null));
        }
        let value = match (ty, &node.content) {
            (Type::Nullable(inner), _) => return self.value(node, inner),
            (Type::Any, _) => untyped(node),
            (Type::Object(object), Content::Map(entries)) => Value::Object(self.object(entries, object)?),
            (Type::Map(values), Content::Map(entries)) => self.map(entries, values)?,
            (Type::List(list), Content::List(items)) => self.list(items, &list.item)?,
            (_, Content::Scalar { text, plain }) => {
                return match scalar(ty, text, *plain) {
                    Ok(value) => Ok(Some(value)),
                    Err(advice) => Err(self.wrong(node, ty, advice)),
                };
            }
            _ => return Err(self.wrong(node, ty, None)),
        };
        Ok(Some(value))
    }

    fn list(&mut self, items: &[Node], item: &Type) -> Result<Value, ManifestError> {
        let mut values = Vec::with_capacity(items.len());
        for (index, node) in items.iter().enumerate() {
            self.path.push_index(index);
            let Some(value) = self.value(node, item)? else { return Err(self.wrong(node, item, None)) };
            values.push(value);
            self.path.pop();
        }
        Ok(Value::Array(values))
    }

    fn map(&mut self, entries: &[Entry], ty: &Type) -> Result<Value, ManifestError> {
        let mut values = Map::new();
        for entry in entries {
            self.path.push_key(&entry.key);
            let value = match self.value(&entry.value, ty)? {
                Some(value) => value,
                // `key:` in a map of texts is the empty text, as for Go's decoder.
                None if matches!(ty, Type::Text | Type::TextOf(_)) => Value::String(String::new()),
                None => return Err(self.wrong(&entry.value, ty, None)),
            };
            values.insert(entry.key.clone(), value);
            self.path.pop();
        }
        Ok(Value::Object(values))
    }

    fn place(&self, line: usize) -> Place {
        Place { document: self.document, line }
    }

    fn given_twice(&self, entry: &Entry) -> ManifestError {
        ManifestError::DuplicateKey { at: self.place(entry.line), field: self.path.to_string() }
    }

    fn unknown(&self, entry: &Entry, object: &Object) -> ManifestError {
        let suggestion = suggest::nearest(&entry.key, object.fields().map(|field| field.name));
        ManifestError::UnknownField {
            at: self.place(entry.line),
            kind: self.kind,
            field: self.path.to_string(),
            suggestion,
        }
    }

    fn wrong(&self, node: &Node, ty: &Type, advice: Option<&'static str>) -> ManifestError {
        ManifestError::WrongType {
            at: self.place(node.line),
            field: self.path.to_string(),
            found: found(node),
            expected: expected(ty),
            advice,
        }
    }
}

/// How a type is called in a message.
pub(crate) fn expected(ty: &Type) -> &'static str {
    match ty {
        Type::Text
        | Type::TextOf(_)
        | Type::Duration(_)
        | Type::Sized(..)
        | Type::OneOf(_)
        | Type::OneOfAnyCase(_) => "a string",
        Type::Bool => "true or false",
        Type::Int(..) => "a whole number",
        Type::Counter => "a whole number from 0 to 18446744073709551615",
        Type::Float => "a number",
        Type::Either(_) | Type::NamedNumber(_) | Type::AsNumber | Type::Port => "a number or a string",
        Type::List(_) => "a list",
        Type::Map(_) | Type::Object(_) => "a map",
        Type::Nullable(inner) => expected(inner),
        Type::Any => "a value",
    }
}

/// How a node is called in a message.
pub(super) fn found(node: &Node) -> String {
    match &node.content {
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "a map".to_owned(),
        Content::Scalar { .. } if node.is_null() => "null".to_owned(),
        Content::Scalar { text, plain: true } => crate::validate::shorten(text),
        Content::Scalar { text, plain: false } => crate::validate::shorten(&format!("{text:?}")),
    }
}

const UNQUOTE: &str = "write it without quotes";
const LEADING_ZERO: &str = "remove the leading zero: some readers take it for octal";

/// A scalar as its type wants it, or advice about what is wrong with it.
fn scalar(ty: &Type, text: &str, plain: bool) -> Result<Value, Option<&'static str>> {
    match ty {
        Type::Text
        | Type::TextOf(_)
        | Type::Duration(_)
        | Type::Sized(..)
        | Type::OneOf(_)
        | Type::OneOfAnyCase(_) => Ok(Value::String(text.to_owned())),
        Type::Bool => match boolean(text) {
            Some(value) if plain => Ok(Value::Bool(value)),
            Some(_) => Err(Some(UNQUOTE)),
            None => Err(None),
        },
        Type::Int(..) | Type::Counter => match integer(text) {
            Some(number) if plain => Ok(Value::Number(number)),
            Some(_) => Err(Some(UNQUOTE)),
            None if has_leading_zero(text) => Err(Some(LEADING_ZERO)),
            None => Err(None),
        },
        Type::Float => match integer(text).or_else(|| decimal(text)) {
            Some(number) if plain => Ok(Value::Number(number)),
            Some(_) => Err(Some(UNQUOTE)),
            None => Err(None),
        },
        Type::Either(_) | Type::NamedNumber(_) | Type::AsNumber | Type::Port => match integer(text) {
            Some(number) if plain => Ok(Value::Number(number)),
            _ => Ok(Value::String(text.to_owned())),
        },
        _ => Err(None),
    }
}

/// The words that Go's YAML reader takes for a truth value where a truth value is wanted.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

fn integer(text: &str) -> Option<Number> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(hex) = digits.strip_prefix("0x") {
        let value = u64::from_str_radix(hex, 16).ok()?;
        return (digits.len() == text.len()).then(|| value.into());
    }
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) || has_leading_zero(text) {
        return None;
    }
    if text.starts_with('-') {
        text.parse::<i64>().ok().map(Number::from)
    } else {
        digits.parse::<u64>().ok().map(Number::from)
    }
}

fn has_leading_zero(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn decimal(text: &str) -> Option<Number> {
    let plausible = text.bytes().any(|byte| byte.is_ascii_digit())
        && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E'));
    if !plausible {
        return None;
    }
    text.parse::<f64>().ok().and_then(Number::from_f64)
}

/// What YAML itself makes of a node, for values no schema describes.
fn untyped(node: &Node) -> Value {
    match &node.content {
        Content::List(items) => Value::Array(items.iter().map(untyped).collect()),
        Content::Map(entries) => {
            Value::Object(entries.iter().map(|entry| (entry.key.clone(), untyped(&entry.value))).collect())
        }
        Content::Scalar { .. } if node.is_null() => Value::Null,
        Content::Scalar { text, plain: true } => {
            match (text.as_str(), integer(text).or_else(|| decimal(text))) {
                ("true", _) => Value::Bool(true),
                ("false", _) => Value::Bool(false),
                (_, Some(number)) => Value::Number(number),
                _ => Value::String(text.clone()),
            }
        }
        Content::Scalar { text, plain: false } => Value::String(text.clone()),
    }
}
