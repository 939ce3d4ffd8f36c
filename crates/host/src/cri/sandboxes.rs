//! What the runtime lists, in our words.

use std::collections::BTreeMap;

use super::messages::{self, ListPodSandboxResponse, PodSandboxState};

/// One sandbox that the runtime has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSandbox {
    /// The container ID that the runtime gives to the plugin.
    pub id: String,
    pub state: SandboxState,
    pub pod_namespace: String,
    pub pod_name: String,
    pub pod_uid: String,
    /// Counts the sandboxes of one pod.
    pub attempt: u32,
    /// Nanoseconds since 1970, by the runtime's clock.
    pub created_at: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxState {
    Ready,
    /// Stopped, or in a state the runtime does not know itself. It may still have a network namespace.
    NotReady,
}

/// All sandboxes of one look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandboxes(BTreeMap<String, PodSandbox>);

impl Sandboxes {
    pub(super) fn of(answer: ListPodSandboxResponse) -> Sandboxes {
        answer.items.into_iter().map(PodSandbox::from).collect()
    }

    /// `None` if the runtime does not list it.
    pub fn get(&self, id: &str) -> Option<&PodSandbox> {
        self.0.get(id)
    }

    pub fn is_ready(&self, id: &str) -> bool {
        self.get(id).is_some_and(|sandbox| sandbox.state == SandboxState::Ready)
    }

    /// In the order of their IDs.
    pub fn iter(&self) -> impl Iterator<Item = &PodSandbox> {
        self.0.values()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<PodSandbox> for Sandboxes {
    fn from_iter<I: IntoIterator<Item = PodSandbox>>(sandboxes: I) -> Sandboxes {
        Sandboxes(sandboxes.into_iter().map(|sandbox| (sandbox.id.clone(), sandbox)).collect())
    }
}

impl From<messages::PodSandbox> for PodSandbox {
    fn from(message: messages::PodSandbox) -> PodSandbox {
        let metadata = message.metadata.unwrap_or_default();
        PodSandbox {
            id: message.id,
            state: match PodSandboxState::try_from(message.state) {
                Ok(PodSandboxState::SandboxReady) => SandboxState::Ready,
                Ok(PodSandboxState::SandboxNotready) | Err(_) => SandboxState::NotReady,
            },
            pod_namespace: metadata.namespace,
            pod_name: metadata.name,
            pod_uid: metadata.uid,
            attempt: metadata.attempt,
            created_at: message.created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::cri::messages::PodSandboxMetadata;

    fn message(id: &str, state: i32) -> messages::PodSandbox {
        let metadata = PodSandboxMetadata {
            name: "web-0".into(),
            uid: "u1".into(),
            namespace: "shop".into(),
            attempt: 2,
        };
        messages::PodSandbox {
            id: id.into(),
            metadata: Some(metadata),
            state,
            created_at: 7,
            ..messages::PodSandbox::default()
        }
    }

    #[test]
    fn a_list_is_read_as_the_runtime_wrote_it() {
        // "items": one sandbox "ab", in state 1, and a field 99 of a later version.
        let wire = [0x0a, 0x0a, 0x0a, 0x02, b'a', b'b', 0x18, 0x01, 0x9a, 0x06, 0x01, 0x00];
        let answer = ListPodSandboxResponse::decode(&wire[..]).unwrap();
        let sandboxes = Sandboxes::of(answer);
        assert_eq!(sandboxes.get("ab").unwrap().state, SandboxState::NotReady);
        assert!(!sandboxes.is_ready("ab"));
        assert_eq!(sandboxes.get("abc"), None);
    }

    #[test]
    fn only_state_zero_is_ready() {
        let items = vec![message("a", 0), message("b", 1), message("c", 17)];
        let sandboxes = Sandboxes::of(ListPodSandboxResponse { items });
        assert_eq!(["a", "b", "c", "d"].map(|id| sandboxes.is_ready(id)), [true, false, false, false]);
        let first = sandboxes.iter().next().unwrap();
        assert_eq!((&*first.pod_namespace, &*first.pod_name, &*first.pod_uid), ("shop", "web-0", "u1"));
        assert_eq!((first.attempt, first.created_at), (2, 7));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = ListPodSandboxResponse::decode(&bytes[..]).map(Sandboxes::of);
        }

        #[test]
        fn messages_survive_the_wire(ids in proptest::collection::vec(".*", 0..5), state: i32) {
            let items = ids.iter().map(|id| message(id, state)).collect();
            let list = ListPodSandboxResponse { items };
            prop_assert_eq!(ListPodSandboxResponse::decode(&list.encode_to_vec()[..]).unwrap(), list);
        }
    }
}
