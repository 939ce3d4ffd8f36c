//! `plumb version`: of this program, and of the cluster.

use std::io::Write as _;

use model::cluster::CLUSTER_INFORMATION;
use model::{Key, Kind};
use serde_json::Value;

use crate::cli::{Global, Version};
use crate::connect;
use crate::failure::{Failure, Failures};
use crate::records;

/// Set by whoever builds a release; a build from a plain source tree does not know.
const COMMIT: Option<&str> = option_env!("PLUMB_COMMIT");

pub(crate) async fn run(global: &Global, version: &Version) -> Result<(), Failures> {
    let mut out = std::io::stdout();
    writeln!(out, "Client Version:    v{}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "Git commit:        {}", COMMIT.unwrap_or("unknown"))?;
    if version.client {
        return Ok(());
    }
    let unable = |failure: Failure| failure.within("unable to retrieve Cluster Version or Type");
    let store = connect::open_for_reading(global).await.map_err(unable)?;
    let key = Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION);
    let record = store.get(&key).await.map_err(|error| unable(error.into()))?;
    let record = record.ok_or_else(|| unable(Failure::new(format!("resource does not exist: {key}"))))?;
    let information = records::to_resource(&record).map_err(unable)?;
    let field = |name| match information.spec(name).and_then(Value::as_str) {
        None | Some("") => "unknown".to_owned(),
        Some(text) => text.to_owned(),
    };
    writeln!(out, "Cluster Version:   {}", field("calicoVersion"))?;
    writeln!(out, "Cluster Type:      {}", field("clusterType"))?;
    Ok(())
}
