//! What a template computes with: JSON values that know which of Calico's types they are.

use std::cmp::Ordering;

use model::Kind;
use model::schema::{self, Field, Object, Type, Zero};
use serde_json::Value;

use crate::compat::go_float;
use crate::output::go_document::zero_of;

/// Go's names of fields that are more than another spelling of the name in JSON.
const OTHER_NAMES: [(&str, &str); 3] = [
    ("BPFConntrackCleanupMode", "bpfConntrackMode"),
    ("ExternalNodesCIDRList", "externalNodesList"),
    ("WireguardPersistentKeepAlive", "wireguardKeepAlive"),
];

#[derive(Clone, Debug)]
pub(super) enum Val {
    /// Nothing, of no type.
    Nothing,
    /// A pointer to nothing.
    NilPointer,
    Data {
        value: Value,
        shape: Shape,
        /// It is one even if it points to a zero.
        is_pointer: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// What the template gets: everything that was asked for.
    Everything,
    /// A resource, or a list of resources.
    Document,
    Documents,
    /// A value of one of Calico's types.
    Typed(&'static Type),
    Plain,
}

impl Val {
    pub(super) fn plain(value: impl Into<Value>) -> Val {
        Val::Data { value: value.into(), shape: Shape::Plain, is_pointer: false }
    }

    pub(super) fn everything(documents: &[Value]) -> Val {
        Val::Data { value: Value::Array(documents.to_vec()), shape: Shape::Everything, is_pointer: false }
    }

    pub(super) fn number(number: f64, is_whole: bool) -> Val {
        if is_whole && number.abs() < 9e15 {
            return Val::plain(number as i64);
        }
        let value = serde_json::Number::from_f64(number).map_or(Value::Null, Value::Number);
        Val::Data { value, shape: Shape::Typed(&Type::Float), is_pointer: false }
    }

    pub(super) fn value(&self) -> &Value {
        match self {
            Val::Data { value, .. } => value,
            Val::Nothing | Val::NilPointer => &Value::Null,
        }
    }

    /// A field, by its name in Go or, in a map, by its key.
    pub(super) fn field(&self, name: &str) -> Result<Val, String> {
        let Val::Data { value, shape, .. } = self else {
            return match self {
                Val::NilPointer => Err(format!("nil pointer evaluating *v3.{name}")),
                _ => Err(format!("nil data; no entry for key {name:?}")),
            };
        };
        let unknown = || Err(format!("can't evaluate field {name} in type {}", self.type_name()));
        match (shape, value) {
            (Shape::Document, Value::Object(_)) => self.field_of_document(name).map_or_else(unknown, Ok),
            (Shape::Typed(Type::Object(object)), Value::Object(_)) => {
                field_of(value, object, name).map_or_else(unknown, Ok)
            }
            (Shape::Typed(Type::Map(ty)), Value::Object(fields)) => {
                Ok(fields.get(name).map_or(Val::Nothing, |value| typed(value.clone(), ty, false)))
            }
            (Shape::Typed(Type::Any) | Shape::Plain, Value::Object(fields)) => {
                Ok(fields.get(name).cloned().map_or(Val::Nothing, Val::plain))
            }
            _ => unknown(),
        }
    }

    fn field_of_document(&self, name: &str) -> Option<Val> {
        let value = self.value();
        let metadata = || field_of(value, schema::document(Kind::Node), "metadata");
        let items = value.get("items").filter(|_| value.get("kind").is_some_and(is_list));
        match (name, items) {
            ("Items", Some(items)) => {
                return Some(Val::Data { value: items.clone(), shape: Shape::Documents, is_pointer: false });
            }
            ("TypeMeta", _) => return Some(self.clone()),
            ("ObjectMeta", None) | ("ListMeta", Some(_)) => return metadata(),
            ("Kind", _) => return value.get("kind").cloned().map(Val::plain),
            ("APIVersion", _) => return value.get("apiVersion").cloned().map(Val::plain),
            ("ResourceVersion", Some(_)) => return metadata()?.field(name).ok(),
            (_, Some(_)) => return None,
            _ => {}
        }
        let kind = Kind::from_manifest(value.get("kind")?.as_str()?)?;
        let own = match name {
            "Spec" | "Status" => field_of(value, schema::document(kind), name),
            _ => None,
        };
        // The fields of metadata are the resource's own in Go.
        own.or_else(|| metadata()?.field(name).ok())
    }

    /// The items of a list, or the values of a map in the order of their keys, each with its index or key.
    pub(super) fn items(&self) -> Result<Vec<(Val, Val)>, String> {
        match self.value() {
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => {
                let index = |index: usize| Val::plain(index as u64);
                let of = |(at, item): (usize, &Value)| (index(at), self.inside(item.clone()));
                Ok(items.iter().enumerate().map(of).collect())
            }
            Value::Object(fields) if self.is_map() => {
                let of =
                    |(key, value): (&String, &Value)| (Val::plain(key.as_str()), self.inside(value.clone()));
                Ok(fields.iter().map(of).collect())
            }
            Value::Number(number) if number.is_u64() => {
                let most = number.as_u64().unwrap_or_default().min(1 << 16);
                Ok((0..most).map(|index| (Val::plain(index), Val::plain(index))).collect())
            }
            other => Err(format!("range can't iterate over {}", print_plain(other))),
        }
    }

    /// An item of this list or map.
    pub(super) fn inside(&self, item: Value) -> Val {
        let Val::Data { shape, .. } = self else { return Val::plain(item) };
        match shape {
            Shape::Everything | Shape::Documents => {
                Val::Data { value: item, shape: Shape::Document, is_pointer: false }
            }
            Shape::Typed(Type::List(list)) => typed(item, &list.item, false),
            Shape::Typed(Type::Map(ty)) => typed(item, ty, false),
            _ => Val::plain(item),
        }
    }

    fn is_map(&self) -> bool {
        matches!(self, Val::Data { shape: Shape::Typed(Type::Map(_) | Type::Any) | Shape::Plain, .. })
    }

    /// Whether `if` takes it for true.
    pub(super) fn truth(&self) -> bool {
        let Val::Data { value, is_pointer, .. } = self else { return false };
        if *is_pointer {
            return true;
        }
        match value {
            Value::Null => false,
            Value::Bool(flag) => *flag,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !self.is_map() || !fields.is_empty(),
        }
    }

    /// As Go prints it.
    pub(super) fn print(&self) -> String {
        match self {
            Val::Nothing => "<no value>".to_owned(),
            Val::NilPointer => "<nil>".to_owned(),
            Val::Data { value: Value::Number(number), shape: Shape::Typed(Type::Float), .. } => {
                go_float(number.as_f64().unwrap_or_default())
            }
            Val::Data { value, shape: Shape::Typed(Type::Object(object)), .. } => {
                let fields = object.fields().map(|field| {
                    let inner = field_of(value, object, field.name);
                    inner.map_or_else(String::new, |inner| inner.print())
                });
                format!("{{{}}}", fields.collect::<Vec<_>>().join(" "))
            }
            Val::Data { value: Value::Array(items), .. } => {
                let items: Vec<String> = items.iter().map(|item| self.inside(item.clone()).print()).collect();
                format!("[{}]", items.join(" "))
            }
            Val::Data { value, .. } => print_plain(value),
        }
    }

    pub(super) fn compare(&self, other: &Val) -> Option<Ordering> {
        match (self.value(), other.value()) {
            (Value::Number(a), Value::Number(b)) => a.as_f64()?.partial_cmp(&b.as_f64()?),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::Null, Value::Null) => Some(Ordering::Equal),
            _ => None,
        }
    }

    fn type_name(&self) -> String {
        match self {
            Val::Data { shape: Shape::Everything, .. } => "[]runtime.Object".to_owned(),
            Val::Data { shape: Shape::Document, value, .. } => {
                format!("*v3.{}", value.get("kind").and_then(Value::as_str).unwrap_or("Resource"))
            }
            Val::Data { value: Value::String(_), .. } => "string".to_owned(),
            Val::Data { value: Value::Bool(_), .. } => "bool".to_owned(),
            Val::Data { value: Value::Number(_), .. } => "int".to_owned(),
            Val::Data { value: Value::Array(_), .. } => "[]interface {}".to_owned(),
            _ => "struct".to_owned(),
        }
    }
}

fn is_list(kind: &Value) -> bool {
    kind.as_str().is_some_and(|kind| kind.ends_with("List"))
}

fn typed(value: Value, ty: &'static Type, is_pointer: bool) -> Val {
    match ty {
        Type::Nullable(inner) if !value.is_null() => typed(value, inner, true),
        _ if value.is_null() => Val::NilPointer,
        _ => Val::Data { value, shape: Shape::Typed(ty), is_pointer },
    }
}

/// A field of an object, with the zero of its type where the record holds none.
fn field_of(value: &Value, object: &'static Object, name: &str) -> Option<Val> {
    let other = OTHER_NAMES.iter().find(|(go, _)| *go == name);
    let field: &'static Field = object.field_in_any_case(other.map_or(name, |(_, json)| json))?;
    let is_pointer = field.zero == Zero::Kept;
    Some(match value.get(field.name) {
        Some(value) if !value.is_null() => typed(value.clone(), &field.ty, is_pointer),
        _ if is_pointer => Val::NilPointer,
        _ => typed(zero_of(field), &field.ty, false),
    })
}

fn print_plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or_default()),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(print_plain).collect::<Vec<_>>().join(" "))
        }
        Value::Object(fields) => {
            let pairs: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}:{}", print_plain(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use model::Resource;

    use super::*;

    #[test]
    fn every_kind_has_metadata() {
        for kind in Kind::all() {
            let document = Value::Object(Resource::new(kind, "a").to_document());
            let seen = Val::Data { value: document, shape: Shape::Document, is_pointer: false };
            for name in ["ObjectMeta", "Kind", "Spec", "Labels"] {
                assert!(seen.field(name).is_ok(), "{kind} {name}");
            }
            assert_eq!(seen.field("Name").unwrap().print(), "a");
        }
    }
}
