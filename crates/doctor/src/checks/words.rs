//! Words that several checks use, so that they speak alike.

use model::NodeName;

use evidence::{Endpoint, Exhibit, Sighted};

/// How many things are named before "and n more".
const NAMED_MAX: usize = 5;
/// How many of several things that look the same are shown.
pub(super) const ALIKE_MAX: usize = 3;

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

/// `one endpoint`, `3 endpoints`, `2 addresses`, `4 affinities`.
pub(super) fn counted(count: usize, word: &str) -> String {
    match (count, word.strip_suffix('y')) {
        (1, _) => format!("one {word}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) if word.ends_with('s') => format!("{count} {word}es"),
        (_, None) => format!("{count} {word}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        assert_eq!(listed(["a", "b"]), "a, b");
        assert_eq!(listed(1..=7), "1, 2, 3, 4, 5 and 2 more");
        assert_eq!(listed(Vec::<String>::new()), "");
        let words = [(1, "pod"), (2, "pod"), (1, "address"), (3, "address"), (2, "affinity")];
        let words = words.map(|(count, word)| counted(count, word));
        assert_eq!(words, ["one pod", "2 pods", "one address", "3 addresses", "2 affinities"]);
    }
}
