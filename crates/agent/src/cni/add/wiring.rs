//! The kernel's part of an ADD: the veth, for which no address is needed, and then all the rest.

use host::{Ahead, Host, HostError, PodInterface, PodNamespace, Prepared};
use model::DeviceName;
use plan::{Attachment, PodWiring};
use tokio::sync::oneshot;
use tracing::debug;

use super::super::error::CniError;
use super::super::{Call, Services};
use crate::failpoint::{self, Point};

/// What there is before anything is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub(super) interface: PodInterface,
    /// Another sandbox has the device's name.
    pub(super) is_taken: bool,
}

/// What the kernel's thread needs to know to make a veth.
pub(super) struct Order {
    /// Opened before, if so.
    pub(super) pod: Option<PodNamespace>,
    /// Without addresses: they are being decided.
    pub(super) attachment: Attachment,
    /// The device's name if another sandbox has the one that is wanted.
    pub(super) other_name: DeviceName,
    pub(super) ahead: Ahead,
}

impl Order {
    /// Looks, tells what there is, and makes the veth if the pod has none: it needs no address. In one go, because each
    /// turn of the kernel's thread costs time. Gives the pod's namespace back; no link if something is there already
    /// that must be looked at first, or if it could not be made: what is wrong now is wrong in a moment, too, and is
    /// said then.
    pub(super) async fn look_and_prepare(
        self,
        call: &Call,
        services: &Services,
        tell: oneshot::Sender<Looked>,
    ) -> Result<(PodNamespace, Option<Prepared>), HostError> {
        let netns = call.request.netns.clone().unwrap_or_default();
        let Order { pod: known, mut attachment, other_name, ahead } = self;
        let work = move |host: &mut Host| {
            let mut pod = known.map_or_else(|| host.open_pod(&netns), Ok)?;
            let interface = host.pod_interface(&attachment.sandbox, &mut pod)?;
            let is_taken = host.is_name_taken(&attachment.device, &attachment.sandbox)?;
            if tell.send(Looked { interface, is_taken }).is_err() || interface != PodInterface::None {
                return Ok((pod, None));
            }
            if is_taken {
                attachment.device = other_name;
            }
            failpoint::hit(Point::AddBeforeLink);
            let prepared = prepare(host, &mut pod, &attachment, ahead).unwrap_or_else(|error| {
                debug!("the veth of {} could not be made ahead: {error}", attachment.sandbox);
                None
            });
            failpoint::hit(Point::AddAfterLink);
            Ok((pod, prepared))
        };
        services.in_kernel(work).await
    }
}

fn prepare(
    host: &mut Host,
    pod: &mut PodNamespace,
    attachment: &Attachment,
    ahead: Ahead,
) -> Result<Option<Prepared>, HostError> {
    let Ok(bare) = PodWiring::new(attachment, &host.facts()?) else { return Ok(None) };
    host.prepare(pod, &bare, ahead)
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
