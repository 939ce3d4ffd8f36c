//! Asking other nodes from the addresses that this node could go by, and what their silence means.
//!
//! An answer proves that the address can be reached. Silence alone proves nothing: the others may be dead, or let no such packets
//! in. Only if the same nodes are silent towards one address and answer another is the first one no good.

use std::collections::BTreeSet;
use std::net::IpAddr;

use model::IpVersion;

use super::choose::{is_global, is_virtual};
use super::method::is_excluded;
use super::{Surroundings, Wish};

/// How many other nodes are asked at a time. Each look asks others.
const NODES_ASKED: usize = 4;
/// Of a node with more addresses than these the rest is not tried.
const CANDIDATES_MAX: usize = 8;

/// What came of asking other nodes from one address of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub from: IpAddr,
    pub asked: BTreeSet<IpAddr>,
    pub answered: BTreeSet<IpAddr>,
}

/// Other nodes do not answer to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered {
    pub asked: BTreeSet<IpAddr>,
    /// The address of this node to which they do answer.
    pub but_from: IpAddr,
}

/// Whether other nodes are silent towards an address, but answer to another one of this node.
pub fn unanswered(probes: &[Probe], address: IpAddr) -> Option<Unanswered> {
    let own = probes.iter().find(|probe| probe.from == address)?;
    if !own.answered.is_empty() {
        return None;
    }
    let is_heard = |other: &&Probe| !own.asked.is_disjoint(&other.answered);
    let but_from = probes.iter().find(is_heard)?.from;
    Some(Unanswered { asked: own.asked.clone(), but_from })
}

impl Surroundings {
    /// Whom to ask from which address. `turn` counts the looks, so that each asks other nodes.
    pub fn questions(&self, wish: &Wish, version: IpVersion, turn: usize) -> Vec<Probe> {
        let candidates = self.candidates(wish, version);
        let others: Vec<IpAddr> = self
            .others
            .iter()
            .map(|other| other.address.addr())
            .filter(|address| IpVersion::of(*address) == version && self.find(*address).is_none())
            .collect();
        // With one address alone there is nothing to compare with.
        if candidates.len() < 2 || others.is_empty() {
            return Vec::new();
        }
        let start = turn.wrapping_mul(NODES_ASKED) % others.len();
        let asked: BTreeSet<IpAddr> =
            others.iter().cycle().skip(start).take(NODES_ASKED.min(others.len())).copied().collect();
        let probe = |from| Probe { from, asked: asked.clone(), answered: BTreeSet::new() };
        candidates.into_iter().map(probe).collect()
    }

    /// Addresses that the node has and could go by: what it goes by first, then what its devices have.
    fn candidates(&self, wish: &Wish, version: IpVersion) -> Vec<IpAddr> {
        let said = match wish {
            Wish::Keep => return Vec::new(),
            Wish::Address(said) => Some(said.addr()),
            Wish::Unsaid | Wish::Detect => None,
        };
        let first = said.into_iter().chain(self.recorded.map(|recorded| recorded.addr()));
        let mut candidates = Vec::new();
        let all = first.filter(|address| self.find(*address).is_some()).chain(self.fit());
        for address in all.filter(|address| IpVersion::of(*address) == version) {
            if !candidates.contains(&address) && candidates.len() < CANDIDATES_MAX {
                candidates.push(address);
            }
        }
        candidates
    }

