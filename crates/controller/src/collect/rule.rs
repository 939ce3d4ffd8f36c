//! What may be removed after the observations so far. No clock and no store here.
//!
//! The checks of the doctor find what has no owner, and the remedies of the repair say what may be done about it and why, or that nothing may.
//! What is left to decide is which of their steps are for a controller, and when there have been enough observations.

use std::collections::BTreeMap;
use std::time::Duration;

use doctor::{Certainty, Examination, Rule};
use evidence::{Evidence, Unseen};
use jiff::SignedDuration;
use model::{FindingCode, Kind, NodeName};
use repair::{Plan, Scope, Step, StepId, witness};

use crate::configured::Configured;

/// What a controller removes. Everything else is for agents and for operators.
const CODES: [FindingCode; 9] = [
    FindingCode::AddressLeaked,
    FindingCode::AffinityContradicted,
    FindingCode::AffinityOfGoneNode,
    FindingCode::AffinityUnfinished,
    FindingCode::EndpointWithoutPod,
    FindingCode::HandleCountWrong,
    FindingCode::HandleUnused,
    FindingCode::ServiceBlockEmpty,
    FindingCode::Tombstone,
];

/// Observations so far, and what they agree on.
#[derive(Debug)]
pub(crate) struct Collector {
    grace: Duration,
    /// What two witnesses or the records alone show.
    shown: Examination<StepId>,
    /// What rests on the word of a kubelet: it must be so for as long as Calico's own controller waits.
    believed: Examination<StepId>,
    last: Option<Evidence>,
}

/// What an observation came to.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// In the order in which to apply it.
    pub(crate) ready: Vec<Step>,
    /// How many findings of each code wait for another observation.
    pub(crate) waiting: BTreeMap<FindingCode, usize>,
    /// How many findings of each code may not be removed, by what is known now.
    pub(crate) left: BTreeMap<FindingCode, usize>,
    pub(crate) plan: Plan,
    /// When another observation may confirm something.
    pub(crate) next: Option<Duration>,
}

impl Collector {
    /// `grace`: how far apart two observations are at least that must agree.
    pub(crate) fn new(grace: Duration) -> Collector {
        let examination = || Examination::new(rule(grace));
        Collector { grace, shown: examination(), believed: examination(), last: None }
    }

    /// Takes in what was observed, at a moment of a clock that does not go back. An error: nothing can be concluded from it.
    pub(crate) fn observe(
        &mut self,
        at: Duration,
        mut evidence: Evidence,
        configured: &Configured,
    ) -> Result<Verdict, String> {
        // What may not be read could speak against a step.
        if let Some(gap) = evidence.unseen.iter().find(|gap| is_blinding(gap)) {
            return Err(gap.to_string());
        }
        let earlier = self.last.take();
        evidence.earlier = earlier.map(Box::new);
        let plan = self.plan(&evidence);
        evidence.earlier = None;
        self.last = Some(evidence);
        let believes = |step: &Step| witness::rests_on_kubelet(&step.because);
        let leak_grace = configured.leak_grace.map(|grace| grace.max(self.grace));
        self.believed.next_round(at, rule(leak_grace.unwrap_or(self.grace)));
        let certainty = |step: &Step| match step.needs_second_look {
            true => Certainty::MayBeChurn,
            false => Certainty::Certain,
        };
        let of = |is_believed: bool| {
            let steps = plan.steps.iter().filter(move |step| believes(step) == is_believed);
            steps.map(|step| (step.id(), certainty(step))).collect::<Vec<_>>()
        };
        self.shown.observe(at, of(false));
        self.believed.observe(at, of(true));
        let mut verdict = Verdict::default();
        for step in &plan.steps {
            let is_confirmed = match believes(step) {
                true => leak_grace.is_some() && self.believed.is_confirmed(&step.id()),
                false => self.shown.is_confirmed(&step.id()),
            };
            if is_confirmed {
                verdict.ready.push(step.clone());
            } else {
                step.fixes().for_each(|(code, _)| *verdict.waiting.entry(code).or_default() += 1);
            }
        }
        for left in &plan.left {
            *verdict.left.entry(left.code).or_default() += 1;
        }
        let waits = !verdict.waiting.is_empty();
        verdict.next = waits.then_some(self.grace);
        verdict.plan = plan;
        Ok(verdict)
    }

