//! Books agree: an address is in use that no pool allows.

use ::ipam::check::Problem;

use super::{problems, user_exhibits, users};
use crate::checks::words::listed;
use crate::{Case, Check, FindingCode, Look, Need};

/// A pod that asked for an address which is nobody's to manage.
const NO_IPAM_ANNOTATION: &str = "cni.projectcalico.org/ipAddrsNoIpam";

pub(in crate::checks) const CHECK: Check = Check {
    title: "Address in use is in no IP pool",
    explanation: "An endpoint or pod has an address that is outside every IP pool, or inside a disabled pool \
                  but not allocated there. Without a pool, nothing determines its encapsulation, its NAT or \
                  whether it is routed between nodes. Usually the pool was deleted or changed while pods had \
                  addresses from it.",
    remedy: "create the pool again (with disabled: true if new pods should not use it) and keep it until \
             these pods are recreated",
    needs: &[
        &[Need::Ipam, Need::Record(model::Kind::IpPool), Need::Endpoints],
        &[Need::Ipam, Need::Record(model::Kind::IpPool), Need::Pods],
    ],
    ..Check::warning(FindingCode::AddressOutsidePools, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.books_view().is_some_and(|view| view.knows_pools) {
        return;
    }
    for problem in problems(case) {
        let Problem::UsedOutsidePools { address, .. } = problem else { continue };
        let is_on_its_own =
            |pod: &&evidence::Sighted<evidence::Pod>| pod.seen.annotations.contains_key(NO_IPAM_ANNOTATION);
        let pods = case.endpoints_at(*address).iter().filter_map(|endpoint| endpoint.seen.pod_name());
        let mut pods = pods.flat_map(|name| case.pods_named(&name).collect::<Vec<_>>());
        if pods.any(|pod| is_on_its_own(&pod)) || case.pods_at(*address).iter().any(is_on_its_own) {
            continue;
        }
        let summary = format!(
            "{address} is used by {} but is in no pool that allows it",
            listed(users(case, *address))
        );
        look.found(*address, summary).seen_all(user_exhibits(case, *address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent, subjects};
    use evidence::sample::small;

    fn move_away(evidence: &mut evidence::Evidence) {
        let address: std::net::IpAddr = "192.0.2.7".parse().unwrap();
        evidence.endpoints.as_mut().unwrap()[0].seen.addresses = vec![address];
        evidence.pods.as_mut().unwrap()[0].seen.addresses = vec![address];
    }

    #[test]
    fn fires_for_an_address_of_no_pool() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        move_away(&mut evidence);
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "192.0.2.7");
    }

    #[test]
    fn is_silent_for_old_addresses_of_a_disabled_pool_and_for_those_who_asked() {
        let mut evidence = small();
        let mut disabled = evidence::Evidence { ..evidence.clone() };
        disabled.records = Default::default();
        disabled.records.add(evidence::sample::record(
            model::Kind::IpPool,
            "pods",
            serde_json::json!({"cidr": "10.0.0.0/12", "disabled": true}),
        ));
        assert_eq!(subjects(&CHECK, &disabled), [] as [&str; 0]);
        move_away(&mut evidence);
        let pod = &mut evidence.pods.as_mut().unwrap()[0].seen;
        pod.annotations.insert(NO_IPAM_ANNOTATION.to_owned(), "[\"192.0.2.7\"]".to_owned());
        silent(&CHECK, &evidence);
    }
}
