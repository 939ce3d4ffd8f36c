//! `plumb install --print`: what a cluster needs, as YAML for `kubectl apply -f -`.

use std::io::Write as _;

use model::kube::{Layout, access, definitions};
use model::yaml::to_yaml;
use serde_json::Value;

use crate::cli::install::{Install, Part};
use crate::failure::{Failure, Failures};

const ORDER: [Part; 3] = [Part::Crds, Part::Admission, Part::Rbac];

/// No parts are all parts. The policies come before the roles, so that at no time a role grants what no policy limits.
pub(super) fn print(command: &Install, parts: &[Part]) -> Result<(), Failures> {
    let configured = || std::env::var("CALICO_API_GROUP").ok().filter(|group| !group.is_empty());
    let layout = command.api_group.or_else(|| Some(Layout::configured(&configured()?)));
    let layout = layout.unwrap_or(Layout::V1);
    let printed = ORDER.iter().filter(|part| parts.is_empty() || parts.contains(part));
    let mut out = std::io::stdout().lock();
    for manifest in printed.flat_map(|part| part.manifests(layout, &command.namespace)) {
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
