//! An ADD whose interface another program makes: the records first, then the program, then what it made into the record.

use host::PodInterface;
use jiff::Timestamp;
use model::Resource;
use serde_json::Value;
use tracing::{info, warn};

use super::super::Caller;
use super::super::backend::{self, Asked, Made};
use super::super::endpoint;
use super::super::error::CniError;
use super::super::netconf::Backend;
use super::super::result::{self, Answered, Ends};
use super::super::{gates, node, profile};
use super::wiring::Observed;
use super::{Add, Recorded, abandoned};

impl Add<'_> {
    pub(super) async fn connect_by(
        &mut self,
        backend: &Backend,
        mtu: u32,
        caller: &Caller,
    ) -> Result<Value, CniError> {
        let mtu = node::configured_mtu(&self.call.netconf, mtu);
        let device = node::device_name(self.call.request.pod.as_ref(), &self.call.sandbox)?;
        let observed = Observed { interface: PodInterface::None, predecessor: None, is_taken: false };
        let recorded = self.record(observed, &device).await?;
        let outcome = self.make(backend, &recorded, mtu).await;
        let outcome = outcome.and_then(|made| if caller.is_waiting() { Ok(made) } else { Err(abandoned()) });
        let made = match outcome {
            Ok(made) => made,
            Err(error) => {
                self.undo_by(backend, &recorded).await;
                return Err(error);
            }
        };
        info!(sandbox = %self.call.sandbox, device = made.device, "added by another dataplane");
        gates::await_policy(self.call.netconf.calico.policy_wait.as_ref(), &self.id).await;
        let addresses = backend::alone(&recorded.wired.addresses);
        let ends = Ends {
            host: &made.device,
            pod: self.call.sandbox.interface(),
            mac: &made.mac.to_string(),
            addresses: &addresses,
            netns: self.call.request.netns.as_deref().unwrap_or_else(|| "".as_ref()),
        };
        Ok(result::of_ends(&self.call.netconf.cni_version, ends, &Answered { routes: recorded.routes, mtu }))
    }

    async fn make(&self, backend: &Backend, recorded: &Recorded, mtu: Option<u32>) -> Result<Made, CniError> {
        self.refuse_recorded(recorded).await?;
        let asked = Asked {
            endpoint: &self.described_endpoint(recorded)?,
            annotations: &self.pod_annotations,
            networks: &recorded.networks,
            device: &recorded.wired.device,
            mtu,
        };
        let made = backend::add(self.call, backend, &asked).await?;
        if let Some(key) = self.id.key()? {
            backend::note(self.call, &self.book, &key, &made).await?;
        }
        profile::ensure(self.call, &self.book, self.services).await?;
        Ok(made)
    }

    /// With its name, which a stored record gets with its key.
    fn described_endpoint(&self, recorded: &Recorded) -> Result<Resource, CniError> {
        let mut resource =
            endpoint::record(&self.id, &recorded.wired, &self.described, None, Timestamp::now())?;
        resource.metadata.name =
            self.id.name.compute().map_err(|error| CniError::environment(error.to_string()))?;
        Ok(resource)
    }

    async fn undo_by(&self, backend: &Backend, recorded: &Recorded) {
        let Some(made) = &recorded.made else { return };
        let sandbox = &self.call.sandbox;
        if let Err(error) = backend::del(self.call, backend).await {
            warn!(%sandbox, %error, "cannot undo the ADD: the dataplane may still have the interface");
        }
        self.undo_records(made).await;
    }
}
