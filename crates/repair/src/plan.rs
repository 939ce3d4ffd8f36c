//! A plan: what would be done, in which order, why, and what is left to people.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use model::{FindingCode, NodeName, ShellCommand};
use plan::task::RepairTask;
use serde::{Deserialize, Serialize};

use super::edit::Edit;
use super::scope::Scope;

/// The version of plans that is written, and the only one that is read.
pub const PLAN_VERSION: u32 = 1;

/// Everything that would be done. Its JSON is what `--plan FILE` holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub version: u32,
    /// Of the repair: history and undo know it by this.
    pub id: String,
    /// When the evidence was collected: what goes must look gone again, at least `grace` seconds later.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub looked_at: Option<Timestamp>,
    pub grace_seconds: f64,
    /// Which cluster it is for: its ClusterInformation's GUID.
    #[serde(default)]
    pub cluster_guid: String,
    pub scope: Scope,
    pub steps: Vec<Step>,
    /// What was found and is not repaired, and why.
    pub left: Vec<Left>,
}

/// One thing to do: records that are changed together, or work on one node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// From 1, in the order of execution.
    pub number: u32,
    /// The finding that it fixes, the first of them if there are several.
    pub code: FindingCode,
    pub subject: String,
    /// Others that are fixed with it: what shares a record is changed together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Fixed>,
    /// What is done, in one sentence.
    pub title: String,
    /// Why it may be done: the rule, and what every witness says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<String>,
    /// Something is taken away: it must look gone in two looks some time apart.
    #[serde(default)]
    pub needs_second_look: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<Edit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_node: Option<OnNode>,
}

/// A finding, by its code and subject.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fixed {
    pub code: FindingCode,
    pub subject: String,
}

/// By which a step is recognised in another plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepId(String);

/// Work on one node, one after the other; the rest is not done if one does not go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OnNode {
    pub node: NodeName,
    pub works: Vec<RepairTask>,
}

/// A finding that is not repaired.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    pub code: FindingCode,
    pub subject: String,
    pub summary: String,
    pub why: String,
    /// What an operator would run, if it can be said exactly.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<ShellCommand>,
}

/// A step that a later plan does not have, and what that one has in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropped {
    pub step: Step,
    pub why: String,
}

impl Plan {
    /// Whether there is anything to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether something is to be taken away, for which two looks must be some time apart.
    pub fn needs_second_look(&self) -> bool {
        self.steps.iter().any(|step| step.needs_second_look)
    }

    /// The nodes on which something is to be done.
    pub fn nodes(&self) -> BTreeSet<&str> {
        self.steps.iter().filter_map(|step| Some(step.on_node.as_ref()?.node.as_str())).collect()
    }

    /// Keeps the steps that another plan has, too, and gives those that it has not.
    pub fn keep_agreed(&mut self, other: &Plan) -> Vec<Dropped> {
        let known: BTreeSet<StepId> = other.steps.iter().map(Step::id).collect();
        let is_agreed = |step: &Step| known.contains(&step.id());
        let (agreed, dropped): (Vec<Step>, Vec<Step>) =
            std::mem::take(&mut self.steps).into_iter().partition(is_agreed);
        self.steps = agreed;
        dropped.into_iter().map(|step| Dropped { why: other.why_not(&step), step }).collect()
    }

    /// Why this plan does not have a step of another one.
    pub fn why_not(&self, step: &Step) -> String {
        self.still(step.code, &step.subject).to_string()
    }

    /// What a finding is to this plan.
    pub fn still(&self, code: FindingCode, subject: &str) -> Still {
        let fixes = |step: &&Step| step.fixes().any(|known| known == (code, subject));
        if let Some(step) = self.steps.iter().find(fixes) {
            return Still::Fixable { title: step.title.clone() };
        }
        match self.left.iter().find(|left| (left.code, left.subject.as_str()) == (code, subject)) {
            Some(left) => Still::Left { why: left.why.clone() },
            None => Still::Gone,
        }
    }
}

/// What became of a finding that an earlier plan was to fix. Its words are the reason why the earlier step is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Still {
    /// It is not found any more.
    Gone,
    /// It is found, and left to the operator.
    Left { why: String },
    /// It is found, and another step fixes it.
    Fixable { title: String },
}

impl fmt::Display for Still {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Still::Gone => f.write_str("it is no longer found"),
            Still::Left { why } => write!(f, "it is now left to you: {why}"),
            Still::Fixable { title } => {
                write!(f, "the state has changed since planning; now the step would be: {title}")
            }
        }
    }
}

impl Step {
    /// A step for one finding that does nothing yet.
    pub fn new(code: FindingCode, subject: impl Into<String>, title: impl Into<String>) -> Step {
        Step {
            number: 0,
            code,
            subject: subject.into(),
            also: Vec::new(),
            title: title.into(),
            because: Vec::new(),
            needs_second_look: false,
            edits: Vec::new(),
            on_node: None,
        }
    }

    /// Another reason why it may be done.
    pub(super) fn because(&mut self, reason: impl Into<String>) -> &mut Step {
        self.because.push(reason.into());
        self
    }

    /// Every finding that it fixes.
    pub fn fixes(&self) -> impl Iterator<Item = (FindingCode, &str)> {
        let also = self.also.iter().map(|fixed| (fixed.code, fixed.subject.as_str()));
        std::iter::once((self.code, self.subject.as_str())).chain(also)
    }

    /// Whether it takes something away.
    pub(super) fn takes(&self) -> bool {
        let on_node = self.on_node.iter().flat_map(|on_node| &on_node.works);
        self.edits.iter().any(Edit::takes) || on_node.into_iter().any(RepairTask::is_removal)
    }

    /// What it does and for which findings, whatever its title and its reasons are.
    pub fn id(&self) -> StepId {
        let parts = (self.code, &self.subject, &self.also, &self.edits, &self.on_node);
        StepId(serde_json::to_string(&parts).expect("a step is written into plans"))
    }
}
