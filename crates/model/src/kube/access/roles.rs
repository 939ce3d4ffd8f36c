//! Accounts, roles and bindings: a table with the reason for each rule.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{NODE_ACCOUNT, NODES_GROUP, READER_ACCOUNT, RECLAIM};
use crate::Kind;
use crate::kube::{Layout, has_status_apart, is_custom_resource};

const READ: &[&str] = &["get", "list", "watch"];
const OPERATOR_ACCOUNT: &str = "plumb-operator";
const CORE: &str = "";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Which resources a rule is about.
#[derive(Clone, Copy, Debug)]
enum Resources {
    /// Of Kubernetes' own, by their API group and their names.
    Kubernetes(&'static str, &'static [&'static str]),
    Records(&'static [Kind]),
    /// The status of records, where the API server keeps it apart.
    StatusOf(&'static [Kind]),
    EveryRecord,
    /// In both API groups: a cluster may have moved from one to the other.
    EveryRecordAnywhere,
    EveryStatus,
}

/// What one role allows, and why.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    resources: Resources,
    verbs: &'static [&'static str],
    why: &'static str,
}

/// A role and who has it.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    pub name: &'static str,
    pub description: &'static str,
    pub rules: &'static [Rule],
    accounts: &'static [&'static str],
    groups: &'static [&'static str],
}

const fn rule(resources: Resources, verbs: &'static [&'static str], why: &'static str) -> Rule {
    Rule { resources, verbs, why }
}

const NODE_RULES: &[Rule] = &[
    rule(Resources::Kubernetes(CORE, &["nodes"]), READ, "addresses and tunnels of all nodes, for routes"),
    rule(
        Resources::Kubernetes(CORE, &["nodes/status"]),
        &["patch"],
        "address and tunnels of its own node, as annotations",
    ),
    rule(
        Resources::Kubernetes(CORE, &["pods"]),
        READ,
        "a pod is an endpoint, and its annotations choose its addresses",
    ),
    rule(
        Resources::Kubernetes(CORE, &["pods/status"]),
        &["patch"],
        "addresses and sandbox of its own pods, as annotations",
    ),
    rule(Resources::Kubernetes(CORE, &["namespaces"]), READ, "a namespace's annotations choose pools"),
    rule(
        Resources::Records(&[
            Kind::IpPool,
            Kind::IpReservation,
            Kind::IpamConfiguration,
            Kind::ClusterInformation,
            Kind::FelixConfiguration,
            Kind::BgpConfiguration,
            Kind::BgpPeer,
            Kind::BgpFilter,
            Kind::CalicoNodeStatus,
        ]),
        READ,
        "settings of the cluster that it works by",
    ),
    rule(
        Resources::Records(&[Kind::Tier, Kind::GlobalNetworkPolicy, Kind::NetworkPolicy]),
        READ,
        "policies: what is not enforced is reported",
    ),
    rule(
        Resources::Records(&[Kind::IpamBlock, Kind::BlockAffinity]),
        &["get", "list", "watch", "create", "update", "delete"],
        "claims blocks, allocates and releases addresses; watches blocks for routes",
    ),
    rule(
        Resources::Records(&[Kind::IpamHandle]),
        &["get", "list", "create", "update", "delete"],
        "notes which addresses a sandbox holds",
    ),
    rule(
        Resources::Records(&[Kind::CalicoNodeStatus]),
        &["update"],
        "writes its own status: the store sends the record before its status",
    ),
    rule(
        Resources::StatusOf(&[Kind::CalicoNodeStatus]),
        &["update"],
        "its own status: BGP sessions and routes",
    ),
];

const BOOTSTRAP_RULES: &[Rule] = &[
    rule(
        Resources::Records(&[
            Kind::ClusterInformation,
            Kind::Tier,
            Kind::FelixConfiguration,
            Kind::BgpConfiguration,
            Kind::IpamConfiguration,
            Kind::IpPool,
        ]),
        &["create"],
        "the records that every cluster starts with, where they are missing",
    ),
    rule(
        Resources::Records(&[Kind::ClusterInformation]),
        &["update"],
        "adds what is missing: the GUID, and `kdd` to the type",
    ),
];

const RECLAIM_RULES: &[Rule] = &[rule(
    Resources::Records(&[Kind::BlockAffinity]),
    &[RECLAIM],
    "takes over other nodes' empty blocks when the pools have no unclaimed block left",
)];

const READER_RULES: &[Rule] = &[
    rule(
        Resources::EveryRecordAnywhere,
        READ,
        "`plumb get`, `ipam`, `doctor`, `collect`, whichever API group keeps the records",
    ),
    rule(
        Resources::Kubernetes(CORE, &["nodes", "pods", "namespaces", "serviceaccounts"]),
        READ,
        "they are nodes, endpoints and profiles, and `doctor` and `repair` ask what runs",
    ),
    rule(
        Resources::Kubernetes("coordination.k8s.io", &["leases"]),
        &["list"],
        "`repair` leaves a node alone whose kubelet renews its lease",
    ),
    rule(
        Resources::Kubernetes("apiextensions.k8s.io", &["customresourcedefinitions"]),
        &["get", "list"],
        "`plumb install --crds --apply --dry-run` reports missing fields",
    ),
    rule(
        Resources::Kubernetes("apiregistration.k8s.io", &["apiservices"]),
        &["get"],
        "the same, to learn whether another API server serves the group",
    ),
];