    /// What the node's own cards have, and keep.
    pub(super) fn fit(&self) -> impl Iterator<Item = IpAddr> {
        let interfaces =
            self.interfaces.iter().filter(|interface| interface.is_up && !is_excluded(&interface.name));
        interfaces.flat_map(|interface| {
            let fit = interface.addresses.iter().filter(|address| {
                is_global(address.network.addr()) && !address.is_unfit && !is_virtual(interface, address)
            });
            fit.map(|address| address.network.addr())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Doubt, Interface, InterfaceAddress, Method, OtherNode, RefusalReason, Why, choose_address,
    };
    use super::*;

    const OWN: [&str; 2] = ["10.0.0.1/24", "10.9.0.1/24"];

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Two cards, and five other nodes on the first one's network.
    fn node() -> Surroundings {
        let interface = |(index, network): (usize, &&str)| Interface {
            name: format!("eth{index}"),
            is_up: true,
            addresses: vec![InterfaceAddress {
                network: network.parse().unwrap(),
                is_secondary: false,
                is_unfit: false,
            }],
        };
        let other = |host: u8| OtherNode {
            name: host.to_string(),
            address: format!("10.0.0.{host}/24").parse().unwrap(),
        };
        Surroundings {
            interfaces: OWN.iter().enumerate().map(interface).collect(),
            default_sources: vec![ip("10.0.0.1")],
            others: (2..7).map(other).collect(),
            ..Surroundings::default()
        }
    }

    /// Everybody who is asked answers to these addresses.
    fn answered_to(from: &[&str]) -> Surroundings {
        let mut node = node();
        node.probes = node.questions(&Wish::Detect, IpVersion::V4, 0);
        for probe in &mut node.probes {
            if from.contains(&&*probe.from.to_string()) {
                probe.answered = probe.asked.clone();
            }
        }
        node
    }

    fn chosen(wish: &Wish, node: &Surroundings) -> (String, super::super::Choice) {
        let choice = choose_address(wish, &Method::Ours, IpVersion::V4, node);
        (choice.address.as_ref().map_or(String::new(), |chosen| chosen.network.to_string()), choice)
    }

    #[test]
    fn an_address_that_others_do_not_answer_to_is_not_taken() {
        let (address, choice) = chosen(&Wish::Unsaid, &answered_to(&["10.9.0.1"]));
        assert_eq!((address.as_str(), &choice.address.unwrap().why), ("10.9.0.1/24", &Why::Answered));
        assert!(matches!(choice.refused[0].reason, RefusalReason::Unanswered(_)), "{:?}", choice.refused);
        assert_eq!(
            choice.refused[0].to_string(),
            "10.0.0.1: 10.0.0.2, 10.0.0.3, 10.0.0.4, 10.0.0.5 do not answer to it, but to 10.9.0.1"
        );
        for heard in [&["10.0.0.1"][..], &["10.0.0.1", "10.9.0.1"]] {
            assert_eq!(chosen(&Wish::Unsaid, &answered_to(heard)).0, "10.0.0.1/24");
        }
    }

    #[test]
    fn silence_of_everybody_proves_nothing() {
        let (address, choice) = chosen(&Wish::Unsaid, &answered_to(&[]));
        assert_eq!((address.as_str(), choice.doubts.len(), choice.refused.len()), ("10.0.0.1/24", 0, 0));
        let mut node = answered_to(&["10.9.0.1"]);
        // Those that answer to the second address were never asked from the first.
        node.probes[0].asked = [ip("10.0.0.6")].into();
        assert_eq!(unanswered(&node.probes, ip("10.0.0.1")), None);
    }

    #[test]
    fn what_is_recorded_or_said_is_kept_and_flagged() {
        let mut node = answered_to(&["10.9.0.1"]);
        node.recorded = Some(OWN[0].parse().unwrap());
        for wish in [Wish::Unsaid, Wish::Address(OWN[0].parse().unwrap())] {
            let (address, choice) = chosen(&wish, &node);
            assert_eq!(address, "10.0.0.1/24");
            assert!(matches!(&choice.doubts[..], [Doubt::Unanswered { .. }]), "{:?}", choice.doubts);
        }
    }

    #[test]
    fn each_look_asks_a_few_others() {
        let node = node();
        let asked = |turn: usize| node.questions(&Wish::Detect, IpVersion::V4, turn)[0].asked.clone();
        assert_eq!(asked(0).len(), 4);
        assert_ne!(asked(0), asked(1));
        assert_eq!(asked(0).union(&asked(1)).count(), 5);
        assert!(node.questions(&Wish::Keep, IpVersion::V4, 0).is_empty());
        assert!(node.questions(&Wish::Detect, IpVersion::V6, 0).is_empty());
        let alone = Surroundings { others: Vec::new(), ..node.clone() };
        assert!(alone.questions(&Wish::Detect, IpVersion::V4, 0).is_empty());
        let mut one_card = node.clone();
        one_card.interfaces.pop();
        assert!(one_card.questions(&Wish::Detect, IpVersion::V4, 0).is_empty());
    }
}
