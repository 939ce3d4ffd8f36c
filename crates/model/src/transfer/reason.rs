//! Why a record is left, and what changes in one that is carried, in words and as a code that stays.

use std::fmt;

use crate::Key;

/// Why a record is not written to the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The cluster has the Pod, with the same addresses.
    ShownByPod,
    /// The cluster has the Namespace or the ServiceAccount.
    ShownByObject,
    /// A Pod that has finished, or that has no address yet.
    NoAddress,
    /// IPAM's kinds as plain resources of etcd: IPAM has keys of its own.
    ReadByNobody,
    /// Calico removes IPAM records in two steps, and this one is past the first.
    Deleted,
    /// Without its Pod an endpoint is left over.
    NoPod,
    NotOfAPod,
    PodDiffers {
        addresses: Vec<String>,
    },
    NoNode,
    OtherNodeName {
        name: String,
    },
    NoObjectForProfile,
    NotServed,
    NoNamespace {
        namespace: String,
    },
    NameRefused {
        name: String,
        rule: String,
    },
    NameTaken {
        by: Key,
    },
    Unreadable {
        problem: String,
    },
}

impl Why {
    /// Whether something is missing in the destination. Otherwise it has the same from elsewhere, or nothing would read it.
    pub fn is_loss(&self) -> bool {
        !matches!(
            self,
            Why::ShownByPod
                | Why::ShownByObject
                | Why::NoAddress
                | Why::NoPod
                | Why::ReadByNobody
                | Why::Deleted
        )
    }

    pub fn code(&self) -> &'static str {
        match self {
            Why::ShownByPod => "shown-by-pod",
            Why::ShownByObject => "shown-by-object",
            Why::NoAddress => "no-address",
            Why::ReadByNobody => "read-by-nobody",
            Why::Deleted => "deleted",
            Why::NoPod => "no-pod",
            Why::NotOfAPod => "not-of-a-pod",
            Why::PodDiffers { .. } => "pod-differs",
            Why::NoNode => "no-node",
            Why::OtherNodeName { .. } => "other-node-name",
            Why::NoObjectForProfile => "no-object-for-profile",
            Why::NotServed => "not-served",
            Why::NoNamespace { .. } => "no-namespace",
            Why::NameRefused { .. } => "name-refused",
            Why::NameTaken { .. } => "name-taken",
            Why::Unreadable { .. } => "unreadable",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::ShownByPod => f.write_str("its Pod in the destination shows it"),
            Why::ShownByObject => {
                f.write_str("its Namespace or ServiceAccount in the destination shows it")
            }
            Why::NoAddress => f.write_str("its Pod has no address, so it needs no endpoint"),
            Why::ReadByNobody => {
                f.write_str("IPAM does not read this key; the record that IPAM uses is carried")
            }
            Why::Deleted => f.write_str("it is marked as deleted"),
            Why::NoPod => f.write_str("the destination has no such Pod, so it needs no endpoint"),
            Why::NotOfAPod => f.write_str("in Kubernetes an endpoint is a Pod, and this is not the endpoint of one"),
            Why::PodDiffers { addresses } => {
                let shown = if addresses.is_empty() { "no address".to_owned() } else { addresses.join(", ") };
                write!(f, "its Pod in the destination has {shown}")
            }
            Why::NoNode => f.write_str("in Kubernetes a node is a Node, and the destination has no such Node"),
            Why::OtherNodeName { name } => {
                write!(f, "Kubernetes calls this node {name:?} (spec.orchRefs); nodes are not renamed by a copy")
            }
            Why::NoObjectForProfile => f.write_str(
                "in Kubernetes a profile is a Namespace (kns.NAME) or a ServiceAccount (ksa.NAMESPACE.NAME), and the destination has none for it",
            ),
            Why::NotServed => f.write_str("the destination has no CustomResourceDefinition for this kind"),
            Why::NoNamespace { namespace } => write!(f, "the destination has no namespace {namespace:?}"),
            Why::NameRefused { name, rule } => write!(f, "Kubernetes refuses the name {name:?}: it {rule}"),
            Why::NameTaken { by } => write!(f, "in Kubernetes it would have the same name as {by}"),
            Why::Unreadable { problem } => write!(f, "its value cannot be read: {problem}"),
        }
    }
}

/// What changes in a record that is carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Altered {
    /// They name objects of the source by UID. Kubernetes deletes what no living owner holds.
    Owners(Vec<String>),
    /// They name controllers that may not run in the destination.
    Finalizers(Vec<String>),
    /// Only the API server that was told to delete a record can finish it.
    Deletion { disables_pool: bool },
    /// A policy that an old release stored under another name than its own.
    Renamed { to: Key },
    /// A setting from the resource that only Calico's plugin reads on etcd.
    SettingMoved { setting: &'static str },
    /// Kubernetes' own labels of the node win.
    NodeLabels(Vec<String>),
    /// No annotation of a Node keeps them.
    NodeFields(Vec<String>),
}

impl Altered {
    pub fn is_loss(&self) -> bool {
        matches!(self, Altered::NodeFields(_))
    }

    pub fn code(&self) -> &'static str {
        match self {
            Altered::Owners(_) => "owners-dropped",
            Altered::Finalizers(_) => "finalizers-dropped",
            Altered::Deletion { .. } => "deletion-dropped",
            Altered::Renamed { .. } => "renamed",
            Altered::SettingMoved { .. } => "setting-moved",
            Altered::NodeLabels(_) => "node-labels-dropped",
            Altered::NodeFields(_) => "node-fields-dropped",
        }
    }
}

impl fmt::Display for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Altered::Owners(owners) => {
                write!(
                    f,
                    "without its owner references ({}): their UIDs are not those of the destination",
                    owners.join(", ")
                )
            }
            Altered::Finalizers(finalizers) => {
                write!(
                    f,
                    "without its finalizers ({}): their controllers set them again",
                    finalizers.join(", ")
                )
            }
            Altered::Deletion { disables_pool: true } => f.write_str(
                "it is being deleted in the source: it is carried as a disabled pool; delete it again",
            ),
            Altered::Deletion { disables_pool: false } => {
                f.write_str("it is being deleted in the source: delete it again")
            }
            Altered::Renamed { to } => write!(f, "stored under its own name, as {to}"),
            Altered::SettingMoved { setting } => {
                write!(
                    f,
                    "with {setting} of the resource ipamconfigurations/default, where Calico's plugin reads it on etcd"
                )
            }
            Altered::NodeLabels(names) => {
                write!(
                    f,
                    "without the labels {}: the Node in the destination has other values",
                    names.join(", ")
                )
            }
            Altered::NodeFields(fields) => {
                write!(f, "without {}: no annotation of a Node keeps it", fields.join(", "))
            }
        }
    }
}
