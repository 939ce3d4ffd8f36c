//! Kinds of which there is one per cluster, and Node: rules over several fields.

use std::collections::BTreeSet;

use super::fields::Fields;
use super::labels::qualified_name;
use super::metadata::check_annotations;
use super::{Report, shorten};
use crate::Resource;
use crate::path::FieldPath;

/// There is one resource of the kind, and it is called `default`.
pub(super) fn check_single(resource: &Resource, report: &mut Report) {
    let name = resource.metadata.name.as_str();
    if !matches!(name, "" | "default") {
        let rule = format!("must be default: there is only one {}", resource.kind);
        report.broken(&FieldPath::root().key("metadata").key("name"), shorten(name), rule);
    }
}

pub(super) fn check_controllers(configuration: &Resource, report: &mut Report) {
    check_single(configuration, report);
    let spec = Fields::of_spec(configuration);
    let host_endpoint = spec.object("controllers").object("node").object("hostEndpoint");
    let mut names = BTreeSet::new();
    for template in host_endpoint.objects("templates") {
        let name = template.text("generateName");
        if !name.is_empty() && !names.insert(name) {
            report.broken(&template.path("generateName"), shorten(name), "must not be given twice");
        }
        if !template.has("interfaceCIDRs") && !template.has("interfacePattern") {
            let path = template.path("interfaceCIDRs");
            report.broken(&path, "", "must be set if there is no interfacePattern");
        }
        let labels = template.object("labels");
        for key in labels.keys() {
            report.verdict(&labels.path(key), &key.into(), qualified_name(key));
        }
        let annotations = template.object("annotations");
        check_annotations(annotations.pairs(), annotations.own_path(), report);
    }
}

/// A node that takes part in BGP says how; one that does not has no `bgp` at all.
pub(super) fn check_node(node: &Resource, report: &mut Report) {
    let spec = Fields::of_spec(node);
    let bgp = spec.object("bgp");
    if bgp.exists() && bgp.set_fields().next().is_none() && bgp.value("asNumber").is_none() {
        report.broken(bgp.own_path(), "{}", "must not be empty: omit it for a node without BGP");
    }
}
