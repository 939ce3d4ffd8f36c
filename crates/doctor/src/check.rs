//! The interface of a check: what it says about itself, what it needs, and what it writes its findings into.

use model::Kind;

use crate::{Case, Evidence, Finding, Severity, Subject};

/// One kind of finding. A check is a file under `checks/` with one constant of this type, a function `look`, and
/// tests that it fires and that it stays silent.
#[derive(Debug)]
pub struct Check {
    /// The code of its findings: lower case, words joined by dashes, named for what is found. Never changes.
    pub code: &'static str,
    /// How bad it usually is. A finding may differ.
    pub severity: Severity,
    /// What is found, in a few words: a heading.
    pub title: &'static str,
    /// What it means, for someone who meets the code for the first time: `plumb doctor explain CODE`.
    pub explanation: &'static str,
    /// What would mend it, in general. A finding may be more precise.
    pub remedy: &'static str,
    /// The check runs if everything in one of these sets was collected.
    pub needs: &'static [&'static [Need]],
    /// Whether what is being created or deleted right now looks like this fault for a moment.
    pub settles: Settles,
    pub look: fn(&Case<'_>, &mut Look<'_>),
}

/// When a finding is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settles {
    /// It cannot come from churn: a setting, a contradiction inside one record, a log.
    AtOnce,
    /// It compares things that change one after the other. If there is an earlier look, the very same fault must
    /// be found in that as well.
    InTwoLooks,
}

/// A kind of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Pods,
    KubeNodes,
    Events,
    Endpoints,
    Record(Kind),
    /// Blocks, handles and affinities, or any of them.
    Ipam,
    Links,
    Addresses,
    Routes,
    Neighbours,
    Sysctls,
    Firewall,
    PodViews,
    Bgp,
    /// The runtime's list of sandboxes, or of containers.
    Runtime,
    Setup,
    /// Packets that were sent to see whether they arrive.
    Probes,
    Log,
}

/// Where a check writes what it sees.
#[derive(Debug)]
pub struct Look<'a> {
    check: &'a Check,
    pub(crate) findings: Vec<Finding>,
    pub(crate) unseen: Vec<String>,
    /// How many findings are kept, and how many more there were.
    most: usize,
    left_out: usize,
    /// What is written into a finding that is not kept.
    scrap: Finding,
}

impl<'a> Look<'a> {
    pub fn new(check: &'a Check) -> Look<'a> {
        let (findings, unseen) = (Vec::new(), Vec::new());
        let scrap = finding(check, Subject::node(""), String::new());
        Look { check, findings, unseen, most: usize::MAX, left_out: 0, scrap }
    }

    /// Keeps no more findings than this, and counts the others.
    #[must_use]
    pub(crate) fn with_at_most(self, most: usize) -> Look<'a> {
        Look { most, ..self }
    }

    /// Leaves no more findings than this, and says how many there were besides.
    pub(crate) fn cut(&mut self, most: usize) {
        self.left_out += self.findings.len().saturating_sub(most);
        self.findings.truncate(most);
        if self.left_out > 0 {
            let told = format!(
                "{} more findings of {} were left out: no more than {most} of one code are listed",
                self.left_out, self.check.code
            );
            self.unseen.push(told);
        }
    }

    /// A new finding of this check. `summary` is one sentence without a full stop, and says what is so, not what
    /// might be.
    pub fn found(&mut self, subject: impl Into<Subject>, summary: impl Into<String>) -> &mut Finding {
        let finding = finding(self.check, subject.into(), summary.into());
        if self.findings.len() >= self.most {
            self.left_out += 1;
            self.scrap = finding;
            return &mut self.scrap;
        }
        self.findings.push(finding);
        self.findings.last_mut().expect("just added")
    }

    /// Something that the check would have looked at and could not.
    pub fn could_not_see(&mut self, what: impl Into<String>) {
        self.unseen.push(what.into());
    }

    /// One value could not be understood and was left out.
    pub fn left_out(&mut self, record: impl std::fmt::Display, what: impl std::fmt::Display) {
        self.unseen.push(format!("{record}: {what} cannot be read, so {} left it out", self.check.code));
    }

    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    pub fn unseen(&self) -> &[String] {
        &self.unseen
    }
}

