//! Documents as Go's encoders print them: fields in the order of Calico's types, those that Go leaves out left out, and
//! those that it always writes always there.

use std::io::{self, Write};

use model::Kind;
use model::schema::{self, Field, Object, Type, Zero};
use serde_json::{Map, Value, json};

use super::document::Syntax;
use crate::compat;

/// One document as it is, several as an array, none as null.
pub(crate) fn write_several(out: &mut dyn Write, syntax: Syntax, documents: &[Value]) -> io::Result<()> {
    let whole = match documents {
        [] => Value::Null,
        [one] => as_go_has_it(one),
        several => several.iter().map(as_go_has_it).collect(),
    };
    match syntax {
        Syntax::Yaml => out.write_all(compat::go_yaml(&whole).as_bytes()),
        Syntax::Json => {
            let mut text = String::new();
            write_json(&mut text, &whole, Shape::Document, 0);
            out.write_all(text.as_bytes())
        }
    }
}

/// A resource, or a list of resources, with what Go's types always hold and without what they never write.
pub(super) fn as_go_has_it(document: &Value) -> Value {
    let mut document = document.clone();
    let Some(fields) = document.as_object_mut() else { return document };
    if let Some(items) = fields.get_mut("items").and_then(Value::as_array_mut) {
        items.iter_mut().for_each(|item| *item = as_go_has_it(item));
        return document;
    }
    if let Some(kind) = kind_of(fields) {
        let metadata = fields.remove("metadata").unwrap_or_else(|| json!({}));
        let head: Vec<(String, Value)> =
            ["apiVersion", "kind"].into_iter().filter_map(|name| fields.remove_entry(name)).collect();
        complete(fields, schema::document(kind));
        if let (Kind::CalicoNodeStatus, Some(Value::Object(status))) = (kind, fields.get_mut("status")) {
            // A time that Go writes even if there is none.
            status.entry("lastUpdated").or_insert(Value::Null);
        }
        for name in ["apiVersion", "kind", "metadata"] {
            fields.remove(name);
        }
        fields.extend(head);
        fields.insert("metadata".to_owned(), metadata);
    }
    document
}

fn kind_of(fields: &Map<String, Value>) -> Option<Kind> {
    Kind::from_manifest(fields.get("kind")?.as_str()?)
}

fn complete(values: &mut Map<String, Value>, object: &Object) {
    for field in object.fields() {
        match values.get_mut(field.name) {
            Some(value) => complete_value(value, &field.ty),
            None if field.zero == Zero::Written => {
                let mut zero = zero_of(field);
                complete_value(&mut zero, &field.ty);
                values.insert(field.name.to_owned(), zero);
            }
            None => {}
        }
        if field.zero == Zero::Dropped && values.get(field.name).is_some_and(is_zero) {
            values.remove(field.name);
        }
    }
}

fn complete_value(value: &mut Value, ty: &Type) {
    match (ty, value) {
        (Type::Object(object), Value::Object(values)) => complete(values, object),
        (Type::List(list), Value::Array(items)) => {
            items.iter_mut().for_each(|item| complete_value(item, &list.item));
        }
        _ => {}
    }
}

