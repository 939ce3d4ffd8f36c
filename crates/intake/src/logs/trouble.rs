//! Trouble of units, stores, BGP and controllers, and errors that nobody else understands.

use crate::words;
use evidence::Trouble;
use evidence::log::Happening;

use super::cni::block_of;
use super::fields::{find, pod};
use super::kubelet::shorten;
use super::prefix::{Level, LogLine};

/// Words of a store that does not answer.
const STORE_TROUBLE: &[&str] = &[
    "etcdserver: ",
    "context deadline exceeded",
    "connection refused",
    "no route to host",
    "i/o timeout",
    "Unable to reach",
];

pub(super) fn read(line: &LogLine<'_>) -> Option<Happening> {
    let message = line.message.as_ref();
    if line.program == Some("kernel") || line.program == Some("NetworkManager") {
        return named(line);
    }
    if line.program == Some("systemd") {
        return unit(message);
    }
    if message.starts_with("Garbage collecting leaked IP address") {
        let address = words::address(&find(&line.rest, "ip")?)?;
        let pod = find(&line.rest, "pod").and_then(|text| pod(&text)).map(|(name, _)| name);
        return Some(Happening::AddressCollected { address, pod });
    }
    let cleans =
        ["Cleaning up IPAM resources for deleted node", "Cleaning up IPAM affinities for deleted node"];
    if cleans.iter().any(|start| message.starts_with(start)) {
        let node = find(&line.rest, "node")?.as_ref().into();
        return Some(Happening::NodeCleaned { node, block: None });
    }
    if message.contains("no need to release affinity") {
        let node = find(&line.rest, "host")?.as_ref().into();
        return Some(Happening::NodeCleaned { node, block: block_of(line) });
    }
    if let Some(peers) = evidence::readiness::peers_without_session(message) {
        return Some(Happening::BgpDown { peers, message: shorten(message) });
    }
    if let Some(named) = named(line) {
        return Some(named);
    }
    let program = line.program.unwrap_or_default().to_owned();
    if line.level == Level::Fatal {
        return Some(Happening::Fatal { program, message: shorten(message) });
    }
    let is_store = STORE_TROUBLE.iter().any(|word| message.contains(word) || line.rest.contains(word));
    match line.level {
        Level::Error if is_store => Some(Happening::StoreTrouble { message: trouble(message, &line.rest) }),
        Level::Error => Some(Happening::Error { program, message: shorten(message) }),
        _ => None,
    }
}

/// A trouble that the line names, in its message or in the fields beside it.
fn named(line: &LogLine<'_>) -> Option<Happening> {
    let message = line.message.as_ref();
    let beside = || Trouble::named_in(&line.rest).map(|trouble| (trouble, line.rest.as_ref()));
    let (trouble, text) = Trouble::named_in(message).map(|trouble| (trouble, message)).or_else(beside)?;
    let pod = find(&line.rest, "pod").and_then(|text| pod(&text)).map(|(name, _)| name);
    Some(Happening::Named { trouble, pod, message: shorten(text) })
}

/// The error beside the message, if it is there: it says more.
fn trouble(message: &str, rest: &str) -> String {
    let error = rest.split_once("error=").map(|(_, error)| error.trim_matches('"'));
    shorten(error.unwrap_or(message))
}

fn unit(message: &str) -> Option<Happening> {
    if let Some((unit, rest)) = message.split_once(".service: ") {
        let is_failure = rest.contains("Failed with result")
            || rest.contains("Main process exited")
            || rest.contains("entered failed state");
        return is_failure.then(|| Happening::UnitFailed { unit: unit.to_owned() });
    }
    let started = message.strip_prefix("Started ")?;
    Some(Happening::UnitStarted { unit: started.split([':', '.']).next()?.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use super::*;

    #[test]
    fn units_and_stores() {
        let found = events(
            "May 26 05:32:51 n systemd[1]: kubelet.service: Failed with result 'exit-code'.\n\
             May 26 05:33:01 n systemd[1]: Started kubelet: The Kubernetes Node Agent.\n\
             2020-05-26 12:42:35.947 [ERROR][1] client.go 255: Error getting x ClusterInformation=\"default\" error=etcdserver: leader changed\n\
             2020-05-27 03:17:18.867 [INFO][1] ipam.go 1469: Node doesn't exist, no need to release affinity cidr=10.101.55.64/26 host=\"k8scephnode\"\n\
             2023-11-20 11:22:33.302 [INFO][1] ipam.go 1043: Garbage collecting leaked IP address handle=\"n.3a1d\" ip=\"192.168.84.131\" node=\"worker-1\" pod=\"shop/web-0\"\n\
             2023-11-20 11:22:33.303 [INFO][1] ipam.go 1133: Cleaning up IPAM affinities for deleted node cluster=\"\" node=\"worker-9\"",
        );
        let kinds: Vec<Happening> = found.into_iter().map(|event| event.what).collect();
        assert_eq!(
            kinds,
            [
                Happening::UnitFailed { unit: "kubelet".into() },
                Happening::UnitStarted { unit: "kubelet".into() },
                Happening::StoreTrouble { message: "etcdserver: leader changed".into() },
                Happening::NodeCleaned { node: "k8scephnode".into(), block: "10.101.55.64/26".parse().ok() },
                Happening::AddressCollected {
                    address: "192.168.84.131".parse().unwrap(),
                    pod: Some(evidence::PodName::new("shop", "web-0")),
                },
                Happening::NodeCleaned { node: "worker-9".into(), block: None },
            ]
        );
    }
}
