//! STATUS: whether an ADD would be served now.

use std::time::Duration;

use model::{Key, Kind};

use super::delegate;
use super::error::{CniError, code};
use super::netconf::NetConf;
use crate::health::{Health, Pages as _};
use crate::services::Services;

const STORE_TIMEOUT: Duration = Duration::from_secs(3);

pub(super) async fn run(
    netconf: &NetConf,
    message: &wire::Call,
    services: Services<'_>,
) -> Result<(), CniError> {
    match services {
        Services::Agent(agent) => {
            check_ready(&agent.health)?;
            let book = services.book(netconf).await?;
            let answer = tokio::time::timeout(STORE_TIMEOUT, book.store().get(&probe())).await;
            answer
                .map_err(|_| no_answer())?
                .map_err(|error| CniError { code: code::CANNOT_ADD, ..error.into() })?;
        }
        Services::OneShot(_) => {
            let book = services.book(netconf).await;
            book.map_err(|error| CniError { code: code::CANNOT_ADD, ..error })?;
        }
    }
    delegate::forward_as_it_is(netconf.ipam.other.as_deref(), message).await
}

fn no_answer() -> CniError {
    let message = format!("the store did not answer within {} s", STORE_TIMEOUT.as_secs());
    CniError::new(code::CANNOT_ADD, message)
}

/// A record that every store has, or could have.
fn probe() -> Key {
    Key::cluster(Kind::ClusterInformation, "default")
}

/// Running pods depend on the kernel's state alone.
fn check_ready(health: &Health) -> Result<(), CniError> {
    let problems = health.not_ready();
    if problems.is_empty() {
        return Ok(());
    }
    let code = if health.is_reconciled() { code::CANNOT_ADD } else { code::CANNOT_SERVE };
    Err(CniError::new(code, "cannot add pods now").hint(problems.join("; ")))
}
