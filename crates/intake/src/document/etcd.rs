//! `etcdctl get -w json`: keys and values in base64. `etcdctl -o json get` of 2017: plain, and in a tree.

use model::text::base64;
use serde_json::Value;

/// The fields of a record in an answer.
const FIELDS: [&str; 6] = ["key", "value", "create_revision", "mod_revision", "version", "lease"];

/// Its records: key and value. `None`: it is something else. Lists are taken apart before, so one record comes by itself.
pub(super) fn records(value: &Value) -> Option<Vec<(String, Value)>> {
    let node = &value["node"];
    if value["action"].is_string() && node["key"].is_string() {
        return Some(leaves(node));
    }
    if is_record(value) {
        return Some(record(value).into_iter().collect());
    }
    let records = value["kvs"].as_array().filter(|_| value["header"].is_object())?;
    Some(records.iter().filter_map(record).collect())
}

fn is_record(value: &Value) -> bool {
    let has_only =
        |fields: &serde_json::Map<String, Value>| fields.keys().all(|name| FIELDS.contains(&name.as_str()));
    value["key"].is_string() && value["value"].is_string() && value.as_object().is_some_and(has_only)
}

fn record(record: &Value) -> Option<(String, Value)> {
    let text = |value: &Value| String::from_utf8(base64(value.as_str()?)?).ok();
    let content = text(&record["value"])?;
    let content = serde_json::from_str(&content).unwrap_or(Value::String(content));
    Some((text(&record["key"])?, content))
}

/// The records of a folder of 2017 and of those in it, in the order of the document.
fn leaves(folder: &Value) -> Vec<(String, Value)> {
    let (mut records, mut waiting) = (Vec::new(), vec![folder]);
    while let Some(node) = waiting.pop() {
        if let (Some(key), Some(content)) = (node["key"].as_str(), node["value"].as_str()) {
            let content = serde_json::from_str(content).unwrap_or_else(|_| content.into());
            records.push((key.to_owned(), content));
        }
        waiting.extend(node["nodes"].as_array().into_iter().flatten().rev());
    }
    records
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_and_values_are_decoded() {
        let answer = json!({"header": {"revision": 3}, "kvs": [{"key": "L2E=", "value": "eyJiIjoxfQ=="}, {"key": "!"}]});
        assert_eq!(records(&answer), Some(vec![("/a".to_owned(), json!({"b": 1}))]));
        assert_eq!(records(&json!({"kvs": []})), None);
        let answer = json!({"action": "get", "node": {"key": "/calico", "dir": true, "nodes": [
            {"key": "/calico/a", "value": "{\"b\":1}", "createdIndex": 3}, {"key": "/calico/c", "dir": true}]}});
        assert_eq!(records(&answer), Some(vec![("/calico/a".to_owned(), json!({"b": 1}))]));
    }

    proptest! {
        #[test]
        fn any_text_can_be_decoded(key in any::<String>(), value in any::<String>()) {
            let _ = records(&json!({"header": {}, "kvs": [{"key": key, "value": value}]}));
        }
    }
}
