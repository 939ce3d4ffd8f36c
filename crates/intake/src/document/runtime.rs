//! `crictl pods -o json` and `crictl ps -o json`, told by the words of their states.

use jiff::Timestamp;
use serde_json::Value;

use crate::draft::{Draft, Section};
use evidence::node::RuntimeSandbox;
use evidence::{Origin, PodName, Sighted};

/// Takes in an element. `false`: it is none of these.
pub(super) fn element(value: &Value, origin: &Origin, section: &Section, draft: &mut Draft) -> bool {
    let (Some(id), Some(state)) = (value["id"].as_str(), value["state"].as_str()) else { return false };
    let metadata = &value["metadata"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if state.starts_with("SANDBOX_") {
        let sandbox = RuntimeSandbox {
            id: id.to_owned(),
            is_ready: Some(state == "SANDBOX_READY"),
            pod: PodName {
                namespace: text(&metadata["namespace"]),
                name: text(&metadata["name"]).unwrap_or_default(),
            },
            pod_uid: text(&metadata["uid"]),
            attempt: metadata["attempt"].as_u64().and_then(|attempt| attempt.try_into().ok()),
            created_at: created_at(&value["createdAt"]),
            age: None,
        };
        let sandbox = Sighted::new(sandbox, origin.clone());
        draft.node(section).sandboxes.get_or_insert_default().push(sandbox);
        return true;
    }
    if !state.starts_with("CONTAINER_") {
        return false;
    }
    let container = Sighted::new(id.to_owned(), origin.clone());
    draft.node(section).containers.get_or_insert_default().push(container);
    true
}

/// Nanoseconds since 1970, as a text.
fn created_at(value: &Value) -> Option<Timestamp> {
    let nanoseconds: i128 = value.as_str()?.parse().ok()?;
    Timestamp::from_nanosecond(nanoseconds).ok()
}
