//! The kernel's part of an ADD: first the veth, which needs no address, then the rest.

use host::{Ahead, Host, HostError, PodInterface, PodNamespace, Prepared};
use model::DeviceName;
use plan::{Attachment, PodWiring};
use tracing::{debug, info};

use super::super::Call;
use super::super::error::CniError;
use crate::failpoint::{self, Point};
use crate::guard::WantedGuard;
use crate::services::Services;

/// The pod's state before anything is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed {
    pub(super) interface: PodInterface,
    /// Another sandbox has the device's name.
    pub(super) is_taken: bool,
}

/// Observes the pod before anything is made. Opens its namespace, unless an earlier attempt did.
pub(super) async fn observe(
    opened: Option<PodNamespace>,
    call: &Call,
    device: &DeviceName,
    guard: WantedGuard,
    services: Services<'_>,
) -> Result<(PodNamespace, Observed), HostError> {
    let netns = call.request.netns.clone().unwrap_or_default();
    let (sandbox, device) = (call.sandbox.clone(), device.clone());
    let observe = move |host: &mut Host| {
        let mut pod = opened.map_or_else(|| host.open_pod(&netns), Ok)?;
        // Before the pod has a device, so that even its first packet has a source address of its own.
        if guard.ensure(host)? {
            info!("loaded the rules that restrict pods to their own addresses");
        }
        let interface = host.pod_interface(&sandbox, &mut pod)?;
        let is_taken = host.is_name_taken(&device, &sandbox)?;
        Ok((pod, Observed { interface, is_taken }))
    };
    services.in_kernel_here(observe).await?
}

/// What making the veth needs.
pub(super) struct Preparation {
    pub(super) pod: PodNamespace,
    /// The pod has no such interface yet.
    pub(super) is_needed: bool,
    /// Without addresses, which are allocated at the same time.
    pub(super) attachment: Attachment,
    pub(super) ahead: Ahead,
}

impl Preparation {
    /// Makes the veth while the store commits the records. Returns the pod's namespace, and no link if one exists already or it could not be
    /// made: the wiring step that follows reports the error.
    pub(super) async fn run(
        self,
        services: Services<'_>,
        commits_apart: bool,
    ) -> Result<(PodNamespace, Option<Prepared>), HostError> {
        let Preparation { mut pod, is_needed, attachment, ahead } = self;
        if !is_needed {
            return Ok((pod, None));
        }
        // Other tasks of this thread go first, so that the commit is on its way.
        tokio::task::yield_now().await;
        let work = move |host: &mut Host| {
            failpoint::hit(Point::AddBeforeLink);
            let prepared = prepare(host, &mut pod, &attachment, ahead).unwrap_or_else(|error| {
                debug!(sandbox = %attachment.sandbox, %error, "cannot make the veth ahead");
                None
            });
            failpoint::hit(Point::AddAfterLink);
            (pod, prepared)
        };
        match commits_apart {
            true => services.in_kernel_here(work).await,
            // This thread receives the store's answer.
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
