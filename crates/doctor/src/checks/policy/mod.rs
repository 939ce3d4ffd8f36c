//! What is asked for and not done is never silent.

pub(super) mod host_endpoint_closed;
pub(super) mod mode_unsupported;
pub(super) mod policy_not_enforced;
