//! The doctor on the agent's own node: evidence for requests on the socket, and findings as metrics.
//!
//! The agent reads its node and its node's endpoint records, never the whole store: a cluster has thousands of agents. Findings that need more
//! come from `plumb doctor`, which asks the agent for its part.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use doctor::{Diagnosis, Finding, FindingId, Next, Options, Report, Rule, Severity, checks};
use evidence::node::Attachment;
use evidence::{Endpoint, PodName};
use evidence::{Evidence, Origin, Sighted};
use gather::bundle::BundleWriter;
use gather::{Attached, NodeSources};
use jiff::Timestamp;
use model::{FindingCode, Sandbox};
use tracing::{debug, warn};

use wire::Reply;

use crate::endpoints::LocalEndpoint;
use crate::health::{Condition, Pages as _};
use crate::journal::Entry;
use crate::services::Agent;

/// Variables that configure a node. None of them is a secret.
const ENVIRONMENT: &[&str] = &[
    "NODENAME",
    "IP",
    "IP6",
    "IP_AUTODETECTION_METHOD",
    "IP6_AUTODETECTION_METHOD",
    "AS",
    "CALICO_NETWORKING_BACKEND",
    "CALICO_IPV4POOL_CIDR",
    "CALICO_IPV6POOL_CIDR",
    "DATASTORE_TYPE",
    "KUBERNETES_SERVICE_HOST",
];

/// How many findings there are, by code and severity.
type Counts = BTreeMap<(FindingCode, Severity), u64>;

/// Which agent this is.
pub(crate) fn who_am_i(agent: &Agent) -> Reply {
    let mode = serde_json::to_value(agent.mode).ok().and_then(|mode| mode.as_str().map(str::to_owned));
    let identity = wire::Identity {
        node: agent.node.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: mode.unwrap_or_default(),
    };
    match serde_json::to_string(&identity) {
        Ok(text) => Reply::success(text),
        Err(error) => Reply::failure(format!("cannot encode the identity: {error}")),
    }
}

/// The evidence of this node, as a bundle.
pub(crate) async fn answer(agent: &Agent) -> Reply {
    let evidence = collect(agent).await;
    match write(evidence) {
        Ok(text) => Reply::success(text),
        Err(error) => Reply::failure(format!("cannot encode the evidence: {error}")),
    }
}

/// Sends packets to these addresses. One request at a time, so that many clients do not cause more packets.
pub(crate) async fn probe(agent: &Agent, addresses: &[IpAddr]) -> Reply {
    static BUSY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

    let Ok(_alone) = BUSY.try_lock() else {
        return Reply::failure("another probe is in progress; try again");
    };
    let evidence = gather::probe::of_node(&agent.node, addresses).await;
    match write(evidence) {
        Ok(text) => Reply::success(text),
        Err(error) => Reply::failure(format!("cannot encode the evidence: {error}")),
    }
}

fn write(evidence: Evidence) -> std::io::Result<String> {
    let mut writer = BundleWriter::new(Vec::new());
    writer.look(evidence.taken_at.unwrap_or_else(Timestamp::now))?;
    writer.nodes(evidence)?;
    String::from_utf8(writer.finish()?).map_err(std::io::Error::other)
}

/// Runs the doctor's checks regularly and counts the findings; never ends.
pub(crate) async fn watch(agent: &Agent, every: Duration) {
    if every.is_zero() {
        return std::future::pending().await;
    }
    let (start, rule) = (Instant::now(), Rule::rolling(every));
    let mut diagnosis = Diagnosis::new(rule, Options::default());
    diagnosis.next_round(every, rule);
    let mut reported = BTreeSet::new();
    loop {
        match diagnosis.poll(start.elapsed()) {
            Next::Wait(time) => tokio::time::sleep(time).await,
            Next::Collect => match evidence(agent).await {
                Some(evidence) => match observe(diagnosis, evidence, start).await {
                    Some(observed) => diagnosis = observed,
                    None => return std::future::pending().await,
                },
                // What was found before is neither confirmed nor refuted.
                None => diagnosis.next_round(start.elapsed() + every, rule),
            },
            Next::Report => {
                reported = report(&diagnosis.report(), &reported, agent);
                diagnosis.next_round(start.elapsed() + every, rule);
            }
        }
    }
}

/// Thousands of comparisons, on a thread of their own: calls should not wait for them.
async fn observe(
    mut diagnosis: Diagnosis<'static>,
    evidence: Evidence,
    start: Instant,
) -> Option<Diagnosis<'static>> {
    let observing = tokio::task::spawn_blocking(move || {
        diagnosis.observe(start.elapsed(), &evidence);
        drop(evidence);
        host::give_back_memory();
        diagnosis
    });
    // It fails only if it panicked, and a panic ends the agent.
    observing.await.ok()
}

/// Logs what is new, and counts everything. Returns what was reported.
fn report(report: &Report, before: &BTreeSet<FindingId>, agent: &Agent) -> BTreeSet<FindingId> {
    for finding in &report.findings {
        let (severity, code) = (finding.severity.as_str(), finding.code.as_str());
        match before.contains(&finding.id()) {
            true => debug!(severity, code, "the doctor still reports: {}", finding.summary),
            false => warn!(severity, code, "the doctor reports: {}", finding.summary),
        }
    }
    let counts = counts(&report.findings).into_iter();
    let labelled = counts.map(|((code, severity), count)| ([code.as_str(), severity.as_str()], count));
    agent.metrics().findings.set(labelled);
    report.findings.iter().map(Finding::id).collect()
}

