//! What `plumb doctor logs` tells: the history of sandboxes by pod, and what went wrong in it.

use std::fmt::Write as _;

use doctor::timeline::{Call, Episode, PodHistory, Seen, Sighting, Timeline};
use doctor::{Exhibit, Severity, Sighted};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::harmless::harmless;
use crate::json::escaped;
use crate::paint::Paint;
use crate::text::Style;

/// How many pods are shown unless all are asked for. Those with episodes always are.
const PODS_SHOWN: usize = 20;

/// For people: what went wrong first, then what happened to each pod.
pub fn history_text(timeline: &Timeline, unread: &[String], style: &Style) -> String {
    let mut episodes = timeline.episodes();
    // What took something from the living comes first.
    episodes.sort_by_key(|episode| match episode {
        Episode::StaleDel(_) => 0,
        Episode::Replaced(_) => 1,
        Episode::RetryLoop(_) => 2,
    });
    let mut text = String::new();
    let count = match episodes.len() {
        0 => "Nothing wrong was found in these logs.".to_owned(),
        1 => "Found 1 episode.".to_owned(),
        count => format!("Found {count} episodes."),
    };
    line(&mut text, &count);
    for episode in &episodes {
        tell_episode(&mut text, episode, style);
    }
    let is_told = |history: &PodHistory| {
        episodes.iter().any(|episode| pod_of(episode) == (&history.node, &history.pod))
    };
    let (named, others): (Vec<_>, Vec<_>) = timeline.pods.iter().partition(|history| is_told(history));
    let limit = if style.is_whole { usize::MAX } else { PODS_SHOWN };
    for history in named.iter().chain(others.iter().take(limit)) {
        tell_pod(&mut text, history, style);
    }
    if others.len() > limit {
        line(&mut text, &format!("\n{} more pods: --all shows them", others.len() - limit));
    }
    if !unread.is_empty() {
        line(&mut text, "\nCould not be looked at");
        unread.iter().for_each(|what| line(&mut text, &format!("  - {}", harmless(what))));
    }
    text
}

/// For programs. New fields may be added.
pub fn history_json(timeline: &Timeline, unread: &[String]) -> String {
    let document = Document {
        version: 1,
        episodes: timeline.episodes().iter().map(episode_json).collect(),
        pods: timeline.pods.iter().map(PodJson::of).collect(),
        unseen: unread,
    };
    let mut text = escaped(serde_json::to_string_pretty(&document).expect("a history can be written"));
    text.push('\n');
    text
}

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    episodes: Vec<Value>,
    pods: Vec<PodJson<'a>>,
    unseen: &'a [String],
}

/// Calls become JSON one by one while it is written: there may be very many.
#[derive(Serialize)]
struct PodJson<'a> {
    node: Option<&'a str>,
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
            node: history.node.as_deref(),
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

fn tell_episode(text: &mut String, episode: &Episode, style: &Style) {
    let sort = Paint::Of(Severity::Error).on(episode.sort(), style.is_coloured);
    line(text, &format!("\n{sort}: {}", harmless(&episode.summary())));
    for step in episode.steps() {
        line(text, &format!("  {} {}", Paint::Faint.on("why ", style.is_coloured), harmless(&step)));
    }
    for exhibit in evidence(episode) {
        line(
            text,
            &format!("  {} {}", Paint::Faint.on("seen", style.is_coloured), cut(&place(exhibit), style)),
        );
    }
}

fn tell_pod(text: &mut String, history: &PodHistory, style: &Style) {
    let node = history.node.as_deref().map(|node| format!(" on {node}")).unwrap_or_default();
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
    let id = call
        .container_id
        .as_deref()
        .map_or("of a sandbox that is not named", |id| id.get(..12).unwrap_or(id));
    let netns = if call.is_without_netns { ", its namespace is gone" } else { "" };
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
        Seen::Added { uid } => format!("the kubelet hears of the pod{}", of(uid)),
        Seen::Removed { uid } => format!("the pod is removed{}", of(uid)),
        Seen::Address { uid, address, .. } => format!("the kubelet sees {address}{}", of(uid)),
        Seen::InterfaceMissing { interface } => format!("the kubelet misses {interface}"),
        Seen::SandboxStarted { container_id, uid } => {
            format!("sandbox {} started{}", short(container_id), of(uid))
        }
        Seen::SandboxStopped { container_id } => format!("sandbox {} stopped", short(container_id)),
        Seen::SandboxChanged { uid } => format!("a new sandbox is needed{}", of(uid)),
    }
}

fn pod_of(episode: &Episode) -> (&Option<String>, &doctor::evidence::PodName) {
    match episode {
        Episode::StaleDel(stale) => (&stale.node, &stale.pod),
        Episode::RetryLoop(retries) => (&retries.node, &retries.pod),
        Episode::Replaced(replaced) => (&replaced.node, &replaced.pod),
    }
}

fn evidence(episode: &Episode) -> &[Exhibit] {
    match episode {
        Episode::StaleDel(stale) => &stale.evidence,
        Episode::RetryLoop(retries) => &retries.evidence,
        Episode::Replaced(replaced) => &replaced.evidence,
    }
}

fn episode_json(episode: &Episode) -> Value {
    let (node, pod) = pod_of(episode);
    json!({
        "sort": episode.sort(), "at": episode.at(), "node": node, "pod": pod.to_string(), "summary": episode.summary(),
        "cause": episode.steps(), "evidence": evidence(episode),
    })
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

fn place(exhibit: &Exhibit) -> String {
    let at = exhibit.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!("{}{at}  {}", exhibit.file, exhibit.text)
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

    fn timeline() -> Timeline {
        let evidence = doctor::text::read([("kubelet-slave-197.log", LOG)]);
        Timeline::of(evidence.log.as_deref().unwrap())
    }

    #[test]
    fn the_text_names_the_fatal_moment() {
        let text = history_text(&timeline(), &[], &Style::PLAIN);
        for told in [
            "Found 2 episodes.",
            "stale DEL: a late DEL of the old sandbox 94feeebc95fb deleted the endpoint of the new sandbox 291716a39be9 of pod lijiaob/etcd1-0",
            "the log does not show what became of 192.168.252.66 in the address book",
            "pod lijiaob/etcd1-0 on slave-197: 2 sandboxes",
            "  2017-12-12 20:22:24  DEL 94feeebc95fb, its namespace is gone  (kubelet-slave-197.log:34)",
        ] {
            assert!(text.contains(told), "{told}\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() < 200), "{text}");
    }

    #[test]
    fn the_json_can_be_read() {
        let value: Value = serde_json::from_str(&history_json(&timeline(), &["x".to_owned()])).unwrap();
        assert_eq!(value["episodes"].as_array().unwrap().len(), 2);
        assert_eq!(value["pods"][0]["calls"].as_array().unwrap().len(), 3);
        assert_eq!(value["pods"][0]["calls"][2]["command"], "DEL");
        assert_eq!(value["unseen"][0], "x");
        let nothing = history_text(&Timeline::default(), &[], &Style::PLAIN);
        assert_eq!(nothing, "Nothing wrong was found in these logs.\n");
    }
}
