//! What containerd and CRI-O say about sandboxes.

use crate::words;
use evidence::PodName;
use evidence::log::{CniCommand, Happening};

use super::fields::{between, find, word_after};
use super::kubelet::shorten;
use super::prefix::LogLine;

pub(super) fn read(line: &LogLine<'_>) -> Option<Happening> {
    let message = line.message.as_ref();
    if let Some(started) = started(message) {
        return Some(started);
    }
    let error = find(&line.rest, "error").unwrap_or_default();
    for (start, command) in [
        ("failed to destroy network for sandbox \"", CniCommand::Del),
        ("failed to setup network for sandbox \"", CniCommand::Add),
    ] {
        let capital = capital(start);
        let behind = |text| after(text, start).or_else(|| after(text, &capital));
        if let Some(told) = behind(message).or_else(|| behind(error.as_ref())) {
            let (id, cause) = told.split_once('"')?;
            let container_id = words::is_container_id(id).then(|| id.to_owned());
            let cause = cause.trim_start_matches([':', ' ']);
            // The cause stands behind the sandbox or, if that is all there is, beside the message.
            let error = shorten(if cause.is_empty() { error.as_ref() } else { cause });
            return Some(Happening::CniFailed { command, container_id, pod: metadata(message), error });
        }
    }
    let done = message.contains("successfully") || message.ends_with("completed");
    if message.starts_with("TearDown network for sandbox \"") && done {
        let container_id = between(message, "sandbox \"", "\"")?.to_owned();
        return Some(Happening::SandboxStopped { container_id, pod: None });
    }
    if message.starts_with("StopPodSandbox for \"") && message.contains("failed") {
        let container_id = between(message, "for \"", "\"")?.to_owned();
        let error = shorten(if error.is_empty() { message } else { error.as_ref() });
        return Some(Happening::SandboxStopFailed { container_id, pod: None, error });
    }
    None
}

/// `RunPodSandbox for &PodSandboxMetadata{Name:web-0,Uid:…,Namespace:shop,Attempt:0,} returns sandbox id "…"`
fn started(message: &str) -> Option<Happening> {
    message.starts_with("RunPodSandbox for ").then_some(())?;
    let container_id = between(message, "returns sandbox id \"", "\"")?.to_owned();
    let pod_uid = word_after(message, "Uid:", &[',', '}']).map(str::to_owned);
    Some(Happening::SandboxStarted { container_id, pod: metadata(message), pod_uid })
}

fn metadata(message: &str) -> Option<PodName> {
    let inside = message.split_once("PodSandboxMetadata{")?.1;
    let name = word_after(inside, "Name:", &[',', '}'])?;
    Some(PodName::new(word_after(inside, "Namespace:", &[',', '}'])?, name))
}

fn after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1)
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(characters).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use super::*;

    #[test]
    fn containerd() {
        let id = "a".repeat(64);
        let found = events(&format!(
            "time=\"2024-01-01T00:00:00Z\" level=info msg=\"RunPodSandbox for &PodSandboxMetadata{{Name:web-0,Uid:u1,Namespace:shop,Attempt:0,}} returns sandbox id \\\"{id}\\\"\"\n\
             time=\"2024-01-01T00:00:01Z\" level=error msg=\"Failed to destroy network for sandbox \\\"{id}\\\"\" error=\"plugin type=\\\"calico\\\" failed (delete)\"\n\
             time=\"2024-01-01T00:00:02Z\" level=info msg=\"TearDown network for sandbox \\\"{id}\\\" successfully\"",
        ));
        let kinds: Vec<Happening> = found.into_iter().map(|event| event.what).collect();
        assert_eq!(
            kinds[0],
            Happening::SandboxStarted {
                container_id: id.clone(),
                pod: Some(PodName::new("shop", "web-0")),
                pod_uid: Some("u1".to_owned())
            }
        );
        let Happening::CniFailed { command, container_id, .. } = &kinds[1] else { panic!("{kinds:?}") };
        assert_eq!((*command, container_id.as_deref()), (CniCommand::Del, Some(id.as_str())));
        assert_eq!(kinds[2], Happening::SandboxStopped { container_id: id, pod: None });
    }

    #[test]
    fn the_cause_stands_beside_the_message() {
        let id = "a".repeat(64);
        let found = events(&format!(
            "time=\"2024-01-01T00:00:00Z\" level=error msg=\"RunPodSandbox for &PodSandboxMetadata{{Name:web-0,Uid:u1,Namespace:shop,Attempt:0,}} failed, error\" error=\"failed to setup network for sandbox \\\"{id}\\\": plugin type=\\\"calico\\\" failed (add): no addresses\"\n\
             time=\"2024-01-01T00:00:01Z\" level=error msg=\"StopPodSandbox for \\\"{id}\\\" failed\" error=\"rpc error: it hangs\"",
        ));
        let Happening::CniFailed { command, container_id, pod, error } = &found[0].what else {
            panic!("{found:?}")
        };
        assert_eq!((*command, container_id.as_deref()), (CniCommand::Add, Some(id.as_str())));
        assert_eq!(pod.as_ref().unwrap().to_string(), "shop/web-0");
        assert_eq!(error, "plugin type=\"calico\" failed (add): no addresses");
        let Happening::SandboxStopFailed { error, .. } = &found[1].what else { panic!("{found:?}") };
        assert_eq!(error, "rpc error: it hangs");
    }
}
