//! KubeControllersConfiguration: what it asks for, and the status that says what is done.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{Kind, Resource, parse_go_duration};
use serde_json::{Map, Value, json};

/// As Calico has it where the record says nothing.
const LEAK_GRACE: Duration = Duration::from_secs(15 * 60);
/// How often Calico looks at everything if leaks are not collected.
const LOOK_EVERY: Duration = Duration::from_secs(5 * 60);

/// What a controller goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configured {
    /// For how long an address must have leaked; `None`: leaks of nodes that exist are not collected.
    pub(crate) leak_grace: Option<Duration>,
    /// How often the whole cluster is observed if nothing happens.
    pub(crate) look_every: Duration,
    pub(crate) creates_host_endpoints: bool,
    pub(crate) syncs_labels: bool,
}

impl Configured {
    /// What the record asks for. A value that cannot be read counts as not given: the default is the careful choice.
    pub(crate) fn of(record: Option<&Resource>) -> Configured {
        let node = record.and_then(|record| record.spec("controllers")).and_then(|all| all.get("node"));
        let text = |path: &str| node.and_then(|node| node.pointer(path)).and_then(Value::as_str);
        let leak_grace = text("/leakGracePeriod").and_then(parse_go_duration).unwrap_or(LEAK_GRACE);
        let leak_grace = Some(leak_grace).filter(|grace| !grace.is_zero());
        Configured {
            leak_grace,
            look_every: leak_grace.map_or(LOOK_EVERY, |grace| grace / 2),
            creates_host_endpoints: text("/hostEndpoint/autoCreate") == Some("Enabled"),
            syncs_labels: text("/syncLabels") != Some("Disabled"),
        }
    }
}

/// Whether another controller of ours left a record with another status: the record with ours, if it must be written.
pub(crate) fn with_status(record: &Resource, environment: &BTreeMap<String, String>) -> Option<Resource> {
    let mut new = record.clone();
    let running = record.body.get("spec").cloned().unwrap_or_else(|| json!({}));
    let status = new.body.entry("status").or_insert_with(|| Value::Object(Map::new()));
    let status = status.as_object_mut()?;
    status.insert("runningConfig".to_owned(), running);
    status.insert("environmentVars".to_owned(), json!(environment));
    (new.body.get("status") != record.body.get("status")).then_some(new)
}

/// The record that Calico's controllers read.
pub(crate) fn key() -> model::Key {
    model::Key::cluster(Kind::KubeControllersConfiguration, "default")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(node: &Value) -> Resource {
        let mut record = Resource::new(Kind::KubeControllersConfiguration, "default");
        record.body.insert("spec".to_owned(), json!({ "controllers": { "node": node } }));
        record
    }

    #[test]
    fn the_record_decides_and_calicos_defaults_hold_without_it() {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        let grace = |node: &Value| Configured::of(Some(&record(node))).leak_grace;
        assert_eq!(Configured::of(None).leak_grace, Some(minutes(15)));
        assert_eq!(Configured::of(None).look_every, minutes(15) / 2);
        assert_eq!(grace(&json!({ "leakGracePeriod": "1h0m0s" })), Some(minutes(60)));
        assert_eq!(grace(&json!({ "leakGracePeriod": "0s" })), None);
        for unreadable in [json!({ "leakGracePeriod": "soon" }), json!({ "leakGracePeriod": 7 }), json!([])] {
            assert_eq!(grace(&unreadable), Some(minutes(15)), "{unreadable}");
        }
        let enabled = json!({ "hostEndpoint": { "autoCreate": "Enabled" }, "syncLabels": "Disabled" });
        let configured = Configured::of(Some(&record(&enabled)));
        assert!(configured.creates_host_endpoints && !configured.syncs_labels);
    }

    #[test]
    fn the_status_says_what_runs_and_is_written_once() {
        let environment = BTreeMap::from([("PLUMB_GRACE".to_owned(), "60s".to_owned())]);
        let written = with_status(&record(&json!({ "leakGracePeriod": "1m" })), &environment).unwrap();
        let status = &written.body["status"];
        assert_eq!(
            status["runningConfig"],
            json!({ "controllers": { "node": { "leakGracePeriod": "1m" } } })
        );
        assert_eq!(status["environmentVars"], json!({ "PLUMB_GRACE": "60s" }));
        assert_eq!(with_status(&written, &environment), None);
    }
}
