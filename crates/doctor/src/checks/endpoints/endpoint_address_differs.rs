//! Books agree: a pod shows another address than its endpoint has, or than the plugin has noted on it.

use std::net::IpAddr;

use model::NodeName;

use super::{explain_not_inside, is_of_pod};
use crate::checks::words::{endpoint_exhibit, listed};
use crate::{Case, Check, Finding, FindingCode, Look, Need, Severity};
use evidence::{Endpoint, Pod, Sighted};

pub(in crate::checks) const CHECK: Check = Check {
    title: "Pod and endpoint have different addresses",
    explanation: "Kubernetes shows an address for a pod that differs from the one in its endpoint record. \
                  Services send traffic to one address, but the network routes the other. This happens when \
                  a sandbox is recreated but one of the two is not updated, or when two CNI calls for pods \
                  with the same name are processed out of order. In a Kubernetes store the plugin writes the \
                  address into the annotations cni.projectcalico.org/podIP and podIPs of the pod. If only \
                  these differ, it is a warning: other programs may rely on them.",
    remedy: "run plumb repair finding endpoint-address-differs --apply, which corrects the record if the pod \
             has the address that Kubernetes shows; otherwise recreate the pod",
    needs: &[&[Need::Endpoints, Need::Pods]],
    ..Check::error(FindingCode::EndpointAddressDiffers, look)
};

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for pod in case.all_pods() {
        let seen = &pod.seen;
        let is_out = seen.addresses.is_empty() || seen.is_finished() || case.is_in_flux(seen);
        if is_out || case.is_on_host_network(seen) {
            continue;
        }
        let endpoints = endpoints_of(case, seen);
        let known: Vec<IpAddr> =
            endpoints.iter().flat_map(|endpoint| endpoint.seen.addresses.iter().copied()).collect();
        // A kubelet that knows one IP version shows one address of two.
        let is_missing = |shown: &IpAddr| {
            !known.contains(shown) && known.iter().any(|known| known.is_ipv4() == shown.is_ipv4())
        };
        let missing: Vec<IpAddr> = seen.addresses.iter().copied().filter(is_missing).collect();
        let noted = noted(seen, &known);
        if missing.is_empty() && noted.is_empty()
            || endpoints.iter().any(|endpoint| case.is_endpoint_in_flux(&endpoint.seen))
        {
            continue;
        }
        if missing.is_empty() {
            tell_noted(look, pod, &noted);
        } else {
            let finding = tell(look, pod, &endpoints, &missing, &known);
            for endpoint in endpoints.iter().map(|endpoint| &endpoint.seen) {
                for address in explain_not_inside(case, finding, endpoint, &endpoint.addresses) {
                    finding
                        .explains(FindingCode::AddressUsedButFree, address)
                        .explains(FindingCode::AddressOutsidePools, address);
                }
            }
        }
    }
}

/// The annotations in which Calico's plugin notes a pod's addresses.
const NOTES: [&str; 2] = ["cni.projectcalico.org/podIP", "cni.projectcalico.org/podIPs"];

/// What the plugin has noted on the pod, and neither Kubernetes nor the endpoint says.
fn noted(pod: &Pod, known: &[IpAddr]) -> Vec<IpAddr> {
    let mut noted: Vec<IpAddr> = Vec::new();
    let texts = NOTES.into_iter().filter_map(|name| pod.annotations.get(name));
    for address in texts.flat_map(|text| text.split(',')).filter_map(|text| evidence::address_of(text.trim()))
    {
        let is_comparable = pod.addresses.iter().any(|shown| shown.is_ipv4() == address.is_ipv4());
        let is_told = pod.addresses.contains(&address) || known.contains(&address);
        if is_comparable && !is_told && !noted.contains(&address) {
            noted.push(address);
        }
    }
    noted
}

