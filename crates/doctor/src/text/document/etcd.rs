//! `etcdctl get -w json`: keys and values in base64. `etcdctl -o json get` of 2017: plain, and in a tree.

use serde_json::Value;

/// Its records: key and value. `None`: it is something else.
pub(super) fn records(value: &Value) -> Option<Vec<(String, Value)>> {
    if value["action"].is_string() && value["node"]["key"].is_string() {
        let mut records = Vec::new();
        leaves(&value["node"], &mut records);
        return Some(records);
    }
    let records = value["kvs"].as_array().filter(|_| value["header"].is_object())?;
    let text = |value: &Value| String::from_utf8(base64(value.as_str()?)?).ok();
    let record = |record: &Value| {
        let content = text(&record["value"])?;
        let content = serde_json::from_str(&content).unwrap_or(Value::String(content));
        Some((text(&record["key"])?, content))
    };
    Some(records.iter().filter_map(record).collect())
}

/// The records of a folder of 2017 and of those in it. Documents are no deeper than whoever read them allows.
fn leaves(node: &Value, records: &mut Vec<(String, Value)>) {
    if let (Some(key), Some(content)) = (node["key"].as_str(), node["value"].as_str()) {
        let content = serde_json::from_str(content).unwrap_or_else(|_| content.into());
        records.push((key.to_owned(), content));
    }
    for node in node["nodes"].as_array().into_iter().flatten() {
        leaves(node, records);
    }
}

/// Base64, in the usual alphabet or in that for addresses, with padding or without.
pub fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for character in text.trim_end_matches('=').bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'-' | b'+' => 62,
            b'_' | b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
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
