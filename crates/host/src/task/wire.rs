//! Makes the network of a running sandbox anew, in place, and takes it away again.

use std::path::Path;

use model::{DeviceName, Sandbox};
use plan::task::{KernelChange, PodNetwork};
use plan::{Attachment, Maker, PodWiring, differences};

use super::{NotDone, Outcome, TaskContext, known, surprise};
use crate::links::find_link;
use crate::{Adoption, Claim, Host, HostError, PodInterface, PodNamespace};

/// For a record that does not say it, where nothing is left to tell: what every network carries.
const MTU_SAFE: u32 = 1450;

impl Host {
    /// What is missing is added to what is there; what is a stranger's is not touched.
    pub(super) fn wire(&mut self, wire: &PodNetwork, context: &TaskContext) -> Outcome {
        let (sandbox, device) = identity(wire)?;
        let netns = context.namespace_of(&wire.container_id)?;
        let mut pod = self.open_pod(&netns)?;
        let wiring = self.wiring(wire, &sandbox, &device, &mut pod, context.maker)?;
        let is_there =
            find_link(&mut self.netlink, &device)?.is_some() || self.bring_back(&mut pod, &wiring)?;
        if is_there && let Some(refusal) = self.take_over(&mut pod, wire, &sandbox, &device)? {
            return surprise(format!("{device} is there, and {sandbox} is not taken over: {refusal}"));
        }
        if self.pod_interface(&sandbox, &mut pod)? == PodInterface::Foreign {
            return surprise(format!("{sandbox} has an interface {} from somebody else", wire.interface));
        }
        let observed = self.observe(&mut pod, &wiring)?;
        if differences(&wiring, &observed).is_empty() {
            return Err(NotDone::Already);
        }
        let is_new = observed.host.is_none() && observed.pod.is_none();
        match self.ensure(&mut pod, &wiring) {
            Err(error) if error.is_in_the_way() => return surprise(model::text::on_one_line(&error)),
            Err(HostError::Foreign { difference }) => return surprise(difference.to_string()),
            Err(HostError::NameTaken { device }) => return surprise(format!("{device} is somebody else's")),
            outcome => outcome?,
        }
        // What was there in part is not worth less for being whole: there is nothing to take back.
        Ok(is_new.then(|| KernelChange::Unwire(wire.clone())))
    }

    /// A device of that name must be this sandbox's, or become it: then its alias says so. Why not, if not.
    fn take_over(
        &mut self,
        pod: &mut PodNamespace,
        wire: &PodNetwork,
        sandbox: &Sandbox,
        device: &DeviceName,
    ) -> Result<Option<&'static str>, HostError> {
        if self.link_index(device, sandbox)?.is_some() {
            return Ok(None);
        }
        let claim = Claim {
            sandbox: sandbox.clone(),
            device: device.clone(),
            mac: wire.mac,
            addresses: wire.addresses.clone(),
            unallocated: Vec::new(),
        };
        match self.adopt(Some(pod), &claim)? {
            Adoption::Done(_) => Ok(None),
            Adoption::Refused(reason) => Ok(Some(reason)),
        }
    }

    fn wiring(
        &mut self,
        wire: &PodNetwork,
        sandbox: &Sandbox,
        device: &DeviceName,
        pod: &mut PodNamespace,
        maker: Maker,
    ) -> Result<PodWiring, NotDone> {
        let inside = known(&wire.interface)?;
        let there = find_link(&mut pod.netlink, &inside)?;
        let attachment = Attachment {
            sandbox: sandbox.clone(),
            device: device.clone(),
            mac: wire.mac.or(there.as_ref().and_then(|link| link.mac)).unwrap_or_else(|| sandbox.mac()),
            mtu: wire.mtu.or(there.map(|link| link.mtu)).unwrap_or(MTU_SAFE),
            addresses: wire.addresses.clone(),
            pod_forwards: crate::sysctl::ask(&mut pod.netlink, plan::FORWARD_V4)
                .is_ok_and(|value| value == "1"),
            pod_routes: Vec::new(),
        };
        let mut wiring =
            PodWiring::new(&attachment, &self.facts()?).or_else(|error| surprise(error.to_string()))?;
        let protocol = maker.protocol(Some(device.as_str()), false);
        wiring.host.routes.iter_mut().for_each(|route| route.protocol = protocol);
        Ok(wiring)
    }

    /// Only what carries the sandbox's own alias.
    pub(super) fn unwire(&mut self, wire: &PodNetwork, context: &TaskContext) -> Outcome {
        let (sandbox, device) = identity(wire)?;
        if !self.owned_links()?.iter().any(|link| link.owner == sandbox) {
            return Err(NotDone::Already);
        }
        // One that is gone has taken its end along.
        let netns = context.namespace_of(&wire.container_id).ok();
        let mut pod = netns.as_deref().map(|netns: &Path| self.open_pod(netns)).transpose()?;
        let detached = self.detach(&sandbox, Some(&device), pod.as_mut())?;
        self.sweep()?;
        match detached.left_inside {
            Some(left) => Err(NotDone::NotHeld(left)),
            None => Ok(Some(KernelChange::Wire(wire.clone()))),
        }
    }
}

fn identity(wire: &PodNetwork) -> Result<(Sandbox, DeviceName), NotDone> {
    let sandbox = Sandbox::new(&wire.network, &wire.container_id, &wire.interface)
        .or_else(|error| surprise(error.to_string()))?;
    let device = known(&wire.device)?;
    if !device.as_str().starts_with(DeviceName::CALICO_PREFIX) {
        return surprise(format!("{device} is no name of a pod's device"));
    }
    if wire.addresses.is_empty() {
        return surprise(format!("the plan gives {sandbox} no address"));
    }
    Ok((sandbox, device))
}
