//! Pods from inside: what their own namespaces hold.

use std::fs;
use std::path::Path;

use doctor::evidence::kernel::PodView;
use doctor::{Origin, Sighted};
use host::survey::Survey;
use host::{HostError, NetNs};

use super::{Inside, kernel};

/// More than a node runs.
pub(super) const PODS_MAX: usize = 1_000;

/// Where runtimes keep namespaces.
const FOLDER: &str = "/run/netns";

/// `None` if the pod has no namespace of its own.
pub(super) fn look_inside(inside: &Inside, home: &NetNs, node: &str) -> Result<Option<PodView>, HostError> {
    let namespace = NetNs::open(&inside.netns)?;
    if namespace.is_same(home)? {
        return Ok(None);
    }
    let survey = namespace.visit(Survey::here)??;
    let whose = match &inside.pod {
        Some(pod) => format!(" of pod {pod}"),
        None => format!(" of sandbox {}", inside.container_id),
    };
    Ok(Some(PodView {
        pod: inside.pod.clone(),
        container_id: Some(inside.container_id.clone()),
        kernel: kernel::of_survey(&survey, node, &whose),
    }))
}

/// Those with a name.
pub(super) fn namespaces(origin: &Origin) -> Vec<Sighted<String>> {
    let entries = fs::read_dir(Path::new(FOLDER)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.path().to_string_lossy().into_owned()).collect();
    names.sort();
    names.into_iter().map(|name| Sighted::new(name, origin.clone())).collect()
}
