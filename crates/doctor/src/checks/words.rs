//! Words that several checks use, so that they speak alike.

use model::NodeName;

use crate::Subject;
use evidence::endpoint::EndpointApi;
use evidence::{Endpoint, Exhibit, Sighted};

/// How many things are named before "and n more".
const NAMED_MAX: usize = 5;

pub(super) fn endpoint_subject(endpoint: &Endpoint) -> Subject {
    let namespace = match endpoint.api {
        EndpointApi::V3 => endpoint.namespace.clone().unwrap_or_default(),
        EndpointApi::V1 => String::new(),
    };
    Subject::Endpoint { namespace, name: endpoint.name.clone() }
}

/// `WorkloadEndpoint(default/web), node a, sandbox c, device cali1`.
pub(super) fn described(endpoint: &Endpoint) -> String {
    let mut text = format!("WorkloadEndpoint({endpoint})");
    let mut part = |word: &str, value: Option<&str>| {
        if let Some(value) = value {
            text.push_str(&format!(", {word} {value}"));
        }
    };
    part("node", endpoint.node.as_ref().map(NodeName::as_str));
    part("sandbox", endpoint.container_id.as_deref());
    part("device", endpoint.device.as_deref());
    text
}

pub(super) fn endpoint_exhibit(endpoint: &Sighted<Endpoint>) -> Exhibit {
    endpoint.exhibit(described(&endpoint.seen))
}

/// The first few, and how many more.
pub(super) fn listed<T: ToString>(things: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = things.into_iter().map(|thing| thing.to_string()).collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    let named = all[..all.len() - more].join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

/// `one endpoint`, `3 endpoints`.
pub(super) fn counted(count: usize, word: &str) -> String {
    if count == 1 { format!("one {word}") } else { format!("{count} {word}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(listed(["a", "b"]), "a, b");
        assert_eq!(listed(1..=7), "1, 2, 3, 4, 5 and 2 more");
        assert_eq!(listed(Vec::<String>::new()), "");
        assert_eq!((counted(1, "pod"), counted(2, "pod")), ("one pod".to_owned(), "2 pods".to_owned()));
    }
}
