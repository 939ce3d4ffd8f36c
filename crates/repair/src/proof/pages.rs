//! Edits of single records, whatever these hold: taken back they leave no trace, done twice they are done once, and a record that
//! is not as planned is left alone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use model::ipam::{Block, BlockAttribute, Handle};
use model::{AffinityOwner, Cidr, HandleId, Key, Kind};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::world::forget_numbers;
use crate::{Edit, Edited, Holding, Is, Page};

fn now() -> Timestamp {
    "2026-08-22T07:00:00Z".parse().unwrap()
}

fn cidr() -> Cidr {
    "10.0.0.0/28".parse().unwrap()
}

fn address(ordinal: usize) -> IpAddr {
    IpAddr::from([10, 0, 0, ordinal as u8])
}

fn owner(number: u8) -> BlockAttribute {
    let secondary = BTreeMap::from([("pod".to_owned(), format!("web-{number}"))]);
    BlockAttribute {
        handle_id: Some(HandleId::of_sandbox("net", &number.to_string()).into()),
        secondary: (&secondary).into(),
        ..BlockAttribute::default()
    }
}

/// A block in which some addresses are somebody's, with a field of which nobody here has heard.
fn block(held: &[Option<u8>]) -> Block {
    let mut block = Block::new(cidr(), Some(&AffinityOwner::Host("a".to_owned())), 70);
    block.extra.insert("fromTheFuture".to_owned(), json!({"number": u64::MAX}));
    for (ordinal, number) in held.iter().enumerate() {
        ipam::set_allocation(&mut block, ordinal, number.map(owner));
    }
    block
}

fn read(block: &Block) -> Page {
    Page::new(block.key(), Some((&block.encode(), "7")))
}

fn text(page: &Page, otherwise: &[u8]) -> Vec<u8> {
    page.written().map_or_else(|| otherwise.to_vec(), |text| text.unwrap_or_default().to_vec())
}

fn without_numbers(text: &[u8]) -> Value {
    let mut value = serde_json::from_slice(text).unwrap();
    forget_numbers(&mut value);
    value
}

fn allocation(ordinal: usize, from: Option<u8>, to: Option<u8>) -> Edit {
    let holding = |number: u8| Holding { attribute: owner(number), sequence: None };
    let (from, to) = (from.map(holding), to.map(holding));
    Edit::Allocation { block: cidr(), address: address(ordinal), from, to }
}

fn any_held() -> impl Strategy<Value = Vec<Option<u8>>> {
    proptest::collection::vec(proptest::option::of(0u8..6), 16)
}

