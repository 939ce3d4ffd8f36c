//! Whether a value is what a schema says.

use serde_json::Value;

/// As much of JSON Schema as ours uses; a word it does not know is a fault, too.
pub(crate) fn faults(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, rule) in schema.as_object().expect("a schema is an object") {
        match (word.as_str(), value) {
            ("$schema" | "$id" | "title" | "description" | "$defs" | "format", _) => {}
            ("$ref", _) => {
                let path = rule.as_str().and_then(|path| path.strip_prefix('#')).expect("a local reference");
                found.extend(faults(root, root.pointer(path).expect("it leads somewhere"), value, at));
            }
            ("type", _) if !is_of_type(rule, value) => found.push(format!("{at}: is not of type {rule}")),
            ("const", _) if rule != value => found.push(format!("{at}: is not {rule}")),
            ("enum", _) if !rule.as_array().unwrap().contains(value) => {
                found.push(format!("{at}: {value} is none of the values"));
            }
            ("minimum", Value::Number(number)) if number.as_f64() < rule.as_f64() => {
                found.push(format!("{at}: is less than {rule}"));
            }
            ("required", Value::Object(fields)) => {
                let missing = rule
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(Value::as_str)
                    .filter(|name| !fields.contains_key(*name));
                found.extend(missing.map(|name| format!("{at}: {name} is missing")));
            }
            ("properties", Value::Object(fields)) => {
                for (name, rule) in rule.as_object().unwrap() {
                    if let Some(field) = fields.get(name) {
                        found.extend(faults(root, rule, field, &format!("{at}.{name}")));
                    }
                }
            }
            ("items", Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    found.extend(faults(root, rule, item, &format!("{at}[{index}]")));
                }
            }
            ("anyOf", _) => {
                let is_one = |rule| faults(root, rule, value, at).is_empty();
                if !rule.as_array().unwrap().iter().any(is_one) {
                    found.push(format!("{at}: is none of the alternatives"));
                }
            }
            ("type" | "const" | "enum" | "minimum" | "required" | "properties" | "items", _) => {}
            (other, _) => found.push(format!("{at}: the schema's word {other} is not known to this test")),
        }
    }
    found
}

fn is_of_type(rule: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("type {other} is not known to this test"),
    };
    match rule {
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        other => is(other.as_str().expect("a type is a word")),
    }
}
