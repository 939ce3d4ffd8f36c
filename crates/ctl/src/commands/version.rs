//! `plumb version`: of this program, and of the cluster.

use std::io::Write as _;
use std::time::Duration;

use model::cluster::CLUSTER_INFORMATION;
use model::parse_go_duration;
use model::{Key, Kind};
use serde_json::Value;

use crate::cli::{Global, Version};
use crate::connect;
use crate::failure::{Failure, Failures};
use crate::records;

/// From git when this was built, or as whoever built it set it; a build from a plain source tree does not know.
const COMMIT: Option<&str> = option_env!("PLUMB_COMMIT");

pub(crate) async fn run(global: &Global, version: &Version) -> Result<(), Failures> {
    let interval = version.poll.as_deref().map(interval).transpose()?;
    let mut out = std::io::stdout();
    writeln!(out, "Client Version:    v{}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "Git commit:        {}", COMMIT.unwrap_or("unknown"))?;
    if version.client {
        return Ok(());
    }
    let mut shown = None;
    loop {
        let now = of_cluster(global).await;
        match (now, interval) {
            (Ok(now), _) => {
                if shown.as_ref() != Some(&now) {
                    writeln!(out, "Cluster Version:   {}", now.0)?;
                    writeln!(out, "Cluster Type:      {}", now.1)?;
                }
                shown = Some(now);
            }
            (Err(failure), None) => return Err(failure.into()),
            (Err(failure), Some(_)) => {
                shown = None;
                eprintln!("{}", failure.words());
            }
        }
        let Some(interval) = interval else { return Ok(()) };
        tokio::time::sleep(interval).await;
    }
}

/// How often to ask.
fn interval(text: &str) -> Result<Duration, Failure> {
    parse_go_duration(text).filter(|interval| !interval.is_zero()).ok_or_else(|| {
        Failure::usage(format!("invalid poll duration specified: {text}")).hint("write it as 10s or 1m30s")
    })
}

/// Version and type of the cluster.
async fn of_cluster(global: &Global) -> Result<(String, String), Failure> {
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
    Ok((field("calicoVersion"), field("clusterType")))
}
