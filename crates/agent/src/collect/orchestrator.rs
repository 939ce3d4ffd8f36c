//! Kubernetes as a witness: the pods of this node, where their records are views of them.
//!
//! It speaks of sandboxes. A pod that lives may have a sandbox that is gone, so the pod alone proves nothing about a sandbox that its
//! record does not name.

use model::Sandbox;

use crate::endpoints::PodOnNode;
use crate::services::Agent;
use crate::witness::Word;

/// The pod that a sandbox was made for, as far as a record or the journal says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodOwner {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: Option<String>,
}

/// All pods of this node; `None` if Kubernetes cannot be asked, or what it said may be out of date.
#[derive(Debug)]
pub(super) struct Orchestrator(Option<Vec<PodOnNode>>);

impl Orchestrator {
    pub(super) fn of(agent: &Agent) -> Orchestrator {
        let has_pods =
            agent.book.get().is_some_and(|book| !book.store().capabilities().endpoints_are_records);
        let is_known = has_pods && agent.health.is_store_in_sync();
        Orchestrator(is_known.then(|| agent.endpoints.pods()))
    }

    pub(super) fn answers(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn word(&self, sandbox: &Sandbox, owner: Option<&PodOwner>) -> Word {
        let Some(pods) = &self.0 else { return Word::Nothing };
        let named = pods.iter().find(|pod| pod.container_id.as_deref() == Some(sandbox.container_id()));
        if let Some(pod) = named {
            return if pod.has_addresses { Word::Alive } else { Word::Gone };
        }
        let Some(owner) = owner else { return Word::Nothing };
        let is_same = |pod: &PodOnNode| match &owner.uid {
            Some(uid) if !pod.uids.is_empty() => pod.uids.contains(uid),
            _ => pod.namespace == owner.namespace && pod.name == owner.name,
        };
        if pods.iter().any(is_same) { Word::Nothing } else { Word::Gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, uids: &[&str], container_id: Option<&str>, has_addresses: bool) -> PodOnNode {
        PodOnNode {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            uids: uids.iter().map(|uid| (*uid).to_owned()).collect(),
            container_id: container_id.map(str::to_owned),
            has_addresses,
        }
    }

    #[test]
    fn a_pod_vouches_for_the_sandbox_that_it_names() {
        let pods = vec![
            pod("runs", &["u-1"], Some("c-1"), true),
            pod("ended", &["u-2"], Some("c-2"), false),
            pod("starts", &["u-3", "mirror-3"], None, false),
            pod("unreadable", &[], None, true),
        ];
        let word = |container: &str, name: &str, uid: Option<&str>| {
            let sandbox = Sandbox::new("net", container, "eth0").unwrap();
            let (namespace, name, uid) = ("shop".to_owned(), name.to_owned(), uid.map(str::to_owned));
            Orchestrator(Some(pods.clone())).word(&sandbox, Some(&PodOwner { namespace, name, uid }))
        };
        assert_eq!(word("c-1", "runs", Some("u-1")), Word::Alive);
        assert_eq!(word("c-2", "ended", Some("u-2")), Word::Gone);
        assert_eq!(word("c-0", "runs", Some("u-1")), Word::Nothing, "an earlier sandbox of a pod that runs");
        assert_eq!(word("c-3", "starts", Some("u-3")), Word::Nothing, "its record is not written yet");
        assert_eq!(word("c-3", "starts", Some("mirror-3")), Word::Nothing);
        assert_eq!(word("c-4", "unreadable", Some("u-4")), Word::Nothing);
        assert_eq!(word("c-0", "runs", Some("u-0")), Word::Gone, "the pod was created again");
        assert_eq!((word("c-0", "runs", None), word("c-0", "none", None)), (Word::Nothing, Word::Gone));
        let sandbox = Sandbox::new("net", "c-0", "eth0").unwrap();
        assert_eq!(Orchestrator(Some(pods.clone())).word(&sandbox, None), Word::Nothing, "not a pod's");
        assert_eq!(Orchestrator(None).word(&sandbox, Some(&PodOwner::default())), Word::Nothing);
    }
}
