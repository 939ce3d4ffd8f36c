//! Not typed in detail yet.

use super::metadata::{API_VERSION, KIND, METADATA};
use super::table::{Object, Type, field, object};

pub(super) static GLOBAL_NETWORK_POLICY: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
pub(super) static NETWORK_SET: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
pub(super) static NETWORK_POLICY: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
pub(super) static PROFILE: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
pub(super) static STAGED_GLOBAL_NETWORK_POLICY: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
pub(super) static STAGED_KUBERNETES_NETWORK_POLICY: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
pub(super) static STAGED_NETWORK_POLICY: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
pub(super) static TIER: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
