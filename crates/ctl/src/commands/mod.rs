//! What each command does. One file per command; `run` only tells them apart.

mod change;
mod cluster;
mod complete;
mod completion;
mod copy;
mod datastore;
mod delete;
mod doctor;
mod etcd_role;
mod get;
mod install;
mod ipam;
mod lab;
mod label;
mod node;
mod patch;
mod repair;
mod status;
mod uninstall;
mod version;

use crate::cli::{Cli, Command};
use crate::failure::Failures;

pub(crate) async fn run(cli: Cli) -> Result<(), Failures> {
    let global = &cli.global;
    match &cli.command {
        Command::Get(get) => get::run(global, get).await,
        Command::Apply(apply) => change::apply(global, apply).await,
        Command::Create(create) => change::create(global, create).await,
        Command::Replace(replace) => change::replace(global, replace).await,
        Command::Delete(delete) => delete::run(global, delete).await,
        Command::Patch(patch) => patch::run(global, patch).await,
        Command::Label(label) => label::run(global, label).await,
        Command::Validate(validate) => change::validate(validate),
        Command::Ipam(ipam) => ipam::run(global, ipam).await,
        Command::Datastore(datastore) => datastore::run(global, datastore).await,
        Command::Node(node) => node::run(global, node).await,
        Command::Cluster(cluster) => cluster::run(global, cluster).await,
        Command::Convert(_) => cluster::convert(),
        Command::Complete(wanted) => complete::run(global, wanted).await,
        Command::Collect(collect) => doctor::collect(global, collect).await,
        Command::Doctor(doctor) => doctor::run(global, doctor).await,
        Command::Repair(repair) => repair::run(global, repair).await,
        Command::Lab(lab) => lab::run(&lab.words),
        Command::Install(install) => install::run(global, install).await,
        Command::Uninstall(uninstall) => uninstall::run(uninstall).await,
        Command::Status(status) => status::run(global, status).await,
        Command::Version(version) => version::run(global, version).await,
        Command::Completion(completion) => completion::run(completion),
    }
}
