//! In which order records are written, so that a copy that stops anywhere leaves records that agree.
//!
//! What is referred to comes before what refers to it. A handle comes before the block whose addresses it holds, as IPAM itself writes
//! them: a handle that counts too much is harmless, an address whose handle does not know it is not. An affinity comes after its block,
//! because a node owns a block only if both say so. Pools come last: without a pool nothing is allocated.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{Key, Kind};

/// Keys that may be written side by side, stage after stage. Records are removed in the reverse order.
pub type Stages = Vec<Vec<Key>>;

/// The keys of `writes` in stages. Pools are in a stage each, in the order of their age: where pools overlap, the older one counts.
pub(super) fn stages<V: AsRef<[u8]>>(writes: &BTreeMap<Key, V>) -> Stages {
    let mut stages: BTreeMap<(u8, String, usize), Vec<Key>> = BTreeMap::new();
    for (index, (key, value)) in writes.iter().enumerate() {
        let place = match stage(key) {
            POOLS => (POOLS, born(value.as_ref()), index),
            stage => (stage, String::new(), 0),
        };
        stages.entry(place).or_default().push(key.clone());
    }
    stages.into_values().collect()
}

const POOLS: u8 = 8;

pub(super) fn stage(key: &Key) -> u8 {
    match key {
        Key::IpamConfig => 0,
        Key::Handle(_) => 4,
        Key::Block(_) => 5,
        Key::Affinity { .. } => 6,
        Key::Resource { kind, .. } => match kind {
            Kind::BgpPeer
            | Kind::GlobalNetworkPolicy
            | Kind::NetworkPolicy
            | Kind::StagedGlobalNetworkPolicy
            | Kind::StagedKubernetesNetworkPolicy
            | Kind::StagedNetworkPolicy => 1,
            Kind::Node => 2,
            Kind::HostEndpoint | Kind::CalicoNodeStatus => 3,
            Kind::WorkloadEndpoint => 7,
            Kind::IpPool => POOLS,
            _ => 0,
        },
    }
}

fn born(value: &[u8]) -> String {
    let parsed: Value = serde_json::from_slice(value).unwrap_or_default();
    parsed["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_come_before_blocks_and_pools_come_last_by_age() {
        let pool = |born: &str| format!(r#"{{"metadata":{{"creationTimestamp":"{born}"}}}}"#).into_bytes();
        let block: crate::Cidr = "10.0.0.0/26".parse().unwrap();
        let affinity = Key::Affinity { owner: crate::AffinityOwner::Host("n".into()), block };
        let endpoint = Key::namespaced(Kind::WorkloadEndpoint, "a", "b");
        let (a, b) = (Key::cluster(Kind::IpPool, "a"), Key::cluster(Kind::IpPool, "b"));
        let (tier, policy) = (Key::cluster(Kind::Tier, "t"), Key::cluster(Kind::GlobalNetworkPolicy, "p"));
        let writes: BTreeMap<Key, Vec<u8>> = [
            (a.clone(), pool("2026-02-01T00:00:00Z")),
            (b.clone(), pool("2026-01-01T00:00:00Z")),
            (Key::Block(block), Vec::new()),
            (Key::Handle("h".into()), Vec::new()),
            (affinity.clone(), Vec::new()),
            (endpoint.clone(), Vec::new()),
            (policy.clone(), Vec::new()),
            (tier.clone(), Vec::new()),
        ]
        .into();
        let order: Vec<Key> = stages(&writes).concat();
        let expected = [tier, policy, Key::Handle("h".into()), Key::Block(block), affinity, endpoint, b, a];
        assert_eq!(order, expected);
    }
}
