//! What checks of trouble that has a name share: one finding for a trouble, however many lines, pods and nodes tell of it.

use std::collections::BTreeSet;

use model::NodeName;

use crate::case::Told;
use crate::checks::nodes::spelled;
use crate::checks::words::{ALIKE_MAX, counted, listed};
use crate::{Case, Finding, FindingCode, Look, Subject};
use evidence::{PodName, Trouble};

/// How a trouble is reported.
pub(in crate::checks) struct Report {
    pub(in crate::checks) trouble: Trouble,
    /// So many lines must name it.
    pub(in crate::checks) least: u64,
    /// It passes: what came before a pod got its network is history.
    pub(in crate::checks) passes: bool,
    /// It is the cluster's, wherever it was seen.
    pub(in crate::checks) is_of_cluster: bool,
    /// What of the nodes follows from it.
    pub(in crate::checks) explains: &'static [FindingCode],
}

impl Report {
    pub(in crate::checks) const fn of(trouble: Trouble) -> Report {
        Report { trouble, least: 1, passes: false, is_of_cluster: false, explains: &[] }
    }

    /// Reports the trouble, if it is there. `words` gets the place: `node a`, `nodes a, b`.
    pub(in crate::checks) fn tell<'l>(
        &self,
        case: &Case<'_>,
        look: &'l mut Look<'_>,
        words: impl Fn(&str) -> String,
    ) -> Option<&'l mut Finding> {
        let told: Vec<&Told> =
            case.told_of(self.trouble).iter().filter(|told| !(self.passes && told.is_over)).collect();
        let count: u64 = told.iter().map(|told| told.count).sum();
        let is_enough = count >= self.least || told.iter().any(|told| told.is_state);
        if told.is_empty() || !is_enough {
            return None;
        }
        let named = told.iter().filter_map(|told| told.node.as_ref());
        let nodes: BTreeSet<NodeName> = named.map(|node| spelled(case, node)).collect();
        let subject = match nodes.first() {
            Some(node) if nodes.len() == 1 && !self.is_of_cluster => Subject::node(node),
            _ => Subject::Cluster,
        };
        let place = match nodes.len() {
            0 => "a node that the text does not name".to_owned(),
            1 => format!("node {}", listed(&nodes)),
            _ => format!("nodes {}", listed(&nodes)),
        };
        let finding = look.found(subject, words(&place));
        finding.known_by(format!("{:?}", self.trouble));
        if self.is_of_cluster && !nodes.is_empty() {
            finding.because(format!("reported on {place}"));
        }
        say(finding, self.trouble, &told, count);
        explain(case, finding, &told, &nodes, self);
        Some(finding)
    }
}

/// What was said, from when to when, and which pods it keeps from their network.
fn say(finding: &mut Finding, trouble: Trouble, told: &[&Told], count: u64) {
    let Some(first) = told.first() else { return };
    let at = first.at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
    finding.because(format!("first reported{at}: {}", brief(trouble, &first.message)));
    if count > 1 {
        let last = told
            .iter()
            .rev()
            .find_map(|told| told.at.as_ref())
            .filter(|last| Some(*last) != first.at.as_ref());
        let until = last.map_or_else(String::new, |last| format!(", last at {last}"));
        finding.because(format!("reported {count} times{until}"));
    }
    let pods: BTreeSet<&PodName> = told.iter().filter_map(|told| told.pod.as_ref()).collect();
    if !pods.is_empty() {
        finding.because(format!("{} told of it: {}", counted(pods.len(), "pod"), listed(&pods)));
    }
    for told in told.iter().take(ALIKE_MAX) {
        finding.seen(told.exhibit.clone());
    }
}

fn explain(
    case: &Case<'_>,
    finding: &mut Finding,
    told: &[&Told],
    nodes: &BTreeSet<NodeName>,
    report: &Report,
) {
    let pods: BTreeSet<PodName> = told.iter().filter_map(|told| told.pod.clone()).collect();
    for pod in pods {
        finding.explains(FindingCode::AddFailing, pod);
    }
    for code in report.explains.iter().chain(&[FindingCode::NetworkComponentNotReady]) {
        for node in nodes {
            finding.explains(*code, node);
        }
        finding.explains(*code, Subject::Cluster);
        // Nobody said where: then it may be any of them.
        if nodes.is_empty() {
            for node in case.node_views().keys() {
                finding.explains(*code, node);
            }
        }
    }
}

/// The words that matter of a message: what the runtime and the kubelet put before the plugin's own is cut, and of what is still long
/// the part around the words by which the trouble is known is kept.
fn brief(trouble: Trouble, message: &str) -> String {
    const CHARS_MAX: usize = 200;
    const CHARS_BEFORE: usize = 60;
    const BEFORE: [&str; 3] = ["failed (add): ", "failed (delete): ", "desc = "];
    let own = BEFORE.iter().find_map(|before| message.rsplit_once(before)).map_or(message, |(_, own)| own);
    let count = own.chars().count();
    if count <= CHARS_MAX {
        return own.to_owned();
    }
    let place =
        trouble.place_in(own).and_then(|place| own.get(..place)).map_or(0, |before| before.chars().count());
    let start = place.saturating_sub(CHARS_BEFORE).min(count - CHARS_MAX);
    let text: String = own.chars().skip(start).take(CHARS_MAX).collect();
    let (before, after) = (start > 0, start + CHARS_MAX < count);
    format!("{}{text}{}", if before { "… " } else { "" }, if after { " …" } else { "" })
}

/// The host of an URL with this port in a message: `10.96.0.1` in `Get "https://10.96.0.1:443/api/v1"`.
pub(in crate::checks) fn host_in<'m>(message: &'m str, port: &str) -> Option<&'m str> {
    let (_, rest) = message.split_once("https://")?;
    let (host, rest) = rest.split_once('/')?;
    let host = host.strip_suffix(port)?;
    (!host.is_empty() && !rest.is_empty()).then_some(host)
}

/// One line that names the trouble, for tests.
#[cfg(test)]
pub(in crate::checks) fn said(message: &str, count: u32) -> evidence::Evidence {
    use evidence::{Happening, LogEvent, Origin, Sighted};
    let trouble = Trouble::named_in(message).expect("a trouble");
    let what = Happening::Named { trouble, pod: None, message: message.to_owned() };
    let event = LogEvent { at: None, node: Some("n1".into()), what, count, last_at: None };
    evidence::Evidence {
        log: Some(vec![Sighted::new(event, Origin::line("n1.log", 1, message))]),
        ..evidence::Evidence::default()
    }
}

/// A line that names no trouble, nine times.
#[cfg(test)]
pub(in crate::checks) fn said_otherwise() -> evidence::Evidence {
    use evidence::{Happening, LogEvent, Origin, Sighted};
    let message = "calico-node started successfully".to_owned();
    let origin = Origin::line("n1.log", 1, &message);
    let what = Happening::Error { program: "felix".to_owned(), message };
    let event = LogEvent { at: None, node: Some("n1".into()), what, count: 9, last_at: None };
    evidence::Evidence { log: Some(vec![Sighted::new(event, origin)]), ..evidence::Evidence::default() }
}