proptest! {
    #[test]
    fn an_allocation_is_made_once_and_taken_back(held in any_held(), ordinal in 0usize..16, to in proptest::option::of(0u8..6)) {
        let block = block(&held);
        let before = block.encode();
        let edit = allocation(ordinal, held[ordinal], to);
        let mut page = read(&block);
        let edited = page.edit(&edit, now()).unwrap();
        prop_assert_eq!(edited == Edited::Already, held[ordinal] == to);
        let after = text(&page, &before);
        let made = Block::decode(&cidr(), &after).unwrap();
        prop_assert_eq!(made.attribute(ordinal).and_then(BlockAttribute::handle).cloned(), to.map(|to| HandleId::from(format!("net.{to}"))));
        prop_assert_eq!(made.contradictions(), Vec::<String>::new());
        prop_assert!(made.extra.contains_key("fromTheFuture"));
        prop_assert_eq!(made.sequence_number, block.sequence_number + u64::from(edited != Edited::Already));
        // Again: nothing to do, and nothing to write.
        let mut again = Page::new(block.key(), Some((&after, "8")));
        prop_assert_eq!(again.edit(&edit, now()).unwrap(), Edited::Already);
        prop_assert_eq!(again.written(), None);
        // Back: as it was, with a number of its own.
        if let Edited::Made(Some(undo)) = edited {
            let mut back = Page::new(block.key(), Some((&after, "8")));
            back.edit(&undo, now()).unwrap();
            let back = text(&back, &after);
            prop_assert_eq!(without_numbers(&back), without_numbers(&before));
            prop_assert!(Block::decode(&cidr(), &back).unwrap().sequence_number > made.sequence_number);
        }
    }

    #[test]
    fn a_lost_block_is_made_once_with_all_that_is_held_and_goes_again(held in any_held(), taken_since in 0usize..16) {
        let holds: Vec<_> =
            held.iter().enumerate().filter_map(|(at, number)| Some((address(at), owner((*number)?)))).collect();
        let edit = Edit::NewBlock { block: cidr(), owner: Some("host:a".to_owned()), holds, replaces_unreadable: false };
        let mut page = Page::new(Key::Block(cidr()), None);
        prop_assert_eq!(page.edit(&edit, now()).unwrap(), Edited::Made(None));
        let after = text(&page, b"");
        let mut made = Block::decode(&cidr(), &after).unwrap();
        prop_assert_eq!(made.contradictions(), Vec::<String>::new());
        prop_assert_eq!(made.owner(), Some(AffinityOwner::Host("a".to_owned())));
        for (ordinal, number) in held.iter().enumerate() {
            let handle = made.attribute(ordinal).and_then(BlockAttribute::handle);
            prop_assert_eq!(handle.map(HandleId::to_string), number.map(|number| format!("net.{number}")));
        }
        // Killed after that and gone on with: it is so already.
        let mut again = Page::new(Key::Block(cidr()), Some((&after, "8")));
        prop_assert_eq!(again.edit(&edit, now()).unwrap(), Edited::Already);
        // Taken back it is gone; with a pod that came since it stays.
        let undo = page.take_back();
        let mut back = Page::new(Key::Block(cidr()), Some((&after, "8")));
        back.edit(&undo, now()).unwrap();
        prop_assert_eq!(back.written(), Some(None));
        ipam::set_allocation(&mut made, taken_since, Some(owner(9)));
        let used = made.encode();
        let mut back = Page::new(Key::Block(cidr()), Some((&used, "9")));
        prop_assert!(back.edit(&undo, now()).is_err());
        // And whoever made another block meanwhile keeps it.
        let mut late = Page::new(Key::Block(cidr()), Some((&used, "9")));
        prop_assert_eq!(late.edit(&edit, now()).is_ok(), held[taken_since].is_none());
    }

    #[test]
    fn whoever_came_first_keeps_the_address(held in any_held(), ordinal in 0usize..16, from in proptest::option::of(0u8..6), to in proptest::option::of(0u8..6)) {
        let block = block(&held);
        let mut page = read(&block);
        let outcome = page.edit(&allocation(ordinal, from, to), now());
        if held[ordinal] != from && held[ordinal] != to {
            prop_assert!(outcome.is_err());
            prop_assert_eq!(page.written(), None);
        } else {
            prop_assert!(outcome.is_ok());
        }
    }

    /// Several edits of one record count as one write.
    #[test]
    fn all_edits_of_a_record_are_one_write(held in any_held(), wanted in any_held()) {
        let block = block(&held);
        let mut page = read(&block);
        let mut undo = Vec::new();
        for ordinal in 0..16 {
            if let Edited::Made(Some(back)) = page.edit(&allocation(ordinal, held[ordinal], wanted[ordinal]), now()).unwrap() {
                undo.push(*back);
            }
        }
        let after = text(&page, &block.encode());
        let made = Block::decode(&cidr(), &after).unwrap();
        prop_assert_eq!(made.sequence_number, block.sequence_number + u64::from(held != wanted));
        let mut back = Page::new(block.key(), Some((&after, "8")));
        for edit in undo.iter().rev() {
            back.edit(edit, now()).unwrap();
        }
        prop_assert_eq!(without_numbers(&text(&back, &after)), without_numbers(&block.encode()));
    }

    #[test]
    fn counts_are_made_once_and_taken_back(counts in proptest::collection::btree_map(0u8..4, 1i64..5, 0..4), at in 0u8..4, to in 0i64..5) {
        let net = |number: u8| Cidr::parse_masked(&format!("10.0.{number}.0/28")).unwrap();
        let mut handle = Handle { block: counts.iter().map(|(at, count)| (net(*at).to_string(), *count)).collect(), ..Handle::default() };
        handle.extra.insert("fromTheFuture".to_owned(), json!(u64::MAX));
        let before = (!counts.is_empty()).then(|| handle.encode());
        let key = Key::Handle("net.1".into());
        let from = counts.get(&at).copied().unwrap_or(0);
        let edit = |from, to| Edit::Count { handle: "net.1".into(), block: net(at), from, to };
        let page = |record: Option<&[u8]>| Page::new(key.clone(), record.map(|text| (text, "1")));
        let mut first = page(before.as_deref());
        let edited = first.edit(&edit(from, to), now()).unwrap();
        prop_assert_eq!(edited == Edited::Already, from == to);
        let after = first.written().map_or(before.clone(), |text| text.map(<[u8]>::to_vec));
        prop_assert_eq!(page(after.as_deref()).edit(&edit(from, to), now()).unwrap(), Edited::Already);
        if from != to {
            let mut late = page(before.as_deref());
            prop_assert!(late.edit(&edit(from + 1, to + 7), now()).is_err());
            prop_assert_eq!(late.written(), None);
        }
        if let Edited::Made(Some(undo)) = edited {
            let mut back = page(after.as_deref());
            back.edit(&undo, now()).unwrap();
            let back = back.written().map_or(after, |text| text.map(<[u8]>::to_vec));
            let value = |text: &Option<Vec<u8>>| text.as_deref().map(|text| serde_json::from_slice::<Value>(text).unwrap()["block"].clone());
            prop_assert_eq!(value(&back), value(&before));
        }
    }

    /// Whatever stands in a record and in a plan: an answer, and no panic; a surprise leaves the page as it was.
    #[test]
    fn any_edit_of_any_record_has_an_answer(record in proptest::option::of(any_record()), edit in any_edit()) {
        let mut page = Page::new(edit.key(), record.as_deref().map(|text| (text.as_bytes(), "1")));
        match page.edit(&edit, now()) {
            Ok(Edited::Made(_)) => {}
            Ok(Edited::Already) | Err(_) => prop_assert_eq!(page.written(), None),
        }
    }
}

