//! Lines that are JSON: kubelets with `--logging-format=json`, and containerd with `format = "json"`.
//!
//! They are written out as klog writes the same with fields, so that whoever understands that understands these.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use serde_json::{Map, Value};

use crate::words;

use super::prefix::{Level, level_of};

/// An entry, taken apart.
pub(super) struct Entry {
    pub(super) at: Option<DateTime>,
    pub(super) level: Level,
    /// `"message" key="value"` for a kubelet's, the message alone in front for others.
    pub(super) text: String,
}

/// Beside these and the message there are only fields of the entry.
const NOT_FIELDS: [&str; 7] = ["ts", "time", "level", "v", "msg", "caller", "logger"];

/// A line of a log is no longer; read as JSON, a longer one might take many times its length of memory.
const ENTRY_BYTES_MAX: usize = 256 << 10;

pub(super) fn read(text: &str) -> Option<Entry> {
    // Documents begin like it, too: most are told apart without being read.
    let is_like_it = text.len() <= ENTRY_BYTES_MAX && text.starts_with('{') && text.ends_with('}');
    if !is_like_it || !text.contains("\"msg\":") {
        return None;
    }
    let entry: Map<String, Value> = serde_json::from_str(text).ok()?;
    let message = entry.get("msg")?.as_str()?;
    let at = time(entry.get("ts").or_else(|| entry.get("time"))?)?;
    let level = match entry.get("level").and_then(Value::as_str) {
        Some(word) => level_of(word),
        // A kubelet's errors have no verbosity.
        None if entry.contains_key("v") => Level::Usual,
        None => Level::Error,
    };
    let is_klog = entry.contains_key("ts");
    let mut text = if is_klog { quoted(message) } else { message.to_owned() };
    for (key, value) in entry.iter().filter(|(key, _)| !NOT_FIELDS.contains(&key.as_str())) {
        text.push_str(&format!(" {key}={}", shown(value)));
    }
    Some(Entry { at: Some(at), level, text })
}

/// Seconds or, in newer kubelets, milliseconds since 1970; or a time in words.
fn time(value: &Value) -> Option<DateTime> {
    /// As seconds this is far in the future, as milliseconds it is 1973.
    const SECONDS_MAX: f64 = 1e11;
    if let Some(text) = value.as_str() {
        return words::local_time(text).map(|(time, _)| time);
    }
    let number = value.as_f64()?;
    let milliseconds = if number < SECONDS_MAX { number * 1e3 } else { number };
    // Cut to what a number of this kind can tell, and bounded by `as`: what is no time is refused below.
    let at = Timestamp::from_microsecond((milliseconds * 1e3) as i64).ok()?;
    Some(Offset::UTC.to_datetime(at))
}

/// As klog writes a value: objects by their names.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(values) => format!("[{}]", values.iter().map(shown).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str);
            match (text("namespace"), text("name")) {
                (Some(namespace), Some(name)) => quoted(&format!("{namespace}/{name}")),
                (None, Some(name)) => quoted(name),
                _ => quoted(&value.to_string()),
            }
        }
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::tests::events;
    use super::*;
    use evidence::log::Happening;

    #[test]
    fn a_kubelets_entries_mean_what_its_lines_mean() {
        let id = "a".repeat(64);
        let found = events(&format!(
            "{{\"ts\":1704067200.5,\"caller\":\"kubelet/kubelet.go:1\",\"msg\":\"SyncLoop ADD\",\"v\":2,\"source\":\"api\",\"pods\":[{{\"name\":\"web-0\",\"namespace\":\"shop\"}}]}}\n\
             Jan 01 00:00:01 n1 kubelet[7]: {{\"ts\":1704067201000.25,\"caller\":\"a.go:1\",\"msg\":\"StopPodSandbox from runtime service failed\",\"err\":\"rpc error: failed to teardown pod \\\"web-0_shop\\\" network: x\",\"podSandboxID\":\"{id}\"}}",
        ));
        let Happening::PodAdded { pod, .. } = &found[0].what else { panic!("{found:?}") };
        assert_eq!(pod.to_string(), "shop/web-0");
        assert_eq!(found[0].at.unwrap().to_string(), "2024-01-01T00:00:00.5");
        let Happening::SandboxStopFailed { container_id, pod, error } = &found[1].what else {
            panic!("{found:?}")
        };
        assert_eq!((container_id, pod.as_ref().unwrap().to_string().as_str()), (&id, "shop/web-0"));
        assert!(error.starts_with("rpc error: failed to teardown pod \"web-0_shop\""), "{error}");
        assert_eq!(found[1].at.unwrap().to_string(), "2024-01-01T00:00:01.00025");
        assert_eq!(found[1].node, Some("n1".into()));
    }

    #[test]
    fn containerd_writes_the_message_first() {
        let id = "b".repeat(64);
        let found = events(&format!(
            "{{\"level\":\"info\",\"msg\":\"RunPodSandbox for \\u0026PodSandboxMetadata{{Name:web-0,Uid:u1,Namespace:shop,Attempt:0,}} returns sandbox id \\\"{id}\\\"\",\"time\":\"2024-01-01T00:00:00.1Z\"}}"
        ));
        let Happening::SandboxStarted { container_id, .. } = &found[0].what else { panic!("{found:?}") };
        assert_eq!(container_id, &id);
    }

    #[test]
    fn other_documents_are_no_logs() {
        for text in [
            "{\"msg\":\"x\"}",
            "{\"kind\":\"Pod\",\"msg\":1,\"ts\":1}",
            "{\"msg\":\"x\",\"ts\":true}",
            "{\"msg\":\"x\",\"ts\":1e300}",
            "{\"msg\":",
        ] {
            assert!(read(text).is_none(), "{text}");
        }
        let error = read("{\"ts\":1704067200,\"msg\":\"m\",\"err\":\"e\"}").unwrap();
        assert_eq!((error.level, error.text.as_str()), (Level::Error, "\"m\" err=\"e\""));
        assert_eq!(read("{\"ts\":1704067200,\"msg\":\"m\",\"v\":0}").unwrap().level, Level::Usual);
    }

    proptest! {
        #[test]
        fn any_entry_can_be_tried(message: String, key: String, value: String, ts: f64) {
            read(&json!({"ts": ts, "msg": message, key: value}).to_string());
        }

        #[test]
        fn fields_are_found_again(value in "\\PC{1,40}") {
            let entry = read(&json!({"ts": 1, "msg": "m", "err": value}).to_string()).unwrap();
            let found = super::super::fields::find(&entry.text, "err").unwrap().into_owned();
            prop_assert_eq!(found, value);
        }
    }
}
