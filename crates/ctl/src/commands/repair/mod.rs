//! `plumb repair`: findings become a plan, the plan is shown or done, and can be taken back.

mod apply;
mod look;
mod past;
mod pending;
mod tell;

use std::path::PathBuf;

use repair::Scope;

use super::doctor::unknown_code;
use crate::cli::Global;
use crate::cli::repair::{Repair, RepairCommand};
use crate::failure::Failures;

/// Where histories are kept unless somebody says otherwise.
const HISTORY: &str = "/var/lib/plumb/repairs";

pub(crate) async fn run(global: &Global, repair: &Repair) -> Result<(), Failures> {
    let scope = match &repair.command {
        Some(RepairCommand::Undo { id }) => return past::undo(global, repair, id).await,
        Some(RepairCommand::Resume { id }) => return apply::resume(global, repair, id).await,
        Some(RepairCommand::History) => return past::list(repair),
        Some(RepairCommand::Show { id }) => return past::show(repair, id),
        None => Scope::Everything,
        Some(RepairCommand::Ipam) => Scope::Ipam,
        Some(RepairCommand::Endpoints) => Scope::Endpoints,
        Some(RepairCommand::Node { name, gone: None }) => Scope::Node(name.as_str().into()),
        Some(RepairCommand::Node { name, gone: Some(_) }) => Scope::GoneNode(name.as_str().into()),
        Some(RepairCommand::Finding { codes }) => {
            let codes = codes.iter().map(|code| code.parse().map_err(|unknown| unknown_code(&unknown)));
            Scope::Codes(codes.collect::<Result<_, _>>()?)
        }
    };
    match repair.apply {
        true => apply::run(global, repair, &scope).await,
        false => look::show(global, repair, &scope).await,
    }
}

fn history_folder(repair: &Repair) -> PathBuf {
    repair.history.clone().unwrap_or_else(|| PathBuf::from(HISTORY))
}
