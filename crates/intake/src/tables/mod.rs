//! Tables of `kubectl`, `calicoctl`, `crictl` and `docker`: which one a header announces, and what a row says.

mod calico;
mod endpoints;
mod events;
mod nodes;
mod pods;
mod runtime;
mod services;

pub(crate) use endpoints::v1 as endpoint_of_2017;

use super::command;
use super::draft::{Draft, Section};
use evidence::answers::Header;
use model::text::Line;

/// A table that has begun.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    header: Header,
    kind: TableKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TableKind {
    Pods,
    Nodes,
    Endpoints,
    CalicoNodes,
    Pools,
    Events,
    RuntimePods,
    RuntimeContainers,
    DockerContainers,
    Swaps,
    Services,
    Namespaces,
    /// Of which only names are shown, and nobody says of what.
    Names,
}

/// Columns that tell a table, the more special ones first.
const KINDS: &[(TableKind, &[&str])] = &[
    (TableKind::Endpoints, &["WORKLOAD", "NODE", "NETWORKS", "INTERFACE"]),
    (TableKind::RuntimePods, &["POD ID", "STATE", "NAME", "NAMESPACE"]),
    (TableKind::RuntimeContainers, &["CONTAINER", "IMAGE", "STATE", "NAME"]),
    (TableKind::DockerContainers, &["CONTAINER ID", "IMAGE"]),
    (TableKind::Pods, &["NAME", "READY", "STATUS", "RESTARTS", "AGE"]),
    (TableKind::Nodes, &["NAME", "STATUS", "ROLES", "AGE", "VERSION"]),
    (TableKind::Nodes, &["NAME", "STATUS", "AGE", "VERSION"]),
    (TableKind::Services, &["NAME", "TYPE", "CLUSTER-IP"]),
    (TableKind::Namespaces, &["NAME", "STATUS", "AGE"]),
    (TableKind::Pools, &["CIDR", "NAT"]),
    (TableKind::Pools, &["NAME", "CIDR", "SELECTOR"]),
    (TableKind::CalicoNodes, &["NAME", "ASN", "IPV4"]),
    (TableKind::Events, &["TYPE", "REASON", "MESSAGE"]),
    (TableKind::Swaps, &["FILENAME", "TYPE", "SIZE", "USED", "PRIORITY"]),
];

impl Table {
    /// The table that a header announces.
    pub(crate) fn begin(line: &str, section: &Section) -> Option<Table> {
        if line.trim() == "NAME" {
            let words = section.command.as_deref().unwrap_or_default().split_whitespace();
            let is_nodes = words.skip_while(|word| *word != "calicoctl").any(|word| word.starts_with("node"));
            let kind = if is_nodes { TableKind::CalicoNodes } else { TableKind::Names };
            return Some(Table { header: Header::single("NAME"), kind });
        }
        let header =
            Header::read(line.trim_end()).filter(|_| line.contains("NAME") || is_other_header(line))?;
        let (kind, _) = KINDS.iter().find(|(_, columns)| header.has(columns))?;
        Some(Table { header, kind: *kind })
    }

    /// Notes that the table is there, even if no row follows.
    pub(crate) fn open(&self, section: &Section, draft: &mut Draft) {
        // What went through a `grep` has kept its header and little else.
        let is_whole = !command::is_selective(section.command.as_deref().unwrap_or_default());
        let is_everywhere = is_whole && self.header.has(&["NAMESPACE"]);
        match self.kind {
            TableKind::Pods => {
                draft.cluster.pods.get_or_insert_default();
                draft.whole.pods |= is_everywhere;
            }
            TableKind::Nodes => {
                draft.cluster.kube_nodes.get_or_insert_default();
                draft.whole.kube_nodes |= is_whole;
            }
            TableKind::Endpoints => {
                draft.cluster.endpoints.get_or_insert_default();
                // Those of 2017 knew no namespaces.
                draft.whole.endpoints |= is_everywhere || is_whole && self.header.has(&["ORCHESTRATOR"]);
            }
            TableKind::CalicoNodes => draft.cluster.records.looked_for(model::Kind::Node),
            TableKind::Pools => draft.cluster.records.looked_for(model::Kind::IpPool),
            TableKind::Events => drop(draft.cluster.events.get_or_insert_default()),
            TableKind::RuntimePods
            | TableKind::RuntimeContainers
            | TableKind::DockerContainers
            | TableKind::Swaps
            | TableKind::Services
            | TableKind::Namespaces
            | TableKind::Names => {}
        }
    }

    /// Takes in a row. `false`: the line is none.
    pub(crate) fn row(&self, line: &Line, section: &Section, draft: &mut Draft) -> bool {
        if line.text.trim_start().starts_with("----") {
            return true;
        }
        let Some(row) = self.header.row(&line.text) else { return false };
        match self.kind {
            TableKind::Pods => pods::row(&row, line, section, draft),
            TableKind::Nodes => nodes::row(&row, line, draft),
            TableKind::Endpoints => endpoints::row(&row, line, draft),
            TableKind::CalicoNodes => calico::node_row(&row, line, draft),
            TableKind::Pools => calico::pool_row(&row, line, draft),
            TableKind::Events => events::row(&row, line, section, draft),
            TableKind::RuntimePods => runtime::pod_row(&row, line, section, draft),
            TableKind::RuntimeContainers => runtime::container_row(&row, line, section, draft),
            TableKind::DockerContainers => runtime::docker_row(&row, line, section, draft),
            TableKind::Services => services::service_row(&row, line, section, draft),
            TableKind::Namespaces => services::namespace_row(&row, line, draft),
            TableKind::Swaps => runtime::swap_row(&row, line, section, draft),
            TableKind::Names => row.get("NAME").filter(|name| !name.contains(' ')).map(|_| ()),
        }
        .is_some()
    }
}

fn is_other_header(line: &str) -> bool {
    ["CIDR", "CONTAINER", "Type ", "TYPE ", "Filename", "LAST SEEN", "WORKLOAD"]
        .iter()
        .any(|word| line.contains(word))
}

/// A row without header, recognised by its shape.
pub(crate) fn bare_row(line: &Line, section: &Section, draft: &mut Draft) -> bool {
    pods::bare_row(line, draft).is_some()
        || nodes::bare_row(line, draft).is_some()
        || endpoints::bare_row(line, draft).is_some()
        || runtime::bare_docker_row(line, section, draft).is_some()
}
