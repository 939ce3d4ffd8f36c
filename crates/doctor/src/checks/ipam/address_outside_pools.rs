//! Books agree: an address is in use that no pool allows.

use ::ipam::check::Problem;

use super::{problems, user_exhibits, users};
use crate::checks::words::listed;
use crate::{Case, Check, Look, Need, Settles, Severity};

/// A pod that asked for an address which is nobody's to manage.
const NO_IPAM_ANNOTATION: &str = "cni.projectcalico.org/ipAddrsNoIpam";

pub(in crate::checks) const CHECK: Check = Check {
    code: "address-outside-pools",
    severity: Severity::Warning,
    title: "An address in use that is in no pool",
    explanation: "An endpoint has an address that lies in no IP pool, or in a disabled one without being \
                  allocated there. Without a pool nobody says how it is encapsulated, whether it is NATed, \
                  and whether it is routed between nodes. The pool was deleted or changed while pods had \
                  addresses of it.",
    remedy: "bring the pool back (disabled, if no new pods are to use it) until these pods are recreated",
    needs: &[
        &[Need::Ipam, Need::Record(model::Kind::IpPool), Need::Endpoints],
        &[Need::Ipam, Need::Record(model::Kind::IpPool), Need::Pods],
    ],
    settles: Settles::InTwoLooks,
    look,
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    if !case.books_view().is_some_and(|view| view.knows_pools) {
        return;
    }
    for problem in problems(case) {
        let Problem::UsedOutsidePools { address, .. } = problem else { continue };
        let is_on_its_own = |pod: &&crate::Sighted<crate::evidence::Pod>| {
            pod.seen.annotations.contains_key(NO_IPAM_ANNOTATION)
        };
        let pods = case.endpoints_at(*address).iter().filter_map(|endpoint| endpoint.seen.pod_name());
        let mut pods = pods.flat_map(|name| case.pods_named(&name).collect::<Vec<_>>());
        if pods.any(|pod| is_on_its_own(&pod)) || case.pods_at(*address).iter().any(is_on_its_own) {
            continue;
        }
        look.found(
            *address,
            format!(
                "{address} is used by {} and lies in no pool that allows it",
                listed(users(case, *address))
            ),
        )
        .seen_all(user_exhibits(case, *address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent, subjects};
    use crate::sample::small;

    fn move_away(evidence: &mut crate::Evidence) {
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
        let mut disabled = crate::Evidence { ..evidence.clone() };
        disabled.records = Default::default();
        disabled.records.add(crate::sample::record(
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
