//! `calico -t`: whether a network configuration leads to a store that is ready, and to an API server that answers.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use model::cluster::CLUSTER_INFORMATION;
use model::{Key, Kind};

use super::error::{CniError, code};
use super::netconf::NetConf;
use super::one_shot::write_answer;
use super::{failed, kubernetes, ready, result};
use crate::services::{FoundBook, OneShot, Services};

/// For all of it: whoever asks wants to know now.
const PATIENCE: Duration = Duration::from_secs(10);
const INPUT_MAX: u64 = 16 * 1024 * 1024;

/// Tests the network configuration on stdin.
pub(crate) fn run() -> ExitCode {
    super::error::answer_even_when_panicking();
    let mut version = result::NEWEST.to_owned();
    let Err(error) = test(&mut version) else { return ExitCode::SUCCESS };
    let mut failure = CniError::new(code::INTERNAL, "data store connection failed").hint(&error.message);
    if !error.details.is_empty() {
        failure = failure.hint(&error.details);
    }
    // The exit code says it all the same.
    let _ = write_answer(&failed(&failure, &version).stdout);
    ExitCode::FAILURE
}

fn test(version: &mut String) -> Result<(), CniError> {
    let mut input = Vec::new();
    std::io::stdin().take(INPUT_MAX).read_to_end(&mut input).map_err(CniError::input)?;
    let netconf = NetConf::parse(&input)?;
    version.clone_from(&netconf.cni_version);
    crate::log::start("error");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CniError::internal("cannot start the async runtime").because(&error))?;
    let tested = async {
        let one_shot = OneShot::new(&netconf.state_dir);
        tokio::time::timeout(PATIENCE, reach(&netconf, Services::OneShot(&one_shot))).await.unwrap_or_else(
            |_| Err(CniError::new(code::TRY_LATER, format!("no answer within {} s", PATIENCE.as_secs()))),
        )
    };
    runtime.block_on(tested)
}

async fn reach(netconf: &NetConf, services: Services<'_>) -> Result<(), CniError> {
    let book = match services.existing_book(netconf).await? {
        FoundBook::Book(book) => book,
        FoundBook::NoStore(reason) => return Err(CniError::new(code::STORE, reason)),
    };
    let key = Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION);
    if book.store().get(&key).await?.is_none() {
        return Err(ready::never_set_up(&key));
    }
    ready::check(netconf, &book).await?;
    kubernetes::check(netconf).await
}
