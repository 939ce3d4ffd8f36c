//! `kubectl get nodes [-o wide]`, with its header or, after a `grep`, without.

use crate::draft::Draft;
use crate::words;
use evidence::KubeNode;
use evidence::answers::Row;
use model::text::Line;

pub(super) fn row(row: &Row<'_>, line: &Line, draft: &mut Draft) -> Option<()> {
    let status = row.get("STATUS")?;
    if !is_status(status) {
        return None;
    }
    let node = KubeNode {
        name: row.get("NAME")?.into(),
        status: status.to_owned(),
        internal_ips: row.get("INTERNAL-IP").and_then(words::address).into_iter().collect(),
        age: row.get("AGE").and_then(words::age),
        ..KubeNode::default()
    };
    let node = draft.sight(line, node);
    draft.cluster.kube_nodes.get_or_insert_default().push(node);
    Some(())
}

/// `NAME Ready ROLES 33d v1.18.2 [INTERNAL-IP …]`.
pub(super) fn bare_row(line: &Line, draft: &mut Draft) -> Option<()> {
    let cells: Vec<&str> = line.text.split_whitespace().collect();
    let [name, status, _roles, age, version, rest @ ..] = cells.as_slice() else { return None };
    let is_version =
        version.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if !is_status(status) || !is_version {
        return None;
    }
    let node = KubeNode {
        name: (*name).into(),
        status: (*status).to_owned(),
        internal_ips: rest.first().and_then(|cell| words::address(cell)).into_iter().collect(),
        age: Some(words::age(age)?),
        ..KubeNode::default()
    };
    let node = draft.sight(line, node);
    draft.cluster.kube_nodes.get_or_insert_default().push(node);
    Some(())
}

fn is_status(cell: &str) -> bool {
    cell.split(',').any(|word| matches!(word, "Ready" | "NotReady" | "Unknown"))
}
