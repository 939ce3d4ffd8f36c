//! Values as YAML text, for people and for other tools' readers.

use serde_json::Value;
use serde_saphyr::SerializerOptions;

/// A value as one YAML document, keys sorted. A text that some reader would take for something else (`yes`, `017`,
/// `1e3`, a date) is quoted, so that it stays a text for readers of YAML 1.1, as Go's are.
pub fn to_yaml(value: &Value) -> String {
    let mut options = SerializerOptions::default();
    options.prefer_block_scalars = false;
    // A closed set of types: nothing in a JSON value can fail to be written.
    let mut text = String::new();
    serde_saphyr::to_fmt_writer_with_options(&mut text, value, options)
        .expect("a JSON value can always be written as YAML");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_look_as_calicoctl_prints_them() {
        let value = json!({
            "kind": "IPPool", "apiVersion": "projectcalico.org/v3",
            "metadata": { "name": "a", "labels": {}, "annotations": null },
            "spec": { "allowedUses": ["Workload", "Tunnel"], "blockSize": 26, "conditions": [{ "b": 1, "a": [] }] },
        });
        let expected = "\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata:
  annotations: null
  labels: {}
  name: a
spec:
  allowedUses:
  - Workload
  - Tunnel
  blockSize: 26
  conditions:
  - a: []
    b: 1
";
        assert_eq!(to_yaml(&value), expected);
    }

    #[test]
    fn texts_that_others_would_misread_are_quoted() {
        for text in [
            "yes",
            "on",
            "y",
            "017",
            "1e3",
            "0x1F",
            "12:30:45",
            "2026-08-22",
            "null",
            "~",
            "",
            "1_000",
            "=",
            "<<",
        ] {
            let line = to_yaml(&json!({ "a": text }));
            let value = line.strip_prefix("a: ").unwrap().trim_end();
            assert!(value.starts_with(['"', '\'']), "{line}");
        }
        assert_eq!(to_yaml(&json!({ "a": "10.0.0.0/16" })), "a: 10.0.0.0/16\n");
        assert_eq!(to_yaml(&json!({ "a": u64::MAX })), "a: 18446744073709551615\n");
    }

    #[test]
    fn long_texts_stay_on_one_line() {
        let long = "word ".repeat(60);
        assert_eq!(to_yaml(&json!({ "a": long.trim() })).lines().count(), 1);
    }

    #[test]
    fn scalars_and_lists_are_documents_too() {
        assert_eq!(to_yaml(&json!([])), "[]\n");
        assert_eq!(to_yaml(&json!([1, "a"])), "- 1\n- a\n");
        assert_eq!(to_yaml(&json!({})), "{}\n");
    }
}
