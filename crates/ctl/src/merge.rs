//! Merging a patch into a document: objects field by field, anything else as a whole.
//!
//! This is what a strategic merge does to Calico's resources, none of whose lists has a merge key. Of its directives
//! `$patch: replace` and `$patch: delete` are understood; others are refused rather than stored as fields.

use serde_json::{Map, Value};

/// Nobody writes patches deeper than this by hand, and walks over them stay off the end of the stack.
const DEPTH_MAX: usize = 100;

/// Merges `patch` into `target`. The error says what is wrong with the patch.
pub(crate) fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), String> {
    merge_fields(target, patch, DEPTH_MAX)
}

fn merge_fields(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    depth: usize,
) -> Result<(), String> {
    if depth == 0 {
        return Err(format!("the patch is nested more than {DEPTH_MAX} levels deep"));
    }
    for (name, change) in patch {
        if name.starts_with('$') {
            return Err(format!("directive {name} is not supported"));
        }
        match change {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(fields) => merge_object(target, name, fields, depth)?,
            _ => {
                target.insert(name.clone(), change.clone());
            }
        }
    }
    Ok(())
}

fn merge_object(
    target: &mut Map<String, Value>,
    name: &str,
    fields: &Map<String, Value>,
    depth: usize,
) -> Result<(), String> {
    let mut fields = fields.clone();
    match fields.remove("$patch") {
        None => {}
        Some(Value::String(word)) if word == "delete" => {
            target.remove(name);
            return Ok(());
        }
        Some(Value::String(word)) if word == "replace" => {
            target.remove(name);
        }
        Some(other) => return Err(format!("$patch: {other} is not supported; use replace or delete")),
    }
    let inner = target.entry(name).or_insert_with(|| Value::Object(Map::new()));
    if !inner.is_object() {
        *inner = Value::Object(Map::new());
    }
    let inner = inner.as_object_mut().expect("made an object above");
    merge_fields(inner, &fields, depth - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn merged(target: Value, patch: Value) -> Result<Value, String> {
        let (Value::Object(mut target), Value::Object(patch)) = (target, patch) else { panic!("objects") };
        merge(&mut target, &patch).map(|()| Value::Object(target))
    }

    #[test]
    fn objects_merge_and_everything_else_is_replaced() {
        let target = json!({"a": {"x": 1, "y": [1, 2]}, "b": "text", "c": {"z": 1}});
        let patch = json!({"a": {"x": null, "y": [3], "n": {"deep": true}}, "b": {"now": "an object"}});
        let expected =
            json!({"a": {"y": [3], "n": {"deep": true}}, "b": {"now": "an object"}, "c": {"z": 1}});
        assert_eq!(merged(target, patch).unwrap(), expected);
    }

    #[test]
    fn directives_replace_and_delete() {
        let target = || json!({"a": {"x": 1, "y": 2}, "b": {"z": 1}});
        let replaced = merged(target(), json!({"a": {"$patch": "replace", "n": 1}})).unwrap();
        assert_eq!(replaced, json!({"a": {"n": 1}, "b": {"z": 1}}));
        assert_eq!(merged(target(), json!({"a": {"$patch": "delete"}})).unwrap(), json!({"b": {"z": 1}}));
        assert!(merged(target(), json!({"a": {"$patch": "merge"}})).is_err());
        assert!(merged(target(), json!({"a": {"$retainKeys": ["x"]}})).is_err());
        assert!(merged(target(), json!({"$setElementOrder/a": []})).is_err());
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), any::<u64>().prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        })
    }

    proptest! {
        #[test]
        fn merging_twice_is_merging_once_and_merging_oneself_changes_nothing(a in value(), b in value()) {
            let (a, b) = (json!({ "t": a }), json!({ "t": b }));
            let once = merged(a.clone(), b.clone()).unwrap();
            prop_assert_eq!(merged(once.clone(), b).unwrap(), once);
            prop_assert_eq!(merged(a.clone(), a.clone()).unwrap(), a);
        }
    }
}
