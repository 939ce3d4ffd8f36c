//! `crictl pods`, `crictl ps`, `docker ps`, `/proc/swaps`.

use crate::draft::{Draft, Section};
use crate::words;
use evidence::PodName;
use evidence::answers::Row;
use evidence::node::{RuntimeContainer, RuntimeSandbox};
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
    let pod = row.get("POD").map(|name| PodName { namespace: None, name: name.to_owned() });
    let container = RuntimeContainer {
        id: row.get("CONTAINER")?.to_owned(),
        image: row.get("IMAGE").unwrap_or_default().to_owned(),
        name: row.get("NAME")?.to_owned(),
        status: row.get("STATE").unwrap_or_default().to_owned(),
        sandbox: row.get("POD ID").map(str::to_owned),
        pod,
        ..RuntimeContainer::default()
    };
    add(container, line, section, draft);
    Some(())
}

pub(super) fn docker_row(row: &Row<'_>, line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    let id = row.get("CONTAINER ID").filter(|id| words::is_container_id(id))?;
    let container = docker(id, row.get("IMAGE").unwrap_or_default(), row.get("NAMES"), row.get("STATUS"));
    add(container, line, section, draft);
    Some(())
}

/// `f8189c4b982a   image   …`: without its header.
pub(super) fn bare_docker_row(line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    let cells: Vec<&str> = line.text.split_whitespace().collect();
    let (id, image) = (cells.first()?, cells.get(1)?);
    let name = cells.iter().skip(2).find(|cell| cell.starts_with("k8s_")).copied();
    // An image that has lost its name goes by its ID.
    let is_image = image.contains(['/', ':', '@']) || name.is_some();
    if id.len() != 12 || !words::is_container_id(id) || !is_image {
        return None;
    }
    add(docker(id, image, name, None), line, section, draft);
    Some(())
}

pub(super) fn swap_row(row: &Row<'_>, line: &Line, section: &Section, draft: &mut Draft) -> Option<()> {
    let device = row.get("FILENAME").filter(|name| name.starts_with('/'))?.to_owned();
    let origin = draft.origin(line);
    let swaps = &mut draft.node(section).setup.swaps;
    swaps.get_or_insert_with(|| evidence::Sighted::new(Vec::new(), origin)).seen.push(device);
    Some(())
}

/// Names that the kubelet gives say everything: `k8s_container_pod_namespace_uid_attempt`.
fn docker(id: &str, image: &str, name: Option<&str>, status: Option<&str>) -> RuntimeContainer {
    let name = name.unwrap_or_default();
    let mut parts = name.strip_prefix("k8s_").unwrap_or_default().split('_');
    let container = parts.next().filter(|part| !part.is_empty());
    let pod = parts.next().zip(parts.next()).map(|(pod, namespace)| PodName::new(namespace, pod));
    let image_name = image.rsplit('/').next().unwrap_or(image);
    RuntimeContainer {
        id: id.to_owned(),
        image: image.to_owned(),
        name: name.to_owned(),
        status: status.unwrap_or_default().to_owned(),
        is_sandbox: container == Some("POD") || image_name.starts_with("pause"),
        pod_uid: pod.is_some().then(|| parts.next()).flatten().map(str::to_owned),
        pod,
        sandbox: None,
    }
}

fn add(container: RuntimeContainer, line: &Line, section: &Section, draft: &mut Draft) {
    let container = draft.sight(line, container);
    draft.node(section).containers.get_or_insert_default().push(container);
}
