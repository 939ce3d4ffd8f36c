//! Three accounts of the same records agree: calculated step by step and from scratch, evaluated and walked, changed and rendered whole.

mod common;

use std::collections::BTreeMap;

use common::Dice;
use common::world::{NODE, Name, World, host_endpoint, packet, record};
use policy::calculation::Local;
use policy::ruleset::{Element, Hook, Ruleset};
use policy::walk::{Fate, Walker};
use policy::{
    Calculation, Direction, EndpointId, EndpointKind, HostFacts, Outcome, Packet, Reason, Rendering, Scope,
    SetSource, Settings, Stage, Staged,
};
use proptest::prelude::*;

fn new() -> Calculation {
    Calculation::new(Scope::Node(NODE.into()), false)
}

fn from_scratch(world: &World, is_reversed: bool) -> Calculation {
    let mut calculation = new();
    let records: Vec<_> = world.values().collect();
    let order: Vec<usize> =
        if is_reversed { (0..records.len()).rev().collect() } else { (0..records.len()).collect() };
    for index in order {
        records[index].put_into(&mut calculation);
    }
    calculation.take_update();
    calculation
}

/// All that anybody can see of it.
fn visible(calculation: &Calculation) -> String {
    let mut text = String::new();
    for (id, local) in calculation.locals() {
        let tiers = calculation.tiers(local);
        text += &format!("{id} {} {:?} {:?}\n{tiers:#?}\n", local.device, local.nets, local.profiles);
    }
    for source in calculation.sets() {
        let members: Vec<String> = calculation.members(source).unwrap().map(ToString::to_string).collect();
        text += &format!("{source}: {}\n", members.join(" "));
    }
    text + &format!("{:#?}", calculation.problems())
}

fn device(calculation: &Calculation, id: &EndpointId) -> String {
    calculation.locals()[id].device.to_string()
}

/// The endpoint that the kernel asks for its device: the first that has it.
fn governs(calculation: &Calculation, id: &EndpointId) -> bool {
    let device = &calculation.locals()[id].device;
    calculation
        .locals()
        .iter()
        .find(|(_, local)| local.device == *device)
        .is_some_and(|(first, _)| first == id)
}

fn check_packet(
    calculation: &Calculation,
    ruleset: &Ruleset,
    id: &EndpointId,
    packet: &Packet,
) -> Result<(), TestCaseError> {
    for direction in Direction::BOTH {
        let decided = calculation.decide(id, direction, Stage::Normal, packet, Staged::Ignored).unwrap();
        let device = device(calculation, id);
        let (input, output) =
            if direction == Direction::Egress { (&*device, "eth0") } else { ("eth0", &*device) };
        let mut walker = Walker::new(packet.clone(), input, output);
        walker.mark = 0xFFFF_FFFF;
        let fate = walker.pass(ruleset, Hook::Forward, i32::MIN..=i32::MAX);
        let expected = if decided.outcome == Outcome::Allow { Fate::Accepted } else { Fate::Dropped };
        prop_assert_eq!(
            &fate,
            &expected,
            "{} {} {:?}\n{:#?}\n{}\n{:#?}",
            direction,
            id,
            packet,
            decided,
            ruleset,
            walker.trail
        );
        let logged = walker.trail.iter().filter(|step| step.has_logged).count();
        let expected = decided.steps.iter().filter(|step| step.action == policy::RuleAction::Log).count();
        prop_assert_eq!(logged, expected, "each Log rule logs once\n{:#?}\n{}", decided, ruleset);
    }
    Ok(())
}

fn change(dice: &mut Dice, world: &mut World, calculation: &mut Calculation, with_hosts: bool) {
    let names: Vec<Name> = world.keys().cloned().collect();
    if !names.is_empty() && dice.once_in(4) {
        let name = dice.one_of(&names).clone();
        name.remove_from(calculation);
        world.remove(&name);
    } else {
        let record = if with_hosts && dice.once_in(6) { host_endpoint(dice) } else { record(dice) };
        record.put_into(calculation);
        world.insert(record.name(), record);
    }
}

fn facts() -> HostFacts {
    let devices = [("eth0", "10.0.0.1"), ("eth1", "fd00:1::1")];
    HostFacts {
        devices: devices.map(|(device, address)| (device.into(), [address.parse().unwrap()].into())).into(),
        nodes: ["192.0.2.1", "fd00:9::1"].map(|address| address.parse().unwrap()).into(),
    }
}

/// The host endpoint that governs a device, and whether it is one for all devices.
fn host<'a>(calculation: &'a Calculation, device: &str) -> Option<(&'a EndpointId, bool)> {
    let hosts: Vec<_> = calculation.locals().iter().filter(|(id, _)| id.kind == EndpointKind::Host).collect();
    let addresses = &facts().devices[device];
    let is_named = |local: &Local| {
        *local.device == *device
            || local.device.is_empty() && local.nets.iter().any(|net| addresses.contains(&net.addr()))
    };
    let named = hosts.iter().find(|(_, local)| is_named(local)).map(|(id, _)| (*id, false));
    named.or_else(|| hosts.iter().find(|(_, local)| &*local.device == "*").map(|(id, _)| (*id, true)))
}

