//! Not typed in detail yet.

use super::metadata::{API_VERSION, KIND, METADATA};
use super::table::{Object, Type, field, object};

pub(super) static CONFIGURATION: Object =
    object(&[API_VERSION, KIND, METADATA, field("spec", Type::Any), field("status", Type::Any)]);
