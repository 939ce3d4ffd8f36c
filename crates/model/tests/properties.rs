//! Laws of manifests and records, tried on random texts, random documents of every kind and random blocks.

use std::collections::BTreeMap;

use model::ipam::{Affinity, AffinityState, Block, BlockAttribute, Handle, IpamConfig};
use model::schema::{self, Object, Type};
use model::{AffinityOwner, Cidr, Key, Kind, Metadata, Resource, manifest, validate, yaml};
use proptest::prelude::*;
use serde_json::{Map, Number, Value};

/// Texts that one YAML reader or another takes for something else, and texts that are hard to write down.
const HARD_TEXTS: [&str; 36] = [
    "yes",
    "No",
    "on",
    "y",
    "true",
    "False",
    "null",
    "~",
    "Null",
    "017",
    "0o17",
    "0x1F",
    "1e3",
    "1_000",
    "-0",
    ".inf",
    ".NaN",
    "12:30:45",
    "2026-08-22",
    "2026-08-22T06:33:20Z",
    "<<",
    "=",
    "- a",
    "a: b",
    "a #b",
    "#a",
    "*a",
    "&a",
    "!a",
    "%a",
    "@a",
    "`a",
    " a ",
    "a\nb\n",
    "\t",
    "\u{7f}\u{85}\u{feff}\u{2028}é\u{1f600}",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(&HARD_TEXTS[..]).prop_map(str::to_owned),
        "[a-z0-9./:-]{1,12}",
        "[ -~]{0,16}",
        "\\PC{0,8}",
        any::<String>(),
    ]
}

/// A value as the schema types it, however unlikely.
fn typed(ty: Type, depth: usize) -> BoxedStrategy<Value> {
    match ty {
        Type::Text | Type::TextOf(_) | Type::Duration(_) | Type::Sized(..) => {
            text().prop_map(Value::from).boxed()
        }
        Type::OneOf(words) | Type::OneOfAnyCase(words) => {
            prop_oneof![prop::sample::select(words).prop_map(Value::from), text().prop_map(Value::from)]
                .boxed()
        }
        Type::Bool => any::<bool>().prop_map(Value::from).boxed(),
        Type::Int(..) => any::<i64>().prop_map(Value::from).boxed(),
        Type::Counter => any::<u64>().prop_map(Value::from).boxed(),
        Type::Float => {
            let fraction =
                any::<f64>().prop_filter_map("finite", |number| Number::from_f64(number).map(Value::Number));
            prop_oneof![any::<i64>().prop_map(Value::from), fraction].boxed()
        }
        Type::Either(_) | Type::NamedNumber(_) | Type::AsNumber | Type::Port => {
            prop_oneof![any::<u64>().prop_map(Value::from), text().prop_map(Value::from)].boxed()
        }
        Type::List(list) => {
            prop::collection::vec(typed(list.item, depth + 1), 0..3).prop_map(Value::from).boxed()
        }
        Type::Map(ty) => prop::collection::btree_map(text(), typed(*ty, depth + 1), 0..3)
            .prop_map(|values| Value::Object(values.into_iter().collect()))
            .boxed(),
        Type::Object(object) => object_of(object, depth + 1).prop_map(Value::Object).boxed(),
        Type::Nullable(inner) => prop_oneof![Just(Value::Null), typed(*inner, depth)].boxed(),
        Type::Any => text().prop_map(Value::from).boxed(),
    }
}

/// Some of the fields of an object; the deeper, the fewer.
fn object_of(object: &'static Object, depth: usize) -> BoxedStrategy<Map<String, Value>> {
    let fields: Vec<_> =
        object.fields().filter(|field| !matches!(field.name, "apiVersion" | "kind")).collect();
    let most = fields.len().min(if depth > 3 { 2 } else { 6 });
    prop::sample::subsequence(fields, 0..=most)
        .prop_flat_map(move |fields| {
            let values: Vec<_> = fields.iter().map(|field| typed(field.ty, depth)).collect();
            (Just(fields), values)
        })
        .prop_map(|(fields, values)| {
            fields.into_iter().map(|field| field.name.to_owned()).zip(values).collect::<Map<_, _>>()
        })
        .boxed()
}