const OPERATOR_RULES: &[Rule] = &[
    rule(
        Resources::EveryRecord,
        &["create", "update", "delete"],
        "`plumb apply`, `delete`, `ipam`, `datastore migrate`, `repair`",
    ),
    rule(Resources::EveryStatus, &["update"], "`plumb apply` of records with a status"),
    rule(
        Resources::Kubernetes(CORE, &["nodes/status", "pods/status"]),
        &["patch"],
        "`plumb apply` and `repair` of nodes and endpoints, which are annotations",
    ),
];

const ROLES: &[Role] = &[
    Role {
        name: "plumb-node",
        description: "What the agent of a node needs. The policies plumb-node-* hold it to its own node.",
        rules: NODE_RULES,
        accounts: &[NODE_ACCOUNT],
        groups: &[NODES_GROUP],
    },
    Role {
        name: "plumb-node-bootstrap",
        description: "Lets agents create the records that a cluster starts with. Remove the binding once they exist.",
        rules: BOOTSTRAP_RULES,
        accounts: &[NODE_ACCOUNT],
        groups: &[NODES_GROUP],
    },
    Role {
        name: "plumb-node-reclaim",
        description: "Lets agents take over other nodes' empty blocks. Remove the binding to forbid it.",
        rules: RECLAIM_RULES,
        accounts: &[NODE_ACCOUNT],
        groups: &[NODES_GROUP],
    },
    Role {
        name: "plumb-reader",
        description: "For operators who look: plumb get, ipam, doctor, collect.",
        rules: READER_RULES,
        accounts: &[READER_ACCOUNT, OPERATOR_ACCOUNT],
        groups: &[],
    },
    Role {
        name: "plumb-operator",
        description: "For operators who change records, together with plumb-reader.",
        rules: OPERATOR_RULES,
        accounts: &[OPERATOR_ACCOUNT],
        groups: &[],
    },
];

/// Every role.
pub fn roles() -> &'static [Role] {
    ROLES
}

/// The accounts, and every role with its binding. The accounts are in `namespace`.
pub fn accounts_and_roles(layout: Layout, namespace: &str) -> Vec<Value> {
    let accounts = [NODE_ACCOUNT, READER_ACCOUNT, OPERATOR_ACCOUNT].map(|name| account(name, namespace));
    let roles = ROLES.iter().flat_map(|role| [role.manifest(layout), role.binding(namespace)]);
    accounts.into_iter().chain(roles).collect()
}

fn account(name: &str, namespace: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name, "namespace": namespace } })
}

impl Role {
    fn manifest(&self, layout: Layout) -> Value {
        let rules: Vec<Value> = self.rules.iter().map(|rule| rule.manifest(layout)).collect();
        json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "ClusterRole",
            "metadata": {
                "name": self.name, "annotations": { "kubernetes.io/description": self.description },
            },
            "rules": rules,
        })
    }

    fn binding(&self, namespace: &str) -> Value {
        let accounts = self
            .accounts
            .iter()
            .map(|name| json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace }));
        let groups =
            self.groups.iter().map(|name| json!({ "apiGroup": RBAC, "kind": "Group", "name": name }));
        let subjects: Vec<Value> = accounts.chain(groups).collect();
        json!({
            "apiVersion": format!("{RBAC}/v1"),
            "kind": "ClusterRoleBinding",
            "metadata": { "name": self.name },
            "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": self.name },
            "subjects": subjects,
        })
    }
}

impl Rule {
    pub fn why(&self) -> &'static str {
        self.why
    }

    pub fn verbs(&self) -> &'static [&'static str] {
        self.verbs
    }

    /// As the API calls them.
    pub fn resources(&self, layout: Layout) -> Vec<String> {
        let records = |kinds: &[Kind]| kinds.iter().map(|kind| layout.plural(*kind).to_owned()).collect();
        let statuses =
            |kinds: &[Kind]| kinds.iter().map(|kind| format!("{}/status", layout.plural(*kind))).collect();
        match self.resources {
            Resources::Kubernetes(_, names) => names.iter().map(|name| (*name).to_owned()).collect(),
            Resources::Records(kinds) => records(kinds),
            Resources::StatusOf(kinds) => statuses(kinds),
            Resources::EveryRecord | Resources::EveryRecordAnywhere => records(&every(is_custom_resource)),
            Resources::EveryStatus => statuses(&every(has_status_apart)),
        }
    }

    /// Whether it is about all records there are.
    pub fn is_of_every_record(&self) -> bool {
        matches!(self.resources, Resources::EveryRecord | Resources::EveryRecordAnywhere)
    }

    fn manifest(&self, layout: Layout) -> Value {
        let layouts = match self.resources {
            Resources::EveryRecordAnywhere => &[Layout::V1, Layout::V3],
            _ => &[layout][..],
        };
        let groups: BTreeSet<&str> = match self.resources {
            Resources::Kubernetes(group, _) => BTreeSet::from([group]),
            _ => layouts.iter().map(|layout| layout.group()).collect(),
        };
        let mut resources = self.resources(layout);
        for other in layouts.iter().flat_map(|layout| self.resources(*layout)) {
            if !resources.contains(&other) {
                resources.push(other);
            }
        }
        json!({ "apiGroups": groups, "resources": resources, "verbs": self.verbs })
    }
}

fn every(is_meant: fn(Kind) -> bool) -> Vec<Kind> {
    Kind::all().filter(|kind| is_meant(*kind)).collect()
}
