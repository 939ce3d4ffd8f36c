//! An ADD waits until the rules of its endpoint are in the kernel.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

use super::{Enforcement, InForce};
use crate::journal::Entry;
use crate::verbs::{CniError, code};

/// How long an ADD waits where the network configuration sets no limit. The rules are usually there before the pod's devices are.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Whom an ADD waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting<'a> {
    pub(crate) device: &'a str,
    pub(crate) addresses: &'a [IpAddr],
    /// The profile that opens it, if the store has it: rules from before it was seen would shut the endpoint.
    pub(crate) profile: Option<&'a str>,
    /// It has no endpoint record, and never will.
    pub(crate) is_bare: bool,
    pub(crate) timeout: Duration,
}

impl Enforcement {
    /// Returns once the endpoint's rules are in the kernel. Until then its device is shut.
    pub(crate) async fn wait_for(&self, endpoint: Waiting<'_>) -> Result<(), CniError> {
        if endpoint.is_bare {
            self.engine().put_bare(endpoint.device, endpoint.addresses);
            self.changed.notify_one();
        }
        let mut in_force = self.in_force.subscribe();
        let waiting = in_force.wait_for(|in_force| in_force.as_ref().is_some_and(|all| endpoint.is_in(all)));
        match tokio::time::timeout(endpoint.timeout, waiting).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(self.timed_out(endpoint)),
        }
    }

    /// An attachment is in the journal.
    pub(crate) fn attach(&self, entry: &Entry) {
        self.engine().attach(entry);
        self.changed.notify_one();
    }

    /// An attachment is gone, which may have had no record.
    pub(crate) fn detach(&self, device: &str) {
        let mut engine = self.engine();
        engine.remove_bare(device);
        engine.detach(device);
        drop(engine);
        self.changed.notify_one();
    }

    fn timed_out(&self, endpoint: Waiting<'_>) -> CniError {
        let message = format!(
            "the network policy of the pod was not in the kernel after {} s; try again",
            endpoint.timeout.as_secs()
        );
        let missing = self.engine().incomplete();
        let hint = match missing.is_empty() {
            true => "the agent's log and its readiness say what is wrong with the rules".to_owned(),
            false => format!("the agent has not yet cached: {}", missing.join(", ")),
        };
        CniError::new(code::TRY_LATER, message).hint(hint)
    }
}

impl Waiting<'_> {
    fn is_in(&self, in_force: &InForce) -> bool {
        let Some(enforced) = in_force.get(self.device) else { return false };
        let is_open = self
            .profile
            .is_none_or(|awaited| enforced.missing_profiles.iter().all(|name| **name != *awaited));
        is_open && self.addresses.iter().all(|address| enforced.nets.contains(&IpNet::from(*address)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::super::Enforced;
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5));

    fn waiting(addresses: &[IpAddr]) -> Waiting<'_> {
        Waiting {
            device: "cali1",
            addresses,
            profile: Some("net"),
            is_bare: false,
            timeout: Duration::from_millis(1),
        }
    }

    fn set(enforcement: &Enforcement, device: &str, address: IpAddr) {
        set_without(enforcement, device, address, &[]);
    }

    fn set_without(enforcement: &Enforcement, device: &str, address: IpAddr, missing: &[&str]) {
        let missing_profiles = missing.iter().map(|name| Arc::from(*name)).collect();
        let enforced = Enforced { nets: vec![IpNet::from(address)], missing_profiles };
        enforcement.in_force.send_replace(Some(Arc::new(BTreeMap::from([(Arc::from(device), enforced)]))));
    }

    #[tokio::test]
    async fn an_add_ends_with_its_endpoints_rules_and_not_with_others() {
        let enforcement = Enforcement::new("a");
        let late = enforcement.wait_for(waiting(&[ADDRESS])).await.unwrap_err();
        assert_eq!((late.code, late.is_permanent()), (code::TRY_LATER, false));
        assert!(late.details.contains("networkpolicies"), "{late:?}");
        for (device, address) in [("cali2", ADDRESS), ("cali1", IpAddr::from([10, 0, 0, 6]))] {
            set(&enforcement, device, address);
            assert!(enforcement.wait_for(waiting(&[ADDRESS])).await.is_err());
        }
        set_without(&enforcement, "cali1", ADDRESS, &["other", "net"]);
        assert!(enforcement.wait_for(waiting(&[ADDRESS])).await.is_err());
        set_without(&enforcement, "cali1", ADDRESS, &["other"]);
        enforcement.wait_for(waiting(&[ADDRESS])).await.unwrap();
        set(&enforcement, "cali2", ADDRESS);
        let patient = Waiting { timeout: testkit::PATIENCE, ..waiting(&[ADDRESS]) };
        let set_later = async {
            tokio::task::yield_now().await;
            set(&enforcement, "cali1", ADDRESS);
        };
        let (waited, ()) = tokio::join!(enforcement.wait_for(patient), set_later);
        waited.unwrap();
    }
}
