//! Whatever a store or a manifest holds: reading, completing and judging it never fails in the middle.

use model::manifest::ManifestError;
use model::validate::{validate, validate_update};
use model::{Key, Kind, Resource, manifest, schema, yaml};
use proptest::prelude::*;
use schema::{Object, Type};
use serde_json::{Map, Value, json};

/// Values that some check somewhere looks at closely.
fn scalar() -> impl Strategy<Value = Value> {
    let texts = prop::sample::select(vec![
        "",
        "default",
        "all()",
        "global()",
        "has(",
        "10.0.0.0/16",
        "10.0.0.1",
        "fd00::/64",
        "::1/128",
        "0.0.0.0/0",
        "TCP",
        "ICMPv6",
        "8080:80",
        "1h30m",
        "-",
        "a-",
        "a.b",
        "65000:1",
        "Never",
        "Always",
        "CrossSubnet",
        "Egress",
        "(a",
        "[z-a]",
        "{1,",
        "\\",
        "é",
        "host:",
        "projectcalico-default-allow",
        "LoadBalancer",
        "Tunnel",
        "*",
    ]);
    prop_oneof![
        4 => texts.prop_map(Value::from),
        1 => "\\PC{0,8}".prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => prop_oneof![any::<i64>().prop_map(Value::from), any::<u64>().prop_map(Value::from), (0u64..130).prop_map(Value::from)],
        1 => any::<f64>().prop_map(|number| json!(number)),
        1 => Just(Value::Null),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

/// Mostly of the shape the schema wants, with values that need not be right; now and then anything at all.
fn shaped(ty: &Type, depth: usize) -> BoxedStrategy<Value> {
    let wanted = match ty {
        _ if depth == 0 => return scalar().boxed(),
        Type::Object(fields) => object(fields, depth - 1).prop_map(Value::Object).boxed(),
        Type::List(list) => {
            prop::collection::vec(shaped(&list.item, depth - 1), 0..3).prop_map(Value::from).boxed()
        }
        Type::Map(values) => prop::collection::btree_map("[a-z./]{0,4}", shaped(values, depth - 1), 0..3)
            .prop_map(|map| json!(map))
            .boxed(),
        Type::Nullable(inner) => shaped(inner, depth),
        Type::OneOf(words) | Type::OneOfAnyCase(words) => {
            prop::sample::select(words.to_vec()).prop_map(Value::from).boxed()
        }
        _ => scalar().boxed(),
    };
    prop_oneof![12 => wanted, 1 => anything()].boxed()
}

fn object(object: &Object, depth: usize) -> BoxedStrategy<Map<String, Value>> {
    let fields: Vec<BoxedStrategy<Option<(String, Value)>>> = object
        .fields()
        .map(|field| {
            let name = field.name.to_owned();
            let value = shaped(&field.ty, depth).prop_map(move |value| (name.clone(), value));
            prop::option::of(value).boxed()
        })
        .collect();
    fields.prop_map(|fields| fields.into_iter().flatten().collect()).boxed()
}

fn record() -> impl Strategy<Value = (Kind, Map<String, Value>)> {
    let kinds: Vec<Kind> = Kind::all().collect();
    prop::sample::select(kinds)
        .prop_flat_map(|kind| object(schema::document(kind), 6).prop_map(move |body| (kind, body)))
}

fn key_of(kind: Kind) -> Key {
    let namespace = kind.is_namespaced().then(|| "default".to_owned());
    Key::Resource { kind, namespace, name: "a".to_owned() }
}

#[test]
fn an_empty_text_is_not_an_unset_flag() {
    let mut pool = Resource::new(Kind::IpPool, "a");
    pool.body.insert("spec".to_owned(), json!({"cidr": "10.0.0.0/16", "natOutgoing": "", "ipipMode": ""}));
    let broken: Vec<String> = validate(&pool).iter().map(ToString::to_string).collect();
    assert_eq!(broken.len(), 1, "{broken:?}");
    assert!(broken[0].contains("spec.natOutgoing"), "{broken:?}");
}

#[test]
fn the_last_digit_of_a_number_survives() {
    let key = key_of(Kind::Tier);
    let stored = r#"{"spec":{"order":-2.335165636682361e-82}}"#;
    let tier = Resource::decode(&key, Kind::Tier, stored.as_bytes(), "5").unwrap();
    let written = String::from_utf8(tier.encode()).unwrap();
    assert!(written.contains("-2.335165636682361e-82"), "{written}");
}

proptest! {
    #[test]
    fn any_record_is_read_completed_and_judged((kind, mut body) in record()) {
        body.insert("kind".to_owned(), kind.name().into());
        let stored = serde_json::to_vec(&body).unwrap();
        let Ok(mut resource) = Resource::decode(&key_of(kind), kind, &stored, "5") else { return Ok(()) };
        let old = resource.clone();
        validate(&resource);
        resource.fill_defaults_on_read();
        resource.fill_defaults();
        let once = resource.clone();
        resource.fill_defaults();
        prop_assert_eq!(&resource, &once, "defaults are filled in once");
        validate_update(&old, &resource);
        for violation in validate(&resource) {
            prop_assert!(!violation.field.is_empty() && !violation.rule.is_empty(), "{violation:?}");
        }
    }

    #[test]
    fn what_was_read_is_written_as_it_was((kind, mut body) in record()) {
        body.insert("kind".to_owned(), kind.name().into());
        let stored = serde_json::to_vec(&body).unwrap();
        let Ok(mut resource) = Resource::decode(&key_of(kind), kind, &stored, "5") else { return Ok(()) };
        // Never stored.
        resource.metadata.extra.remove("selfLink");
        let again = Resource::decode(&key_of(kind), kind, &resource.encode(), "5").unwrap();
        prop_assert_eq!(&again, &resource);
        for field in ["spec", "status"] {
            prop_assert_eq!(again.body.get(field), body.get(field), "{}", field);
        }
    }

    #[test]
    fn what_is_valid_survives_its_own_manifest((kind, body) in record()) {
        let mut resource = Resource::new(kind, "a");
        resource.metadata.namespace = kind.is_namespaced().then(|| "default".to_owned());
        resource.body = body;
        resource.body.retain(|field, _| matches!(field.as_str(), "spec" | "status"));
        resource.fill_defaults();
        if !validate(&resource).is_empty() {
            return Ok(());
        }
        let text = yaml::to_yaml(&Value::Object(resource.to_document()));
        let read = match manifest::parse(&text) {
            // A store may hold what a newer Calico wrote; a manifest may not.
            Err(ManifestError::UnknownField { .. }) => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(format!("{error}\n{text}"))),
            Ok(mut read) => read.remove(0),
        };
        prop_assert_eq!(without_nulls(Value::Object(read.body)), without_nulls(Value::Object(resource.body)), "{}", text);
    }
}
/// A manifest's null is a field that is not there, except inside lists, where the place counts.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name, without_nulls(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}