fn resource() -> impl Strategy<Value = Resource> {
    let kinds: Vec<Kind> = Kind::all().collect();
    prop::sample::select(kinds).prop_flat_map(|kind| {
        object_of(schema::document(kind), 0).prop_map(move |mut body| {
            let metadata = body.remove("metadata").unwrap_or_else(|| Value::Object(Map::new()));
            let metadata =
                serde_json::from_value(metadata).expect("the schema types metadata as the struct does");
            Resource { kind, metadata, body }
        })
    })
}

/// JSON of any shape.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..4)
                .prop_map(|values| Value::Object(values.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_text_can_be_tried_as_a_manifest(text in any::<String>()) {
        let _ = manifest::parse(&text);
    }

    #[test]
    fn any_nearly_yaml_text_can_be_tried(text in "([-?:,\\[\\]{}#&*!|>'\"%@` \n\tab<~]|kind|\\.\\.\\.|---|\r\n){0,60}") {
        let _ = manifest::parse(&text);
    }

    /// A resource, written down, with a few bytes of it changed: an answer, and if it is a resource it can be judged.
    #[test]
    fn a_damaged_manifest_is_answered(
        resource in resource(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), "[-?:,\\[\\]{}#&*!|>'\"%a0 \n\t]{0,3}", 0..4_usize), 1..5),
    ) {
        let text = yaml::to_yaml(&Value::Object(resource.to_document()));
        let mut characters: Vec<char> = text.chars().collect();
        for (place, insert, remove) in damage {
            let start = place.index(characters.len() + 1);
            let end = (start + remove).min(characters.len());
            characters.splice(start..end, insert.chars());
        }
        let damaged: String = characters.into_iter().collect();
        for mut resource in manifest::parse(&damaged).unwrap_or_default() {
            resource.fill_defaults();
            let _ = validate::validate(&resource);
        }
    }

    #[test]
    fn every_resource_survives_yaml_and_json(resource in resource()) {
        let document = Value::Object(resource.to_document());
        for text in [yaml::to_yaml(&document), document.to_string(), format!("{document:#}")] {
            let parsed = manifest::parse(&text);
            prop_assert_eq!(parsed, Ok(vec![resource.clone()]), "{}", text);
        }
    }

    #[test]
    fn many_resources_in_one_text_stay_apart(resources in prop::collection::vec(resource(), 0..4)) {
        let documents: Vec<Value> = resources.iter().map(|one| Value::Object(one.to_document())).collect();
        let stream: String = documents.iter().map(|one| format!("---\n{}", yaml::to_yaml(one))).collect();
        prop_assert_eq!(manifest::parse(&stream), Ok(resources.clone()));
        let array = Value::from(documents);
        prop_assert_eq!(manifest::parse(&yaml::to_yaml(&array)), Ok(resources.clone()));
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": array });
        prop_assert_eq!(manifest::parse(&list.to_string()), Ok(resources));
    }

    #[test]
    fn filling_in_twice_is_filling_in_once(mut resource in resource()) {
        resource.fill_defaults();
        let once = resource.clone();
        resource.fill_defaults();
        prop_assert_eq!(resource, once);
    }

    #[test]
    fn a_record_of_any_shape_can_be_judged(kind in prop::sample::select(Kind::all().collect::<Vec<_>>()), body in any_json()) {
        let mut resource = Resource::new(kind, "a");
        resource.body.insert("spec".to_owned(), body.clone());
        resource.body.insert("status".to_owned(), body);
        let violations = validate::validate_update(&resource, &resource);
        prop_assert!(violations.iter().all(|violation| !violation.rule.is_empty() && !violation.field.is_empty()));
        let _ = validate::validate_pool_against(&resource, std::slice::from_ref(&resource), &[]);
        let _ = validate::references(&resource, true);
        resource.fill_defaults_on_read();
        resource.fill_defaults();
    }

    #[test]
    fn any_bytes_can_be_tried_as_records(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        any_json().prop_map(|value| value.to_string().into_bytes()),
    ]) {
        let cidr: Cidr = "10.0.0.0/26".parse().unwrap();
        let owner = AffinityOwner::Host("a".to_owned());
        let _ = Resource::decode(&Key::cluster(Kind::Tier, "a"), Kind::Tier, &bytes, "1");
        let _ = Block::decode(&cidr, &bytes).map(|block| block.contradictions());
        let _ = Affinity::decode(&owner, &cidr, &bytes);
        let _ = Handle::decode(&"a".into(), &bytes);
        let _ = IpamConfig::decode(&bytes);
    }

    #[test]
    fn stored_resources_are_read_as_they_were_written(resource in resource(), name in "[a-z]{1,3}(\\.[a-z]{1,3})?") {
        // A policy's name is stored twice; one without a name would be read by the other rule.
        let resource = Resource { metadata: Metadata { name, ..resource.metadata }, ..resource };
        let key = Key::Resource { kind: resource.kind, namespace: None, name: "a".to_owned() };
        let read = Resource::decode(&key, resource.kind, &resource.encode(), "7").unwrap();
        let mut expected = resource;
        expected.metadata.resource_version = Some("7".to_owned());
        expected.metadata.extra.remove("selfLink");
        if expected.kind.is_tiered() {
            expected.metadata.annotations.remove("projectcalico.org/metadata");
        }
        prop_assert_eq!(read, expected);
    }
}