    /// What would be done, by this observation and the one before it.
    fn plan(&self, evidence: &Evidence) -> Plan {
        let options =
            doctor::Options { grace: SignedDuration::try_from(self.grace).unwrap_or(doctor::GRACE) };
        let Some(earlier) = evidence.earlier.as_deref() else { return Plan::default() };
        let report = doctor::diagnose_with(evidence, doctor::checks::ALL, &options);
        let scope = Scope::Codes(CODES.into_iter().collect());
        let mut plan = repair::plan_hearing_kubelets(evidence, &report, &scope, &options);
        for node in nodes_kubernetes_forgot(evidence) {
            if nodes_kubernetes_forgot(earlier).contains(&node) {
                let buried =
                    repair::plan_hearing_kubelets(evidence, &report, &Scope::GoneNode(node), &options);
                plan.steps.extend(buried.steps);
                plan.left.extend(buried.left);
            }
        }
        // What is to be done on a node its agent does by itself.
        plan.steps.retain(|step| step.on_node.is_none());
        for (number, step) in (1..).zip(&mut plan.steps) {
            step.number = number;
        }
        plan
    }
}

/// Two observations, so far apart. How many there are between is of no matter.
fn rule(settle: Duration) -> Rule {
    Rule::rolling(settle)
}

/// Whether something that was not seen could speak against a removal.
fn is_blinding(gap: &Unseen) -> bool {
    matches!(
        gap,
        Unseen::Store { .. }
            | Unseen::Refused { .. }
            | Unseen::DividedGroups { .. }
            | Unseen::Kubernetes { .. }
    )
}

/// Nodes with a record of Calico's that names a node of Kubernetes which is not listed. Only where both lists are whole, and where records
/// and nodes are two things. A record that names no node of Kubernetes is none of its business.
fn nodes_kubernetes_forgot(evidence: &Evidence) -> Vec<NodeName> {
    let Some(kube) = evidence.kube_nodes.as_deref().filter(|nodes| !nodes.is_empty()) else {
        return Vec::new();
    };
    if evidence.partial.kube_nodes {
        return Vec::new();
    }
    let is_forgotten = |record: &model::Resource| {
        let references = record.spec("orchRefs").and_then(|refs| refs.as_array()).into_iter().flatten();
        let mut named = references
            .filter(|reference| reference["orchestrator"] == "k8s")
            .filter_map(|reference| reference["nodeName"].as_str())
            .peekable();
        named.peek().is_some() && named.all(|name| !kube.iter().any(|node| node.seen.name.is(name)))
    };
    let records = evidence.records.all(Kind::Node).iter().map(|record| &record.seen);
    records.filter(|record| is_forgotten(record)).map(|record| record.metadata.name.as_str().into()).collect()
}

#[cfg(test)]
mod tests {
    use evidence::sample::{Sample, node_name};
    use jiff::Timestamp;

    use super::*;

    const GRACE: Duration = Duration::from_secs(60);
    const LEAK_GRACE: Duration = Duration::from_secs(300);

    fn configured() -> Configured {
        Configured { leak_grace: Some(LEAK_GRACE), ..Configured::of(None) }
    }

    /// A cluster of Calico as it is at a moment, seen from Kubernetes and the records alone: the first pod of the first node is gone.
    fn leaked(at: Duration) -> Evidence {
        let mut evidence =
            Sample { nodes: 2, blocks_per_node: 1, pods_per_node: 3, has_kernels: false }.evidence();
        let start: Timestamp = evidence.taken_at.unwrap();
        let now = start + SignedDuration::try_from(at).unwrap();
        evidence.taken_at = Some(now);
        for node in evidence.kube_nodes.iter_mut().flatten() {
            node.seen.lease_renewed_at = Some(now - SignedDuration::from_secs(3));
        }
        let gone = evidence.pods.as_ref().unwrap()[0].seen.name.clone();
        evidence.pods.as_mut().unwrap().retain(|pod| pod.seen.name != gone);
        evidence
            .endpoints
            .as_mut()
            .unwrap()
            .retain(|endpoint| endpoint.seen.pod_name() != Some(gone.clone()));
        evidence
    }

    fn healthy(at: Duration) -> Evidence {
        let whole = Sample { nodes: 2, blocks_per_node: 1, pods_per_node: 3, has_kernels: false }.evidence();
        Evidence { pods: whole.pods, endpoints: whole.endpoints, ..leaked(at) }
    }

    /// What is removed after observations, each with its time, so many seconds apart.
    fn removed(observations: impl IntoIterator<Item = Evidence>, configured: &Configured) -> Vec<String> {
        let mut collector = Collector::new(GRACE);
        let mut ready = Vec::new();
        for (number, evidence) in (0..).zip(observations) {
            let at = Duration::from_secs(number * 70);
            let verdict = collector.observe(at, evidence, configured).unwrap_or_default();
            ready = verdict.ready.iter().map(|step| format!("{} {}", step.code, step.subject)).collect();
        }
        ready
    }

    fn at(number: u64) -> Duration {
        Duration::from_secs(number * 70)
    }