/// What the agent sees of its node and of the records about it. Nothing while the records are not cached; an observer checks its node with or
/// without a store.
async fn evidence(agent: &Agent) -> Option<Evidence> {
    let has_records = agent.health.is_store_in_sync();
    if !has_records && !agent.only_observes() {
        return None;
    }
    let mut evidence = collect(agent).await;
    if has_records {
        let cached = agent.endpoints.all();
        evidence.endpoints = Some(cached.iter().map(|cached| endpoint(cached, agent)).collect());
        evidence.partial.endpoints = true;
    }
    Some(evidence)
}

async fn collect(agent: &Agent) -> Evidence {
    let queued = agent.queue.sandboxes();
    let mut attachments: Vec<Attached> =
        agent.journal.all().into_iter().map(|entry| attached(entry, &queued, agent)).collect();
    attachments.extend(in_progress(&attachments, agent));
    // With another network provider, an empty journal must not look like one of an agent that acts.
    let is_ours = !agent.only_observes() || !attachments.is_empty();
    // Felix's variables decide about tunnels and routes.
    let variables = ENVIRONMENT.iter().copied().chain(plan::between::felix_variable_names());
    let named = |name: &&str| Some(((*name).to_owned(), crate::variables::text(name)?));
    gather::of_node(NodeSources {
        name: agent.node.as_str().into(),
        runtime: agent.runtime.client(),
        attachments: is_ours.then_some(attachments),
        unfinished_dels: agent.queue.evidence().ok(),
        environment: Some(variables.filter_map(|name| named(&name)).collect()),
        agent_mode: Some(agent.mode),
        mends: (!agent.only_observes()).then(|| agent.health.fixes()),
        bird_socket: agent.bird_socket.clone(),
        state_folder_problem: agent.health.problems_of(Condition::StateDirectory).into_iter().next(),
        rules_problem: [Condition::Rules, Condition::ClusterRules]
            .iter()
            .find_map(|condition| agent.health.problems_of(*condition).into_iter().next()),
        store_problem: agent.health.store_problem(),
        address_choices: Some(agent.health.address_choices()).filter(|choices| !choices.is_empty()),
        not_followed: Some(agent.health.invalid_records()).filter(|records| !records.is_empty()),
    })
    .await
}

/// Attachments that a call works on and that are not in the journal yet, or no longer.
fn in_progress(listed: &[Attached], agent: &Agent) -> Vec<Attached> {
    let mut found = Vec::new();
    for handle in agent.locks.busy() {
        let Some((network, container_id)) = handle.sandbox() else { continue };
        if listed.iter().any(|attached| attached.attachment.container_id == container_id) {
            continue;
        }
        let (network, container_id) = (network.to_owned(), container_id.to_owned());
        let attachment = Attachment { network, container_id, is_in_flux: true, ..Attachment::default() };
        found.push(Attached { attachment, netns: PathBuf::new() });
    }
    found
}

fn attached(entry: Entry, queued: &BTreeSet<Sandbox>, agent: &Agent) -> Attached {
    let sandbox = &entry.attachment.sandbox;
    let is_queued = queued.contains(sandbox);
    let attachment = Attachment {
        network: sandbox.network().to_owned(),
        container_id: sandbox.container_id().to_owned(),
        interface: sandbox.interface().to_owned(),
        device: entry.attachment.device.to_string(),
        addresses: entry.attachment.addresses.clone(),
        pod: entry.pod.map(|(namespace, name)| PodName::new(namespace, name)),
        is_in_flux: is_queued || agent.locks.is_busy(sandbox),
    };
    Attached { attachment, netns: entry.netns }
}

fn endpoint(cached: &LocalEndpoint, agent: &Agent) -> Sighted<Endpoint> {
    let (pod_namespace, pod) = cached.pod.clone().unzip();
    let (namespace, name) = match &cached.record.key {
        model::Key::Resource { namespace, name, .. } => (namespace.clone(), name.clone()),
        other => (None, other.to_string()),
    };
    let pod_namespace = pod_namespace.filter(|own| Some(own) != namespace.as_ref());
    let endpoint = Endpoint {
        namespace,
        pod_namespace,
        name,
        orchestrator: "k8s".to_owned(),
        pod,
        node: Some(agent.node.as_str().into()),
        interface: Some(cached.interface.clone()),
        device: cached.device.as_ref().map(ToString::to_string),
        mac: cached.mac,
        container_id: Some(cached.container_id.clone()).filter(|id| !id.is_empty()),
        addresses: cached.addresses.clone(),
        ..Endpoint::default()
    };
    Sighted::new(endpoint, Origin::store(&cached.record.key))
}

/// With all codes, so that 0 means that the check ran.
fn counts(findings: &[Finding]) -> Counts {
    let mut counts: Counts = checks::ALL.iter().map(|check| ((check.code, check.severity), 0)).collect();
    for finding in findings {
        *counts.entry((finding.code, finding.severity)).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use doctor::{Look, Subject};

    fn report() -> Report {
        let mut findings = Vec::new();
        for code in [FindingCode::AddressShared, FindingCode::PoolOverlap] {
            let mut look = Look::new(checks::find(code));
            look.found(Subject::node("a"), "it is so");
            findings.extend(look.findings().to_vec());
        }
        Report { findings, unseen: Vec::new(), ..Report::default() }
    }

    #[test]
    fn every_code_is_counted() {
        let report = report();
        let counts = counts(&report.findings);
        assert_eq!(counts.len(), checks::ALL.len());
        assert_eq!(counts[&(FindingCode::PoolOverlap, Severity::Error)], 1);
        assert_eq!(counts.values().sum::<u64>(), 2);
    }
}
