//! Labs as tables and as JSON.

use std::io::Write as _;

use lab::cluster::{Cluster, LabStatus, NodeStatus};
use lab::kubelet::PodReport;

use crate::cli::LabOutput;
use crate::failure::Failure;

/// Said wherever somebody might expect otherwise.
pub(super) const NO_ROUTES: &str = "note: without agents there are no routes between nodes; pods reach only their own node and the pods on it";

/// A lab in one line.
#[derive(serde::Serialize)]
struct LabInBrief {
    name: String,
    nodes: usize,
    /// `None` for a lab that was only partly created.
    store: Option<lab::cluster::StoreKind>,
    mode: Option<lab::cluster::Mode>,
    state: &'static str,
}

impl LabInBrief {
    fn new(name: &lab::cluster::LabName) -> LabInBrief {
        match Cluster::open(name) {
            Err(_) => LabInBrief {
                name: name.to_string(),
                nodes: 0,
                store: None,
                mode: None,
                state: "partly created",
            },
            Ok(cluster) => {
                let description = cluster.description();
                let state = if cluster.status().is_healthy() { "running" } else { "parts do not run" };
                let (store, mode) = (Some(description.store), Some(description.mode));
                LabInBrief { name: name.to_string(), nodes: description.nodes.len(), store, mode, state }
            }
        }
    }
}

pub(super) fn list(output: LabOutput) -> Result<(), Failure> {
    let labs: Vec<LabInBrief> = lab::cluster::labs().iter().map(LabInBrief::new).collect();
    if output == LabOutput::Json {
        return print_json(&labs);
    }
    let mut rows = vec![["LAB", "NODES", "STORE", "MODE", "STATE"].map(str::to_owned)];
    rows.extend(labs.iter().map(|lab| {
        let [store, mode] = [word(&lab.store), word(&lab.mode)];
        [lab.name.clone(), lab.nodes.to_string(), store, mode, lab.state.to_owned()]
    }));
    print_table(&mut std::io::stdout().lock(), &rows)
}

/// As JSON writes it.
fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| Some(value.as_str()?.to_owned())).unwrap_or_default()
}

pub(super) fn status(cluster: &Cluster, output: LabOutput) -> Result<(), Failure> {
    let status = cluster.status();
    match output {
        LabOutput::Json => print_json(&status)?,
        LabOutput::Text => {
            nodes(&status)?;
            if status.nodes.iter().any(|node| !node.pods.is_empty()) {
                writeln!(std::io::stdout())?;
                pods_of_nodes(&status.nodes)?;
            }
        }
    }
    if status.is_healthy() {
        return Ok(());
    }
    let down = model::ShellCommand::new("plumb lab down --name").value(&status.name);
    let failure = Failure::new(format!("parts of lab {} do not run", status.name));
    Err(failure.hint(format!("remove it with {down}")))
}

pub(super) fn nodes(status: &LabStatus) -> Result<(), Failure> {
    let mut rows = vec![["NODE", "ADDRESS", "AGENT", "KUBELET", "PODS"].map(str::to_owned)];
    for node in &status.nodes {
        let state = |state: &Option<String>| state.clone().unwrap_or_else(|| "down".to_owned());
        let address = node.address.map(|address| address.to_string()).unwrap_or_default();
        let pods = node.pods.len().to_string();
        rows.push([node.name.clone(), address, state(&node.agent), state(&node.kubelet), pods]);
    }
    let sockets = status.agent_sockets.clone().map(|sockets| ("PLUMB_AGENT_SOCKETS".to_owned(), sockets));
    let settings: Vec<String> =
        status.store_settings.iter().chain(&sockets).map(|(name, value)| format!("{name}={value}")).collect();
    let mut out = std::io::stdout().lock();
    writeln!(out, "lab {}: {}", status.name, settings.join(" "))?;
    print_table(&mut out, &rows)
}

pub(super) fn pods(reports: &[PodReport]) -> Result<(), Failure> {
    let mut rows = vec![["POD", "STATE", "ADDRESS", "DEVICE", "SANDBOX"].map(str::to_owned)];
    rows.extend(reports.iter().map(pod_row));
    print_table(&mut std::io::stdout().lock(), &rows)
}

fn pods_of_nodes(nodes: &[NodeStatus]) -> Result<(), Failure> {
    let mut rows = vec![["NODE", "POD", "STATE", "ADDRESS", "DEVICE", "SANDBOX"].map(str::to_owned)];
    for node in nodes {
        for pod in &node.pods {
            let [name, state, address, device, sandbox] = pod_row(pod);
            rows.push([node.name.clone(), name, state, address, device, sandbox]);
        }
    }
    print_table(&mut std::io::stdout().lock(), &rows)
}

fn pod_row(pod: &PodReport) -> [String; 5] {
    let state = format!("{:?}", pod.state).to_lowercase();
    let short: String = pod.container_id.chars().take(12).collect();
    [pod.key().to_string(), state, pod.addresses.join(","), pod.device.clone(), short]
}

pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::of(&error))?;
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}

pub(super) fn print_table<const N: usize>(
    out: &mut impl std::io::Write,
    rows: &[[String; N]],
) -> Result<(), Failure> {
    let widths: Vec<usize> =
        (0..N).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or_default()).collect();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", cells.join("   ").trim_end())?;
    }
    Ok(())
}
