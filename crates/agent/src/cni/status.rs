//! STATUS: whether an ADD would be served now.

use std::time::Duration;

use model::{Key, Kind};

use super::error::{CniError, code};
use super::netconf::NetConf;
use super::services::Services;
use super::{CallRequest, delegate};

const STORE_PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn run(
    netconf: &NetConf,
    message: &CallRequest,
    services: &Services,
) -> Result<(), CniError> {
    if services.agent().is_some() {
        of_agent(services)?;
        let book = services.book(netconf).await?;
        let answer = tokio::time::timeout(STORE_PATIENCE, book.store().get(&probe())).await;
        answer.map_err(|_| silent())?.map_err(|error| CniError { code: code::CANNOT_ADD, ..error.into() })?;
    } else {
        let book = services.book(netconf).await;
        book.map_err(|error| CniError { code: code::CANNOT_ADD, ..error })?;
    }
    delegate::forward_as_it_is(netconf.ipam.other.as_deref(), &message.environment, &message.config).await
}

fn silent() -> CniError {
    let message = format!("the store did not answer within {} s", STORE_PATIENCE.as_secs());
    CniError::new(code::CANNOT_ADD, message)
}

/// A record that every store has, or could have.
fn probe() -> Key {
    Key::cluster(Kind::ClusterInformation, "default")
}

/// Pods that run depend on the kernel's state alone.
fn of_agent(services: &Services) -> Result<(), CniError> {
    let problems = services.health().not_ready();
    if problems.is_empty() {
        return Ok(());
    }
    let code = if services.health().is_reconciled() { code::CANNOT_ADD } else { code::CANNOT_SERVE };
    Err(CniError::new(code, "pods cannot be added now").hint(problems.join("; ")))
}
