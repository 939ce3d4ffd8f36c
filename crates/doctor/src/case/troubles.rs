//! Trouble that logs, events and conditions name, by the kind of trouble: where it was said, of which pod, and how often.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use model::NodeName;

use super::Case;
use evidence::log::LogEvent;
use evidence::{Event, Exhibit, Happening, KubeNode, Origin, PodName, Sighted, Trouble};

/// An event that is older than this is history: whoever still has the trouble repeats it.
const LASTS: SignedDuration = SignedDuration::from_mins(60);

/// One or several lines that name a trouble.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) node: Option<NodeName>,
    pub(crate) pod: Option<PodName>,
    /// The time of day or how long ago, as far as told.
    pub(crate) at: Option<String>,
    pub(crate) count: u64,
    pub(crate) message: String,
    pub(crate) exhibit: Exhibit,
    /// It is said of now, not of a moment.
    pub(crate) is_state: bool,
    /// Something that came later shows that it is over, if it is a trouble that can be.
    pub(crate) is_over: bool,
}

pub(super) type Troubles = BTreeMap<Trouble, Vec<Told>>;

impl Case<'_> {
    /// Everything that names this trouble, logs first, in the order of the evidence.
    pub(crate) fn told_of(&self, trouble: Trouble) -> &[Told] {
        let all = self.made.troubles.get_or_init(|| collect(self));
        all.get(&trouble).map(Vec::as_slice).unwrap_or_default()
    }
}

fn collect(case: &Case<'_>) -> Troubles {
    let mut troubles = Troubles::new();
    let successes = last_successes(case);
    for (index, event) in case.evidence.log.iter().flatten().enumerate() {
        if let Some((trouble, mut told)) = of_log(event) {
            told.is_over = successes.get(&place_of(event)).is_some_and(|last| index < *last)
                || is_history(case, event)
                || is_without_configuration(&told) && is_ready(case, event)
                || is_outlived(case, trouble, event);
            troubles.entry(trouble).or_default().push(told);
        }
    }
    let scheduled = scheduled(case);
    for event in case.evidence.events.iter().flatten() {
        if let Some((trouble, told)) = of_event(case, event, &scheduled) {
            troubles.entry(trouble).or_default().push(told);
        }
    }
    for node in case.evidence.kube_nodes.iter().flatten() {
        for (trouble, told) in of_node(node) {
            troubles.entry(trouble).or_default().push(told);
        }
    }
    troubles
}

/// Whether a line is so much older than the rest that whoever still had the trouble would have said it again. Logs do not tell
/// their zone, and some not the year.
fn is_history(case: &Case<'_>, event: &Sighted<LogEvent>) -> bool {
    const ZONES: SignedDuration = SignedDuration::from_hours(24);
    let (Some(taken_at), Some(at)) = (case.evidence.taken_at, event.seen.last_at.or(event.seen.at)) else {
        return false;
    };
    let now = jiff::tz::Offset::UTC.to_datetime(taken_at);
    let year = if at.year() == 0 { now.year() } else { at.year() };
    let at = at.with().year(year).build().unwrap_or(at);
    now.duration_since(at) > ZONES + LASTS
}

/// What every runtime says until calico-node has written the configuration. A plugin that is missing is another thing.
fn is_without_configuration(told: &Told) -> bool {
    ["initialized", "no networks found", "no CNI configuration"]
        .iter()
        .any(|words| told.message.contains(words))
}

/// Whether the node shows that it has got over what the line says: the kubelet reports, or the node's agent is ready. A line
/// without a time may be of this moment.
fn is_outlived(case: &Case<'_>, trouble: Trouble, event: &Sighted<LogEvent>) -> bool {
    use Trouble::{ApiServerUnreachable, ApiUnreachable, RuntimeDown, TyphaCertificate, TyphaUnreachable};
    let is_agent = |pod: &evidence::Pod| {
        pod.name.name.starts_with("calico-node-")
            && pod.ready.is_some_and(|(ready, all)| ready == all && all > 0)
    };
    match trouble {
        _ if event.seen.at.is_none() => false,
        ApiServerUnreachable | RuntimeDown => is_ready(case, event),
        ApiUnreachable | TyphaCertificate | TyphaUnreachable => {
            event.seen.node.as_ref().is_some_and(|node| case.pods_on(node).any(|pod| is_agent(&pod.seen)))
        }
        _ => false,
    }
}

/// Whether Kubernetes holds the node of a line for ready: then the runtime has found its configuration since.
fn is_ready(case: &Case<'_>, event: &Sighted<LogEvent>) -> bool {
    let node = event.seen.node.as_ref().and_then(|node| case.kube_node(node));
    node.is_some_and(|node| node.seen.is_ready() == Some(true))
}

/// Where a line was written: the node, or else the file.
fn place_of(event: &Sighted<LogEvent>) -> String {
    match (&event.seen.node, &event.origin) {
        (Some(node), _) => node.folded().into_owned(),
        (None, Origin::File { name, .. }) => name.to_string(),
        (None, _) => String::new(),
    }
}

