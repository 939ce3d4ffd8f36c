//! What programs read of the history that logs tell: it is what the published schema says.

use doctor::Report;
use doctor::timeline::Timeline;
use render::history_json;
use serde_json::Value;

use crate::reports::mixed;
use crate::schema::faults;

const SCHEMA: &str = include_str!("../../../../docs/doctor-logs.schema.json");
const REPORTS: &str = include_str!("../../../../docs/doctor.schema.json");
const LOGS: [&str; 2] = [
    include_str!("../../../../tests/incidents/stale-delete/kubelet-slave-197.log"),
    include_str!("../../../../tests/incidents/leaked-endpoints/kubelet-paas-slave-20-48.log"),
];

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

fn history(log: &str) -> Value {
    let evidence = intake::read([("kubelet.log", log.as_bytes())]);
    let timeline = Timeline::of(evidence.log.as_deref().unwrap());
    serde_json::from_str(&history_json(&doctor::diagnose_logs(&evidence), &timeline)).unwrap()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap()
}

#[test]
fn the_history_is_what_the_schema_says() {
    let (mut calls, mut sightings) = (Vec::new(), 0);
    for log in LOGS {
        let history = history(log);
        assert_eq!(faults(&schema(), &schema(), &history, "$"), [] as [&str; 0]);
        assert!(!list(&history, "findings").is_empty());
        calls.extend(list(&history, "pods").iter().flat_map(|pod| list(pod, "calls").clone()));
        sightings += list(&history, "pods").iter().map(|pod| list(pod, "sightings").len()).sum::<usize>();
    }
    // A list that is empty says nothing about its items.
    let has_effects = calls.iter().any(|call| !list(call, "effects").is_empty());
    let has_failure = calls.iter().any(|call| !call["failure"].is_null());
    assert!(has_effects && has_failure && sightings > 0, "{calls:?}");
    let of_reports: Value = serde_json::from_str(&history_json(&mixed(), &Timeline::default())).unwrap();
    assert_eq!(faults(&schema(), &schema(), &of_reports, "$"), [] as [&str; 0]);
    let nothing: Value =
        serde_json::from_str(&history_json(&Report::default(), &Timeline::default())).unwrap();
    assert_eq!(faults(&schema(), &schema(), &nothing, "$"), [] as [&str; 0]);
}

/// Every field that is written is described: whoever reads the schema knows them all.
#[test]
fn nothing_is_written_that_the_schema_does_not_name() {
    let schema = schema();
    let history = history(LOGS[0]);
    let call = &history["pods"][0]["calls"][0];
    let failed =
        history["pods"][0]["calls"].as_array().unwrap().iter().find(|call| !call["failure"].is_null());
    for (value, described) in [
        (&history, "/properties"),
        (&history["pods"][0], "/$defs/pod/properties"),
        (call, "/$defs/call/properties"),
        (&call["evidence"], "/$defs/exhibit/properties"),
        (&failed.expect("a DEL that failed")["failure"], "/$defs/told/properties"),
        (&history["findings"][0], "/$defs/finding/properties"),
    ] {
        let described = schema.pointer(described).unwrap().as_object().unwrap();
        let unknown: Vec<&String> =
            value.as_object().unwrap().keys().filter(|name| !described.contains_key(*name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

#[test]
fn the_schema_refuses_what_is_not_a_history() {
    let spoil = |change: fn(&mut Value)| {
        let mut value = history(LOGS[0]);
        change(&mut value);
        faults(&schema(), &schema(), &value, "$").join("; ")
    };
    assert_eq!(
        [
            spoil(|value| value["version"] = 2.into()),
            spoil(|value| value["pods"][0]["calls"][0]["command"] = "MOVE".into()),
            spoil(|value| value["pods"][0]["calls"][0]["withoutNetns"] = "no".into()),
            spoil(|value| value["pods"][0]["calls"][0]["failure"] = "it failed".into()),
            spoil(|value| drop(value["pods"][0].as_object_mut().unwrap().remove("sightings"))),
        ],
        [
            "$.version: is not 1",
            "$.pods[0].calls[0].command: \"MOVE\" is none of the values",
            "$.pods[0].calls[0].withoutNetns: is not of type \"boolean\"",
            "$.pods[0].calls[0].failure: is none of the alternatives",
            "$.pods[0]: sightings is missing",
        ]
    );
}

/// A finding is the same in both outputs, so it is described in the same words.
#[test]
fn findings_are_described_as_in_the_report() {
    let reports: Value = serde_json::from_str(REPORTS).unwrap();
    for name in ["severity", "finding", "exhibit", "symptom"] {
        assert_eq!(schema()["$defs"][name], reports["$defs"][name], "{name}");
    }
}
