//! What programs read: it is what the published schema says.

use doctor::Report;
use render::json;
use serde_json::Value;

use crate::reports::{huge, mixed};
use crate::schema::faults;

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