    #[test]
    fn a_leak_goes_when_it_has_lasted_and_not_before() {
        // The first observation has none before it, so the time begins with the second.
        let after = |count: u64| removed((0..count).map(|number| leaked(at(number))), &configured());
        assert_eq!(after(5), [] as [&str; 0]);
        assert_eq!(after(7), ["address-leaked 10.0.0.0"]);
    }

    #[test]
    fn without_a_leak_grace_leaks_of_nodes_that_exist_stay() {
        let never = Configured { leak_grace: None, ..configured() };
        assert_eq!(removed((0..20).map(|number| leaked(at(number))), &never), [] as [&str; 0]);
    }

    /// A list that lacked the pod, once or several times: that it was there in between starts everything over.
    #[test]
    fn a_pod_that_is_seen_once_keeps_its_address() {
        for seen in 1..7 {
            let observations = (0..7).map(|number| match number == seen {
                true => healthy(at(number)),
                false => leaked(at(number)),
            });
            assert_eq!(removed(observations, &configured()), [] as [&str; 0], "seen at {seen}");
        }
    }

    #[track_caller]
    fn nothing_goes(change: impl Fn(&mut Evidence)) {
        let observations = (0..12).map(|number| {
            let mut evidence = leaked(at(number));
            change(&mut evidence);
            evidence
        });
        assert_eq!(removed(observations, &configured()), [] as [&str; 0]);
    }

    fn first_node(evidence: &mut Evidence) -> &mut evidence::KubeNode {
        &mut evidence.kube_nodes.as_mut().unwrap()[0].seen
    }

    #[test]
    fn a_kubelet_that_does_not_work_is_no_witness() {
        let long_ago: Timestamp = "2026-08-22T06:00:00Z".parse().unwrap();
        nothing_goes(|evidence| first_node(evidence).lease_renewed_at = Some(long_ago));
        nothing_goes(|evidence| first_node(evidence).lease_renewed_at = None);
        nothing_goes(|evidence| {
            let node = first_node(evidence);
            node.status = "NotReady".to_owned();
            node.conditions.iter_mut().for_each(|condition| condition.status = "Unknown".to_owned());
        });
    }

    #[test]
    fn under_an_agent_of_ours_the_kubelet_is_no_witness() {
        nothing_goes(|evidence| {
            let mut agent = evidence.pods.as_ref().unwrap()[0].clone();
            agent.seen.node = Some(node_name(0).as_str().into());
            agent.seen.service_account = Some("plumb-node".to_owned());
            agent.seen.name.name = "plumbd".to_owned();
            agent.seen.addresses.clear();
            evidence.pods.as_mut().unwrap().push(agent);
        });
    }

    #[test]
    fn what_could_not_be_read_says_nothing() {
        nothing_goes(|evidence| evidence.pods = None);
        let refused = Unseen::Refused { kinds: vec![Kind::NetworkSet], why: "x".to_owned() };
        nothing_goes(|evidence| evidence.unseen.push(refused.clone()));
        let away = Unseen::Kubernetes { list: evidence::KubeList::Pods, why: "x".to_owned() };
        nothing_goes(|evidence| evidence.unseen.push(away.clone()));
        let mut collector = Collector::new(GRACE);
        let mut blind = leaked(at(0));
        blind.unseen.push(refused);
        assert!(collector.observe(at(0), blind, &configured()).is_err());
    }

    /// By its record, which names its node of Kubernetes, and by two observations.
    #[test]
    fn a_node_that_kubernetes_forgot_goes_with_all_it_has() {
        let forgotten = |at: Duration, is_listed: bool| {
            let mut evidence = leaked(at);
            let name = node_name(1);
            let mut records = evidence.records.all(Kind::Node).to_vec();
            for record in &mut records {
                let reference =
                    serde_json::json!([{ "orchestrator": "k8s", "nodeName": record.seen.metadata.name }]);
                record.seen.spec_mut().insert("orchRefs".to_owned(), reference);
                record.seen.metadata.resource_version = Some("7".to_owned());
            }
            *evidence.records.all_mut(Kind::Node) = records;
            if !is_listed {
                evidence.kube_nodes.as_mut().unwrap().retain(|node| node.seen.name != name.as_str().into());
                evidence.pods.as_mut().unwrap().retain(|pod| pod.seen.node != Some(name.as_str().into()));
            }
            evidence
        };
        let codes = |listed_at: Option<u64>| {
            let all = (0..4).map(|number| forgotten(at(number), Some(number) == listed_at));
            removed(all, &configured())
        };
        let gone = codes(None);
        assert!(gone.iter().any(|step| step.contains("worker-0001")), "{gone:?}");
        assert!(!gone.iter().any(|step| step.contains("worker-0000")), "{gone:?}");
        assert_eq!(codes(Some(3)), [] as [&str; 0]);
        assert_eq!(codes(Some(2)), [] as [&str; 0], "its time begins again");
    }
}
