//! The kernel's part of an ADD: the veth, for which no address is needed, and then all the rest.

use host::{Host, HostError, PodNamespace, Prepared};
use plan::{Attachment, PodWiring};
use tracing::debug;

use super::super::error::CniError;
use super::super::{Call, Services};
use super::mac;
use crate::failpoint::{self, Point};

/// Makes the veth ahead of the addresses. Gives the pod's namespace back; no link if something is there already that
/// must be looked at first, or if it could not be made: what is wrong now is wrong in a moment, too, and is said then.
pub(super) async fn prepare(
    call: &Call,
    services: &Services,
    pod: PodNamespace,
    mtu: u32,
) -> Result<(PodNamespace, Option<Prepared>), HostError> {
    failpoint::hit(Point::AddBeforeLink);
    let (sandbox, mac) = (call.sandbox.clone(), mac(call));
    let prepared = services.kernel()?.run(move |host| {
        let prepared = host.prepare(&pod, &sandbox, mac, mtu).unwrap_or_else(|error| {
            debug!("the veth of {sandbox} could not be made ahead of its addresses: {error}");
            None
        });
        (pod, prepared)
    });
    let prepared = prepared.await?;
    failpoint::hit(Point::AddAfterLink);
    Ok(prepared)
}

/// Returns when the pod can exchange packets with the node.
pub(super) fn wire(
    host: &mut Host,
    pod: &mut PodNamespace,
    prepared: Option<Prepared>,
    attachment: &Attachment,
) -> Result<PodWiring, WireError> {
    let wiring = PodWiring::new(attachment, &host.facts()?)
        .map_err(|error| WireError::Cni(CniError::configuration(error.to_string())))?;
    match prepared {
        Some(prepared) => host.finish(pod, prepared, &wiring)?,
        None => host.ensure(pod, &wiring)?,
    }
    host.ensure_node_settings(&wiring)?;
    Ok(wiring)
}

/// Why the kernel's part failed.
#[derive(Debug)]
pub(super) enum WireError {
    Host(HostError),
    Cni(CniError),
}

impl From<HostError> for WireError {
    fn from(error: HostError) -> WireError {
        WireError::Host(error)
    }
}

impl From<WireError> for CniError {
    fn from(error: WireError) -> CniError {
        match error {
            WireError::Host(error) => error.into(),
            WireError::Cni(error) => error,
        }
    }
}
