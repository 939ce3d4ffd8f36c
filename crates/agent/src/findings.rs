//! The doctor on its own node: what the agent sees, for whoever asks over the socket, and what is wrong with it, as metrics.
//!
//! The agent looks at its node and at its node's endpoint records, never at the whole store: a cluster has thousands of
//! agents. Findings that need more come from `plumb doctor`, which asks the agent for its part.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use doctor::evidence::node::Attachment;
use doctor::evidence::{Endpoint, PodName};
use doctor::{Evidence, Finding, Origin, Report, Settles, Severity, Sighted, checks, diagnose};
use gather::bundle::BundleWriter;
use gather::{Attached, NodeSources};
use jiff::Timestamp;
use tracing::{debug, warn};

use crate::cni::{Agent, Answer, Services};
use crate::endpoints::LocalEndpoint;
use crate::health::Condition;
use crate::journal::Entry;

/// Variables that say how a node is set up. None of them is a secret.
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
pub(crate) type Counts = BTreeMap<(&'static str, Severity), u64>;

/// By which a finding is known at the next look: code, subject and what makes it the same.
type Identity = (&'static str, String, String);

/// What the agent sees of its node, as a bundle.
pub(crate) async fn answer(services: &Services) -> Answer {
    let evidence = collect(services).await;
    match write(evidence) {
        Ok(text) => Answer { success: true, text },
        Err(error) => Answer { success: false, text: format!("the evidence cannot be written: {error}") },
    }
}

/// Sends packets to these addresses: for one at a time, so that however many ask, no more goes out.
pub(crate) async fn probe(services: &Services, addresses: &[IpAddr]) -> Answer {
    static BUSY: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let refuse = |text: String| Answer { success: false, text };
    let Some(agent) = services.agent() else { return refuse("this is no agent".to_owned()) };
    let Ok(_alone) = BUSY.try_lock() else {
        return refuse("packets are being sent for somebody else just now".to_owned());
    };
    let evidence = gather::probe::of_node(&agent.node, addresses).await;
    match write(evidence) {
        Ok(text) => Answer { success: true, text },
        Err(error) => refuse(format!("the evidence cannot be written: {error}")),
    }
}

fn write(evidence: Evidence) -> std::io::Result<String> {
    let mut writer = BundleWriter::new(Vec::new());
    writer.look(evidence.taken_at.unwrap_or_else(Timestamp::now))?;
    writer.nodes(evidence)?;
    String::from_utf8(writer.finish()?).map_err(std::io::Error::other)
}

/// Looks now and then, and counts; never ends.
pub(crate) async fn watch(services: &Services, every: Duration) {
    if every.is_zero() {
        return std::future::pending().await;
    }
    let mut before = BTreeSet::new();
    loop {
        tokio::time::sleep(every).await;
        let Some(agent) = services.agent() else { continue };
        let has_records = services.health().is_store_in_sync();
        // An observer has a node to look at, whether or not there is a store.
        if !has_records && !agent.only_observes() {
            continue;
        }
        let mut evidence = collect(services).await;
        if has_records {
            let known = agent.endpoints.all();
            evidence.endpoints = Some(known.iter().map(|known| endpoint(known, agent)).collect());
            evidence.partial.endpoints = true;
        }
        // Some thousand comparisons: nothing that calls should wait for.
        let looked = tokio::task::spawn_blocking(move || {
            let report = diagnose(&evidence);
            drop(evidence);
            host::give_back_memory();
            report
        });
        let Ok(report) = looked.await else { continue };
        let seen: BTreeSet<_> = report.findings.iter().map(identity).collect();
        let told = settled(&report, &before);
        for finding in &told {
            let level = format!("{} [{}]", finding.severity.as_str(), finding.code);
            match before.contains(&identity(finding)) {
                true => debug!("still {level}: {}", finding.summary),
                false => warn!("{level}: {}", finding.summary),
            }
        }
        services.metrics().set_findings(counts(&told));
        before = seen;
    }
}

async fn collect(services: &Services) -> Evidence {
    let Some(agent) = services.agent() else { return Evidence::default() };
    let mut attachments: Vec<Attached> =
        agent.journal.all().into_iter().map(|entry| attached(entry, services)).collect();
    attachments.extend(being_made(&attachments, services));
    // Where somebody else makes the network, an empty journal is nobody's, and no sign of our agent's habits.
    let is_ours = !agent.only_observes() || !attachments.is_empty();
    // Those of Felix decide about tunnels and routes.
    let variables = ENVIRONMENT.iter().copied().chain(plan::between::felix_variable_names());
    let named = |name: &&str| Some(((*name).to_owned(), crate::variables::text(name)?));
    gather::of_node(NodeSources {
        name: agent.node.clone(),
        runtime: agent.runtime.client(),
        attachments: is_ours.then_some(attachments),
        unfinished_dels: services.queue().unfinished().ok(),
        environment: Some(variables.filter_map(|name| named(&name)).collect()),
        agent_mode: Some(agent.mode),
        mends: (!agent.only_observes()).then(|| services.health().mends()),
        bird_socket: agent.bird_socket.clone(),
        state_folder_problem: services.health().problems_of(Condition::StateFolder).into_iter().next(),
        store_problem: services.health().store_problem(),
        address_choices: Some(services.health().address_choices()).filter(|choices| !choices.is_empty()),
        not_followed: Some(services.health().records_wrong()).filter(|records| !records.is_empty()),
    })
    .await
}

/// Those that a call works on and that are not in the journal yet, or no longer.
fn being_made(known: &[Attached], services: &Services) -> Vec<Attached> {
    let mut made = Vec::new();
    for handle in services.fences().busy() {
        let Some((network, container_id)) = handle.rsplit_once('.') else { continue };
        if known.iter().any(|attached| attached.attachment.container_id == container_id) {
            continue;
        }
        let (network, container_id) = (network.to_owned(), container_id.to_owned());
        let attachment = Attachment { network, container_id, is_in_flux: true, ..Attachment::default() };
        made.push(Attached { attachment, netns: PathBuf::new() });
    }
    made
}

fn attached(entry: Entry, services: &Services) -> Attached {
    let sandbox = &entry.attachment.sandbox;
    let is_queued = services.queue().waiting_for(sandbox).is_ok_and(|waiting| !waiting.is_empty());
    let attachment = Attachment {
        network: sandbox.network().to_owned(),
        container_id: sandbox.container_id().to_owned(),
        interface: sandbox.interface().to_owned(),
        device: entry.attachment.device.to_string(),
        addresses: entry.attachment.addresses.clone(),
        pod: entry.pod.map(|(namespace, name)| PodName::new(namespace, name)),
        is_in_flux: is_queued || services.fences().is_busy(sandbox),
    };
    Attached { attachment, netns: entry.netns }
}

fn endpoint(known: &LocalEndpoint, agent: &Agent) -> Sighted<Endpoint> {
    let (pod_namespace, pod) = known.pod.clone().unzip();
    let (namespace, name) = match &known.record.key {
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
        node: Some(agent.node.clone()),
        interface: Some(known.interface.clone()),
        device: known.device.as_ref().map(ToString::to_string),
        mac: known.mac,
        container_id: Some(known.container_id.clone()).filter(|id| !id.is_empty()),
        addresses: known.addresses.clone(),
        ..Endpoint::default()
    };
    Sighted::new(endpoint, Origin::store(&known.record.key))
}

/// What may come from churn counts if the look before found it, too.
fn settled<'r>(report: &'r Report, before: &BTreeSet<Identity>) -> Vec<&'r Finding> {
    let is_settled = |finding: &&Finding| {
        let at_once = checks::find(finding.code).is_some_and(|check| check.settles == Settles::AtOnce);
        at_once || before.contains(&identity(finding))
    };
    report.findings.iter().filter(is_settled).collect()
}

