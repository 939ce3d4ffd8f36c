//! What an installed CustomResourceDefinition, perhaps of an older release of Calico, would not keep of our records.

use serde_json::{Map, Value};

use super::{Layout, definition};
use crate::Kind;

/// How an installed definition falls short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortfall {
    /// It does not serve the version that records are written in.
    Version(&'static str),
    /// It does not name these fields, so the API server drops them from every record that has them.
    Fields(Vec<String>),
}

/// Compares an installed definition with the one we would install. `None` if it keeps every field.
pub fn shortfall(layout: Layout, kind: Kind, installed: &Value) -> Option<Shortfall> {
    // Of the time before fields were dropped.
    if installed.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
        return None;
    }
    let Some(theirs) = schema(installed, layout.version()) else {
        return Some(Shortfall::Version(layout.version()));
    };
    let ours = definition(layout, kind);
    let ours = schema(&ours, layout.version()).unwrap_or(&Value::Null);
    let mut lost = Vec::new();
    compare(ours, theirs, "", &mut lost);
    (!lost.is_empty()).then_some(Shortfall::Fields(lost))
}

/// The schema of a version that is served.
fn schema<'a>(definition: &'a Value, version: &str) -> Option<&'a Value> {
    let mut versions = definition.pointer("/spec/versions")?.as_array()?.iter();
    let found = versions.find(|found| found["name"] == version && found["served"] == true)?;
    found.pointer("/schema/openAPIV3Schema")
}

fn compare(ours: &Value, theirs: &Value, path: &str, lost: &mut Vec<String>) {
    let keeps_unknown = theirs["x-kubernetes-preserve-unknown-fields"] == true;
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, field) in fields(ours) {
        match field_of(theirs, name) {
            Some(known) => compare(field, known, &below(name), lost),
            None if keeps_unknown => {}
            None => lost.push(below(name)),
        }
    }
    if let Some(values) = ours.get("additionalProperties") {
        match theirs.get("additionalProperties") {
            Some(known) => compare(values, known, &below("*"), lost),
            None if keeps_unknown || !is_object(theirs) => {}
            None => lost.push(below("*")),
        }
    }
    let is_anything = ours["x-kubernetes-preserve-unknown-fields"] == true;
    let has_fields = fields(theirs).next().is_some() || theirs.get("additionalProperties").is_some();
    if is_anything && is_object(theirs) && !keeps_unknown && !has_fields {
        lost.push(below("*"));
    }
    if let (Some(ours), Some(theirs)) = (ours.get("items"), theirs.get("items")) {
        compare(ours, theirs, &format!("{path}[]"), lost);
    }
}

fn fields(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    // Every object has metadata, which the server keeps by itself.
    let named = schema.get("properties").and_then(Value::as_object).map(Map::iter);
    named.into_iter().flatten().filter(|(name, _)| *name != "metadata")
}

/// What is said of a field: by its name, or of all names.
fn field_of<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema.get("properties").and_then(|named| named.get(name)).or_else(|| schema.get("additionalProperties"))
}

fn is_object(schema: &Value) -> bool {
    schema["type"] == "object"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::kube::is_custom_resource;

    fn spec(definition: &mut Value) -> &mut Map<String, Value> {
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        definition.pointer_mut(spec).unwrap().as_object_mut().unwrap()
    }

    #[test]
    fn our_own_definitions_keep_everything() {
        for layout in [Layout::V1, Layout::V3] {
            for kind in Kind::all().filter(|kind| is_custom_resource(*kind)) {
                assert_eq!(shortfall(layout, kind, &definition(layout, kind)), None, "{kind}");
            }
        }
    }

    #[test]
    fn fields_of_later_releases_are_named_at_every_depth() {
        let mut old = definition(Layout::V1, Kind::IpamBlock);
        spec(&mut old).remove("affinityClaimTime");
        let attribute = &mut spec(&mut old)["attributes"]["items"]["properties"];
        attribute.as_object_mut().unwrap().remove("releasedAt");
        attribute["secondary"].as_object_mut().unwrap().remove("additionalProperties");
        let lost =
            ["spec.affinityClaimTime", "spec.attributes[].releasedAt", "spec.attributes[].secondary.*"];
        let mut found = match shortfall(Layout::V1, Kind::IpamBlock, &old) {
            Some(Shortfall::Fields(found)) => found,
            other => panic!("{other:?}"),
        };
        found.sort();
        assert_eq!(found, lost);
    }

    #[test]
    fn a_schema_that_keeps_what_it_does_not_name_loses_nothing() {
        let mut open = definition(Layout::V1, Kind::FelixConfiguration);
        open["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(shortfall(Layout::V1, Kind::FelixConfiguration, &open), None);
        let mut legacy = json!({"spec": {"preserveUnknownFields": true}});
        assert_eq!(shortfall(Layout::V1, Kind::FelixConfiguration, &legacy), None);
        legacy["spec"]["preserveUnknownFields"] = false.into();
        assert_eq!(
            shortfall(Layout::V1, Kind::FelixConfiguration, &legacy),
            Some(Shortfall::Version("v1")),
            "without a version nothing is served"
        );
    }

    #[test]
    fn a_version_that_is_not_served_is_none() {
        let mut old = definition(Layout::V1, Kind::IpPool);
        old["spec"]["versions"][0]["served"] = false.into();
        assert_eq!(shortfall(Layout::V1, Kind::IpPool, &old), Some(Shortfall::Version("v1")));
    }

    proptest! {
        #[test]
        fn anything_can_be_compared(text in "\\PC{0,30}") {
            for odd in [json!(text), json!({"spec": text}), json!({"spec": {"versions": [text]}})] {
                let found = shortfall(Layout::V3, Kind::IpPool, &odd);
                prop_assert_eq!(found, Some(Shortfall::Version("v3")));
            }
        }
    }
}
