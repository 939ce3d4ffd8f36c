//! Names, namespaces, labels and annotations.

use super::labels::{label_value, qualified_name};
use super::{Report, formats, shorten};
use crate::path::FieldPath;
use crate::{Kind, Resource};

const NAME_LENGTH_MAX: usize = 253;
const TIER_NAME_LENGTH_MAX: usize = 63;
const ANNOTATIONS_BYTES_MAX: usize = 256 << 10;

pub(super) fn check(resource: &Resource, report: &mut Report) {
    let path = FieldPath::root().key("metadata");
    check_name(resource, &path.key("name"), report);
    check_namespace(resource, &path.key("namespace"), report);
    let labels = path.key("labels");
    for (key, value) in &resource.metadata.labels {
        report.verdict(&labels.key(key), &key.as_str().into(), qualified_name(key));
        report.verdict(&labels.key(key), &value.as_str().into(), label_value(value));
    }
    let annotations = resource.metadata.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    check_annotations(annotations, &path.key("annotations"), report);
}

/// Annotations, of whatever has any. The case of a key does not matter.
pub(super) fn check_annotations<'a>(
    annotations: impl Iterator<Item = (&'a str, &'a str)>,
    path: &FieldPath,
    report: &mut Report,
) {
    let mut bytes = 0;
    for (key, value) in annotations {
        report.verdict(&path.key(key), &key.into(), qualified_name(&key.to_ascii_lowercase()));
        bytes += key.len() + value.len();
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        let rule = format!("{bytes} bytes in all, at most {ANNOTATIONS_BYTES_MAX} are allowed");
        report.broken(path, "", rule);
    }
}

fn check_name(resource: &Resource, path: &FieldPath, report: &mut Report) {
    let name = resource.metadata.name.as_str();
    if name.is_empty() {
        let has_prefix = resource.metadata.extra.contains_key("generateName");
        let rule = if has_prefix { "must be set (generateName is not supported)" } else { "must be set" };
        report.broken(path, "", rule);
        return;
    }
    let longest = if resource.kind == Kind::Tier { TIER_NAME_LENGTH_MAX } else { NAME_LENGTH_MAX };
    if name.len() > longest {
        let rule = format!("is {} characters too long; at most {longest} are allowed", name.len() - longest);
        report.broken(path, shorten(name), rule);
    }
    report.verdict(path, &name.into(), formats::name(name));
}

fn check_namespace(resource: &Resource, path: &FieldPath, report: &mut Report) {
    match (&resource.metadata.namespace, resource.kind.is_namespaced()) {
        (Some(namespace), true) if !namespace.is_empty() => {
            report.verdict(path, &namespace.as_str().into(), formats::name(namespace));
        }
        (_, true) => report.broken(path, "", format!("must be set: {} has a namespace", resource.kind)),
        (Some(namespace), false) if !namespace.is_empty() => {
            let rule = format!("must not be set: {} has no namespace", resource.kind);
            report.broken(path, shorten(namespace), rule);
        }
        (_, false) => {}
    }
}
