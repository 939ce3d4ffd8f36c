//! Who says that a sandbox is gone. Two must say so and none may say that it lives; a witness that cannot be asked says
//! nothing. Agents judge their own node by the same rule.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipam::POD_UID_ATTRIBUTE;
use jiff::Timestamp;
use model::names::host_interface_name;
use model::{NodeName, Sandbox};
use plan::witness::{Word, say_gone};

use doctor::Case;
use evidence::kernel::Link;
use evidence::{NodeEvidence, Origin, Pod, PodName, same_id};
use model::kube::access::NODE_ACCOUNT;

/// Whom the witnesses are asked about: whatever is known of it.
#[derive(Clone, Debug, Default)]
pub struct Suspect<'a> {
    /// Full, or the first digits.
    pub container_id: Option<&'a str>,
    pub node: Option<NodeName>,
    pub pod: Option<PodName>,
    /// The pod's, where the record has noted it: another pod of that name is another pod.
    pub uid: Option<&'a str>,
    /// Its device on the node.
    pub device: Option<&'a str>,
    pub addresses: Vec<IpAddr>,
    /// When its record or allocation was made.
    pub since: Option<Timestamp>,
}

impl Suspect<'_> {
    /// What Calico calls the device of this pod.
    fn usual_device(&self) -> Option<String> {
        let pod = self.pod.as_ref()?;
        host_interface_name(pod.namespace.as_deref()?, &pod.name).ok().map(|name| name.to_string())
    }
}

/// What all witnesses said, each with a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testimony {
    words: Vec<(&'static str, Word, String)>,
}

/// What the reason of a step begins with that rests on the word of a kubelet.
const KUBELET: &str = "kubelet";

impl Testimony {
    /// Asks everybody about a suspect, in one look.
    pub fn of(case: &Case<'_>, suspect: &Suspect<'_>) -> Testimony {
        let witnesses = [
            ("Kubernetes", ask_orchestrator(case, suspect)),
            ("runtime", ask_runtime(case, suspect)),
            ("kernel", ask_kernel(case, suspect)),
        ];
        let words = witnesses.into_iter().map(|(witness, (word, reason))| (witness, word, reason));
        Testimony { words: words.collect() }
    }

    /// Asks the kubelet of the suspect's node, too, by what it has shown in both looks: for whoever can reach neither runtimes nor kernels.
    pub(super) fn with_kubelet(
        mut self,
        case: &Case<'_>,
        (now, before): (&Case<'_>, Option<&Case<'_>>),
        served: &BTreeSet<NodeName>,
        suspect: &Suspect<'_>,
    ) -> Testimony {
        if let (Some((_, word, reason)), Some(known)) =
            (self.words.first_mut(), attached_otherwise(case, suspect))
            && *word == Word::Nothing
        {
            (*word, *reason) = (Word::Gone, known);
        }
        let (word, reason) = ask_kubelet(now, before, served, suspect);
        self.words.push((KUBELET, word, reason));
        self
    }

    pub fn say_gone(&self) -> bool {
        let words: Vec<Word> = self.words.iter().map(|(_, word, _)| *word).collect();
        say_gone(&words)
    }

    /// Somebody says that it lives.
    pub fn say_alive(&self) -> bool {
        self.words.iter().any(|(_, word, _)| *word == Word::Alive)
    }

    /// Somebody on a node sees it: its runtime, or its kernel.
    pub fn is_seen(&self) -> bool {
        self.words.iter().skip(1).any(|(_, word, _)| *word == Word::Alive)
    }

    /// One line per witness.
    pub fn lines(&self) -> Vec<String> {
        let line = |(witness, word, reason): &(&str, Word, String)| {
            let word = match word {
                Word::Alive => "it alive",
                Word::Gone => "it gone",
                Word::Nothing => "nothing",
            };
            format!("{witness} reports {word}: {reason}")
        };
        self.words.iter().map(line).collect()
    }
}

/// Whether the word of a kubelet is among the reasons of a step.
pub fn rests_on_kubelet(reasons: &[String]) -> bool {
    reasons.iter().any(|reason| reason.starts_with("kubelet reports it gone"))
}

type Said = (Word, String);

/// The pod's name is listed with an attachment that is complete, and that is another sandbox: a pod has one at a time, so the suspect was an
/// earlier one, of this pod or of a namesake with another UID.
fn attached_otherwise(case: &Case<'_>, suspect: &Suspect<'_>) -> Option<String> {
    let (name, suspected) = (suspect.pod.as_ref()?, suspect.container_id?);
    let pods: Vec<_> = case.pods_named(name).collect();
    let endpoints: Vec<_> = case.endpoints_of(name).collect();
    let ([pod], [endpoint]) = (&pods[..], &endpoints[..]) else { return None };
    let current = endpoint.seen.container_id.as_deref().filter(|id| !id.is_empty())?;
    let is_other = !pod.seen.addresses.is_empty()
        && !suspect.addresses.iter().any(|address| pod.seen.addresses.contains(address))
        && !same_id(current, suspected);
    is_other.then(|| format!("pod {name} has another sandbox and other addresses"))
}

