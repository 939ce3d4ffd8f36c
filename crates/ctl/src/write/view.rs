//! Records that the Kubernetes store only shows: a Pod is an endpoint, a Node a node, a Namespace or a ServiceAccount a
//! profile. Kubernetes makes and removes them. Of a node, what Calico adds can be changed.

use model::kube::views::{self, Kept};
use model::{Kind, Resource};

use super::{Prepared, Writer};
use crate::compat;
use crate::failure::Failure;
use crate::report::Verb;
use crate::scope::Named;

/// Who says what a record is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Author {
    /// A manifest, which may be an export of some time ago: what it omits, and what it repeats, is not asked for.
    Manifest,
    /// A patch or a label: nothing but the change that is asked for.
    Operator,
}

impl Writer {
    pub(super) fn has_views(&self) -> bool {
        !self.store.capabilities().endpoints_are_records
    }

    /// Resources that this store does not let anybody write so.
    pub(super) async fn refuse_views(
        &self,
        prepared: &[Prepared],
        verb: Verb,
    ) -> Result<Vec<Failure>, Failure> {
        let mut failures = Vec::new();
        for one in prepared {
            let named = Named::of(&one.resource);
            // A node that is there can be changed, and that it is there is what a creation is told.
            let is_possible =
                named.kind == Kind::Node && (verb == Verb::Replace || self.is_stored(&named).await?);
            if let (Err(failure), false) = (self.refuse_view(&named, verb.word()), is_possible) {
                failures.push(failure.in_file(&one.origin));
            }
        }
        Ok(failures)
    }

    async fn is_stored(&self, named: &Named) -> Result<bool, Failure> {
        Ok(self.has_views() && self.store.get(&named.key()).await?.is_some())
    }

    /// Refuses an operation on a record that is only shown here.
    pub(crate) fn refuse_view(&self, named: &Named, operation: &str) -> Result<(), Failure> {
        if !self.has_views() || crate::records::is_default_profile(&named.key()) {
            return Ok(());
        }
        let is_change = matches!(operation, "patch" | "label" | "replace");
        let (why, hint) = match named.kind {
            Kind::WorkloadEndpoint => (
                "in the Kubernetes datastore it is a view of a Pod",
                "change or delete the Pod with kubectl; labels and ports of the endpoint are those of the Pod",
            ),
            Kind::Profile => (
                "in the Kubernetes datastore it is a view of a Namespace or a ServiceAccount",
                "change the labels of the namespace or the service account with kubectl label",
            ),
            Kind::Node if is_change => return Ok(()),
            Kind::Node => (
                "in the Kubernetes datastore it is a view of a Node of Kubernetes",
                "the kubelet registers the node, and kubectl delete node removes it; plumb patch changes what Calico adds",
            ),
            _ => return Ok(()),
        };
        Err(Failure::new(format!("operation {operation} is not supported on {named}: {why}")).hint(hint))
    }

    /// Leaves to Kubernetes what only it can change of a node. Gives what a manifest says otherwise, to be told; a change that
    /// names such a thing is refused.
    pub(super) fn keep_computed(
        &self,
        named: &Named,
        stored: &Resource,
        next: &mut Resource,
        author: Author,
    ) -> Result<Vec<Kept>, Failure> {
        if !self.has_views() || named.kind != Kind::Node {
            return Ok(Vec::new());
        }
        let mut kept = views::keep_computed(stored, next);
        if author == Author::Manifest {
            kept.retain(|kept| !kept.is_omitted);
            return Ok(kept);
        }
        match kept.first() {
            None => Ok(kept),
            Some(first) => Err(Failure::new(format!(
                "{named}: {} is that of the Kubernetes Node and cannot be changed here",
                first.what
            ))
            .hint(how(first))),
        }
    }
}

fn how(kept: &Kept) -> &'static str {
    match kept.what.starts_with("label ") {
        true => "use kubectl label node",
        false => "it follows the Node of Kubernetes, which its kubelet writes",
    }
}

/// Says what of a manifest was not written.
pub(super) fn warn_of_kept(named: &Named, kept: &[Kept]) {
    for one in kept {
        compat::say(&format!(
            "warning: {named}: {} was not changed: it is that of the Kubernetes Node",
            one.what
        ));
    }
}