fn tell_noted(look: &mut Look<'_>, pod: &Sighted<Pod>, noted: &[IpAddr]) {
    let (name, shown) = (&pod.seen.name, listed(&pod.seen.addresses));
    let summary = format!("pod {name} shows {shown}, but its annotations have {}", listed(noted));
    let finding = look.found(name.clone(), summary);
    finding.severity(Severity::Warning).seen(pod.exhibit(format!("pod {name} shows {shown}")));
    for note in NOTES {
        if let Some(text) = pod.seen.annotations.get(note) {
            finding.seen(pod.exhibit(format!("annotation {note}: {text}")));
        }
    }
}

/// Those of the node that the pod is on.
fn endpoints_of<'e>(case: &Case<'e>, pod: &Pod) -> Vec<&'e Sighted<Endpoint>> {
    let is_here =
        |node: Option<&NodeName>| node.zip(pod.node.as_ref()).is_none_or(|(one, other)| one == other);
    let mut endpoints: Vec<_> = case.endpoints_of(&pod.name).collect();
    endpoints.retain(|endpoint| {
        let seen = &endpoint.seen;
        is_of_pod(seen) && is_here(seen.node.as_ref()) && !seen.addresses.is_empty()
    });
    endpoints
}

fn tell<'l>(
    look: &'l mut Look<'_>,
    pod: &Sighted<Pod>,
    endpoints: &[&Sighted<Endpoint>],
    missing: &[IpAddr],
    known: &[IpAddr],
) -> &'l mut Finding {
    let name = &pod.seen.name;
    let summary = format!("pod {name} shows {}, but its endpoint has {}", listed(missing), listed(known));
    let finding = look.found(name.clone(), summary);
    finding
        .seen(pod.exhibit(format!("pod {name} shows {}", listed(&pod.seen.addresses))))
        .seen_all(endpoints.iter().map(|endpoint| endpoint_exhibit(endpoint)));
    for address in missing {
        finding
            .explains(FindingCode::AddressUsedButFree, *address)
            .explains(FindingCode::AddressOutsidePools, *address);
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::small;

    #[test]
    fn fires_for_another_address_of_the_same_version() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        evidence.pods.as_mut().unwrap()[0].seen.addresses = vec!["10.0.0.63".parse().unwrap()];
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "pod team-0/web-0 shows 10.0.0.63, but its endpoint has 10.0.0.0");
        evidence.pods.as_mut().unwrap()[0].seen.addresses = vec!["fd00::1".parse().unwrap()];
        silent(&CHECK, &evidence);
    }

    /// As in a Kubernetes store, where the record is what the plugin noted on the pod.
    #[test]
    fn explains_what_follows_from_a_wrong_record() {
        let mut evidence = small();
        evidence.endpoints.as_mut().unwrap()[0].seen.addresses = vec!["10.0.0.63".parse().unwrap()];
        let report = crate::diagnose(&evidence);
        let codes: Vec<_> = report.findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [FindingCode::EndpointAddressDiffers], "{:#?}", report.findings);
    }

    /// As in a Kubernetes store, where the plugin notes addresses on the pod.
    #[test]
    fn fires_for_annotations_alone_as_a_warning() {
        let mut evidence = small();
        let note = |evidence: &mut evidence::Evidence, text: &str| {
            let pod = &mut evidence.pods.as_mut().unwrap()[0].seen;
            pod.annotations = NOTES.map(|name| (name.to_owned(), text.to_owned())).into();
        };
        for fine in ["10.0.0.0/32", "10.0.0.0", "", "10.0.0.0/32,fd00::7/128", "nonsense"] {
            note(&mut evidence, fine);
            silent(&CHECK, &evidence);
        }
        note(&mut evidence, "10.0.0.63/32");
        let finding = only(&CHECK, &evidence);
        assert_eq!(finding.summary, "pod team-0/web-0 shows 10.0.0.0, but its annotations have 10.0.0.63");
        assert_eq!((finding.severity, finding.evidence.len()), (Severity::Warning, 3));
    }
}
