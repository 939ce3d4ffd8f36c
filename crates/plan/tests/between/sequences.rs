//! Whatever happens in whatever order: what is known change by change is what would be known from scratch, and the changes that
//! were told lead there.

use std::collections::BTreeMap;

use model::Cidr;
use plan::between::{
    Between, BetweenDevices, BetweenObserved, BetweenSettings, BlockView, Encapsulation, Extent, NodeView,
    PoolView, Step, Uplinks, between_differences, changes_of,
};
use proptest::prelude::*;

use crate::cluster::{OWN, cidr, lent, node, pool, uplinks};

#[derive(Clone, Debug)]
enum Event {
    Node(&'static str, Option<NodeView>),
    Pool(&'static str, Option<PoolView>),
    Block(Cidr, Option<BlockView>),
    Settings(BetweenSettings),
    Uplinks(Uplinks),
}

const NODES: [&str; 4] = ["a", "b", "c", "d"];

fn any_node() -> impl Strategy<Value = NodeView> {
    let v4 = prop_oneof![
        Just(""),
        Just("192.0.2.1/24"),
        Just("192.0.2.2/24"),
        Just("192.0.2.3/24"),
        Just("198.51.100.1/24"),
    ];
    let v6 = prop_oneof![Just(""), Just("fd99::1/64"), Just("fd99::2/64"), Just("fd98::2/64")];
    let tunnel = prop_oneof![Just(""), Just("10.0.0.0"), Just("10.0.1.0"), Just("10.0.1.7")];
    (v4, v6, tunnel, any::<bool>()).prop_map(|(v4, v6, tunnel, has_tunnel6)| {
        let tunnel6 = if has_tunnel6 { "fd00::1" } else { "" };
        let v6 = if v6.is_empty() { "::/0" } else { v6 };
        NodeView { v6: node(v6, tunnel6).v6, ..node(v4, tunnel) }
    })
}

fn any_pool() -> impl Strategy<Value = PoolView> {
    let networks = prop_oneof![Just("10.0.0.0/16"), Just("10.0.1.0/24"), Just("fd00::/48")];
    let encapsulation = prop_oneof![
        Just(Encapsulation::None),
        Just(Encapsulation::Vxlan(Extent::Always)),
        Just(Encapsulation::Vxlan(Extent::CrossSubnet)),
        Just(Encapsulation::Ipip(Extent::Always)),
        Just(Encapsulation::Ipip(Extent::CrossSubnet)),
    ];
    (networks, encapsulation, any::<bool>()).prop_map(|(cidr, encapsulation, nat_outgoing)| PoolView {
        nat_outgoing,
        ..pool(cidr, encapsulation)
    })
}

fn any_block() -> impl Strategy<Value = (Cidr, BlockView)> {
    let one = (0..NODES.len() + 1, 0..3usize, proptest::collection::vec((0..4u8, 0..NODES.len()), 0..3));
    one.prop_map(|(owner, which, at_others)| {
        // The last two overlap, which must not happen and does.
        let network = ["10.0.0.0/26", "10.0.1.0/26", "10.0.1.0/28"][which];
        let base = ["10.0.0", "10.0.1", "10.0.1"][which];
        let at_others: BTreeMap<u8, usize> = at_others.into_iter().collect();
        let at_others: Vec<(String, &str)> = at_others
            .into_iter()
            .filter(|(_, node)| *node != owner)
            .map(|(host, node)| (format!("{base}.{host}"), NODES[node]))
            .collect();
        let at_others: Vec<(&str, &str)> =
            at_others.iter().map(|(address, node)| (address.as_str(), *node)).collect();
        let mut view = lent(NODES.get(owner).unwrap_or(&"a"), &at_others);
        if owner == NODES.len() {
            view.owner = None;
        }
        (cidr(network), view)
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    let six = (0..4usize, 0..NODES.len()).prop_map(|(which, owner)| {
        let network = cidr(["fd00::/122", "fd00::40/122", "fd00::80/122", "fd00::c0/122"][which]);
        Event::Block(network, Some(crate::cluster::block(NODES[owner])))
    });
    prop_oneof![
        (0..NODES.len(), proptest::option::weighted(0.8, any_node()))
            .prop_map(|(name, node)| Event::Node(NODES[name], node)),
        (0..2usize, proptest::option::weighted(0.8, any_pool()))
            .prop_map(|(name, pool)| Event::Pool(["p", "q"][name], pool)),
        any_block().prop_map(|(cidr, block)| Event::Block(cidr, Some(block))),
        any_block().prop_map(|(cidr, _)| Event::Block(cidr, None)),
        six,
        (any::<bool>(), any::<Option<bool>>()).prop_map(|(vxlan_enabled, felix_programs)| {
            Event::Settings(BetweenSettings { vxlan_enabled, felix_programs, ..BetweenSettings::default() })
        }),
        (any::<bool>(), any::<bool>()).prop_map(|(has_ipip, has_v4)| {
            let v4 = uplinks().v4.filter(|_| has_v4);
            Event::Uplinks(Uplinks { has_ipip, v4, ..uplinks() })
        }),
    ]
}

fn take_in(between: &mut Between, event: &Event) {
    match event.clone() {
        Event::Node(name, node) => between.set_node(name, node),
        Event::Pool(name, pool) => between.set_pool(name, pool),
        Event::Block(cidr, block) => between.set_block(cidr, block),
        Event::Settings(settings) => between.set_settings(settings),
        Event::Uplinks(uplinks) => between.set_uplinks(uplinks),
    }
}

/// Only the last word about each thing, in one go. `held` is what only the past can tell: which blocks were routed before.
fn from_scratch(events: &[Event], held: &Between) -> Between {
    let mut last: BTreeMap<String, &Event> = BTreeMap::new();
    for event in events {
        let subject = match event {
            Event::Node(name, _) => format!("node {name}"),
            Event::Pool(name, _) => format!("pool {name}"),
            Event::Block(cidr, _) => format!("block {cidr}"),
            Event::Settings(_) => "settings".to_owned(),
            Event::Uplinks(_) => "uplinks".to_owned(),
        };
        last.insert(subject, event);
    }
    let mut between = Between::new(OWN);
    last.values().for_each(|event| take_in(&mut between, event));
    between.hold_as(held);
    between.settle();
    between
}

fn devices() -> BetweenDevices {
    BetweenDevices { uplinks: [Some(2); 2], vxlan: [Some(3); 2], ipip: Some(4) }
}

/// Does to a kernel of ours what the real one does.
fn apply(kernel: &mut BetweenObserved, step: &Step) {
    match *step {
        Step::PutRoute { route, instead_of } => {
            if let Some(instead_of) = instead_of {
                assert_eq!(instead_of.metric, route.metric(), "the kernel would keep both");
                kernel.routes.retain(|found| *found != instead_of);
            }
            let found = devices().kernel_route(&route).unwrap();
            assert!(
                !kernel
                    .routes
                    .iter()
                    .any(|other| other.destination == found.destination && other.metric == found.metric),
                "{found:?} is there twice"
            );
            kernel.routes.push(found);
        }
        Step::DropRoute { route } => kernel.routes.retain(|found| *found != route),
        Step::PutNeighbour { address, mac } => {
            kernel.neighbours.retain(|(known, _)| *known != address);
            kernel.neighbours.push((address, mac));
        }
        Step::DropNeighbour { address } => kernel.neighbours.retain(|(known, _)| *known != address),
        Step::PutForward { version, mac, node } => {
            kernel.forwards.retain(|known| (known.0, known.1) != (version, mac));
            kernel.forwards.push((version, mac, node));
        }
        Step::DropForward { version, mac, node } => {
            kernel.forwards.retain(|known| *known != (version, mac, node));
        }
    }
}

fn everything(between: &Between) -> String {
    let devices = [model::IpVersion::V4, model::IpVersion::V6].map(|version| between.vxlan(version));
    format!(
        "{:#?}\n{:#?}\n{:#?}\n{devices:#?}\n{:#?}\n{:#?}\n{:?}",
        between.routes().collect::<Vec<_>>(),
        between.neighbours().collect::<Vec<_>>(),
        between.forwards().collect::<Vec<_>>(),
        between.troubles().collect::<Vec<_>>(),
        between.shared_addresses().collect::<Vec<_>>(),
        between.nat(),
    )
}

proptest! {
    #[test]
    fn step_by_step_is_the_same_as_from_scratch(
        events in proptest::collection::vec((any_event(), any::<bool>()), 0..40),
    ) {
        let mut between = Between::new(OWN);
        let mut kernel = BetweenObserved { devices: devices(), ..BetweenObserved::default() };
        let mut settle = |between: &mut Between| {
            let changed = between.settle();
            let steps = changes_of(between, &changed, &devices());
            steps.iter().for_each(|step| apply(&mut kernel, step));
            let left = between_differences(between, &kernel);
            assert!(left.is_empty(), "{left:#?}");
        };
        for (event, settles) in &events {
            take_in(&mut between, event);
            if *settles {
                settle(&mut between);
            }
        }
        settle(&mut between);
        prop_assert!(between.settle().is_empty(), "nothing changes by itself");
        let events: Vec<Event> = events.into_iter().map(|(event, _)| event).collect();
        prop_assert_eq!(everything(&between), everything(&from_scratch(&events, &between)));
    }
}

/// So many others, each with a block.
fn many(others: u32, encapsulation: Encapsulation) -> Between {
    let mut between = Between::new(OWN);
    between.set_uplinks(uplinks());
    between.set_pool("p", Some(pool("10.0.0.0/8", encapsulation)));
    between.set_node(OWN, Some(node("172.16.0.1/12", "10.0.0.0")));
    for index in 1..=others {
        let (high, low) = (index / 250, index % 250);
        let name = format!("n{index}");
        let (address, tunnel) = (format!("172.16.{high}.{}/12", low + 2), format!("10.{high}.{low}.0"));
        between.set_node(&name, Some(node(&address, &tunnel)));
        between.set_block(cidr(&format!("10.{high}.{low}.0/26")), Some(crate::cluster::block(&name)));
    }
    between.settle();
    between
}

/// What each of a few changes takes: blocks and nodes that are thought over, and steps for the kernel.
fn costs(mut between: Between) -> Vec<(u64, usize)> {
    let new = cidr("10.200.0.0/26");
    let changes: [&dyn Fn(&mut Between); 6] = [
        &|between| between.set_block(new, Some(crate::cluster::block("n3"))),
        &|between| between.set_block(new, Some(lent("n4", &[("10.200.0.7", "n5")]))),
        &|between| between.set_block(new, None),
        &|between| between.set_node("n7", Some(node("198.51.100.7/24", "10.0.7.0"))),
        &|between| between.set_node("n7", None),
        &|between| between.set_node("late", Some(node("172.31.0.1/12", "10.201.0.0"))),
    ];
    let mut costs = Vec::new();
    for change in changes {
        let before = between.thought_over();
        change(&mut between);
        let changed = between.settle();
        let steps = changes_of(&between, &changed, &devices());
        costs.push((between.thought_over() - before, steps.len()));
    }
    costs
}

#[test]
fn a_change_costs_what_depends_on_it_and_not_the_cluster() {
    // A block is one thing to think over; with a node comes its block.
    let direct = [(1, 1), (1, 2), (1, 2), (2, 1), (2, 0), (1, 0)];
    // With a node come the two halves of its tunnel's end.
    let tunnelled = [(1, 1), (1, 2), (1, 2), (2, 2), (2, 3), (1, 2)];
    for others in [20, 2_000] {
        assert_eq!(costs(many(others, Encapsulation::None)), direct, "{others} other nodes");
        let vxlan = Encapsulation::Vxlan(Extent::Always);
        assert_eq!(costs(many(others, vxlan)), tunnelled, "{others} other nodes");
    }
}

#[test]
fn reasons_are_counted_as_they_are_listed() {
    let mut between = many(50, Encapsulation::None);
    for index in 1..=20 {
        between.set_node(&format!("n{index}"), Some(node("198.51.100.7/24", "")));
    }
    between.settle();
    let counts: Vec<_> = between.trouble_counts().collect();
    assert_eq!(counts, [(plan::between::Trouble::Apart, 20)]);
    assert_eq!(between.troubles().count(), 20);
}