/// Nodes where Plumbline's agent runs, or whose running pods got their addresses from one.
pub(super) fn served_nodes(case: &Case<'_>) -> BTreeSet<NodeName> {
    let pods = case.evidence.pods.iter().flatten().map(|pod| &pod.seen);
    let is_served = |pod: &&Pod| {
        let is_ours = |address: &IpAddr| {
            let allocation = case.allocation(*address);
            allocation
                .is_some_and(|allocation| allocation.attribute.secondary.contains_key(POD_UID_ATTRIBUTE))
        };
        let is_agent = pod.service_account.as_deref() == Some(NODE_ACCOUNT);
        !pod.is_finished() && (is_agent || pod.addresses.iter().any(is_ours))
    };
    pods.filter(is_served).filter_map(|pod| pod.node.clone()).collect()
}

/// A kubelet stops what Kubernetes does not list, and reports its node as not ready while its runtime does not answer. So one that has
/// renewed its lease between two looks, and is ready in both, has had its time to stop a pod that neither look lists. It does not speak
/// where Plumbline's agent runs: that asks the runtime and the kernel itself.
fn ask_kubelet(
    now: &Case<'_>,
    before: Option<&Case<'_>>,
    served: &BTreeSet<NodeName>,
    suspect: &Suspect<'_>,
) -> Said {
    let nothing = |why: String| (Word::Nothing, why);
    let Some(node) = &suspect.node else { return nothing("its node is not known".to_owned()) };
    let kubelet = |case: &Case<'_>| {
        let mut nodes = case.evidence.kube_nodes.iter().flatten().map(|kube| &kube.seen);
        let found = nodes.find(|kube| kube.name == *node)?;
        found.lease_renewed_at.filter(|_| found.is_ready() == Some(true))
    };
    let (Some(last), Some(first)) = (kubelet(now), before.and_then(kubelet)) else {
        return nothing(format!(
            "the kubelet of {node} was not ready in two observations, or shows no lease"
        ));
    };
    if last <= first {
        return nothing(format!("the kubelet of {node} has not renewed its lease between two observations"));
    }
    if served.contains(node) {
        return nothing(format!("the agent of {node} removes what has ended there"));
    }
    (Word::Gone, format!("{node} was ready in two observations, and Kubernetes lists no such sandbox for it"))
}

/// Kubernetes knows pods and addresses, not sandboxes: a pod vouches for one by showing its address. One that is listed and shows
/// another, or none yet, says nothing; its runtime and its kernel do.
fn ask_orchestrator(case: &Case<'_>, suspect: &Suspect<'_>) -> Said {
    let nothing = |why: &str| (Word::Nothing, why.to_owned());
    let Some(name) = &suspect.pod else { return nothing("its pod is not known") };
    if case.evidence.pods.is_none() {
        return nothing("pods were not listed");
    }
    let mut pods = case.pods_named(name).peekable();
    if pods.peek().is_none() {
        return match case.evidence.partial.pods {
            true => nothing("only some pods are listed"),
            false if case.is_newer_than_pods(suspect.since) => nothing("it is newer than the list of pods"),
            false => (Word::Gone, format!("pod {name} does not exist")),
        };
    }
    let mut namesake = false;
    for pod in pods {
        let is_elsewhere = match (&suspect.node, &pod.seen.node) {
            (Some(here), Some(there)) => here != there,
            _ => false,
        };
        if pod.seen.is_finished() || is_elsewhere {
            continue;
        }
        let shows = |address: &IpAddr| pod.seen.addresses.contains(address);
        if suspect.addresses.iter().any(shows) {
            return (Word::Alive, format!("pod {name} shows the address"));
        }
        if suspect.uid.is_some_and(|uid| pod.seen.is_another(uid)) {
            namesake = true;
            continue;
        }
        return nothing(
            "a pod of that name is listed, but Kubernetes does not show whether this sandbox belongs to it",
        );
    }
    match namesake {
        true => (Word::Gone, format!("pod {name} has another UID, so it is another pod")),
        false => (Word::Gone, format!("pod {name} has ended here")),
    }
}

