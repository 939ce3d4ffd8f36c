//! `plumb install --crds --apply`: the definitions that the cluster lacks, created; those that it has, compared with ours.

use std::io::Write as _;

use model::Kind;
use model::kube::{Shortfall, definition, is_custom_resource, shortfall};
use serde_json::Value;
use store::kube::Definitions;

use super::files::Outcome;
use super::tell;
use crate::cli::Global;
use crate::cli::install::Install;
use crate::failure::{Failure, Failures};

pub(super) async fn apply(global: &Global, command: &Install) -> Result<(), Failures> {
    let mut config = super::kubernetes_store(global, "--apply")?;
    if let Some(layout) = command.api_group {
        config.api_group = Some(layout.api_version());
    }
    let definitions = Definitions::connect(&config).await.map_err(Failure::from)?;
    let mut created = Vec::new();
    for kind in Kind::all().filter(|kind| is_custom_resource(*kind)) {
        let (name, outcome) = ensure(&definitions, kind, command.dry_run).await?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{} {name}", outcome.word(command.dry_run)).map_err(Failure::from)?;
        if outcome == Outcome::Installed && !command.dry_run {
            created.push(kind);
        }
    }
    for kind in created {
        definitions.wait_until_served(kind).await.map_err(Failure::from)?;
    }
    Ok(())
}

/// One kind's definition: its name, and what became of it.
async fn ensure(
    definitions: &Definitions,
    kind: Kind,
    is_dry_run: bool,
) -> Result<(String, Outcome), Failure> {
    let ours = definition(definitions.layout(), kind);
    let name = ours["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let installed = match definitions.find(&name).await? {
        Some(installed) => installed,
        None if is_dry_run || definitions.create(&name, &ours).await? => {
            return Ok((name, Outcome::Installed));
        }
        // Another program was faster.
        None => definitions.find(&name).await?.unwrap_or_default(),
    };
    report(definitions, kind, &name, &installed);
    let is_ours = ours["spec"]["versions"] == installed["spec"]["versions"];
    Ok((name, if is_ours { Outcome::UpToDate } else { Outcome::Kept }))
}

fn report(definitions: &Definitions, kind: Kind, name: &str, installed: &Value) {
    match shortfall(definitions.layout(), kind, installed) {
        None => {}
        Some(Shortfall::Version(version)) => tell(&format!(
            "warning: {name} does not serve version {version}; {} records cannot be written",
            kind.name()
        )),
        Some(Shortfall::Fields(fields)) => tell(&format!(
            "warning: {name} does not name these fields, so the API server drops them from every {}: {}",
            kind.name(),
            fields.join(", ")
        )),
    }
}
