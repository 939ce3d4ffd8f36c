//! Where a runtime says a sandbox's network namespace is: in the "verbose" text of its status, which no
//! specification describes. containerd and CRI-O both put the sandbox's OCI specification into it.

use std::path::PathBuf;

use serde_json::Value;

/// The namespace in one of the texts; `None` if it says nothing, or that the namespace is closed.
pub(super) fn network_namespace(text: &str) -> Option<PathBuf> {
    let info: Value = serde_json::from_str(text).ok()?;
    if info.get("netNsClosed").and_then(Value::as_bool) == Some(true) {
        return None;
    }
    let namespaces = info.get("runtimeSpec")?.get("linux")?.get("namespaces")?.as_array()?;
    let is_network = |namespace: &&Value| namespace.get("type").is_some_and(|kind| kind == "network");
    namespaces
        .iter()
        .find(is_network)?
        .get("path")?
        .as_str()
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(network_namespace(text), expected.map(PathBuf::from), "{text}");
    }

    #[test]
    fn the_namespace_of_the_specification_is_found() {
        let spec =
            r#"{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/var/run/netns/cni-1"}]}}"#;
        check(&format!(r#"{{"pid":12,"runtimeSpec":{spec}}}"#), Some("/var/run/netns/cni-1"));
        check(&format!(r#"{{"netNsClosed":true,"runtimeSpec":{spec}}}"#), None);
        check(&format!(r#"{{"netNsClosed":false,"runtimeSpec":{spec}}}"#), Some("/var/run/netns/cni-1"));
    }

    #[test]
    fn a_text_that_does_not_say_is_passed_over() {
        check("", None);
        check("[]", None);
        check(r#"{"runtimeSpec":null}"#, None);
        // The node's own network has an entry without path.
        check(r#"{"runtimeSpec":{"linux":{"namespaces":[{"type":"network"}]}}}"#, None);
        check(r#"{"runtimeSpec":{"linux":{"namespaces":[{"type":"network","path":"relative"}]}}}"#, None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_passed_over(text in ".*") {
            let _ = network_namespace(&text);
        }
    }
}