fn finding(check: &Check, subject: Subject, summary: String) -> Finding {
    Finding {
        code: check.code,
        severity: check.severity,
        subject,
        summary,
        cause: Vec::new(),
        evidence: Vec::new(),
        remedy: check.remedy.to_owned(),
        commands: Vec::new(),
        symptoms: Vec::new(),
        explains: Vec::new(),
        identity: None,
    }
}

impl Check {
    /// Whether enough was collected. If not, what is missing for the set that lacks least.
    pub fn missing(&self, evidence: &Evidence) -> Option<Vec<Need>> {
        let missing = |set: &&'static [Need]| -> Vec<Need> {
            set.iter().copied().filter(|need| !need.is_met(evidence)).collect()
        };
        let least = self.needs.iter().map(missing).min_by_key(Vec::len)?;
        (!least.is_empty()).then_some(least)
    }

    /// What this check alone finds: for its tests.
    pub fn alone<'a>(&'a self, evidence: &Evidence) -> Look<'a> {
        let mut look = Look::new(self);
        (self.look)(&Case::new(evidence, &crate::Options::default()), &mut look);
        look
    }
}

impl Need {
    /// Whether anybody looked.
    pub fn is_met(self, evidence: &Evidence) -> bool {
        let any_node = |has: fn(&crate::evidence::NodeEvidence) -> bool| {
            evidence.nodes.values().chain(&evidence.unplaced).any(has)
        };
        match self {
            Need::Pods => evidence.pods.is_some(),
            Need::KubeNodes => evidence.kube_nodes.is_some(),
            Need::Events => evidence.events.is_some(),
            Need::Endpoints => evidence.endpoints.is_some(),
            Need::Record(kind) => evidence.records.of(kind).is_some(),
            Need::Ipam => evidence.ipam.is_some(),
            Need::Links => any_node(|node| node.kernel.links.is_some()),
            Need::Addresses => any_node(|node| node.kernel.addresses.is_some()),
            Need::Routes => any_node(|node| node.kernel.routes.is_some()),
            Need::Neighbours => any_node(|node| node.kernel.neighbours.is_some()),
            Need::Sysctls => any_node(|node| node.kernel.sysctls.is_some()),
            Need::Firewall => any_node(|node| node.firewall.is_some()),
            Need::PodViews => any_node(|node| node.pod_views.is_some()),
            Need::Bgp => any_node(|node| node.bgp.is_some()),
            Need::Runtime => any_node(|node| node.sandboxes.is_some() || node.containers.is_some()),
            Need::Setup => any_node(|node| node.setup != crate::evidence::node::Setup::default()),
            Need::Probes => any_node(|node| node.setup.probed.is_some()),
            Need::Log => evidence.log.is_some(),
        }
    }

    /// What it is called in "… were not collected".
    pub fn words(self) -> String {
        match self {
            Need::Pods => "pods".to_owned(),
            Need::KubeNodes => "Kubernetes nodes".to_owned(),
            Need::Events => "events".to_owned(),
            Need::Endpoints => "WorkloadEndpoint records".to_owned(),
            Need::Record(kind) => format!("{} records", kind.name()),
            Need::Ipam => "IPAM records".to_owned(),
            Need::Links => "links of nodes".to_owned(),
            Need::Addresses => "addresses of nodes".to_owned(),
            Need::Routes => "routes of nodes".to_owned(),
            Need::Neighbours => "neighbours of nodes".to_owned(),
            Need::Sysctls => "kernel settings of nodes".to_owned(),
            Need::Firewall => "rules of nft of nodes".to_owned(),
            Need::PodViews => "views from inside pods".to_owned(),
            Need::Bgp => "BGP sessions".to_owned(),
            Need::Runtime => "sandboxes of the runtime".to_owned(),
            Need::Setup => "facts about the set-up of nodes".to_owned(),
            Need::Probes => "answers to packets (--probe)".to_owned(),
            Need::Log => "logs".to_owned(),
        }
    }
}
