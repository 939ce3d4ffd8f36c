//! Who uses addresses that are to be released. Releasing does not take an address from its user: it lets another have
//! it too.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use book::load::{self, Progress};
use store::Store;

use crate::failure::Failure;
use crate::progress;

/// The users of these addresses, in calicoctl's words. It is an error if some users cannot be read: any of them might
/// use any address.
pub(super) async fn users(
    store: &Arc<dyn Store>,
    addresses: &BTreeSet<IpAddr>,
) -> Result<BTreeMap<IpAddr, String>, Failure> {
    let records = Progress::default();
    let reading = load::users(&**store, &records, |address| addresses.contains(&address));
    let found = progress::while_reading(&records, reading).await?;
    if let Some(corrupt) = found.unreadable.first() {
        return Err(Failure::new(format!(
            "{} cannot be read, so the addresses it uses are unknown: {}",
            corrupt.key,
            corrupt.contradictions.join("; ")
        ))
        .hint("nothing was released; replace or delete that record first"));
    }
    let mut users = BTreeMap::new();
    for node in &found.nodes {
        for (_, address) in &node.tunnels {
            users.insert(*address, format!("Node({})", node.name));
        }
    }
    for endpoint in &found.endpoints {
        for address in endpoint.addresses.iter() {
            users.insert(*address, format!("Workload({}/{})", endpoint.namespace, endpoint.name));
        }
    }
    users.retain(|address, _| addresses.contains(address));
    Ok(users)
}
