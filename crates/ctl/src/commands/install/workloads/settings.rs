//! The records that the first agent would create: for those who keep them in files of their own.

use model::cluster::{DefaultPool, basic_settings};
use model::kube::encode;
use model::{IpVersion, Key, Resource};
use serde_json::Value;

use super::Cluster;
use crate::failure::Failure;

/// The settings with the MTU, and a pool for each network. Without a network there is no pool: which one is unused only an agent knows.
pub(in crate::commands::install) fn settings(cluster: &Cluster<'_>) -> Result<Vec<Value>, Failure> {
    let options = &cluster.install.cluster;
    let [mut felix, bgp] = basic_settings();
    if let Some(mtu) = options.mtu {
        for field in ["vxlanMTU", "vxlanMTUV6"] {
            felix.spec_mut().insert(field.to_owned(), mtu.into());
        }
    }
    let networks = [IpVersion::V4, IpVersion::V6].into_iter().filter_map(|version| options.network(version));
    let pools = networks.map(|(network, block_size)| {
        let mut pool = DefaultPool::of(network);
        pool.vxlan_mode = options.mode.vxlan_mode();
        pool.nat_outgoing = !options.no_nat_outgoing;
        pool.block_size = block_size.map_or(pool.block_size, u64::from);
        pool.resource()
    });
    [felix, bgp].into_iter().chain(pools).map(|record| manifest(cluster, &record)).collect()
}

fn manifest(cluster: &Cluster<'_>, record: &Resource) -> Result<Value, Failure> {
    if let Some(violation) = model::validate::validate(record).first() {
        return Err(Failure::usage(format!("these flags make no valid pool: {violation}")));
    }
    let key = Key::cluster(record.kind, record.metadata.name.as_str());
    let document = encode(cluster.layout, &key, &record.encode());
    document.map(Value::Object).map_err(|error| Failure::of(&error))
}