fn extra() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("x[a-z]{1,4}", any_json(), 0..3)
        .prop_map(|values| values.into_iter().collect())
}

fn attribute() -> impl Strategy<Value = BlockAttribute> {
    let texts = || prop::collection::btree_map(text(), text(), 0..3);
    (prop::option::of(text()), texts(), texts(), prop::option::of(text()), extra()).prop_map(
        |(handle_id, secondary, alternate_owner, released_at, extra)| BlockAttribute {
            handle_id: handle_id.map(|id: String| id.as_str().into()),
            secondary: (&secondary).into(),
            alternate_owner: (&alternate_owner).into(),
            released_at,
            extra,
        },
    )
}

/// A block in which some addresses were taken and given back, in any order.
fn used_block() -> impl Strategy<Value = Block> {
    let cidrs = prop::sample::select(vec!["10.0.0.0/28", "10.0.0.8/30", "fd00::40/124", "10.0.0.1/32"]);
    (
        cidrs,
        any::<u64>(),
        prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..40),
        attribute(),
    )
        .prop_map(|(cidr, number, steps, attribute)| {
            let owner = AffinityOwner::Host("node-a".to_owned());
            let mut block = Block::new(cidr.parse().unwrap(), Some(&owner), number >> 1);
            for (take, place) in steps {
                block.sequence_number += 1;
                if take && !block.unallocated.is_empty() {
                    let ordinal = block.unallocated.remove(0);
                    block.attributes.push(attribute.clone());
                    block.allocations[ordinal] = Some(block.attributes.len() - 1);
                    block.sequence_number_for_allocation.insert(ordinal.to_string(), block.sequence_number);
                } else if let Some(last) = block.attributes.len().checked_sub(1) {
                    give_back(&mut block, place.index(last + 1), last);
                }
            }
            block
        })
}

/// Frees the address of one attribute; the last attribute moves to its place.
fn give_back(block: &mut Block, index: usize, last: usize) {
    block.attributes.swap_remove(index);
    for ordinal in 0..block.allocations.len() {
        match block.allocations[ordinal] {
            Some(found) if found == index => {
                block.allocations[ordinal] = None;
                block.unallocated.push(ordinal);
                block.sequence_number_for_allocation.remove(&ordinal.to_string());
            }
            Some(found) if found == last => block.allocations[ordinal] = Some(index),
            _ => {}
        }
    }
}

