//! `plumb install --print`: what a cluster needs, as YAML for `kubectl apply -f -`.

use std::io::Write as _;

use model::kube::{Layout, access, definitions};
use model::yaml::to_yaml;
use serde_json::Value;

use crate::cli::install::{Install, Part};
use crate::failure::{Failure, Failures};

/// No parts are all parts.
pub(super) fn print(command: &Install, parts: &[Part]) -> Result<(), Failures> {
    let configured = || std::env::var("CALICO_API_GROUP").ok().filter(|group| !group.is_empty());
    let layout = command.api_group.or_else(|| Some(Layout::configured(&configured()?)));
    let layout = layout.unwrap_or(Layout::V1);
    let parts = if parts.is_empty() { &[Part::Crds, Part::Rbac, Part::Admission] } else { parts };
    let mut out = std::io::stdout().lock();
    for manifest in parts.iter().flat_map(|part| part.manifests(layout, &command.namespace)) {
        write!(out, "---\n{}", to_yaml(&manifest)).map_err(Failure::from)?;
    }
    Ok(())
}

impl Part {
    fn manifests(self, layout: Layout, namespace: &str) -> Vec<Value> {
        match self {
            Part::Crds => definitions(layout),
            Part::Rbac => access::accounts_and_roles(layout, namespace),
            Part::Admission => access::policies(layout, namespace),
        }
    }
}
