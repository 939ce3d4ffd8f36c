//! What programs read: it is what the published schema says.

use doctor::Report;
use render::json;
use serde_json::Value;

use crate::reports::{huge, mixed};

const SCHEMA: &str = include_str!("../../../../docs/doctor.schema.json");

fn read(report: &Report) -> Value {
    let taken_at = "2026-01-02T03:04:05Z".parse().unwrap();
    serde_json::from_str(&json(report, Some(taken_at))).unwrap()
}

#[test]
fn the_output_is_what_the_schema_says() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    for report in [Report::default(), mixed(), huge(50)] {
        assert_eq!(faults(&schema, &schema, &read(&report), "$"), [] as [&str; 0]);
    }
    let without_time: Value = serde_json::from_str(&json(&mixed(), None)).unwrap();
    assert_eq!(faults(&schema, &schema, &without_time, "$"), [] as [&str; 0]);
}

#[test]
fn the_schema_refuses_what_is_not_a_report() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let spoil = |change: fn(&mut Value)| {
        let mut value = read(&mixed());
        change(&mut value);
        faults(&schema, &schema, &value, "$").join("; ")
    };
    let refused = [
        spoil(|value| value["findings"][0]["severity"] = "bad".into()),
        spoil(|value| value["findings"][0]["evidence"][0]["line"] = "three".into()),
        spoil(|value| drop(value["findings"][0].as_object_mut().unwrap().remove("remedy"))),
        spoil(|value| value["unseen"] = Value::Null),
        spoil(|value| value["version"] = 2.into()),
    ];
    assert_eq!(
        refused,
        [
            "$.findings[0].severity: \"bad\" is none of the values",
            "$.findings[0].evidence[0].line: is not of type [\"integer\",\"null\"]",
            "$.findings[0]: remedy is missing",
            "$.unseen: is not of type \"array\"",
            "$.version: is not 1",
        ]
    );
}

#[test]
fn every_finding_is_there_however_many() {
    assert_eq!(read(&huge(5_000))["findings"].as_array().unwrap().len(), 5_000);
}

/// As much of JSON Schema as ours uses; a word it does not know is a fault, too.
fn faults(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
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
        "null" => value.is_null(),
        other => panic!("type {other} is not known to this test"),
    };
    match rule {
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        other => is(other.as_str().expect("a type is a word")),
    }
}