proptest! {
    #[test]
    fn blocks_are_read_as_they_were_written(mut block in used_block(), extra in extra(), affinity in prop::option::of(text())) {
        block.extra = extra;
        block.affinity = affinity;
        prop_assert_eq!(Block::decode(&block.cidr, &block.encode()).unwrap(), block);
    }

    #[test]
    fn affinities_handles_and_settings_are_read_as_they_were_written(
        word in text(), deleted: bool, extra in extra(), counts in prop::collection::btree_map(text(), any::<i64>(), 0..4),
        flags: [bool; 2], numbers: [i64; 2],
    ) {
        let cidr: Cidr = "10.0.0.0/26".parse().unwrap();
        let owner = AffinityOwner::Virtual("load-balancer".to_owned());
        let affinity = Affinity { state: AffinityState::from(word.clone()), deleted, extra: extra.clone() };
        prop_assert_eq!(Affinity::decode(&owner, &cidr, &affinity.encode()).unwrap(), affinity);
        let handle = Handle { block: (&counts).into(), deleted, extra: extra.clone() };
        prop_assert_eq!(Handle::decode(&"a".into(), &handle.encode()).unwrap(), handle);
        let config = IpamConfig {
            strict_affinity: flags[0],
            auto_allocate_blocks: flags[1],
            max_blocks_per_host: numbers[0],
            kube_virt_vm_address_persistence: Some(word),
            ip_cooldown_seconds: numbers[1],
            extra,
        };
        prop_assert_eq!(IpamConfig::decode(&config.encode()).unwrap(), config);
    }

    #[test]
    fn a_block_that_was_used_well_does_not_contradict_itself(block in used_block()) {
        prop_assert_eq!(block.contradictions(), Vec::<String>::new());
        for ordinal in 0..block.capacity() {
            let address = block.address(ordinal).unwrap();
            prop_assert_eq!(block.ordinal(address), Some(ordinal));
        }
        prop_assert_eq!(block.address(block.capacity()), None);
    }

    #[test]
    fn damage_to_a_block_is_noticed(mut block in used_block(), damage in 0..8_usize, place in any::<prop::sample::Index>()) {
        let ordinal = place.index(block.capacity());
        match damage {
            0 => { block.allocations.pop(); }
            1 => block.attributes.push(BlockAttribute::default()),
            2 => { let known = block.attributes.len(); block.allocations[ordinal] = Some(known); }
            3 => block.unallocated.push(block.unallocated.first().copied().unwrap_or(0)),
            4 => block.unallocated.push(block.capacity()),
            5 => { prop_assume!(!block.unallocated.is_empty()); block.unallocated.pop(); }
            6 => { block.sequence_number_for_allocation.insert("first".to_owned(), 1); }
            _ => {
                prop_assume!(!block.sequence_number_for_allocation.is_empty());
                let after = block.sequence_number + 1;
                for number in block.sequence_number_for_allocation.values_mut() { *number = after; }
            }
        }
        prop_assert_ne!(block.contradictions(), Vec::<String>::new());
    }
}

#[test]
fn contradictions_are_named() {
    let mut block = Block::new("10.0.0.0/30".parse().unwrap(), None, 7);
    block.allocations = vec![Some(0), Some(3), None, None];
    block.attributes = vec![BlockAttribute::default(), BlockAttribute::default()];
    block.unallocated = vec![2, 2, 0, 9];
    block.sequence_number_for_allocation = BTreeMap::from([("0".to_owned(), 8), ("2".to_owned(), 1)]);
    let expected = [
        "address 1 refers to attribute 3 of 2",
        "attribute 1 is used by no address",
        "address 2 is listed twice as unallocated",
        "address 0 is both allocated and unallocated",
        "address 9 is unallocated but not in the block",
        "address 3 is neither allocated nor unallocated",
        "address 0 has sequence number 8, above the block's 7",
        "address 2 has a sequence number but is not allocated",
    ];
    assert_eq!(block.contradictions(), expected);
    block.allocations.clear();
    assert_eq!(block.contradictions()[0], "10.0.0.0/30 has 4 addresses, but allocations lists 0");
}
