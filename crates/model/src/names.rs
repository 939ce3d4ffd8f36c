//! Names that are computed from other names: workload endpoints, host interfaces, segments of v1-style keys.

use std::str::FromStr;

use serde_json::Value;

use crate::Resource;
use crate::device::{DeviceName, DeviceNameError};

/// Who an endpoint is: the four parts of a WorkloadEndpoint's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointName {
    pub node: String,
    pub orchestrator: String,
    /// The pod for `k8s`, the container for `cni`, `libnetwork` for `libnetwork`, else the workload.
    pub workload: String,
    pub endpoint: String,
}

/// Why there is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointNameError {
    #[error("{field} must be set to name the endpoint")]
    Missing { field: &'static str },
    #[error("{field} {value:?} must not begin or end with '-'")]
    Dash { field: &'static str, value: String },
    #[error("{0:?} is not the name of a workload endpoint: four parts joined by single dashes")]
    NotAName(String),
}

impl EndpointName {
    /// The endpoint of a pod.
    pub fn of_pod(node: &str, pod: &str, interface: &str) -> EndpointName {
        EndpointName {
            node: node.to_owned(),
            orchestrator: "k8s".to_owned(),
            workload: pod.to_owned(),
            endpoint: interface.to_owned(),
        }
    }

    /// The endpoint that the spec of a WorkloadEndpoint describes. Parts that are not there are empty.
    pub fn of_spec(resource: &Resource) -> EndpointName {
        let text = |field| resource.spec(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let orchestrator = text("orchestrator");
        let workload = text(workload_field(&orchestrator));
        EndpointName { node: text("node"), workload, endpoint: text("endpoint"), orchestrator }
    }

    /// `node-k8s-pod-eth0`, with every dash inside a part doubled.
    pub fn compute(&self) -> Result<String, EndpointNameError> {
        let mut name = String::new();
        for (field, part) in self.parts() {
            if !name.is_empty() {
                name.push('-');
            }
            name.push_str(&escape(field, part)?);
        }
        Ok(name)
    }

    /// What all names start with that agree in the parts before the first empty one. A list by this prefix also
    /// holds others (`node1-k8s-pod-` is the start of pod `pod-1`'s name), so look at each with [`Self::matches`].
    pub fn prefix(&self) -> Result<String, EndpointNameError> {
        let mut prefix = String::new();
        for (field, part) in self.parts() {
            if part.is_empty() {
                return if prefix.is_empty() {
                    Err(EndpointNameError::Missing { field })
                } else {
                    Ok(prefix)
                };
            }
            prefix.push_str(&escape(field, part)?);
            prefix.push('-');
        }
        prefix.pop();
        Ok(prefix)
    }

    /// Whether `name` agrees in every part that is not empty.
    pub fn matches(&self, name: &str) -> bool {
        let Ok(other) = name.parse::<EndpointName>() else { return false };
        let mut pairs = self.parts().into_iter().zip(other.parts());
        pairs.all(|((_, wanted), (_, found))| wanted.is_empty() || wanted == found)
    }

    /// The node of all names that start so, if the start says which.
    pub fn node_of_prefix(prefix: &str) -> Option<String> {
        let mut rest = prefix;
        loop {
            let (_, after) = rest.split_once('-')?;
            match after.strip_prefix('-') {
                Some(following) => rest = following,
                None => {
                    let length = prefix.len() - after.len() - 1;
                    let node = prefix.get(..length)?.replace("--", "-");
                    return (!node.is_empty() && !after.is_empty()).then_some(node);
                }
            }
        }
    }

    fn parts(&self) -> [(&'static str, &str); 4] {
        [
            ("node", &self.node),
            ("orchestrator", &self.orchestrator),
            (workload_field(&self.orchestrator), &self.workload),
            ("endpoint", &self.endpoint),
        ]
    }
}

impl FromStr for EndpointName {
    type Err = EndpointNameError;

    /// A lone dash separates, a double one is a dash.
    fn from_str(name: &str) -> Result<EndpointName, EndpointNameError> {
        let fail = || EndpointNameError::NotAName(name.to_owned());
        let mut parts = vec![String::new()];
        let mut characters = name.chars().peekable();
        while let Some(character) = characters.next() {
            if character == '-' && characters.next_if_eq(&'-').is_none() {
                parts.push(String::new());
            } else {
                parts.last_mut().ok_or_else(fail)?.push(character);
            }
        }
        let [node, orchestrator, workload, endpoint]: [String; 4] = parts.try_into().map_err(|_| fail())?;
        if [&node, &orchestrator, &workload, &endpoint].iter().any(|part| part.is_empty()) {
            return Err(fail());
        }
        Ok(EndpointName { node, orchestrator, workload, endpoint })
    }
}

/// The field of the spec that holds the third part of the name.
fn workload_field(orchestrator: &str) -> &'static str {
    match orchestrator {
        "k8s" => "pod",
        "cni" => "containerID",
        "libnetwork" => "orchestrator",
        _ => "workload",
    }
}

fn escape(field: &'static str, part: &str) -> Result<String, EndpointNameError> {
    if part.is_empty() {
        return Err(EndpointNameError::Missing { field });
    }
    if part.starts_with('-') || part.ends_with('-') {
        return Err(EndpointNameError::Dash { field, value: part.to_owned() });
    }
    Ok(part.replace('-', "--"))
}

/// Calico's name for the host's end of a pod's veth, with the usual prefix.
pub fn host_interface_name(namespace: &str, pod: &str) -> Result<DeviceName, DeviceNameError> {
    DeviceName::of_pod(DeviceName::CALICO_PREFIX, namespace, pod)
}

/// A name as one segment of a v1-style key. Host names and handle IDs are not escaped.
pub fn escape_segment(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2f")
}

/// Reads what [`escape_segment`] wrote.
pub fn unescape_segment(segment: &str) -> String {
    segment.replace("%2f", "/").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_start_of_a_name_may_say_the_node() {
        for (prefix, node) in [
            ("node--a-k8s-web", Some("node-a")),
            ("n-k", Some("n")),
            ("a--b--c-x-", Some("a-b-c")),
            // The next character may be another dash.
            ("node--a-", None),
            ("node--a", None),
            ("-k8s", None),
            ("", None),
        ] {
            assert_eq!(EndpointName::node_of_prefix(prefix).as_deref(), node, "{prefix:?}");
        }
    }

    #[test]
    fn endpoints_have_calicos_names() {
        let of_pod = |node, pod| EndpointName::of_pod(node, pod, "eth0").compute().unwrap();
        assert_eq!(of_pod("ip-10-0-0-5", "web-0"), "ip--10--0--0--5-k8s-web--0-eth0");
        assert_eq!(of_pod("n-1", "web-0"), "n--1-k8s-web--0-eth0");
        assert_eq!(of_pod("node.example", "a.b"), "node.example-k8s-a.b-eth0");
        let parsed: EndpointName = "ip--10--0--0--5-k8s-web--0-eth0".parse().unwrap();
        assert_eq!(parsed, EndpointName::of_pod("ip-10-0-0-5", "web-0", "eth0"));
    }

    #[test]
    fn each_orchestrator_is_named_by_its_own_field() {
        let named = |text: &str| {
            let mut resource = Resource::new(crate::Kind::WorkloadEndpoint, "");
            for pair in text.split(' ') {
                let (field, value) = pair.split_once('=').unwrap();
                resource.spec_mut().insert(field.to_owned(), value.into());
            }
            EndpointName::of_spec(&resource).compute()
        };
        assert_eq!(named("node=n orchestrator=k8s pod=p endpoint=e").unwrap(), "n-k8s-p-e");
        assert_eq!(named("node=n orchestrator=cni containerID=c endpoint=e").unwrap(), "n-cni-c-e");
        assert_eq!(named("node=n orchestrator=libnetwork endpoint=e").unwrap(), "n-libnetwork-libnetwork-e");
        assert_eq!(named("node=n orchestrator=openstack workload=w endpoint=e").unwrap(), "n-openstack-w-e");
        assert_eq!(
            named("node=n orchestrator=k8s endpoint=e"),
            Err(EndpointNameError::Missing { field: "pod" })
        );
        assert_eq!(
            named("node=n orchestrator=k8s pod=-p endpoint=e").unwrap_err().to_string(),
            "pod \"-p\" must not begin or end with '-'"
        );
    }

    #[test]
    fn a_prefix_finds_more_than_it_means() {
        let wanted = EndpointName::of_pod("node1", "pod", "");
        assert_eq!(wanted.prefix().unwrap(), "node1-k8s-pod-");
        for (name, matches) in [
            ("node1-k8s-pod-eth0", true),
            ("node1-k8s-pod--1-eth0", false),
            ("node1-k8s-pod", false),
            ("node1-cni-pod-eth0", false),
        ] {
            assert_eq!(wanted.matches(name), matches, "{name}");
        }
        assert!(EndpointName::of_pod("", "", "").prefix().is_err());
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in ["", "a", "a-b-c", "a-b-c-d-e", "-b-c-d", "a--b-c-d", "a-b-c-"] {
            assert!(text.parse::<EndpointName>().is_err(), "{text}");
        }
    }

    #[test]
    fn segments_are_escaped_in_calicos_order() {
        assert_eq!(escape_segment("default/web-0"), "default%2fweb-0");
        assert_eq!(escape_segment("50%/x"), "50%25%2fx");
        assert_eq!(escape_segment("%2f"), "%252f");
        assert_eq!(unescape_segment("%252f"), "%2f");
    }

    #[test]
    fn pods_interfaces_have_calicos_names() {
        assert_eq!(host_interface_name("default", "web-0").unwrap().as_str(), "cali0d7763386da");
        assert_eq!(host_interface_name("payments", "db-1").unwrap().as_str(), "cali3a309e85f43");
    }

    proptest! {
        #[test]
        fn endpoint_names_round_trip(parts in prop::array::uniform4("[a-z0-9.]([a-z0-9.-]{0,12}[a-z0-9.])?")) {
            let [node, orchestrator, workload, endpoint] = parts;
            let name = EndpointName { node, orchestrator, workload, endpoint };
            let text = name.compute().unwrap();
            prop_assert_eq!(text.parse::<EndpointName>().unwrap(), name.clone());
            prop_assert!(name.matches(&text));
            prop_assert_eq!(name.prefix().unwrap(), text);
        }

        #[test]
        fn two_endpoints_never_share_a_name(
            left in prop::array::uniform4("[ab][ab-]{0,3}[ab]"),
            right in prop::array::uniform4("[ab][ab-]{0,3}[ab]"),
        ) {
            let name = |[node, orchestrator, workload, endpoint]: [String; 4]| {
                EndpointName { node, orchestrator, workload, endpoint }
            };
            let (left, right) = (name(left), name(right));
            prop_assert_eq!(left.compute().unwrap() == right.compute().unwrap(), left == right);
        }

        #[test]
        fn any_text_can_be_tried(text in "\\PC{0,60}") {
            if let Ok(name) = text.parse::<EndpointName>() {
                prop_assert!(name.matches(&text));
            }
        }

        #[test]
        fn segments_round_trip(name in "[a-z%/2f5]{0,12}") {
            let segment = escape_segment(&name);
            prop_assert!(!segment.contains('/'));
            prop_assert_eq!(unescape_segment(&segment), name);
        }
    }
}
