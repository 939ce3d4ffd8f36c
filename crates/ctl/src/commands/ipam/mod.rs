//! `plumb ipam …`: how addresses are given out. One file per command.

mod borrowed;
mod check;
mod cluster;
mod release;
mod report;
mod reports;
mod settings;
mod show;
mod split;
mod usage;

use std::sync::Arc;

use ipam::Pool;
use model::{KeyRange, Kind};
use store::Store;

use crate::cli::{Global, Ipam, IpamCommand};
use crate::failure::{Failure, Failures};
use crate::output::Format;
use crate::output::document::Syntax;
use crate::output::format::Choice;
use crate::records;

/// The attribute that names the service an address is held for.
const SERVICE_ATTRIBUTE: &str = "service";

pub(crate) async fn run(global: &Global, ipam: &Ipam) -> Result<(), Failures> {
    match &ipam.command {
        IpamCommand::Show(show) => show::run(global, show).await,
        IpamCommand::Check(check) => check::run(global, check).await,
        IpamCommand::Release(release) => release::run(global, release).await,
        IpamCommand::Configure(configure) => settings::configure(global, configure).await,
        IpamCommand::Split(split) => split::run(global, split).await,
    }
}

/// How a command shows its result: for people, or as a document.
fn format(text: &str) -> Result<Option<Syntax>, Failure> {
    match Format::parse(text) {
        Ok(Format::Table(Choice::Narrow)) => Ok(None),
        Ok(Format::Document(syntax)) => Ok(Some(syntax)),
        _ => Err(Failure::usage(format!("unknown output format '{text}'")).hint("use one of ps, yaml, json")),
    }
}

/// All pools, in the order of their names.
async fn pools(store: &Arc<dyn Store>) -> Result<Vec<Pool>, Failure> {
    let (found, _) = store.list_all(KeyRange::Kind(Kind::IpPool)).await?;
    let read = |record| Pool::new(&records::to_resource(record)?).map_err(|error| Failure::of(&error));
    found.iter().map(read).collect()
}
