//! Secrets in the values of a bundle.

use serde_json::Value;

/// Texts and numbers under names of secrets, also as `{"name": NAME, "value": …}`, and texts that look like one. What a parser takes is not
/// deep.
pub(super) fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let names_secret =
                fields.get("name").and_then(Value::as_str).is_some_and(model::text::is_secret_name);
            for (name, field) in fields {
                if model::text::is_secret_name(name) || (name == "value" && names_secret) {
                    mask_secret(field);
                }
                mask(field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(content) => {
            let masked = model::text::masked(content);
            // What is merely unfit for a terminal is kept: records are compared letter by letter.
            if masked.contains(model::text::MASK) {
                *content = masked;
            }
        }
        _ => {}
    }
}

/// A secret's own value. Fields of an object say where the secret is kept.
fn mask_secret(value: &mut Value) {
    match value {
        Value::String(secret) if secret.is_empty() => {}
        Value::String(_) | Value::Number(_) => *value = Value::String(model::text::MASK.to_owned()),
        Value::Array(items) => items.iter_mut().for_each(mask_secret),
        // Something that was seen, with where.
        Value::Object(fields) => fields.get_mut("seen").into_iter().for_each(mask_secret),
        _ => {}
    }
}
