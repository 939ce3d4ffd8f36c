//! What a log tells, as a sentence.

use evidence::{Happening, PodName};

/// One short sentence without a full stop.
pub(crate) fn words(happening: &Happening) -> String {
    calls(happening)
        .or_else(|| records(happening))
        .or_else(|| sandboxes(happening))
        .unwrap_or_else(|| troubles(happening))
}

/// What the plugin was asked for.
fn calls(happening: &Happening) -> Option<String> {
    Some(match happening {
        Happening::CniCall { command, container_id, pod: of, netns, .. } => {
            let gone = if netns.as_deref() == Some("") { ", its network namespace is gone" } else { "" };
            format!("{} for sandbox {}{}{gone}", command.as_str(), short(container_id), pod(of))
        }
        Happening::CniFailed { command, container_id, pod: of, error } => {
            let sandbox = container_id.as_deref().map(|id| format!(" for sandbox {}", short(id)));
            format!("{} failed{}{}: {error}", command.as_str(), sandbox.unwrap_or_default(), pod(of))
        }
        _ => return None,
    })
}

/// What it did to records.
fn records(happening: &Happening) -> Option<String> {
    Some(match happening {
        Happening::AddressesAssigned { addresses, pod: of, .. } => {
            let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            format!("assigned {}{}", addresses.join(", "), pod(of))
        }
        Happening::HandleReleasing { handle } => format!("releases all addresses of handle {handle}"),
        Happening::AddressReleased { address, pod: of } => {
            format!(
                "released {}{}",
                address.map_or_else(|| "an address".to_owned(), |address| address.to_string()),
                pod(of)
            )
        }
        Happening::AddressCollected { address, pod: of } => {
            format!("released {address}{} as leaked", pod(of))
        }
        Happening::HandleDecremented { handle, by } => {
            format!("reduced the count of handle {handle} by {by}")
        }
        Happening::HandleDeleted { handle } => format!("deleted handle {handle}"),
        Happening::BlockRead { block } => format!("read block {block}"),
        Happening::EndpointWritten { endpoint } => {
            let addresses: Vec<String> = endpoint.addresses.iter().map(ToString::to_string).collect();
            format!("wrote the endpoint{} with {}", pod(&endpoint.pod), addresses.join(", "))
        }
        Happening::EndpointDeleted { pod: of, .. } => format!("deleted the endpoint{}", pod(of)),
        Happening::EndpointAbsent { pod: of, .. } => format!("the endpoint{} does not exist", pod(of)),
        Happening::EndpointOfAnother { pod: of, .. } => {
            format!("left the endpoint{} alone, because it belongs to another sandbox", pod(of))
        }
        Happening::KeyNotFound => "the key does not exist".to_owned(),
        Happening::NodeCleaned { node, block } => {
            format!(
                "cleaned up after node {node}{}",
                block.map_or_else(String::new, |block| format!(", block {block}"))
            )
        }
        _ => return None,
    })
}

/// What became of sandboxes and pods.
fn sandboxes(happening: &Happening) -> Option<String> {
    Some(match happening {
        Happening::SandboxStarted { container_id, pod: of, .. } => {
            format!("sandbox {} started{}", short(container_id), pod(of))
        }
        Happening::SandboxStopped { container_id, pod: of } => {
            format!("sandbox {} stopped{}", short(container_id), pod(of))
        }
        Happening::SandboxStopFailed { container_id, pod: of, error } => {
            format!("sandbox {} could not be stopped{}: {error}", short(container_id), pod(of))
        }
        Happening::SandboxChanged { pod, .. } => format!("pod {pod} needs a new sandbox"),
        Happening::PodKillFailed { pod: of, error, .. } => format!("killing failed{}: {error}", pod(of)),
        Happening::PodAdded { pod, .. } => format!("pod {pod} was added"),
        Happening::PodRemoved { pod, .. } => format!("pod {pod} was removed"),
        Happening::PodAddress { pod, address, .. } => format!("pod {pod} has {address}"),
        Happening::InterfaceMissing { pod, interface } => format!("pod {pod} has no {interface}"),
        Happening::NetnsGone { container_id, pod: of } => {
            format!("the namespace of sandbox {} is gone{}", short(container_id), pod(of))
        }
        _ => return None,
    })
}

fn troubles(happening: &Happening) -> String {
    match happening {
        Happening::UnitFailed { unit } => format!("unit {unit} failed"),
        Happening::UnitStarted { unit } => format!("unit {unit} started"),
        Happening::Fatal { program, message } => format!("{program} exited: {message}"),
        Happening::Named { message, pod: of, .. } => format!("trouble{}: {message}", pod(of)),
        Happening::StoreTrouble { message } => format!("the store: {message}"),
        Happening::BgpDown { message, .. } => format!("BGP: {message}"),
        Happening::Error { program, message } => format!("{program}: {message}"),
        other => format!("{other:?}"),
    }
}

fn pod(pod: &Option<PodName>) -> String {
    pod.as_ref().map_or_else(String::new, |pod| format!(" of pod {pod}"))
}

/// As the tools of runtimes show it.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