fn any_record() -> impl Strategy<Value = String> {
    prop_oneof![
        ".*",
        Just("{}".to_owned()),
        Just(
            r#"{"cidr":"10.0.0.0/28","allocations":[0,5,null],"unallocated":[99],"attributes":[{}]}"#
                .to_owned()
        ),
        Just(r#"{"spec":{"node":[],"ipNetworks":"x"},"metadata":null}"#.to_owned()),
        Just(r#"{"block":{"x":-1}}"#.to_owned()),
        any_held().prop_map(|held| String::from_utf8(block(&held).encode()).unwrap()),
    ]
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let endpoint = Key::namespaced(Kind::WorkloadEndpoint, "team", "web");
    prop_oneof![
        (0usize..20, proptest::option::of(0u8..6), proptest::option::of(0u8..6))
            .prop_map(|(ordinal, from, to)| allocation(ordinal, from, to)),
        (proptest::option::of(".*"), proptest::option::of(".*")).prop_map(|(from, to)| Edit::Owner {
            block: cidr(),
            from,
            to
        }),
        (-2i64..3, -2i64..3).prop_map(|(from, to)| Edit::Count {
            handle: "h".into(),
            block: cidr(),
            from,
            to
        }),
        Just(Edit::Lists { block: cidr(), owners: vec![(address(1), owner(1)), (address(99), owner(2))] }),
        (proptest::option::of(".*"), proptest::collection::vec(0u8..100, 0..4)).prop_map(|(of, held)| {
            let holds = held.into_iter().map(|at| (address(at.into()), owner(at))).collect();
            Edit::NewBlock { block: cidr(), owner: of, holds, replaces_unreadable: false }
        }),
        ("(/[a-z~]{0,5}){0,3}", proptest::option::of(".*")).prop_map({
            let key = endpoint.clone();
            move |(field, to)| Edit::Field { key: key.clone(), field, from: None, to: to.map(Value::from) }
        }),
        proptest::option::of(".*").prop_map(|to| Edit::Record {
            key: Key::Block(cidr()),
            from: Some(Is::EmptyBlock),
            to
        }),
        proptest::option::of(".*").prop_map(move |to| Edit::Record {
            key: endpoint.clone(),
            from: Some(Is::Sandbox(None)),
            to
        }),
    ]
}

#[test]
fn an_address_is_the_same_however_it_is_spelled() {
    let key = Key::namespaced(Kind::WorkloadEndpoint, "team", "web");
    let record = json!({"kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3", "metadata": {"name": "web"},
        "spec": {"ipNetworks": ["FD00::1/128"], "mac": "EE:EE:EE:EE:EE:EE", "fromTheFuture": 1}});
    let field = |field: &str, from: Value, to: Value| Edit::Field {
        key: key.clone(),
        field: field.to_owned(),
        from: Some(from),
        to: Some(to),
    };
    let edit = |edit: &Edit| {
        let mut page = Page::new(key.clone(), Some((record.to_string().as_bytes(), "1")));
        page.edit(edit, now()).map(|edited| (edited, text(&page, b"{}")))
    };
    let (made, after) =
        edit(&field("/spec/ipNetworks", json!(["fd00:0:0::1/128"]), json!(["fd00::2/128"]))).unwrap();
    let after: Value = serde_json::from_slice(&after).unwrap();
    assert_eq!(after["spec"]["ipNetworks"], json!(["fd00::2/128"]));
    assert_eq!(after["spec"]["fromTheFuture"], 1);
    // Taken back, it is spelled as it was.
    let Edited::Made(Some(undo)) = made else { panic!("it was to be made") };
    assert!(matches!(*undo, Edit::Field { to: Some(to), .. } if to == json!(["FD00::1/128"])));
    let same = field("/spec/mac", json!("x"), json!("ee:ee:ee:ee:ee:ee"));
    assert_eq!(edit(&same).unwrap().0, Edited::Already);
    edit(&field("/spec/ipNetworks", json!(["fd00::3/128"]), json!([]))).unwrap_err();
}

#[test]
fn a_block_that_comes_back_has_a_number_that_nobody_has_seen() {
    let block = block(&[None; 16]);
    let mut page = read(&block);
    let edit = Edit::Record { key: block.key(), from: Some(Is::EmptyBlock), to: None };
    let Edited::Made(Some(undo)) = page.edit(&edit, now()).unwrap() else { panic!("it was to be made") };
    assert_eq!(page.written(), Some(None));
    let mut back = Page::new(block.key(), None);
    back.edit(&undo, now()).unwrap();
    let text = back.written().unwrap().unwrap();
    let restored = Block::decode(&cidr(), text).unwrap();
    assert!(restored.sequence_number > block.sequence_number + 1_000_000);
    assert_eq!(without_numbers(text), without_numbers(&block.encode()));
    // Somebody made one in its place: that one stays.
    let mut taken = read(&super::pages::block(&[Some(2); 16]));
    assert!(taken.edit(&undo, now()).is_err() && taken.written().is_none());
    let mut used = read(&super::pages::block(&[Some(1); 16]));
    assert!(used.edit(&edit, now()).is_err() && used.written().is_none());
}