fn ask(
    calculation: &Calculation,
    id: &EndpointId,
    direction: Direction,
    stage: Stage,
    packet: &Packet,
) -> Outcome {
    calculation.decide(id, direction, stage, packet, Staged::Ignored).unwrap().outcome
}

/// Whether a packet that comes in on eth0 gets past the early stages, and the one that its way ends with.
fn incoming(calculation: &Calculation, packet: &Packet, last: Stage) -> bool {
    let Some((id, is_any)) = host(calculation, "eth0") else { return true };
    let stages =
        if is_any { vec![Stage::PreDnat, last] } else { vec![Stage::Untracked, Stage::PreDnat, last] };
    let outcomes = stages.into_iter().map(|stage| ask(calculation, id, Direction::Ingress, stage, packet));
    outcomes.into_iter().find(|outcome| *outcome != Outcome::Undecided) != Some(Outcome::Deny)
}

fn outgoing(calculation: &Calculation, packet: &Packet) -> bool {
    let Some((id, is_any)) = host(calculation, "eth1") else { return true };
    let stages = if is_any { vec![Stage::Normal] } else { vec![Stage::Untracked, Stage::Normal] };
    let outcomes = stages.into_iter().map(|stage| ask(calculation, id, Direction::Egress, stage, packet));
    outcomes.into_iter().find(|outcome| *outcome != Outcome::Undecided) != Some(Outcome::Deny)
}

fn through(walker: &mut Walker, ruleset: &Ruleset, hooks: [Hook; 2]) -> Fate {
    let fates = hooks.into_iter().map(|hook| walker.pass(ruleset, hook, i32::MIN..=i32::MAX));
    fates.into_iter().find(|fate| *fate != Fate::Accepted).unwrap_or(Fate::Accepted)
}

proptest! {
    #[test]
    fn step_by_step_is_the_same_as_from_scratch(seed: u64) {
        let mut dice = Dice::new(seed);
        let (mut world, mut calculation) = (World::new(), new());
        for _ in 0..dice.number(60) {
            change(&mut dice, &mut world, &mut calculation, true);
            if dice.once_in(3) {
                calculation.take_update();
            }
        }
        calculation.take_update();
        let seen = visible(&calculation);
        prop_assert_eq!(&seen, &visible(&from_scratch(&world, false)));
        prop_assert_eq!(&seen, &visible(&from_scratch(&world, true)));
    }

    #[test]
    fn the_ruleset_says_what_the_evaluation_says(seed: u64) {
        let mut dice = Dice::new(seed);
        let (mut world, mut calculation) = (World::new(), new());
        for _ in 0..40 {
            change(&mut dice, &mut world, &mut calculation, false);
        }
        let mut rendering = Rendering::new(Settings::default());
        let update = calculation.take_update();
        rendering.update(&calculation, &update);
        let ruleset = rendering.ruleset(&calculation);
        for table in ruleset.tables.values() {
            prop_assert_eq!(table.faults(), Vec::<String>::new());
        }
        let ids: Vec<EndpointId> = calculation.locals().keys().filter(|id| governs(&calculation, id)).cloned().collect();
        for id in ids {
            for _ in 0..10 {
                check_packet(&calculation, &ruleset, &id, &packet(&mut dice))?;
            }
        }
    }

    #[test]
    fn the_ruleset_says_of_hosts_what_the_evaluation_says(seed: u64) {
        let mut dice = Dice::new(seed);
        let (mut world, mut calculation) = (World::new(), new());
        for _ in 0..40 {
            change(&mut dice, &mut world, &mut calculation, true);
        }
        let settings = Settings { failsafe_inbound: Vec::new(), failsafe_outbound: Vec::new(), ..Settings::default() };
        let mut rendering = Rendering::new(settings);
        rendering.set_host_facts(facts());
        let update = calculation.take_update();
        rendering.update(&calculation, &update);
        let ruleset = rendering.ruleset(&calculation);
        for table in ruleset.tables.values() {
            prop_assert_eq!(table.faults(), Vec::<String>::new());
        }
        for _ in 0..20 {
            let packet = packet(&mut dice);
            let mut walker = Walker::new(packet.clone(), "eth0", "eth1");
            walker.mark = 0xFFFF_FFFF;
            walker.is_translated = dice.once_in(2);
            let (expected, fate) = match dice.number(3) {
                0 => (incoming(&calculation, &packet, Stage::Normal), through(&mut walker, &ruleset, [Hook::Prerouting, Hook::Input])),
                1 => (outgoing(&calculation, &packet), through(&mut walker, &ruleset, [Hook::Output, Hook::Postrouting])),
                _ => {
                    walker.is_translated = true;
                    let fate = through(&mut walker, &ruleset, [Hook::Prerouting, Hook::Forward]);
                    let fate = if fate == Fate::Accepted { walker.pass(&ruleset, Hook::Postrouting, i32::MIN..=i32::MAX) } else { fate };
                    let is_let_in = incoming(&calculation, &packet, Stage::Forward);
                    let out = host(&calculation, "eth1").map(|(id, _)| ask(&calculation, id, Direction::Egress, Stage::Forward, &packet));
                    (is_let_in && out != Some(Outcome::Deny), fate)
                }
            };
            let expected = if expected { Fate::Accepted } else { Fate::Dropped };
            prop_assert_eq!(fate, expected, "{:?}\n{}\n{:#?}", packet, ruleset, walker.trail);
        }
    }

    #[test]
    fn changes_lead_to_what_is_rendered_whole(seed: u64) {
        let mut dice = Dice::new(seed);
        let (mut world, mut calculation) = (World::new(), new());
        let mut rendering = Rendering::new(Settings::default());
        let mut kernel = Ruleset::default();
        for _ in 0..dice.number(40) {
            for _ in 0..=dice.number(3) {
                change(&mut dice, &mut world, &mut calculation, true);
            }
            let update = calculation.take_update();
            let changes = rendering.update(&calculation, &update);
            prop_assert_eq!(kernel.apply(&changes), Ok(()), "{}", changes.iter().map(|change| format!("{change}\n")).collect::<String>());
            prop_assert_eq!(&kernel, &rendering.ruleset(&calculation));
        }
        // An agent that starts again writes the same, but for what it cannot know it wrote.
        let scratch = from_scratch(&world, true);
        let mut again = Rendering::new(Settings::default());
        let mut fresh = Calculation::new(Scope::Node(NODE.into()), false);
        world.values().for_each(|record| record.put_into(&mut fresh));
        let update = fresh.take_update();
        again.update(&fresh, &update);
        prop_assert_eq!(again.ruleset(&fresh), again.ruleset(&scratch));
        if !kernel.tables.is_empty() {
            prop_assert_eq!(&kernel, &again.ruleset(&fresh));
        }
    }
}

