//! What a runtime passes in the environment: the verb, the sandbox, the pod.

#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

use std::path::PathBuf;

use super::error::CniError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

/// What a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) container_id: String,
    /// Always set for ADD and CHECK.
    pub(crate) netns: Option<PathBuf>,
    pub(crate) interface: String,
    /// Set if the caller is Kubernetes.
    pub(crate) pod: Option<PodName>,
    /// `CNI_ARGS` asks for these; an empty value asks for nothing.
    pub(crate) asked_addresses: Option<String>,
    pub(crate) asked_mac: Option<String>,
    /// The namespace of a container that is no pod. Calico's plugin reads it for its own tests.
    pub(crate) namespace: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodName {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Tells pods of the same name apart.
    pub(crate) uid: Option<String>,
}

impl Verb {
    pub(crate) fn of(call: &wire::Call) -> Result<Verb, CniError> {
        match call.variable("CNI_COMMAND") {
            Some("ADD") => Ok(Verb::Add),
            Some("DEL") => Ok(Verb::Del),
            Some("CHECK") => Ok(Verb::Check),
            Some("GC") => Ok(Verb::Gc),
            Some("STATUS") => Ok(Verb::Status),
            Some("VERSION") => Ok(Verb::Version),
            Some(other) => Err(CniError::environment(format!("CNI_COMMAND {other:?} is not supported"))
                .hint("supported are ADD, DEL, CHECK, GC, STATUS and VERSION")),
            None => Err(CniError::environment("CNI_COMMAND is not set")),
        }
    }
}

impl Request {
    pub(crate) fn of(verb: Verb, call: &wire::Call) -> Result<Request, CniError> {
        let get = |name: &str| call.variable(name).map(str::to_owned);
        let need = |name: &str| get(name).ok_or_else(|| CniError::environment(format!("{name} is not set")));
        let netns = get("CNI_NETNS").map(PathBuf::from);
        if netns.is_none() && matches!(verb, Verb::Add | Verb::Check) {
            return Err(CniError::environment("CNI_NETNS is not set"));
        }
        let arguments = get("CNI_ARGS").unwrap_or_default();
        Ok(Request {
            container_id: need("CNI_CONTAINERID")?,
            netns,
            interface: need("CNI_IFNAME")?,
            pod: pod_name(&arguments),
            asked_addresses: argument(&arguments, "IP").map(str::to_owned),
            asked_mac: argument(&arguments, "MAC").map(str::to_owned),
            namespace: argument(&arguments, "CNI_TEST_NAMESPACE").map(str::to_owned),
        })
    }
}

/// `K8S_POD_NAMESPACE` and `K8S_POD_NAME`, in any order. One without the other is no Kubernetes pod: other runtimes set only the name.
fn pod_name(arguments: &str) -> Option<PodName> {
    let (namespace, name) = (argument(arguments, "K8S_POD_NAMESPACE")?, argument(arguments, "K8S_POD_NAME")?);
    let uid = argument(arguments, "K8S_POD_UID").map(str::to_owned);
    Some(PodName { namespace: namespace.to_owned(), name: name.to_owned(), uid })
}

/// One value out of `KEY=VALUE;KEY=VALUE`; the last if there are several.
fn argument<'a>(arguments: &'a str, wanted: &str) -> Option<&'a str> {
    let pairs = arguments.split(';').filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(key, _)| *key == wanted).map(|(_, value)| value);
    values.next_back().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(verb: Verb, variables: &[(&str, &str)]) -> Result<Request, CniError> {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Request::of(verb, &wire::Call::new(wire::Role::Network, variables, "{}"))
    }

    #[test]
    fn arguments_may_ask_for_addresses() {
        let variables = [
            ("CNI_CONTAINERID", "c"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/run/netns/x"),
            ("CNI_ARGS", "IgnoreUnknown=1;IP=10.0.0.7;MAC=02:00:00:00:00:01"),
        ];
        let request = parse(Verb::Add, &variables).unwrap();
        assert_eq!(request.asked_addresses.as_deref(), Some("10.0.0.7"));
        assert_eq!(request.asked_mac.as_deref(), Some("02:00:00:00:00:01"));
    }

    #[test]
    fn what_containerd_sends_is_understood() {
        let arguments = "K8S_POD_UID=u;IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;\
                         K8S_POD_INFRA_CONTAINER_ID=0f3a";
        let request = parse(
            Verb::Add,
            &[
                ("CNI_CONTAINERID", "0f3a"),
                ("CNI_NETNS", "/run/netns/cni-1"),
                ("CNI_IFNAME", "eth0"),
                ("CNI_ARGS", arguments),
            ],
        )
        .unwrap();
        let pod =
            PodName { namespace: "shop".to_owned(), name: "web-0".to_owned(), uid: Some("u".to_owned()) };
        assert_eq!(request.pod, Some(pod));
        assert_eq!(request.netns, Some(PathBuf::from("/run/netns/cni-1")));
    }

    #[test]
    fn a_del_needs_no_namespace_and_an_add_does() {
        let variables = [("CNI_CONTAINERID", "0f3a"), ("CNI_NETNS", ""), ("CNI_IFNAME", "eth0")];
        assert_eq!(parse(Verb::Del, &variables).unwrap().netns, None);
        assert_eq!(parse(Verb::Add, &variables).unwrap_err().message, "CNI_NETNS is not set");
        assert_eq!(parse(Verb::Del, &variables[..1]).unwrap_err().message, "CNI_IFNAME is not set");
    }

    #[test]
    fn half_a_pod_is_none() {
        assert_eq!(pod_name("IgnoreUnknown=1;K8S_POD_NAME=box"), None);
        assert_eq!(pod_name("K8S_POD_NAMESPACE=;K8S_POD_NAME=box"), None);
        assert_eq!(pod_name(";;=;K8S_POD_NAME"), None);
    }

    proptest! {
        #[test]
        fn the_order_of_arguments_does_not_matter(
            namespace in "[a-z]{1,8}",
            name in "[a-z0-9-]{1,8}",
            noise in proptest::collection::vec("[A-Z_]{1,6}=[^;]{0,6}", 0..4),
            at in 0usize..5,
        ) {
            let mut pairs = noise;
            pairs.insert(at.min(pairs.len()), format!("K8S_POD_NAME={name}"));
            pairs.insert((at / 2).min(pairs.len()), format!("K8S_POD_NAMESPACE={namespace}"));
            prop_assert_eq!(pod_name(&pairs.join(";")), Some(PodName { namespace, name, uid: None }));
        }

        #[test]
        fn any_arguments_can_be_read(arguments in "\\PC{0,80}") {
            let _ = pod_name(&arguments);
        }
    }
}
