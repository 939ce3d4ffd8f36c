//! `kubectl get nodes [-o wide]`.

use crate::evidence::KubeNode;
use crate::text::draft::Draft;
use crate::text::lines::Line;
use crate::text::table::Row;
use crate::text::words;

pub(super) fn row(row: &Row<'_>, line: &Line, draft: &mut Draft) -> Option<()> {
    let status = row.get("STATUS")?;
    if !status.split(',').any(|word| matches!(word, "Ready" | "NotReady" | "Unknown")) {
        return None;
    }
    let node = KubeNode {
        name: row.get("NAME")?.to_owned(),
        status: status.to_owned(),
        internal_ips: row.get("INTERNAL-IP").and_then(words::address).into_iter().collect(),
        age: row.get("AGE").and_then(words::age),
        kubelet_version: row.get("VERSION").map(str::to_owned),
        container_runtime: row.get("CONTAINER-RUNTIME").map(str::to_owned),
        ..KubeNode::default()
    };
    let node = draft.sight(line, node);
    draft.cluster.kube_nodes.get_or_insert_default().push(node);
    Some(())
}