/// A kind of reason, in a word.
fn word(reason: &Reason) -> &'static str {
    match reason {
        Reason::Rule { .. } => "rule",
        Reason::SetAside { .. } => "set aside",
        Reason::EndOfTier { .. } => "end of tier",
        Reason::ProfileRule { .. } => "profile",
        Reason::ProfileSetAside { .. } => "profile set aside",
        Reason::ProfileMissing { .. } => "profile missing",
        Reason::NothingAllows => "nothing allows",
        Reason::NoPolicy => "no policy",
        Reason::OwnNode => "own node",
    }
}

/// The other properties would hold of worlds in which nothing happens, too.
#[test]
fn the_random_worlds_have_everything_in_them() {
    let mut seen: BTreeMap<(&str, Outcome), usize> = BTreeMap::new();
    let mut with_hits: BTreeMap<&str, usize> = BTreeMap::new();
    let mut steps = 0;
    for seed in 0..1000 {
        let mut dice = Dice::new(seed);
        let (mut world, mut calculation) = (World::new(), new());
        for _ in 0..40 {
            change(&mut dice, &mut world, &mut calculation, true);
        }
        calculation.take_update();
        for id in calculation.locals().keys() {
            for direction in [Direction::Ingress, Direction::Egress].repeat(10) {
                let packet = packet(&mut dice);
                let decided =
                    calculation.decide(id, direction, Stage::Normal, &packet, Staged::Ignored).unwrap();
                *seen.entry((word(&decided.reason), decided.outcome)).or_default() += 1;
                steps += decided.steps.len();
                for hit in decided.hits {
                    let kind = match (&*hit.set, hit.member) {
                        (SetSource::Selector(_), Element::Network(_)) => "network",
                        (SetSource::Selector(_), _) => "address",
                        (SetSource::NamedPorts { .. }, _) => "named port",
                        (SetSource::Service { .. }, _) => "service",
                        (SetSource::ServicePorts { .. }, _) => "service port",
                    };
                    *with_hits.entry(kind).or_default() += 1;
                }
            }
        }
    }
    for reason in [
        ("rule", Outcome::Allow),
        ("rule", Outcome::Deny),
        ("set aside", Outcome::Deny),
        ("end of tier", Outcome::Deny),
        ("profile", Outcome::Allow),
        ("profile missing", Outcome::Deny),
        ("nothing allows", Outcome::Deny),
    ] {
        assert!(seen.get(&reason).is_some_and(|count| *count > 20), "{reason:?} of {seen:?}");
    }
    assert_eq!(with_hits.len(), 5, "{with_hits:?}");
    assert!(with_hits.values().all(|count| *count > 2) && steps > 50, "{with_hits:?}, {steps} steps");
}
