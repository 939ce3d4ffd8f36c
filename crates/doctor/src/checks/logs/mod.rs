//! What logs of kubelet and plugin tell of sandboxes: the episodes of the timeline, each with what it means.

pub(super) mod add_failing;
pub(super) mod del_retried;
pub(super) mod pod_replaced_without_del;
pub(super) mod stale_del;

use jiff::civil::DateTime;

/// The time of day, as operators compare it.
fn clock(at: Option<DateTime>) -> String {
    at.map_or_else(|| "at an unknown time".to_owned(), |at| at.time().strftime("%H:%M:%S").to_string())
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
