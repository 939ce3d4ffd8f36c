//! CustomResourceDefinitions for Calico's kinds, made from the tables in [`crate::schema`].
//!
//! On `crd.projectcalico.org/v1` they name fields and types only, as Calico's own do: there the client checks values. On
//! `projectcalico.org/v3` the server checks words, ranges and lengths as well.

use serde_json::{Map, Value, json};

use super::{Layout, has_status_apart, is_custom_resource};
use crate::Kind;
use crate::schema::{self, Field, Object, Type};

/// The definitions of every kind that is kept as a custom resource.
pub fn definitions(layout: Layout) -> Vec<Value> {
    Kind::all().filter(|kind| is_custom_resource(*kind)).map(|kind| definition(layout, kind)).collect()
}

/// The manifest that makes the API server serve a kind.
pub fn definition(layout: Layout, kind: Kind) -> Value {
    let name = layout.kind_name(kind);
    let mut version = json!({
        "name": layout.version(), "served": true, "storage": true,
        "schema": { "openAPIV3Schema": document(layout, kind) },
    });
    if has_status_apart(kind) {
        version["subresources"] = json!({ "status": {} });
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{}", layout.plural(kind), layout.group()) },
        "spec": {
            "group": layout.group(),
            "names": {
                "kind": name, "listKind": format!("{name}List"),
                "plural": layout.plural(kind), "singular": name.to_lowercase(),
            },
            "scope": if kind.is_namespaced() { "Namespaced" } else { "Cluster" },
            "versions": [version],
        },
    })
}

fn document(layout: Layout, kind: Kind) -> Value {
    let mut properties = Map::new();
    for field in schema::document(kind).fields() {
        let schema = match field.name {
            "metadata" => json!({ "type": "object" }),
            _ => of_type(layout, &field.ty),
        };
        properties.insert(field.name.to_owned(), schema);
    }
    if kind == Kind::BlockAffinity && layout == Layout::V1 {
        // A flag that the first release spelled as text.
        properties["spec"]["properties"]["deleted"] = json!({ "type": "string" });
        properties["spec"]["required"] = json!(["cidr", "deleted", "node", "state"]);
    }
    json!({ "type": "object", "properties": properties })
}

fn of_type(layout: Layout, ty: &Type) -> Value {
    let is_checked = layout == Layout::V3;
    match ty {
        Type::Text | Type::TextOf(_) | Type::Duration(_) | Type::OneOfAnyCase(_) => {
            json!({ "type": "string" })
        }
        Type::Sized(_, most, _) if is_checked => json!({ "type": "string", "maxLength": most }),
        Type::OneOf(words) if is_checked => json!({ "type": "string", "enum": words }),
        Type::Sized(..) | Type::OneOf(_) => json!({ "type": "string" }),
        Type::Bool => json!({ "type": "boolean" }),
        Type::Int(least, most) => {
            let mut schema = json!({ "type": "integer" });
            if is_checked && *least > i64::MIN {
                schema["minimum"] = json!(least);
            }
            if is_checked && *most < i64::MAX {
                schema["maximum"] = json!(most);
            }
            schema
        }
        Type::Counter => json!({ "type": "integer", "format": "int64" }),
        Type::AsNumber => json!({ "type": "integer" }),
        Type::Float => json!({ "type": "number" }),
        Type::Either(_) | Type::NamedNumber(_) | Type::Port => json!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true,
        }),
        Type::List(list) => json!({ "type": "array", "items": of_type(layout, &list.item) }),
        Type::Map(values) => {
            json!({ "type": "object", "additionalProperties": of_type(layout, values) })
        }
        Type::Object(object) => of_object(layout, object),
        Type::Nullable(inner) => {
            let mut schema = of_type(layout, inner);
            schema["nullable"] = json!(true);
            schema
        }
        Type::Any => json!({ "x-kubernetes-preserve-unknown-fields": true }),
    }
}

fn of_object(layout: Layout, object: &Object) -> Value {
    let properties: Map<String, Value> =
        object.fields().map(|field| (field.name.to_owned(), of_type(layout, &field.ty))).collect();
    let mut required: Vec<&str> =
        object.fields().filter(|field| field.required).map(|field: &Field| field.name).collect();
    required.sort_unstable();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(layout: Layout, kind: Kind) -> Value {
        let version = &definition(layout, kind)["spec"]["versions"][0];
        version["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
    }

    #[test]
    fn required_fields_are_calicos() {
        for layout in [Layout::V1, Layout::V3] {
            let block = spec(layout, Kind::IpamBlock);
            let required = json!(["allocations", "attributes", "cidr", "strictAffinity", "unallocated"]);
            assert_eq!(block["required"], required);
            assert_eq!(block["properties"]["allocations"]["items"]["nullable"], true);
        }
        let affinity = spec(Layout::V1, Kind::BlockAffinity);
        assert_eq!(affinity["required"], json!(["cidr", "deleted", "node", "state"]));
        assert_eq!(affinity["properties"]["deleted"]["type"], "string");
        let affinity = spec(Layout::V3, Kind::BlockAffinity);
        assert_eq!(affinity["properties"]["deleted"]["type"], "boolean");
        assert_eq!(
            affinity["properties"]["state"]["enum"],
            json!(["confirmed", "pending", "pendingDeletion"])
        );
    }

    #[test]
    fn every_definition_is_named_as_kubernetes_demands() {
        for layout in [Layout::V1, Layout::V3] {
            for definition in definitions(layout) {
                let spec = &definition["spec"];
                let name = format!("{}.{}", spec["names"]["plural"].as_str().unwrap(), layout.group());
                assert_eq!(definition["metadata"]["name"], name);
            }
            assert_eq!(definitions(layout).len(), Kind::all().count() - 3);
        }
        assert_eq!(definition(Layout::V1, Kind::IpamConfiguration)["spec"]["names"]["plural"], "ipamconfigs");
    }
}
