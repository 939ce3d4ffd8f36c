//! `plumb install --print`: what a cluster needs, as YAML for `kubectl apply -f -`.

use std::io::Write as _;

use model::kube::{Layout, access, definitions};
use model::yaml::to_yaml;
use serde_json::Value;

use super::workloads::{self, Cluster};
use crate::cli::install::{Install, Part};
use crate::failure::{Failure, Failures};

/// What one `kubectl apply` can take. The policies come before the roles, so that at no time a role grants what no policy limits. Records of
/// kinds that are defined in the same file would be refused, so the settings are not among them: the agents create them.
const WHOLE: [Part; 6] =
    [Part::Crds, Part::Namespace, Part::Admission, Part::Rbac, Part::Daemonset, Part::Controller];
/// The order in which they are printed.
const ORDER: [Part; 8] = [
    Part::Crds,
    Part::Namespace,
    Part::Admission,
    Part::Rbac,
    Part::Settings,
    Part::Daemonset,
    Part::Controller,
    Part::Uninstall,
];

/// No parts are the whole.
pub(super) fn print(command: &Install, parts: &[Part]) -> Result<(), Failures> {
    if let Some(fault) = command.cluster.fault() {
        return Err(Failure::usage(fault).into());
    }
    let configured = || std::env::var("CALICO_API_GROUP").ok().filter(|group| !group.is_empty());
    let layout = command.api_group.or_else(|| Some(Layout::configured(&configured()?)));
    let cluster = Cluster { install: command, layout: layout.unwrap_or(Layout::V1) };
    let wanted = if parts.is_empty() { &WHOLE[..] } else { parts };
    // Everything is made before the first line is printed: half of it would be applied.
    let mut text = String::new();
    for part in ORDER.iter().filter(|part| wanted.contains(part)) {
        for manifest in part.manifests(&cluster)? {
            text.push_str("---\n");
            text.push_str(&to_yaml(&manifest));
        }
    }
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

impl Part {
    fn manifests(self, cluster: &Cluster<'_>) -> Result<Vec<Value>, Failure> {
        let (layout, namespace) = (cluster.layout, cluster.install.namespace.as_str());
        Ok(match self {
            Part::Crds => definitions(layout),
            Part::Rbac => access::accounts_and_roles(layout, namespace),
            Part::Admission => access::policies(layout, namespace),
            Part::Namespace => workloads::namespace(cluster).into_iter().collect(),
            Part::Settings => workloads::settings(cluster)?,
            Part::Daemonset => vec![workloads::daemonset(cluster)],
            Part::Controller => vec![workloads::deployment(cluster)],
            Part::Uninstall => vec![workloads::uninstall(cluster)],
        })
    }
}
