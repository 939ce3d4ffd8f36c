//! What `plumb doctor logs` tells: what went wrong, and then the history of sandboxes, pod by pod.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use doctor::timeline::{Call, PodHistory, Seen, Sighting, Timeline};
use doctor::{Finding, Report, Subject};
use evidence::Unseen;
use evidence::{Exhibit, Sighted};
use model::NodeName;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::json::escaped;
use crate::paint::Paint;
use crate::text::Style;
use model::text::harmless;

/// How many pods are shown unless all are asked for. Those with findings always are.
const PODS_SHOWN: usize = 20;

/// For people: what went wrong first, then what happened to each pod.
pub fn history_text(report: &Report, timeline: &Timeline, style: &Style) -> String {
    let mut text = crate::text::text(report, style);
    let named: BTreeSet<String> = report.findings.iter().map(|finding| finding.subject.to_string()).collect();
    let is_named = |history: &PodHistory| named.contains(&Subject::Pod(history.pod.clone()).to_string());
    let (named, others): (Vec<_>, Vec<_>) = timeline.pods.iter().partition(|history| is_named(history));
    let limit = if style.is_whole { usize::MAX } else { PODS_SHOWN };
    for history in named.iter().chain(others.iter().take(limit)) {
        tell_pod(&mut text, history, style);
    }
    if others.len() > limit {
        line(&mut text, &format!("\n{} more pods: --all shows them", others.len() - limit));
    }
    text
}

/// For programs: findings and the history, as `docs/doctor-logs.schema.json` describes them. New fields may be added.
pub fn history_json(report: &Report, timeline: &Timeline) -> String {
    let document = Document {
        version: 1,
        findings: &report.findings,
        pods: timeline.pods.iter().map(PodJson::of).collect(),
        unseen: &report.unseen,
    };
    let mut text = escaped(serde_json::to_string_pretty(&document).expect("a history can be written"));
    text.push('\n');
    text
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    findings: &'a [Finding],
    pods: Vec<PodJson<'a>>,
    unseen: &'a [Unseen],
}

/// Calls become JSON one by one while it is written: there may be very many.
#[derive(Serialize)]
struct PodJson<'a> {
    node: Option<&'a NodeName>,
    pod: String,
    sandboxes: Vec<&'a str>,
    #[serde(serialize_with = "calls_json")]
    calls: &'a [Call],
    #[serde(serialize_with = "sightings_json")]
    sightings: &'a [Sighted<Sighting>],
}

impl PodJson<'_> {
    fn of(history: &PodHistory) -> PodJson<'_> {
        PodJson {
            node: history.node.as_ref(),
            pod: history.pod.to_string(),
            sandboxes: history.sandboxes(),
            calls: &history.calls,
            sightings: &history.sightings,
        }
    }
}

fn calls_json<S: Serializer>(calls: &[Call], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(calls.iter().map(call_json))
}