/// For each place the last event that shows a pod getting its network.
fn last_successes(case: &Case<'_>) -> BTreeMap<String, usize> {
    let mut last = BTreeMap::new();
    for (index, event) in case.evidence.log.iter().flatten().enumerate() {
        let is_success = matches!(
            event.seen.what,
            Happening::AddressesAssigned { .. }
                | Happening::SandboxStarted { .. }
                | Happening::EndpointWritten { .. }
                | Happening::PodAddress { .. }
        );
        if is_success {
            last.insert(place_of(event), index);
        }
    }
    last
}

fn of_log(event: &Sighted<LogEvent>) -> Option<(Trouble, Told)> {
    let (text, pod) = match &event.seen.what {
        Happening::Named { message, pod, .. } => (message, pod.clone()),
        Happening::CniFailed { error, pod, .. }
        | Happening::SandboxStopFailed { error, pod, .. }
        | Happening::PodKillFailed { error, pod, .. } => (error, pod.clone()),
        Happening::StoreTrouble { message }
        | Happening::Fatal { message, .. }
        | Happening::Error { message, .. } => (message, None),
        _ => return None,
    };
    let trouble = match &event.seen.what {
        Happening::Named { trouble, .. } => *trouble,
        _ => Trouble::named_in(text)?,
    };
    let told = Told {
        node: event.seen.node.clone(),
        pod,
        at: event.seen.at.map(|at| {
            let has_year = at.year() != 0;
            at.strftime(if has_year { "%Y-%m-%d %H:%M:%S" } else { "%b %d %H:%M:%S" }).to_string()
        }),
        count: u64::from(event.seen.count),
        message: text.clone(),
        exhibit: event.exhibit(text.clone()),
        is_state: false,
        is_over: false,
    };
    Some((trouble, told))
}

/// Nodes of pods by what the scheduler said: `Successfully assigned shop/web-0 to n1`. Under the name alone, too: a table of
/// events of one namespace does not tell the namespace.
fn scheduled(case: &Case<'_>) -> BTreeMap<PodName, NodeName> {
    let mut nodes = BTreeMap::new();
    for event in case.evidence.events.iter().flatten() {
        let Some(rest) = event.seen.message.strip_prefix("Successfully assigned ") else { continue };
        if let Some((pod, node)) = rest.trim().split_once(" to ")
            && let Some((namespace, name)) = pod.split_once('/')
        {
            nodes.insert(PodName::new(namespace, name), NodeName::from(node));
            nodes.insert(PodName { namespace: None, name: name.to_owned() }, NodeName::from(node));
        }
    }
    nodes
}

fn of_event(
    case: &Case<'_>,
    event: &Sighted<Event>,
    scheduled: &BTreeMap<PodName, NodeName>,
) -> Option<(Trouble, Told)> {
    let seen = &event.seen;
    let trouble = Trouble::named_in(&seen.message)?;
    let pod = seen.pod();
    let listed = || pod.iter().flat_map(|pod| case.pods_named(pod));
    let of_object = seen.object.as_deref().and_then(|object| {
        let (kind, name) = object.split_once('/')?;
        kind.eq_ignore_ascii_case("node").then(|| NodeName::from(name.rsplit('/').next().unwrap_or(name)))
    });
    let node = seen.node.clone().or(of_object).or_else(|| listed().find_map(|pod| pod.seen.node.clone()));
    let node = node.or_else(|| scheduled.get(pod.as_ref()?).cloned());
    let age = seen.last_age.or_else(|| {
        let (taken_at, last_at) = case.evidence.taken_at.zip(seen.last_at)?;
        Some(taken_at.duration_since(last_at))
    });
    let is_well = |ready: Option<(u32, u32)>| ready.is_some_and(|(ready, all)| ready == all);
    let is_gone = pod.is_some() && case.knows_pods() && listed().next().is_none();
    let told = Told {
        node,
        at: seen.last_at.map(|at| at.to_string()),
        count: seen.count.max(1),
        message: seen.message.clone(),
        exhibit: event.exhibit(seen.message.clone()),
        is_state: false,
        is_over: is_gone || age.is_some_and(|age| age > LASTS) || listed().any(|pod| is_well(pod.seen.ready)),
        pod,
    };
    Some((trouble, told))
}

fn of_node(node: &Sighted<KubeNode>) -> Vec<(Trouble, Told)> {
    let broken = node.seen.conditions.iter().filter(|condition| match condition.kind.as_str() {
        "Ready" => condition.status != "True",
        _ => condition.status == "True",
    });
    let named = broken.filter_map(|condition| Some((condition, Trouble::named_in(&condition.message)?)));
    named
        .map(|(condition, trouble)| {
            let told = Told {
                node: Some(node.seen.name.clone()),
                pod: None,
                at: condition.changed_at.map(|at| at.to_string()),
                count: 1,
                message: condition.message.clone(),
                exhibit: node.place(&condition.kind).exhibit(condition.message.clone()),
                is_state: true,
                is_over: false,
            };
            (trouble, told)
        })
        .collect()
}
