//! What a record that the destination already holds means for the copy.

use std::collections::BTreeMap;
use std::fmt;

use super::compare::{self, Likeness};
use super::{Destination, Plan, Stages, order};
use crate::cluster::basic_tiers;
use crate::kube::is_custom_resource;
use crate::{Key, Kind};

/// What an operator wants done with records that are in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Nothing: the copy does not begin.
    Refuse,
    /// They stay. IPAM records are refused all the same: they are right only together.
    Keep,
    /// The destination becomes what the source is.
    Replace,
}

/// How to treat what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub existing: Existing,
    /// The destination holds the beginning of a copy from the same cluster, so a record that differs is our own.
    pub is_unfinished: bool,
}

/// What becomes of a record that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// It is what the copy would write.
    Same,
    /// So it is, apart from fields that the API server did not keep.
    Lacks(Vec<String>),
    Replace,
    Remove,
    /// It stays as it is, although the source has it otherwise.
    Keep(Vec<String>),
    InTheWay(Obstacle),
    /// It has nothing to do with the copy.
    Ignore,
}

/// Why a record is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    Differs {
        fields: Vec<String>,
    },
    NotInSource,
    UnfinishedCopy {
        from: String,
    },
    /// By an operator, and of another cluster: a migration may be under way.
    Locked,
}

impl Obstacle {
    pub fn code(&self) -> &'static str {
        match self {
            Obstacle::Differs { .. } => "differs",
            Obstacle::NotInSource => "not-in-source",
            Obstacle::UnfinishedCopy { .. } => "unfinished-copy",
            Obstacle::Locked => "locked",
        }
    }
}

/// So many fields are named.
const NAMED: usize = 4;

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Differs { fields } => {
                let named: Vec<&str> = fields.iter().take(NAMED).map(String::as_str).collect();
                let more = if fields.len() > NAMED { " and more" } else { "" };
                write!(f, "differs from the source in {}{more}", named.join(", "))
            }
            Obstacle::NotInSource => f.write_str("does not exist in the source"),
            Obstacle::Locked => f.write_str(
                "says that the destination is locked for another migration; if there is none, unlock it there with plumb datastore migrate unlock",
            ),
            Obstacle::UnfinishedCopy { from } => {
                write!(
                    f,
                    "says that the destination holds an unfinished copy of another cluster, from {from}"
                )
            }
        }
    }
}

impl<V: AsRef<[u8]>> Plan<V> {
    /// Decides about a record of the destination. Its ClusterInformation is another matter: see [`super::information`].
    pub fn meet(&self, to: &Destination, rule: Rule, key: &Key, stored: &[u8]) -> Meeting {
        if *key == super::information::key() {
            return Meeting::Ignore;
        }
        let Some(planned) = self.writes.get(key) else { return self.surplus(to, rule, key) };
        let is_view = is_view(to, key);
        match compare::likeness(to, key, planned.as_ref(), stored) {
            Likeness::Same => Meeting::Same,
            // A Node exists before any copy, and only Calico's part of it is written.
            _ if is_view || rule.existing == Existing::Replace => Meeting::Replace,
            // With `Keep`, a record that differs may be one that was kept. IPAM records never are.
            _ if rule.is_unfinished && (rule.existing != Existing::Keep || is_of_ipam(key)) => {
                Meeting::Replace
            }
            Likeness::Lacks(fields) if matches!(to, Destination::Kubernetes(_)) => Meeting::Lacks(fields),
            Likeness::Lacks(fields) | Likeness::Adds(fields) | Likeness::Differs(fields) => {
                match rule.existing {
                    Existing::Keep if !is_of_ipam(key) => Meeting::Keep(fields),
                    _ => Meeting::InTheWay(Obstacle::Differs { fields }),
                }
            }
        }
    }

    fn surplus(&self, to: &Destination, rule: Rule, key: &Key) -> Meeting {
        if is_view(to, key) || basic_tiers().iter().any(|tier| tier.key() == *key) {
            return Meeting::Ignore;
        }
        match rule.existing {
            Existing::Replace => Meeting::Remove,
            Existing::Keep if !is_of_ipam(key) => Meeting::Ignore,
            _ => Meeting::InTheWay(Obstacle::NotInSource),
        }
    }

    /// How a record that was written compares with the plan.
    pub fn compare(&self, to: &Destination, key: &Key, stored: &[u8]) -> Option<Likeness> {
        let planned = self.writes.get(key)?;
        Some(compare::likeness(to, key, planned.as_ref(), stored))
    }

    /// The value that replaces a record that is there.
    pub fn replacement(&self, to: &Destination, key: &Key, stored: &[u8]) -> Option<Vec<u8>> {
        let planned = self.writes.get(key)?;
        Some(compare::onto(to, key, planned.as_ref(), stored))
    }

    /// The order of writing.
    pub fn stages(&self) -> Stages {
        order::stages(&self.writes)
    }
}

/// The order of removing.
pub fn stages_of_removal<T>(removals: &BTreeMap<Key, T>) -> Stages {
    let mut stages: BTreeMap<std::cmp::Reverse<u8>, Vec<Key>> = BTreeMap::new();
    for key in removals.keys() {
        stages.entry(std::cmp::Reverse(order::stage(key))).or_default().push(key.clone());
    }
    stages.into_values().collect()
}

/// Whether an object of Kubernetes' own shows the record.
fn is_view(to: &Destination, key: &Key) -> bool {
    let Key::Resource { kind, .. } = key else { return false };
    matches!(to, Destination::Kubernetes(_)) && !is_custom_resource(*kind)
}

fn is_of_ipam(key: &Key) -> bool {
    match key {
        Key::Block(_) | Key::Affinity { .. } | Key::Handle(_) => true,
        // An endpoint holds addresses of blocks.
        Key::Resource { kind, .. } => *kind == Kind::WorkloadEndpoint,
        Key::IpamConfig => false,
    }
}
