//! A value against its schema: types, ranges, words, formats.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Report, formats};
use crate::manifest::expected;
use crate::path::FieldPath;
use crate::schema::{Field, List, Object, Type, Zero};

/// Checks every known field that is there, and that the required ones are. Fields no schema knows are left
/// alone: a newer Calico may have written them.
pub(super) fn object(values: &Map<String, Value>, object: &Object, path: &FieldPath, report: &mut Report) {
    for field in object.fields() {
        let path = path.key(field.name);
        match values.get(field.name) {
            Some(value) if !is_absent(value, field) => self::value(value, &field.ty, &path, report),
            _ if field.required => report.missing(&path),
            _ => {}
        }
    }
}

/// Where Calico's type is plain, its decoder cannot tell an empty text from none at all.
fn is_absent(value: &Value, field: &Field) -> bool {
    match value {
        Value::Null => !matches!(field.ty, Type::Nullable(_)),
        Value::String(text) => text.is_empty() && may_be_empty(field),
        _ => false,
    }
}

fn may_be_empty(field: &Field) -> bool {
    match field.ty {
        Type::Duration(_)
        | Type::Bool
        | Type::Int(..)
        | Type::Counter
        | Type::Float
        | Type::List(_)
        | Type::Map(_)
        | Type::Object(_) => false,
        Type::OneOf(_) | Type::OneOfAnyCase(_) => field.zero != Zero::Kept,
        _ => true,
    }
}

fn value(value: &Value, ty: &Type, path: &FieldPath, report: &mut Report) {
    match (ty, value) {
        (Type::Text, Value::String(_)) | (Type::Bool, Value::Bool(_)) | (Type::Any, _) => {}
        (Type::TextOf(check) | Type::Duration(check), Value::String(text)) => {
            report.verdict(path, value, check(text))
        }
        (Type::Sized(min, max, check), Value::String(text)) => {
            let verdict = sized(text, *min, *max).and_then(|()| check(text));
            report.verdict(path, value, verdict);
        }
        (Type::OneOf(words), Value::String(text)) => {
            report.require(words.contains(&text.as_str()), path, value, || one_of(words));
        }
        (Type::OneOfAnyCase(words), Value::String(text)) => {
            let known = words.iter().any(|word| word.eq_ignore_ascii_case(text));
            report.require(known, path, value, || one_of(words));
        }
        (Type::Int(min, max), Value::Number(number)) if number.is_i64() || number.is_u64() => {
            let number = number.as_i64();
            let inside = number.is_some_and(|number| (*min..=*max).contains(&number));
            report.require(inside, path, value, || range(*min, *max));
        }
        (Type::Counter, Value::Number(number)) if number.is_u64() => {}
        (Type::Float, Value::Number(_)) => {}
        (Type::Either(check) | Type::NamedNumber(check), Value::Number(_) | Value::String(_)) => {
            report.verdict(path, value, check(value));
        }
        (Type::AsNumber, Value::Number(_) | Value::String(_)) => {
            report.verdict(path, value, formats::as_number(value));
        }
        (Type::Port, Value::Number(_) | Value::String(_)) => {
            report.verdict(path, value, formats::port(value));
        }
        (Type::List(schema), Value::Array(items)) => list(items, schema, path, report),
        (Type::Map(ty), Value::Object(values)) => {
            for (key, value) in values {
                self::value(value, ty, &path.key(key), report);
            }
        }
        (Type::Object(schema), Value::Object(values)) => object(values, schema, path, report),
        (Type::Nullable(_), Value::Null) => {}
        (Type::Nullable(inner), _) => self::value(value, inner, path, report),
        _ => report.require(false, path, value, || format!("must be {}", expected(ty))),
    }
}

fn list(items: &[Value], schema: &List, path: &FieldPath, report: &mut Report) {
    let count = items.len();
    if count < schema.items_min {
        report.broken(path, "", format!("must have at least {} in the list, has {count}", schema.items_min));
    }
    if count > schema.items_max {
        report.broken(path, "", format!("must have at most {} in the list, has {count}", schema.items_max));
    }
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let path = path.index(index);
        value(item, &schema.item, &path, report);
        if schema.unique && !seen.insert(item.to_string()) {
            report.require(false, &path, item, || "must not be given twice".to_owned());
        }
    }
}

fn sized(text: &str, min: usize, max: usize) -> Result<(), String> {
    if text.len() < min {
        return Err(format!("must have at least {min} characters"));
    }
    if text.len() > max {
        return Err(format!("is {} characters too long; at most {max} are allowed", text.len() - max));
    }
    Ok(())
}

fn one_of(words: &[&str]) -> String {
    match words {
        [only] => format!("must be {only}"),
        [first @ .., last] => format!("must be {} or {last}", first.join(", ")),
        [] => "must not be set".to_owned(),
    }
}

fn range(min: i64, max: i64) -> String {
    match (min, max) {
        (i64::MIN, i64::MAX) => "must fit in 64 bits".to_owned(),
        (_, i64::MAX) => format!("must be {min} or more"),
        (i64::MIN, _) => format!("must be {max} or less"),
        _ => format!("must be between {min} and {max}"),
    }
}
