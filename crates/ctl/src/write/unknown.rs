//! Fields that this release does not know. A newer Calico may have written them, no manifest can name them, and
//! they must survive every change made here.

use model::schema::{self, Type};
use model::{Kind, Resource};
use serde_json::{Map, Value};

/// The body without the fields no schema knows.
pub(crate) fn without_unknown(kind: Kind, body: &Map<String, Value>) -> Map<String, Value> {
    match stripped(&Value::Object(body.clone()), &Type::Object(schema::document(kind))) {
        Value::Object(body) => body,
        _ => Map::new(),
    }
}

/// Gives a resource back the unknown fields of the one it replaces, wherever their surroundings are still there.
/// Items of a list are known by nothing but the list, so theirs survive only if the list stays as it was.
pub(crate) fn restore_unknown(next: &mut Resource, stored: &Resource) {
    let mut body = Value::Object(std::mem::take(&mut next.body));
    restore(&mut body, &Value::Object(stored.body.clone()), &Type::Object(schema::document(next.kind)));
    if let Value::Object(body) = body {
        next.body = body;
    }
}

fn stripped(value: &Value, ty: &Type) -> Value {
    match (ty, value) {
        (Type::Nullable(inner), _) => stripped(value, inner),
        (Type::Object(object), Value::Object(fields)) => {
            let known = |(name, value): (&String, &Value)| {
                object.field(name).map(|field| (name.clone(), stripped(value, &field.ty)))
            };
            Value::Object(fields.iter().filter_map(known).collect())
        }
        (Type::Map(ty), Value::Object(fields)) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), stripped(value, ty))).collect())
        }
        (Type::List(list), Value::Array(items)) => {
            Value::Array(items.iter().map(|item| stripped(item, &list.item)).collect())
        }
        _ => value.clone(),
    }
}

fn restore(next: &mut Value, stored: &Value, ty: &Type) {
    match (ty, next, stored) {
        (Type::Nullable(inner), next, _) => restore(next, stored, inner),
        (Type::Object(object), Value::Object(next), Value::Object(stored)) => {
            for (name, old) in stored {
                match (object.field(name), next.get_mut(name)) {
                    (Some(field), Some(new)) => restore(new, old, &field.ty),
                    (None, None) => {
                        next.insert(name.clone(), old.clone());
                    }
                    _ => {}
                }
            }
        }
        (Type::Map(ty), Value::Object(next), Value::Object(stored)) => {
            for (name, new) in next {
                if let Some(old) = stored.get(name) {
                    restore(new, old, ty);
                }
            }
        }
        (Type::List(_), next @ Value::Array(_), Value::Array(_)) if *next == stripped(stored, ty) => {
            *next = stored.clone();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(body: Value) -> Resource {
        let Value::Object(body) = body else { panic!("a body is an object") };
        Resource { body, ..Resource::new(Kind::Node, "n") }
    }

    #[test]
    fn unknown_fields_survive_a_replacement() {
        let stored = node(json!({
            "future": 1,
            "spec": {
                "bgp": {"asNumber": 64512, "futureFlag": true},
                "addresses": [{"address": "10.0.0.1", "type": "InternalIP", "rank": 1}],
                "newThing": {"a": [1, 2]},
            },
        }));
        let mut next = node(json!({
            "spec": {
                "bgp": {"asNumber": 64513},
                "addresses": [{"address": "10.0.0.1", "type": "InternalIP"}],
            },
        }));
        let known = without_unknown(Kind::Node, &stored.body);
        assert_eq!(known["spec"]["addresses"], next.body["spec"]["addresses"]);
        assert!(!known.contains_key("future"));
        restore_unknown(&mut next, &stored);
        let expected = node(json!({
            "future": 1,
            "spec": {
                "bgp": {"asNumber": 64513, "futureFlag": true},
                "addresses": [{"address": "10.0.0.1", "type": "InternalIP", "rank": 1}],
                "newThing": {"a": [1, 2]},
            },
        }));
        assert_eq!(next, expected);
    }

    #[test]
    fn what_was_taken_away_on_purpose_stays_away() {
        let addresses = json!([{"address": "a", "x": 1}]);
        let stored = node(json!({"spec": {"bgp": {"asNumber": 1, "future": true}, "addresses": addresses}}));
        let mut next = node(json!({"spec": {"addresses": []}}));
        restore_unknown(&mut next, &stored);
        assert_eq!(next, node(json!({"spec": {"addresses": []}})));
    }
}
