//! Who may do what in a cluster that keeps the records: accounts, roles and bindings, and the admission policies that hold a node's
//! agent to its own node. As manifests.
//!
//! A role says which verbs of which resources; a policy sees the object before and after. Where a policy allows an agent something that
//! only some clusters want, it asks for a verb that Kubernetes itself does not know (`reclaim`), so that a role grants it.

mod policies;
mod roles;

pub use policies::policies;
pub use roles::{Role, Rule, accounts_and_roles, roles};

/// Where the accounts are unless told otherwise. Whoever can start pods there can do everything anyway.
pub const NAMESPACE: &str = "kube-system";
/// The account of the agents.
pub const NODE_ACCOUNT: &str = "plumb-node";
/// Of operators who look.
pub const READER_ACCOUNT: &str = "plumb-reader";
/// The group of agents that have a client certificate instead of an account's token.
pub const NODES_GROUP: &str = "plumb:nodes";
/// Such an agent's user name is this and its node's name.
pub const NODE_USER_PREFIX: &str = "plumb:node:";
/// A verb of our own: ending the affinity of another node's empty block.
const RECLAIM: &str = "reclaim";

#[cfg(test)]
mod tests;
