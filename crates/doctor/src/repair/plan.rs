//! A plan: what would be done, in which order, why, and what is left to people.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use model::ShellCommand;
use plan::work::NodeWork;
use serde::{Deserialize, Serialize};

use super::edit::Edit;

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
    pub scope: String,
    pub steps: Vec<Step>,
    /// What was found and is not repaired, and why.
    pub left: Vec<Left>,
}

/// One thing to do: records that are changed together, or work on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// From 1, in the order of execution.
    pub number: u32,
    /// The finding that it mends, the first of them if there are several.
    pub code: String,
    pub subject: String,
    /// Others that are mended with it: what shares a record is changed together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Mended>,
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
pub struct Mended {
    pub code: String,
    pub subject: String,
}

/// Work on one node, one after the other; the rest is not done if one does not go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OnNode {
    pub node: String,
    pub works: Vec<NodeWork>,
}

/// A finding that is not repaired.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Left {
    pub code: String,
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
        let mut known: BTreeMap<(&str, &str), Vec<&Step>> = BTreeMap::new();
        for step in &other.steps {
            known.entry((&step.code, &step.subject)).or_default().push(step);
        }
        let is_agreed = |step: &Step| {
            let same = known.get(&(step.code.as_str(), step.subject.as_str()));
            same.is_some_and(|same| same.iter().any(|other| other.is_same(step)))
        };
        let (agreed, dropped): (Vec<Step>, Vec<Step>) =
            std::mem::take(&mut self.steps).into_iter().partition(is_agreed);
        self.steps = agreed;
        dropped.into_iter().map(|step| Dropped { why: other.why_not(&step), step }).collect()
    }

    /// Why this plan does not have a step of another one.
    pub fn why_not(&self, step: &Step) -> String {
        let same = |(code, subject): (&str, &str)| (code, subject) == (&step.code, &step.subject);
        if let Some(left) = self.left.iter().find(|left| same((&left.code, &left.subject))) {
            return format!("it is left now: {}", left.why);
        }
        match self.steps.iter().find(|other| other.mends().any(same)) {
            Some(other) => format!("what is there has changed; now it would be: {}", other.title),
            None => "it is not found any more".to_owned(),
        }
    }
}

/// What became of a finding that a plan was to mend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Still {
    /// It is not found any more.
    Gone,
    /// It is found, and left to people for this reason.
    Left(String),
    /// It is found, and a step would mend it.
    Mendable,
}

impl Plan {
    /// What a finding is to this plan.
    pub fn still(&self, code: &str, subject: &str) -> Still {
        if self.steps.iter().any(|step| step.mends().any(|known| known == (code, subject))) {
            return Still::Mendable;
        }
        match self.left.iter().find(|left| (left.code.as_str(), left.subject.as_str()) == (code, subject)) {
            Some(left) => Still::Left(left.why.clone()),
            None => Still::Gone,
        }
    }
}

impl Step {
    /// Every finding that it mends.
    pub fn mends(&self) -> impl Iterator<Item = (&str, &str)> {
        let also = self.also.iter().map(|mended| (mended.code.as_str(), mended.subject.as_str()));
        std::iter::once((self.code.as_str(), self.subject.as_str())).chain(also)
    }

    /// Whether it takes something away.
    pub(super) fn takes(&self) -> bool {
        let on_node = self.on_node.iter().flat_map(|on_node| &on_node.works);
        self.edits.iter().any(Edit::takes) || on_node.into_iter().any(NodeWork::is_removal)
    }

    /// Whether both do the same, whatever they say about it.
    pub fn is_same(&self, other: &Step) -> bool {
        (&self.code, &self.subject, &self.also) == (&other.code, &other.subject, &other.also)
            && self.edits == other.edits
            && self.on_node == other.on_node
    }
}
