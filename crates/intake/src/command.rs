//! What a command before a prompt asked for: all there is, a namespace, or a part.

/// Options of `kubectl` and `calicoctl` whose value is the next word.
const WITH_VALUE: [&str; 14] = [
    "-n",
    "--namespace",
    "-o",
    "--output",
    "--context",
    "--kubeconfig",
    "--cluster",
    "--user",
    "-l",
    "--selector",
    "--field-selector",
    "--sort-by",
    "--config",
    "-c",
];

/// What `kubectl get` calls kinds that matter when there are none of them.
const KINDS: [(&str, &str); 17] = [
    ("pod", "Pod"),
    ("event", "Event"),
    ("ipamblock", "IPAMBlock"),
    ("ipamhandle", "IPAMHandle"),
    ("blockaffinitie", "BlockAffinity"),
    ("blockaffinity", "BlockAffinity"),
    ("ippool", "IPPool"),
    ("bgppeer", "BGPPeer"),
    ("bgpconfiguration", "BGPConfiguration"),
    ("felixconfiguration", "FelixConfiguration"),
    ("ipreservation", "IPReservation"),
    ("networkpolicie", "NetworkPolicy"),
    ("globalnetworkpolicie", "GlobalNetworkPolicy"),
    ("globalnetworkpolicy", "GlobalNetworkPolicy"),
    ("globalnetworkset", "GlobalNetworkSet"),
    ("hostendpoint", "HostEndpoint"),
    ("clusterinformation", "ClusterInformation"),
];

/// Whether it asks for a part of what there is: some names, a selector, or what another program lets through.
pub(crate) fn is_selective(command: &str) -> bool {
    let is_filter = command.contains('|') && !command.contains("| tee") && !command.contains("|tee");
    let has_option = command.split_whitespace().any(|word| {
        matches!(word, "-l" | "--selector" | "--field-selector" | "--limit")
            || ["-l=", "--selector=", "--field-selector=", "--limit="]
                .iter()
                .any(|start| word.starts_with(start))
    });
    is_filter || has_option || resources(command).len() > 1
}

/// `-A`.
pub(crate) fn is_of_all_namespaces(command: &str) -> bool {
    command
        .split_whitespace()
        .any(|word| matches!(word, "-A" | "--all-namespaces" | "--all-namespaces=true" | "-a"))
}

/// The namespace that it names.
pub(crate) fn namespace(command: &str) -> Option<&str> {
    let mut words = command.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "-n" | "--namespace" => return words.next(),
            "--" => return None,
            word => {
                let named = word.strip_prefix("--namespace=").or_else(|| word.strip_prefix("-n="));
                if named.is_some() {
                    return named;
                }
            }
        }
    }
    None
}

/// The kinds that `get` asks for.
pub(crate) fn kinds(command: &str) -> Vec<&'static str> {
    let asked = resources(command);
    let plain = asked.first().into_iter().flat_map(|list| list.split(','));
    let of = |word: &str| {
        let word = word.split('.').next().unwrap_or(word).to_ascii_lowercase();
        let word = word.strip_suffix('s').unwrap_or(&word);
        KINDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind)
    };
    plain.filter_map(of).collect()
}

/// The pod whose log `kubectl logs` prints.
pub(crate) fn pod_of_logs(command: &str) -> Option<&str> {
    let mut words = command
        .split_whitespace()
        .skip_while(|word| *word != "kubectl")
        .skip_while(|word| *word != "logs")
        .skip(1);
    while let Some(word) = words.next() {
        match word {
            "|" | ">" => return None,
            word if WITH_VALUE.contains(&word) || matches!(word, "--tail" | "--since") => drop(words.next()),
            word if word.starts_with('-') => {}
            word => return Some(word.trim_start_matches("pod/")),
        }
    }
    None
}

/// The words after `get` that are no options: the kinds, then the names.
fn resources(command: &str) -> Vec<&str> {
    let mut words = command.split_whitespace().skip_while(|word| *word != "get").skip(1);
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "|" | ">" | "2>" | "--" | "&&" | ";" | ">>" => break,
            word if WITH_VALUE.contains(&word) => drop(words.next()),
            word if word.starts_with(['-', '>', '|']) || word.starts_with("2>") => {}
            word => found.push(word),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_understood() {
        for (command, selective, all, space) in [
            ("kubectl get pods -A -o wide", false, true, None),
            ("kubectl get pods -n shop -o yaml", false, false, Some("shop")),
            ("kubectl -n shop get pods web-0 -o yaml", true, false, Some("shop")),
            ("kubectl get pods -A -l app=web", true, true, None),
            ("kubectl get pods -A -o wide | grep web", true, true, None),
            ("kubectl get nodes -o json > nodes.json", false, false, None),
            ("calicoctl get wep --all-namespaces -o wide", false, true, None),
            ("", false, false, None),
        ] {
            assert_eq!(is_selective(command), selective, "{command}");
            assert_eq!(is_of_all_namespaces(command), all, "{command}");
            assert_eq!(namespace(command), space, "{command}");
        }
        assert_eq!(
            pod_of_logs("kubectl logs -n kube-system calico-node-x2 -c calico-node"),
            Some("calico-node-x2")
        );
        assert_eq!(pod_of_logs("kubectl get pods"), None);
        let kinds = kinds("kubectl get ipamblocks.crd.projectcalico.org,ipamhandles,blockaffinities -o yaml");
        assert_eq!(kinds, ["IPAMBlock", "IPAMHandle", "BlockAffinity"]);
    }
}
