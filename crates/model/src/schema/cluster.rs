//! Not typed in detail yet.

use super::metadata::{API_VERSION, KIND, METADATA};
use super::table::{Object, Type, field, object};

pub(super) static NODE_STATUS: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
pub(super) static INFORMATION: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
pub(super) static CONTROLLERS: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
