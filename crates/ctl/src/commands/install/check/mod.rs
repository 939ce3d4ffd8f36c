//! `plumb install check`: what an installation would meet, line by line.

mod cluster;
mod firewall;
mod line;
mod machine;

use std::io::Write as _;

use serde_json::json;
use store::StoreConfig;

use crate::cli::Global;
use crate::cli::install::Check;
use crate::cli::status::Format;
use crate::connect;
use crate::failure::{Failure, Failures};

use line::{Line, Verdict};

pub(super) async fn run(global: &Global, check: &Check) -> Result<(), Failures> {
    let mut lines = Vec::new();
    if !check.cluster_only {
        lines.extend(machine::lines(check).await);
    }
    match connect::select(global)?.config {
        StoreConfig::Kubernetes(config) => lines.extend(cluster::lines(&config).await),
        store if check.cluster_only => {
            return Err(Failure::usage(format!(
                "--cluster-only requires the Kubernetes store, but the store is the {store}"
            ))
            .hint("set DATASTORE_TYPE=kubernetes, and KUBECONFIG or --context")
            .into());
        }
        store => lines.push(Line::ok("store", store.to_string())),
    }
    let text = match check.output {
        Format::Text => lines.iter().map(Line::text).collect(),
        Format::Json => {
            format!("{:#}\n", json!({ "checks": lines.iter().map(Line::json).collect::<Vec<_>>() }))
        }
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    match lines.iter().any(|line| line.verdict == Verdict::Fail) {
        true => Err(Failure::found().into()),
        false => Ok(()),
    }
}
