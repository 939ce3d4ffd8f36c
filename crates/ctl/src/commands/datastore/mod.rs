//! `plumb datastore migrate`: stops and restarts the cluster's work on its records, and carries them to another store
//! in calicoctl's file. The other commands are elsewhere.

mod export;
mod import;

use std::io::Write as _;

use model::cluster::CLUSTER_INFORMATION;
use model::transfer::information::unfinished;
use model::{Kind, Resource};

use crate::cli::{Datastore, DatastoreCommand, Global, MigrateCommand};
use crate::connect;
use crate::failure::{Failure, Failures};
use crate::scope::Named;
use crate::write::{Writer, ensure_basics};

pub(crate) async fn run(global: &Global, datastore: &Datastore) -> Result<(), Failures> {
    let migrate = match &datastore.command {
        DatastoreCommand::Migrate(migrate) => migrate,
        DatastoreCommand::Copy(wanted) => return super::copy::run(global, wanted).await,
        DatastoreCommand::EtcdRole(wanted) => return super::etcd_role::run(wanted),
    };
    let (ready, done) = match &migrate.command {
        MigrateCommand::Lock => (false, "Datastore locked."),
        MigrateCommand::Unlock => (true, "Datastore unlocked."),
        MigrateCommand::Export => return export::run(global).await,
        MigrateCommand::Import(wanted) => return import::run(global, wanted).await,
    };
    let writer = Writer::new(connect::open_for_changing(global).await?, false);
    set_ready(&writer, ready).await?;
    writeln!(std::io::stdout(), "{done}")?;
    Ok(())
}

/// Locks the store or unlocks it.
async fn set_ready(writer: &Writer, ready: bool) -> Result<(), Failure> {
    if !ready {
        ensure_basics(writer).await;
    }
    let named =
        Named { kind: Kind::ClusterInformation, namespace: None, name: CLUSTER_INFORMATION.to_owned() };
    let changed = writer
        .change(&named, None, |stored| {
            refuse_unfinished(stored, ready)?;
            let mut next = stored.clone();
            next.spec_mut().insert("datastoreReady".into(), ready.into());
            Ok(next)
        })
        .await;
    changed.map_err(|error| error.into_failure())?;
    Ok(())
}

/// Half of a cluster's records must not be used: addresses of the other half would be allocated a second time.
fn refuse_unfinished(information: &Resource, is_ready: bool) -> Result<(), Failure> {
    match unfinished(information).filter(|_| is_ready) {
        None => Ok(()),
        Some(from) => Err(Failure::new(format!("the datastore holds an unfinished copy of {from}"))
            .hint("run plumb datastore copy again: it unlocks the datastore when every record is there")),
    }
}
