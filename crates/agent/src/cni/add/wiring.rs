//! The kernel's part of an ADD: the veth, for which no address is needed, and then all the rest.

use host::{Ahead, Host, HostError, PodInterface, PodNamespace, Prepared};
use model::DeviceName;
use plan::{Attachment, PodWiring};
use tracing::{debug, info};

use super::super::error::CniError;
use super::super::{Call, Services};
use crate::failpoint::{self, Point};
use crate::guard;

/// What there is before anything is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    pub(super) interface: PodInterface,
    /// Another sandbox has the device's name.
    pub(super) is_taken: bool,
}

/// Looks before anything is made. Opens the pod's namespace, unless that was done before.
pub(super) async fn look(
    known: Option<PodNamespace>,
    call: &Call,
    device: &DeviceName,
    services: &Services,
) -> Result<(PodNamespace, Looked), HostError> {
    let netns = call.request.netns.clone().unwrap_or_default();
    let (sandbox, device) = (call.sandbox.clone(), device.clone());
    let look = move |host: &mut Host| {
        let mut pod = known.map_or_else(|| host.open_pod(&netns), Ok)?;
        // Before the pod has a device: what it sends first must not be from elsewhere either.
        if host.ensure_pod_guard(guard::ruleset)? {
            info!("loaded the rules that restrict pods to their own addresses");
        }
        let interface = host.pod_interface(&sandbox, &mut pod)?;
        let is_taken = host.is_name_taken(&device, &sandbox)?;
        Ok((pod, Looked { interface, is_taken }))
    };
    services.in_kernel_here(look).await?
}

/// What is needed to make a veth.
pub(super) struct Order {
    pub(super) pod: PodNamespace,
    /// The pod has none.
    pub(super) is_wanted: bool,
    /// Without addresses: they are being decided.
    pub(super) attachment: Attachment,
    pub(super) ahead: Ahead,
}

impl Order {
    /// Makes the veth while others are at work on the records: it needs no address. Gives the pod's namespace back; no
    /// link if something is there already that must be looked at first, or if it could not be made: what is wrong now is
    /// wrong in a moment, too, and is said then.
    pub(super) async fn prepare(
        self,
        services: &Services,
        commits_apart: bool,
    ) -> Result<(PodNamespace, Option<Prepared>), HostError> {
        let Order { mut pod, is_wanted, attachment, ahead } = self;
        if !is_wanted {
            return Ok((pod, None));
        }
        // Whatever else is to be done on this thread goes first: then the commit is on its way.
        tokio::task::yield_now().await;
        let work = move |host: &mut Host| {
            failpoint::hit(Point::AddBeforeLink);
            let prepared = prepare(host, &mut pod, &attachment, ahead).unwrap_or_else(|error| {
                debug!("the veth of {} could not be made ahead: {error}", attachment.sandbox);
                None
            });
            failpoint::hit(Point::AddAfterLink);
            (pod, prepared)
        };
        match commits_apart {
            true => services.in_kernel_here(work).await,
            // This thread hears from the store.
            false => services.kernel()?.run(work).await,
        }
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
