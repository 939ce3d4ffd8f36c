//! What rules counted, as metrics.

use std::collections::BTreeMap;

use host::nftables::object::Counter;

use crate::health::Metrics;

pub(super) fn publish(metrics: &Metrics, counters: &[Counter]) {
    let mut denied = BTreeMap::new();
    for counter in counters.iter().filter(|counter| counter.packets > 0) {
        let Some(labels) = labels(&counter.name) else { continue };
        *denied.entry(labels).or_default() += counter.packets;
    }
    metrics.policy_denied.set(denied);
}

fn labels(_name: &str) -> Option<[String; 2]> {
    None
}