fn identity(finding: &Finding) -> Identity {
    let (code, subject, known_by) = finding.identity();
    (code, subject.to_string(), known_by.to_owned())
}

/// Every code is there, so that one that is gone can be told from one that was never looked for.
fn counts(findings: &[&Finding]) -> Counts {
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
        for code in ["address-shared", "pool-overlap"] {
            let mut look = Look::new(checks::find(code).unwrap());
            look.found(Subject::node("a"), "it is so");
            findings.extend(look.findings().to_vec());
        }
        Report { findings, unseen: Vec::new(), ..Report::default() }
    }

    #[test]
    fn what_may_be_churn_counts_at_the_second_look() {
        let report = report();
        let codes =
            |before: &BTreeSet<_>| -> Vec<&str> { settled(&report, before).iter().map(|f| f.code).collect() };
        assert_eq!(codes(&BTreeSet::new()), ["pool-overlap"]);
        let before = report.findings.iter().map(identity).collect();
        assert_eq!(codes(&before), ["address-shared", "pool-overlap"]);
    }

    #[test]
    fn every_code_is_counted() {
        let report = report();
        let counts = counts(&report.findings.iter().collect::<Vec<_>>());
        assert_eq!(counts.len(), checks::ALL.len());
        assert_eq!(counts[&("pool-overlap", Severity::Error)], 1);
        assert_eq!(counts.values().sum::<u64>(), 2);
    }
}