/// The zero of a field's type.
pub(super) fn zero_of(field: &Field) -> Value {
    match field.ty {
        Type::Bool => false.into(),
        Type::Int(..) | Type::Counter | Type::Float | Type::AsNumber => 0.into(),
        Type::List(_) => json!([]),
        Type::Map(_) | Type::Object(_) => json!({}),
        Type::Nullable(_) | Type::Any => Value::Null,
        _ => "".into(),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// In which order the fields of a map stand.
#[derive(Clone, Copy)]
enum Shape {
    /// A resource, or a list of resources.
    Document,
    Typed(&'static Type),
    Sorted,
}

const INDENT: &str = "  ";

fn write_json(text: &mut String, value: &Value, shape: Shape, depth: usize) {
    match value {
        Value::Array(items) if items.is_empty() => text.push_str("[]"),
        Value::Object(fields) if fields.is_empty() => text.push_str("{}"),
        Value::Array(items) => {
            let shape = match shape {
                Shape::Document => Shape::Document,
                Shape::Typed(Type::List(list)) => Shape::Typed(&list.item),
                _ => Shape::Sorted,
            };
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                begin_line(text, index, depth + 1);
                write_json(text, item, shape, depth + 1);
            }
            end_line(text, depth);
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            for (index, (name, value, shape)) in in_order(fields, shape).into_iter().enumerate() {
                begin_line(text, index, depth + 1);
                text.push_str(&escaped(name));
                text.push_str(": ");
                write_json(text, value, shape, depth + 1);
            }
            end_line(text, depth);
            text.push('}');
        }
        Value::String(string) => text.push_str(&escaped(string)),
        other => text.push_str(&other.to_string()),
    }
}

fn begin_line(text: &mut String, index: usize, depth: usize) {
    text.push_str(if index > 0 { ",\n" } else { "\n" });
    text.push_str(&INDENT.repeat(depth));
}

fn end_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.push_str(&INDENT.repeat(depth));
}

/// The fields of a map in the order of its type; what the type does not know comes last.
fn in_order(fields: &Map<String, Value>, shape: Shape) -> Vec<(&String, &Value, Shape)> {
    let object = match shape {
        Shape::Typed(Type::Object(object)) => Some(*object),
        Shape::Document => kind_of(fields).map(schema::document),
        _ => None,
    };
    let mut order: Vec<(&str, Shape)> = Vec::new();
    if matches!(shape, Shape::Document) {
        order.extend(["kind", "apiVersion", "metadata"].map(|name| (name, Shape::Sorted)));
        order.push(("items", Shape::Document));
    }
    let known = object.into_iter().flat_map(Object::fields);
    order.retain(|(name, _)| *name != "metadata" || object.is_none());
    for field in known {
        let is_head = matches!(shape, Shape::Document) && matches!(field.name, "kind" | "apiVersion");
        if !is_head {
            order.push((field.name, Shape::Typed(&field.ty)));
        }
    }
    // What every document has is at the end of the table of its kind, and at the beginning of Go's types.
    if let (Shape::Document, Some(at)) = (shape, order.iter().position(|(name, _)| *name == "metadata")) {
        let metadata = order.remove(at);
        order.insert(2.min(order.len()), metadata);
    }
    let mut sorted: Vec<(&String, &Value, Shape)> = Vec::new();
    for (name, shape) in &order {
        if let Some((name, value)) = fields.get_key_value(*name) {
            sorted.push((name, value, *shape));
        }
    }
    let rest = fields.iter().filter(|(name, _)| !order.iter().any(|(known, _)| known == name));
    sorted.extend(rest.map(|(name, value)| (name, value, Shape::Sorted)));
    sorted
}

/// A text as Go's encoder writes it, which also escapes what HTML would read.
fn escaped(text: &str) -> String {
    let mut out = Value::from(text).to_string();
    for (character, escape) in [
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u{2028}", "\\u2028"),
        ("\u{2029}", "\\u2029"),
    ] {
        out = out.replace(character, escape);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(syntax: Syntax, documents: &[Value]) -> String {
        let mut out = Vec::new();
        write_several(&mut out, syntax, documents).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn fields_stand_in_the_order_of_calicos_types() {
        let pool = json!({
            "apiVersion": "projectcalico.org/v3", "kind": "IPPool",
            "metadata": {"uid": "u", "name": "a", "labels": {"z": "<1>", "b": "2"}},
            "spec": {"natOutgoing": false, "blockSize": 26, "cidr": "10.0.0.0/16", "allowedUses": ["Workload"]},
        });
        let expected = r#"{
  "kind": "IPPool",
  "apiVersion": "projectcalico.org/v3",
  "metadata": {
    "name": "a",
    "uid": "u",
    "labels": {
      "b": "2",
      "z": "\u003c1\u003e"
    }
  },
  "spec": {
    "cidr": "10.0.0.0/16",
    "blockSize": 26,
    "allowedUses": [
      "Workload"
    ]
  }
}"#;
        assert_eq!(written(Syntax::Json, &[pool]), expected);
    }

    #[test]
    fn what_go_always_writes_is_there_and_what_it_leaves_out_is_not() {
        let policy = json!({"kind": "NetworkPolicy", "metadata": {"name": "p"},
            "spec": {"ingress": [{"action": "Allow", "source": {"selector": ""}}], "egress": []}});
        let expected = "kind: NetworkPolicy\nmetadata:\n  name: p\nspec:\n  ingress:\n  - action: Allow\n";
        assert_eq!(written(Syntax::Yaml, &[policy]), expected);
        let node = json!({"kind": "Node", "metadata": {"name": "node-1"}});
        assert_eq!(
            written(Syntax::Yaml, &[node]),
            "kind: Node\nmetadata:\n  name: node-1\nspec: {}\nstatus: {}\n"
        );
    }

    #[test]
    fn none_is_null_and_several_are_an_array() {
        assert_eq!(written(Syntax::Yaml, &[]), "null\n");
        assert_eq!(written(Syntax::Json, &[]), "null");
        let tier = json!({"kind": "Tier", "metadata": {"name": "t"}, "spec": {"order": 1_000_000}});
        let list = json!({"kind": "TierList", "apiVersion": "v", "items": [tier], "metadata": {"resourceVersion": "7"}});
        let text = written(Syntax::Json, &[list]);
        assert!(
            text.starts_with("{\n  \"kind\": \"TierList\",\n  \"apiVersion\": \"v\",\n  \"metadata\": {"),
            "{text}"
        );
        assert!(text.contains("\"status\": {}"), "{text}");
        assert!(written(Syntax::Json, &[tier_of("a"), tier_of("b")]).starts_with("[\n  {\n    \"kind\""));
    }

    fn tier_of(name: &str) -> Value {
        json!({"kind": "Tier", "metadata": {"name": name}})
    }
}