fn sightings_json<S: Serializer>(seen: &[Sighted<Sighting>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(seen.iter().map(sighting_json))
}

fn tell_pod(text: &mut String, history: &PodHistory, style: &Style) {
    let node = history.node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
    let sandboxes = match history.sandboxes().len() {
        0 => String::new(),
        1 => ": 1 sandbox".to_owned(),
        count => format!(": {count} sandboxes"),
    };
    let title = harmless(&format!("pod {}{node}{sandboxes}", history.pod));
    line(text, &format!("\n{}", Paint::Strong.on(&title, style.is_coloured)));
    let mut moments: Vec<(Option<jiff::civil::DateTime>, Vec<String>)> = Vec::new();
    moments.extend(history.calls.iter().map(|call| (call.at, call_lines(call))));
    moments.extend(history.sightings.iter().map(|seen| (seen.seen.at, vec![sighting_words(&seen.seen)])));
    moments.sort_by_key(|(at, _)| *at);
    for (at, lines) in moments {
        let at = format!("{:19}", at.map(moment).unwrap_or_default());
        let mut lines = lines.iter();
        line(text, &format!("  {at}  {}", cut(lines.next().map_or("", String::as_str), style)));
        lines.for_each(|more| line(text, &format!("  {:19}    {}", "", cut(more, style))));
    }
}

/// Without the year, where the log does not tell it.
fn moment(at: jiff::civil::DateTime) -> String {
    let format = if at.year() == 0 { "%b %d %H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    at.strftime(format).to_string()
}

fn call_lines(call: &Call) -> Vec<String> {
    let id = call.container_id.as_deref().map_or("of an unnamed sandbox", |id| id.get(..12).unwrap_or(id));
    let netns = if call.is_without_netns { ", its network namespace is gone" } else { "" };
    let exhibit = call.origin.exhibit("");
    let place = exhibit.line.map_or_else(|| exhibit.file.clone(), |line| format!("{}:{line}", exhibit.file));
    let mut lines = vec![format!("{} {id}{netns}  ({place})", call.command.as_str())];
    let mut told = String::new();
    for effect in &call.effects {
        let words = effect.seen.to_string();
        if words != told {
            lines.push(words.clone());
            told = words;
        }
    }
    lines.extend(call.failure.as_ref().map(|failure| format!("failed: {}", failure.seen)));
    lines
}

fn sighting_words(sighting: &Sighting) -> String {
    let of = |uid: &Option<String>| uid.as_ref().map(|uid| format!(" (UID {uid})")).unwrap_or_default();
    match &sighting.what {
        Seen::Added { uid } => format!("the kubelet adds the pod{}", of(uid)),
        Seen::Removed { uid } => format!("the pod is removed{}", of(uid)),
        Seen::Address { uid, address, .. } => format!("the kubelet sees {address}{}", of(uid)),
        Seen::InterfaceMissing { interface } => format!("the kubelet finds no {interface}"),
        Seen::SandboxStarted { container_id, uid } => {
            format!("sandbox {} started{}", short(container_id), of(uid))
        }
        Seen::SandboxStopped { container_id } => format!("sandbox {} stopped", short(container_id)),
        Seen::SandboxChanged { uid } => format!("a new sandbox is needed{}", of(uid)),
        Seen::AddressCollected { address } => format!("kube-controllers release {address} as leaked"),
    }
}

fn call_json(call: &Call) -> Value {
    let effects: Vec<Value> =
        call.effects.iter().map(|effect| told_json(effect, effect.seen.to_string())).collect();
    json!({
        "command": call.command.as_str(), "sandbox": call.container_id, "at": call.at, "withoutNetns": call.is_without_netns,
        "effects": effects, "failure": call.failure.as_ref().map(|failure| told_json(failure, failure.seen.clone())),
        "evidence": call.origin.exhibit(""),
    })
}

fn sighting_json(sighting: &Sighted<Sighting>) -> Value {
    let mut told = told_json(sighting, sighting_words(&sighting.seen));
    told["at"] = json!(sighting.seen.at);
    told
}

fn told_json<T>(sighted: &Sighted<T>, words: String) -> Value {
    #[derive(Serialize)]
    struct Told {
        what: String,
        evidence: Exhibit,
    }
    json!(Told { evidence: sighted.exhibit(words.clone()), what: words })
}

fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// Lines of logs are long; what matters about them stands at the start, or in the steps.
fn cut(text: &str, style: &Style) -> String {
    let text = harmless(text);
    let columns = style.columns();
    if style.is_whole || text.chars().count() <= columns {
        return text;
    }
    text.chars().take(columns - 1).chain(['…']).collect()
}

fn line(text: &mut String, words: &str) {
    writeln!(text, "{}", words.trim_end()).expect("a string takes any text");
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = include_bytes!("../../../tests/incidents/stale-delete/kubelet-slave-197.log");

    fn history() -> (Report, Timeline) {
        let evidence = intake::read([("kubelet-slave-197.log", LOG)]);
        (doctor::diagnose_logs(&evidence), Timeline::of(evidence.log.as_deref().unwrap()))
    }

    #[test]
    fn the_text_names_the_fatal_moment() {
        let (report, timeline) = history();
        let text = history_text(&report, &timeline, &Style::PLAIN);
        for told in [
            "[stale-del]",
            "pod lijiaob/etcd1-0 on slave-197: 2 sandboxes",
            "  2017-12-12 20:22:24  DEL 94feeebc95fb, its network namespace is gone  (kubelet-slave-197.log:34)",
            "released all addresses of handle lijiaob.etcd1-0",
        ] {
            assert!(text.contains(told), "{told}\n{text}");
        }
        assert!(!text.contains("not collected"), "only logs were asked for: {text}");
    }

    #[test]
    fn the_json_can_be_read() {
        let (report, timeline) = history();
        let value: Value = serde_json::from_str(&history_json(&report, &timeline)).unwrap();
        assert_eq!(value["findings"][0]["code"], "stale-del");
        assert_eq!(value["pods"][0]["calls"].as_array().unwrap().len(), 3);
        assert_eq!(value["pods"][0]["calls"][2]["command"], "DEL");
        let nothing = history_text(&Report::default(), &Timeline::default(), &Style::PLAIN);
        assert_eq!(nothing, "Nothing wrong was found.\n");
    }
}
