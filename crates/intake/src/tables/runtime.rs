//! `crictl pods`, `crictl ps`, `docker ps`, `/proc/swaps`.

use crate::draft::{Draft, Section};
use crate::words;
use evidence::PodName;
use evidence::answers::Row;
use evidence::node::RuntimeSandbox;
use model::text::Line;

pub(super) fn pod_row(row: &Row<'_>, line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    let sandbox = RuntimeSandbox {
        id: row.get("POD ID")?.to_owned(),
        is_ready: Some(row.get("STATE")?.eq_ignore_ascii_case("ready")),
        pod: PodName {
            namespace: row.get("NAMESPACE").map(str::to_owned),
            name: row.get("NAME")?.to_owned(),
        },
        attempt: row.get("ATTEMPT").and_then(|cell| cell.parse().ok()),
        age: row.get("CREATED").and_then(words::age),
        ..RuntimeSandbox::default()
    };
    let sandbox = draft.sight(line, sandbox);
    draft.node(section).sandboxes.get_or_insert_default().push(sandbox);
    Some(())
}

pub(super) fn container_row(row: &Row<'_>, line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    row.get("NAME")?;
    add(row.get("CONTAINER")?, line, section, draft);
    Some(())
}

pub(super) fn docker_row(row: &Row<'_>, line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    add(row.get("CONTAINER ID").filter(|id| words::is_container_id(id))?, line, section, draft);
    Some(())
}

/// `f8189c4b982a   image   …`: without its header.
pub(super) fn bare_docker_row(line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    let cells: Vec<&str> = line.text.split_whitespace().collect();
    let (id, image) = (cells.first()?, cells.get(1)?);
    // An image that has lost its name goes by its ID; names that the kubelet gives tell it, too.
    let is_kubelets = cells.iter().skip(2).any(|cell| cell.starts_with("k8s_"));
    let is_image = image.contains(['/', ':', '@']) || is_kubelets;
    (id.len() == 12 && words::is_container_id(id) && is_image).then(|| add(id, line, section, draft))
}

pub(super) fn swap_row(row: &Row<'_>, line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    let device = row.get("FILENAME").filter(|name| name.starts_with('/'))?.to_owned();
    let origin = draft.origin(line);
    let swaps = &mut draft.node(section).setup.swaps;
    swaps.get_or_insert_with(|| evidence::Sighted::new(Vec::new(), origin)).seen.push(device);
    Some(())
}

fn add(id: &str, line: &Line, section: &Section, draft: &mut Draft) {
    let container = draft.sight(line, id.to_owned());
    draft.node(section).containers.get_or_insert_default().push(container);
}
