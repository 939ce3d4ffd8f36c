//! An interface that another sandbox of ours has in the same namespace: the runtime calls the same pod by another container ID or network
//! name before the DEL of the first.
//!
//! As with Calico, the second wins where the host end has the pod's name: the first's interface goes, and its addresses with its own DEL. A
//! container without a pod keeps its one interface and joins the network: its endpoint gets the network's profile.

use host::{HostError, OwnedLink, PodNamespace};
use ipnet::IpNet;
use model::DeviceName;
use serde_json::Value;
use store::Change;
use tracing::info;

use super::super::endpoint::{self, Keeping};
use super::super::error::CniError;
use super::super::records::{Tries, find_endpoint};
use super::super::result::{self, Answered, Ends};
use super::super::{node, profile};
use super::{Add, wiring};

impl Add<'_> {
    /// Whether the interface of an earlier sandbox makes way: it must be the same pod's.
    pub(super) fn may_replace(&self, earlier: &OwnedLink, device: &DeviceName) -> bool {
        let is_same_interface = earlier.owner.interface() == self.call.sandbox.interface();
        self.call.request.pod.is_some() && is_same_interface && earlier.name == device.as_str()
    }

    /// Takes the interface of the earlier sandbox out of service. Its records stay for its own DEL.
    pub(super) async fn replace(
        &self,
        earlier: OwnedLink,
        mut pod: PodNamespace,
    ) -> Result<PodNamespace, CniError> {
        let OwnedLink { owner, name, .. } = earlier;
        info!(sandbox = %self.call.sandbox, earlier = %owner, device = name, "the pod's interface changes hands");
        // The reconciler must not bring it back.
        self.services.forget(&owner)?;
        let device = DeviceName::new(&name).ok();
        let work = move |host: &mut host::Host| -> Result<PodNamespace, HostError> {
            host.detach(&owner, device.as_ref(), Some(&mut pod))?;
            Ok(pod)
        };
        let pod = self.services.in_kernel_here(work).await??;
        self.services.sweep().await;
        Ok(pod)
    }

    /// The answer for a container without a pod that has this interface already, in another network; `None` if it has not.
    pub(super) async fn join(&mut self, mtu: u32) -> Result<Option<Value>, CniError> {
        if self.call.request.pod.is_some() || Keeping::of(&self.book) == Keeping::Views {
            return Ok(None);
        }
        let Some(key) = self.id.key()? else { return Ok(None) };
        let profile = profile::name_of(&self.call.netconf.name);
        let mut tries = Tries::default();
        loop {
            let Some((record, resource)) = find_endpoint(&self.book, &key).await? else { return Ok(None) };
            let sandbox = &self.call.sandbox;
            if endpoint::container_id(&resource) != sandbox.container_id() || !self.has_predecessor().await? {
                return Ok(None);
            }
            let Some(wired) = endpoint::wired(&resource) else { return Ok(None) };
            if let Some(joined) = endpoint::with_joined(&resource, &profile) {
                let change = Change::update(key.clone(), joined.encode(), record.revision);
                match self.book.store().commit(vec![change]).await {
                    Err(error) if error.is_lost_race() => {
                        tries.again(sandbox).await?;
                        continue;
                    }
                    outcome => drop(outcome?),
                }
            }
            profile::ensure(self.call, &self.book, self.services).await?;
            info!(%sandbox, device = %wired.device, "the container joined another network with the interface that it has");
            let addresses: Vec<IpNet> = wired.addresses.iter().copied().map(IpNet::from).collect();
            let ends = Ends {
                host: wired.device.as_str(),
                pod: sandbox.interface(),
                mac: &wired.mac.to_string(),
                addresses: &addresses,
                netns: self.call.request.netns.as_deref().unwrap_or_else(|| "".as_ref()),
            };
            let mtu = node::configured_mtu(&self.call.netconf, mtu);
            let answered = Answered { routes: Vec::new(), mtu };
            return Ok(Some(result::of_ends(&self.call.netconf.cni_version, ends, &answered)));
        }
    }

    /// Whether the container has the interface, for another network.
    async fn has_predecessor(&mut self) -> Result<bool, CniError> {
        let device = node::device_name(None, &self.call.sandbox)?;
        let guard = self.guard().await?;
        let (pod, observed) =
            wiring::observe(self.pod.take(), self.call, &device, guard, self.services).await?;
        self.pod = Some(pod);
        let sandbox = &self.call.sandbox;
        Ok(observed.predecessor.is_some_and(|earlier| earlier.owner.container_id() == sandbox.container_id()))
    }
}
