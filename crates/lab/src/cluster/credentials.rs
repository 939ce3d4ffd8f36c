//! What agents on Kubernetes may do: what the shipped roles and admission policies let them, and nothing else. Each node's agent has a
//! token that is bound to its node. The kubelet stand-in writes it, and renews it.

use std::time::Duration;

use anyhow::Result;
use model::kube::Layout;
use model::kube::access::{NAMESPACE, NODE_ACCOUNT, accounts_and_roles, policies};
use testkit::kube::Api;

use super::Place;

/// Long before a token ends, which is an hour after it was made.
pub(crate) const RENEW_EVERY: Duration = Duration::from_secs(600);

/// As `plumb install --print | kubectl apply -f -` does.
pub(super) fn install(api: &Api, layout: Layout) -> Result<()> {
    let manifests = [policies(layout, NAMESPACE), accounts_and_roles(layout, NAMESPACE)].concat();
    manifests.iter().try_for_each(|manifest| api.apply(manifest, ""))
}

/// Gives the agent of a node that is registered another token.
pub(crate) fn renew(api: &Api, place: &Place, node: &str) -> Result<()> {
    let token = api.token_of(NAMESPACE, NODE_ACCOUNT, "Node", node)?;
    // Nobody but its owner gets into the directory.
    crate::file::replace(&place.agent_token(node), token.as_bytes())
}
