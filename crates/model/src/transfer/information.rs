//! ClusterInformation during a copy: the destination is locked and marked before its first record, and opened after its last.
//!
//! Calico and Plumbline neither allocate nor release anything while `datastoreReady` is false. The mark says why it is false: so that a
//! copy that was interrupted can be told from a store that an operator has locked.

use serde_json::Value;

use super::compare::{self, Likeness, likeness};
use super::{Destination, Existing, Obstacle, Rule};
use crate::cluster::{CLUSTER_INFORMATION, is_locked};
use crate::{Key, Kind, Resource};

/// On the ClusterInformation of a store whose copy is not finished: where the records come from.
pub const UNFINISHED: &str = "plumbline.io/unfinished-copy";
/// Beside it: the GUID of the cluster whose records these are. The destination may keep a GUID of its own.
const UNFINISHED_CLUSTER: &str = "plumbline.io/unfinished-copy-cluster";
const READY: &str = "datastoreReady";

pub fn key() -> Key {
    Key::cluster(Kind::ClusterInformation, CLUSTER_INFORMATION)
}

/// Where the records of an unfinished copy come from. `None` if there is no such mark.
pub fn unfinished(information: &Resource) -> Option<&str> {
    information.metadata.annotations.get(UNFINISHED).map(String::as_str)
}

/// As it is while records of `source`'s cluster are written, which come from the store that `from` names.
#[must_use]
pub fn begun(mut information: Resource, from: &str, source: &Resource) -> Resource {
    information.spec_mut().insert(READY.to_owned(), false.into());
    let annotations = &mut information.metadata.annotations;
    annotations.insert(UNFINISHED.to_owned(), from.to_owned());
    annotations.insert(UNFINISHED_CLUSTER.to_owned(), guid(source).to_owned());
    information
}

fn guid(information: &Resource) -> &str {
    information.spec("clusterGUID").and_then(Value::as_str).unwrap_or_default()
}

/// As it is afterwards.
#[must_use]
pub fn finished(mut information: Resource, is_ready: bool) -> Resource {
    information.spec_mut().insert(READY.to_owned(), is_ready.into());
    information.metadata.annotations.remove(UNFINISHED);
    information.metadata.annotations.remove(UNFINISHED_CLUSTER);
    information
}

/// The value that takes the place of the destination's own record.
pub fn replacement(to: &Destination, information: &Resource, there: &[u8]) -> Vec<u8> {
    compare::onto(to, &key(), &information.encode(), there)
}

/// Whether a stored value says the same, also about the lock and the mark.
pub fn says(to: &Destination, information: &Resource, stored: &[u8]) -> bool {
    likeness(to, &key(), &information.encode(), stored) == Likeness::Same
}

/// What the destination's own record means for the copy.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It says what the source's says.
    Same {
        is_locked: bool,
    },
    /// A copy from this cluster stopped on its way.
    Unfinished,
    /// It gives way to the source's.
    Replaced,
    /// It stays, apart from the lock.
    Kept {
        is_locked: bool,
    },
    InTheWay(Obstacle),
}

/// Compares the two records. A destination that holds nothing else (`is_bare`) has only been looked at by a program that makes this
/// record at its start.
pub fn stand(
    to: &Destination,
    source: &Resource,
    there: &Resource,
    existing: Existing,
    is_bare: bool,
) -> Standing {
    if let Some(from) = unfinished(there) {
        let copied = there.metadata.annotations.get(UNFINISHED_CLUSTER).map_or(guid(there), String::as_str);
        return match copied == guid(source) || existing == Existing::Replace {
            true => Standing::Unfinished,
            false => Standing::InTheWay(Obstacle::UnfinishedCopy { from: from.to_owned() }),
        };
    }
    let plain = |of: &Resource| finished(of.clone(), true).encode();
    let is_locked = is_locked(there);
    match (likeness(to, &key(), &plain(source), &plain(there)), existing) {
        (Likeness::Same, _) => Standing::Same { is_locked },
        // With `Keep`, what else the destination holds was not looked at.
        _ if is_locked && (!is_bare || existing == Existing::Keep) => Standing::InTheWay(Obstacle::Locked),
        (_, Existing::Keep) => Standing::Kept { is_locked },
        (_, Existing::Replace) => Standing::Replaced,
        (_, Existing::Refuse) if is_bare => Standing::Replaced,
        (Likeness::Lacks(fields) | Likeness::Adds(fields) | Likeness::Differs(fields), Existing::Refuse) => {
            Standing::InTheWay(Obstacle::Differs { fields })
        }
    }
}

impl Standing {
    /// How to treat the other records.
    pub fn rule(&self, existing: Existing) -> Rule {
        Rule { existing, is_unfinished: *self == Standing::Unfinished }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::new_cluster_information;

    fn stand_in(source: &Resource, there: &Resource, existing: Existing, is_bare: bool) -> Standing {
        stand(&Destination::Records, source, there, existing, is_bare)
    }

    #[test]
    fn a_copy_begins_locked_and_marked_and_ends_without_either() {
        let mut source = new_cluster_information("g");
        source.spec_mut().insert("later".to_owned(), json!(18446744073709551615_u64));
        let begun = begun(source.clone(), "etcd", &source);
        assert!(is_locked(&begun));
        assert_eq!(unfinished(&begun), Some("etcd"));
        assert_eq!(finished(begun.clone(), true), source);
        assert!(is_locked(&finished(begun, false)));
    }

    #[test]
    fn another_clusters_record_is_in_the_way_unless_it_stands_alone() {
        let (source, other) = (new_cluster_information("g"), new_cluster_information("other"));
        let locked = finished(source.clone(), false);
        use Existing::{Keep, Refuse, Replace};
        assert_eq!(stand_in(&source, &locked, Refuse, false), Standing::Same { is_locked: true });
        assert_eq!(stand_in(&source, &other, Refuse, true), Standing::Replaced);
        assert_eq!(stand_in(&source, &other, Replace, false), Standing::Replaced);
        assert_eq!(stand_in(&source, &other, Keep, false), Standing::Kept { is_locked: false });
        // An operator's lock is neither opened nor kept by a copy, unless it protects nothing.
        let locked = finished(other.clone(), false);
        for existing in [Refuse, Keep, Replace] {
            let standing = stand_in(&source, &locked, existing, false);
            assert_eq!(standing, Standing::InTheWay(Obstacle::Locked));
        }
        assert_eq!(stand_in(&source, &locked, Refuse, true), Standing::Replaced);
        let fields = vec!["spec.clusterGUID".to_owned()];
        assert_eq!(
            stand_in(&source, &other, Refuse, false),
            Standing::InTheWay(Obstacle::Differs { fields })
        );
        assert_eq!(
            stand_in(&source, &begun(source.clone(), "x", &source), Refuse, false),
            Standing::Unfinished
        );
        let kept = begun(other.clone(), "x", &source);
        assert_eq!(stand_in(&source, &kept, Keep, false), Standing::Unfinished, "with a GUID of its own");
        let from = "x".to_owned();
        assert_eq!(
            stand_in(&source, &begun(other.clone(), "x", &other), Keep, false),
            Standing::InTheWay(Obstacle::UnfinishedCopy { from })
        );
    }
}
