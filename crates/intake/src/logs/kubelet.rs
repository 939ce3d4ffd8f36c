//! What kubelets say about sandboxes and pods: in sentences until 1.20, with fields since.

use crate::words;
use evidence::PodName;
use evidence::log::{CniCommand, Happening};

use super::fields::{between, find, pod, word_after, workload};
use super::prefix::LogLine;

pub(super) fn read(line: &LogLine<'_>) -> Option<Happening> {
    let message = line.message.as_ref();
    failures(line, message).or_else(|| pods(line, message)).or_else(|| inside(message))
}

fn failures(line: &LogLine<'_>, message: &str) -> Option<Happening> {
    for (start, command) in
        [("Error deleting network: ", CniCommand::Del), ("Error adding network: ", CniCommand::Add)]
    {
        if let Some(error) = message.strip_prefix(start) {
            let pod = between(error, "workload=", ",").and_then(workload);
            return Some(Happening::CniFailed { command, container_id: None, pod, error: shorten(error) });
        }
    }
    if let Some(failed) = not_made(line, message) {
        return Some(failed);
    }
    // `StopPodSandbox "ID" from runtime service failed: …`
    if message.contains("StopPodSandbox") && message.contains("failed") {
        let container_id = between(message, "StopPodSandbox \"", "\"").map(str::to_owned);
        let container_id =
            container_id.or_else(|| find(&line.rest, "podSandboxID").map(|id| id.into_owned()))?;
        let error =
            message.split_once("failed: ").map_or_else(|| field(line, "err"), |(_, error)| error.to_owned());
        return Some(Happening::SandboxStopFailed {
            container_id,
            pod: torn_down(&error),
            error: shorten(&error),
        });
    }
    if message.contains("error killing pod")
        || message.contains("Error syncing pod") && message.contains("KillPodSandbox")
    {
        let error = message.split_once(": ").map_or(message, |(_, error)| error);
        let uid = between(message, "\"KillPodSandbox\" for \"", "\"").map(str::to_owned);
        let named = find(&line.rest, "pod").and_then(|text| pod(&text)).map(|(name, _)| name);
        return Some(Happening::PodKillFailed {
            pod: named.or_else(|| torn_down(error)),
            pod_uid: uid,
            error: shorten(error),
        });
    }
    None
}

/// A sandbox that got no network: several layers of the kubelet tell of it, some with the pod's name and some without.
fn not_made(line: &LogLine<'_>, message: &str) -> Option<Happening> {
    const STARTS: [&str; 4] = [
        "RunPodSandbox from runtime service failed",
        "Failed to create sandbox for pod",
        "CreatePodSandbox for pod",
        "Failed create pod sandbox",
    ];
    let bare = message.trim_start_matches('"');
    STARTS.iter().any(|start| bare.starts_with(start)).then_some(())?;
    let beside = find(&line.rest, "err").map(|error| error.into_owned());
    let error = beside.or_else(|| Some(message.split_once(": ")?.1.to_owned()))?;
    // What else may be missing is not ours: an image, a cgroup.
    error.contains("network").then_some(())?;
    let id =
        between(&error, "for sandbox \"", "\"").or_else(|| between(&error, "sandbox container \"", "\""));
    let named = find(&line.rest, "pod").and_then(|text| pod(&text));
    let named = named
        .or_else(|| between(message, "for pod \"", "\"").and_then(pod))
        .or_else(|| between(&error, "set up pod \"", "\"").and_then(pod));
    let container_id = id.filter(|id| words::is_container_id(id)).map(str::to_owned);
    let pod = named.map(|(name, _)| name);
    Some(Happening::CniFailed { command: CniCommand::Add, container_id, pod, error: shorten(&error) })
}

/// `failed to teardown pod "name_namespace" network`
fn torn_down(error: &str) -> Option<PodName> {
    let plain = error.replace("\\\"", "\"");
    between(&plain, "teardown pod \"", "\"").and_then(pod).map(|(name, _)| name)
}

fn pods(line: &LogLine<'_>, message: &str) -> Option<Happening> {
    if let Some(rest) = message
        .strip_prefix("SyncLoop (")
        .or_else(|| message.strip_prefix("\"SyncLoop ").or_else(|| message.strip_prefix("SyncLoop ")))
    {
        let named = between(rest, "): \"", "\"").or_else(|| between(rest, "pods=[\"", "\""))?;
        let (pod, pod_uid) = pod(named)?;
        return match rest.split([',', '"', ' ']).next()? {
            "ADD" => Some(Happening::PodAdded { pod, pod_uid }),
            "REMOVE" => Some(Happening::PodRemoved { pod, pod_uid }),
            _ => None,
        };
    }
    if let Some(rest) = message.strip_prefix("Determined the ip \"") {
        let (address, rest) = rest.split_once('"')?;
        let (pod, pod_uid) = pod(between(rest, "for pod \"", "\"")?)?;
        let address = words::address(address)?;
        return Some(Happening::PodAddress {
            pod,
            pod_uid,
            address,
            containers: Vec::new(),
            started_at: None,
        });
    }
    if message.contains("status for pod \"") && message.contains("PodIP:") {
        let (pod, pod_uid) = pod(between(message, "status for pod \"", "\"")?)?;
        let address = words::address(word_after(message, "PodIP:", &[' ', '}'])?)?;
        let ids = message.split("ContainerID:").skip(1);
        let ids = ids.filter_map(|text| text.split(['}', ' ', ',']).next()?.rsplit('/').next());
        let containers = ids.filter(|id| words::is_container_id(id)).map(str::to_owned).collect();
        let started_at =
            message.split_once(" StartTime:").and_then(|(_, text)| words::local_time(text.get(..19)?));
        let started_at = started_at.map(|(time, _)| time);
        return Some(Happening::PodAddress { pod, pod_uid, address, containers, started_at });
    }
    let needs_new = message.contains("Need to start a new one") || message.contains("sandbox changed");
    if needs_new {
        let named = find(&line.rest, "pod").map(|text| text.into_owned());
        let named = named.or_else(|| between(message, "pod \"", "\"").map(str::to_owned))?;
        let (pod, pod_uid) = pod(&named)?;
        return Some(Happening::SandboxChanged { pod, pod_uid });
    }
    None
}

fn inside(message: &str) -> Option<Happening> {
    if let Some(rest) = message.strip_prefix("Missing default interface \"") {
        let (interface, rest) = rest.split_once('"')?;
        // Here the namespace comes first.
        let named = rest.split_once("pod:")?.1.trim();
        let (namespace, name) = named.split_once('_')?;
        return Some(Happening::InterfaceMissing {
            pod: PodName::new(namespace, name),
            interface: interface.to_owned(),
        });
    }
    if message.contains("Cannot find network namespace for the terminated container") {
        let rest = message.split_once("terminated container")?.1;
        let container_id = between(rest, "\"", "\"")?.to_owned();
        let pod = between(message, "for pod \"", "\"").and_then(pod).map(|(name, _)| name);
        return Some(Happening::NetnsGone { container_id, pod });
    }
    None
}

fn field(line: &LogLine<'_>, name: &str) -> String {
    find(&line.rest, name).unwrap_or_default().into_owned()
}

pub(super) fn shorten(text: &str) -> String {
    const CHARS_MAX: usize = 300;
    text.chars().take(CHARS_MAX).collect()
}
