//! Outages of the past, replayed with the real programs: what happened, what was found, in numbers. A replay
//! fails if anything is not as it should be.

mod ipam_drift;
mod leaked_endpoints;
mod shared_address;
mod stale_delete;
mod state;
mod story;
mod surgery;
mod under_calico;
mod wrong_nic;

use crate::cluster::Cluster;
use crate::wait_for;

pub use ipam_drift::replay as ipam_drift;
pub use leaked_endpoints::replay as leaked_endpoints;
pub use shared_address::replay as shared_address;
pub use stale_delete::replay as stale_delete;
pub use under_calico::replay as under_calico;
pub use wrong_nic::replay as wrong_nic;

/// A replay that needs nothing but a lab and somebody to tell.
pub type Play = fn(&Cluster, &dyn Fn(&str)) -> anyhow::Result<()>;
