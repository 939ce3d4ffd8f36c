//! Callers that are not Kubernetes name things as they like, and get a network all the same.

use model::originals::Named;
use model::{Key, Kind, Resource};

use crate::common::{Bench, DelOutcome as _};
use crate::running::wait_until;

/// The one endpoint record that there is.
fn endpoint(bench: &Bench) -> Resource {
    let mut records = bench.records().into_iter();
    let is_endpoint = |key: &Key| matches!(key, Key::Resource { kind: Kind::WorkloadEndpoint, .. });
    let (key, value) = records.find(|(key, _)| is_endpoint(key)).expect("an endpoint record");
    Resource::decode(&key, Kind::WorkloadEndpoint, value.as_bytes(), "1").unwrap()
}

#[test]
fn names_that_kubernetes_would_not_allow_get_a_network() {
    let Some(bench) = Bench::new("names_that_kubernetes_would_not_allow_get_a_network") else { return };
    let agent = bench.agent(&[]);
    let pod = bench.pod("shop", "web-0");
    let arguments = |namespace: &str, name: &str| {
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}")
    };
    let callers = [
        // As cnitool and podman call: an ID, and no pod.
        ("Sandbox-UPPER", "eth0", "IgnoreUnknown=1".to_owned()),
        ("my_container.1", "eth0", "IgnoreUnknown=1;K8S_POD_NAME=my_container".to_owned()),
        // As a runtime does for sandboxes that no kubelet asked for.
        ("0f3a", "eth0", arguments("Default", "PodSandbox-For_Test")),
        ("0f3b", "Net_0", arguments("shop", "web-0")),
    ];
    for (container, interface, arguments) in callers {
        for with_agent in [true, false] {
            let call = |verb: &str| {
                let call = if with_agent { bench.agent_call(verb, &pod) } else { bench.call(verb, &pod) };
                call.with("CNI_CONTAINERID", container)
                    .with("CNI_IFNAME", interface)
                    .with("CNI_ARGS", &arguments)
            };
            let added = call("ADD").run(&bench.node).unwrap();
            let address =
                added.address().unwrap_or_else(|error| panic!("{container}: {error} {}", agent.log()));
            let answers = || pod.netns().can_ping(bench.node.address()).unwrap();
            // Only an agent's own answer waits for network policy, and an agent runs.
            if with_agent {
                assert!(answers(), "{container} {address}");
            } else {
                wait_until(answers, || agent.log());
            }
            let endpoint = endpoint(&bench);
            assert!(
                model::validate::validate(&endpoint).is_empty(),
                "{:?}",
                model::validate::validate(&endpoint)
            );
            assert_eq!(Named::ContainerId.original(&endpoint), Some(container));
            assert_eq!(Named::Interface.original(&endpoint), Some(interface));
            // The same again is the same.
            assert_eq!(call("ADD").run(&bench.node).unwrap().address().unwrap(), address);
            let check = call("CHECK").with_netconf("prevResult", added.result().unwrap());
            let checked = check.run(&bench.node).unwrap();
            assert!(checked.success, "{container}: {}", checked.stdout);
            call("DEL").run(&bench.node).unwrap().result_of_del();
            bench.assert_nothing_left();
        }
    }
}

#[test]
fn names_that_differ_only_in_what_kubernetes_does_not_know_are_two() {
    let Some(bench) = Bench::new("names_that_differ_only_in_what_kubernetes_does_not_know_are_two") else {
        return;
    };
    let agent = bench.agent(&[]);
    let pods: Vec<_> = (0..4).map(|number| bench.pod("shop", &format!("p{number}"))).collect();
    let names = ["Web_0", "Web-0", "web_0", "web-0"];
    let call = |verb: &str, number: usize| {
        bench.agent_call(verb, &pods[number]).with("CNI_CONTAINERID", names[number]).with("CNI_ARGS", "")
    };
    let addresses: std::collections::BTreeSet<_> = (0..names.len())
        .map(|number| call("ADD", number).run(&bench.node).unwrap().address().unwrap())
        .collect();
    assert_eq!((addresses.len(), bench.books().endpoints().len()), (names.len(), names.len()));
    // One goes, and takes nothing from the others.
    for (number, left) in [(1, 3), (2, 2), (0, 1), (3, 0)] {
        call("DEL", number).run(&bench.node).unwrap().result_of_del();
        assert_eq!(bench.books().endpoints().len(), left, "{}", agent.log());
    }
    bench.assert_nothing_left();
}
