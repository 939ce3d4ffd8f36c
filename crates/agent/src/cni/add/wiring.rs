//! The kernel's part of an ADD: the veth, for which no address is needed, and then all the rest.

use host::{Host, HostError, PodInterface, PodNamespace, Prepared};
use model::DeviceName;
use plan::{Attachment, PodWiring};
use tokio::sync::oneshot;
use tracing::debug;

use super::super::error::CniError;
use super::super::{Call, Services};
use super::mac;
use crate::failpoint::{self, Point};

/// What there is before anything is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub(super) interface: PodInterface,
    /// Another sandbox has the device's name.
    pub(super) is_taken: bool,
}

/// Looks, tells what there is, and makes the veth if the pod has none: it needs no address. In one go, because each
/// turn of the kernel's thread costs time. Gives the pod's namespace back; no link if something is there already that
/// must be looked at first, or if it could not be made: what is wrong now is wrong in a moment, too, and is said then.
pub(super) async fn look_and_prepare(
    call: &Call,
    services: &Services,
    known: Option<PodNamespace>,
    device: DeviceName,
    mtu: u32,
    tell: oneshot::Sender<Looked>,
) -> Result<(PodNamespace, Option<Prepared>), HostError> {
    let netns = call.request.netns.clone().unwrap_or_default();
    let (sandbox, mac) = (call.sandbox.clone(), mac(call));
    let work = move |host: &mut Host| {
        let mut pod = known.map_or_else(|| PodNamespace::open(&netns), Ok)?;
        let interface = host.pod_interface(&sandbox, &mut pod)?;
        let is_taken = host.is_name_taken(&device, &sandbox)?;
        if tell.send(Looked { interface, is_taken }).is_err() || interface != PodInterface::None {
            return Ok((pod, None));
        }
        failpoint::hit(Point::AddBeforeLink);
        let prepared = host.prepare(&pod, &sandbox, mac, mtu).unwrap_or_else(|error| {
            debug!("the veth of {sandbox} could not be made ahead of its addresses: {error}");
            None
        });
        failpoint::hit(Point::AddAfterLink);
        Ok((pod, prepared))
    };
    services.in_kernel(work).await
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