fn ask_runtime(case: &Case<'_>, suspect: &Suspect<'_>) -> Said {
    let nothing = |why: String| (Word::Nothing, why);
    let whose = match (suspect.container_id, &suspect.pod) {
        // A sandbox that any runtime runs is alive, wherever the records put it.
        (Some(id), _) => match case.runs_on(id) {
            Some(node) => return (Word::Alive, format!("{} runs it", node.name)),
            None => "it".to_owned(),
        },
        // A record that does not name its sandbox is the pod's: any sandbox of that may be meant.
        (None, Some(pod)) if pod.namespace.is_some() => match runs_pod(case, pod) {
            Some(node) => return (Word::Alive, format!("{} runs a sandbox of pod {pod}", node.name)),
            None => format!("any sandbox of pod {pod}"),
        },
        (None, _) => return nothing("its sandbox is not known".to_owned()),
    };
    let Some(node) = &suspect.node else { return nothing("its node is not known".to_owned()) };
    if suspect.container_id.is_some_and(|id| id.len() < 8) {
        return nothing("its ID is too short to be unique".to_owned());
    }
    let Some(list) = case.node(node).and_then(|node| node.sandboxes.as_deref()) else {
        return nothing(format!("the runtime of {node} was not asked"));
    };
    if list.iter().any(|sandbox| matches!(sandbox.origin, Origin::File { .. })) {
        return nothing("a file may contain only a part of the list".to_owned());
    }
    // A runtime that has just been started lists nothing at all, for a while.
    if list.is_empty() && case.node(node).is_some_and(has_pods_devices) {
        return nothing(format!(
            "the runtime of {node} lists no sandbox at all, but its kernel has pod devices"
        ));
    }
    (Word::Gone, format!("{node} does not run {whose}"))
}

/// The first node whose runtime has a sandbox of this pod, unless it says that the sandbox has ended.
fn runs_pod<'e>(case: &Case<'e>, pod: &PodName) -> Option<&'e NodeEvidence> {
    case.all_nodes().find(|node| {
        let mut sandboxes = node.sandboxes.iter().flatten().map(|sandbox| &sandbox.seen);
        sandboxes.any(|sandbox| sandbox.is_ready != Some(false) && sandbox.pod.may_be(pod))
    })
}

/// Whether devices of pods lead somewhere.
fn has_pods_devices(node: &NodeEvidence) -> bool {
    let links = node.kernel.links.iter().flatten();
    links.into_iter().any(|link| link.seen.is_workload() && link.seen.has_peer_elsewhere == Some(true))
}

fn ask_kernel(case: &Case<'_>, suspect: &Suspect<'_>) -> Said {
    let nothing = |why: String| (Word::Nothing, why);
    if let Some((node, view)) = suspect.container_id.and_then(|id| case.view_of(id))
        && view.kernel.links.iter().flatten().any(|link| is_pods_end(&link.seen))
    {
        return (Word::Alive, format!("its network namespace on {} has a device", node.name));
    }
    let Some(node) = &suspect.node else { return nothing("its node is not known".to_owned()) };
    let Some(kernel) = case.node(node).map(|node| &node.kernel) else {
        return nothing(format!("{node} was not observed"));
    };
    let Some(links) = kernel.links.as_deref().filter(|_| !kernel.partial.links) else {
        return nothing(format!("not all links of {node} are known"));
    };
    let leads = |link: &&Link| link.is_workload() && link.has_peer_elsewhere != Some(false);
    let mut is_one_nobodys = false;
    for link in links.iter().map(|link| &link.seen).filter(leads) {
        match whose(case, suspect, node, link) {
            Some(true) => return (Word::Alive, format!("{} leads into a network namespace", link.name)),
            Some(false) => {}
            None => is_one_nobodys = true,
        }
    }
    // Nothing tells what its device was called, and one of those that are there could be it.
    if is_one_nobodys && suspect.device.is_none() && suspect.usual_device().is_none() {
        return nothing(format!("devices of {node} lead to sandboxes that are not known"));
    }
    (Word::Gone, format!("no device of {node} leads to it"))
}

/// A pod's own end of its veth.
fn is_pods_end(link: &Link) -> bool {
    link.peer_index.is_some() || link.name == "eth0"
}

/// Whether a device is the suspect's. `None`: nobody knows whose it is.
fn whose(case: &Case<'_>, suspect: &Suspect<'_>, node: &NodeName, link: &Link) -> Option<bool> {
    let is_it = |id: &str| suspect.container_id.is_some_and(|suspect| same_id(suspect, id));
    if let Some(sandbox) = link.alias.as_deref().and_then(Sandbox::from_alias) {
        return Some(is_it(sandbox.container_id()));
    }
    // Calico's devices carry no sandbox. A namesake that runs has taken over the name.
    let mut recorded = case.endpoints_on(node).filter(|other| other.seen.device.as_ref() == Some(&link.name));
    let is_anothers = recorded.any(|other| {
        other.seen.container_id.as_deref().is_some_and(|id| !is_it(id) && case.runs_on(id).is_some())
    });
    if is_anothers {
        return Some(false);
    }
    let is_called_so = suspect.device == Some(link.name.as_str())
        || suspect.usual_device().is_some_and(|usual| usual == link.name);
    is_called_so.then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_must_say_gone_and_none_alive() {
        use Word::{Alive, Gone, Nothing};
        for (words, expected) in [
            ([Gone, Gone, Nothing], true),
            ([Gone, Gone, Gone], true),
            ([Gone, Gone, Alive], false),
            ([Gone, Nothing, Nothing], false),
            ([Nothing, Nothing, Nothing], false),
            ([Alive, Nothing, Gone], false),
        ] {
            assert_eq!(say_gone(&words), expected, "{words:?}");
        }
    }
}
