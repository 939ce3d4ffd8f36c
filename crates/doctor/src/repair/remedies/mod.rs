//! What is done about each code. A new check needs a row here: a remedy, or the reason why it is left to people.

mod addresses;
mod affinities;
mod blocks;
mod by_hand;
mod crossings;
mod endpoints;
mod handles;
mod kernel;
mod nodes;
mod pods;
mod running;
mod shared;

use super::draft::{Draft, Target};

/// How findings of one code are repaired.
#[derive(Debug)]
pub struct Remedy {
    pub code: &'static str,
    pub area: Area,
    /// What repair does, and under which condition; or why it does nothing.
    pub does: &'static str,
    /// How that is taken back.
    pub undo: &'static str,
    /// `None`: left to people.
    pub(super) act: Option<fn(&mut Draft<'_, '_>, &Target)>,
}

/// Which part of the network it changes: `plumb repair ipam`, `plumb repair endpoints`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    Ipam,
    Endpoints,
    /// What a pod has in the kernel.
    Kernel,
    /// The node itself.
    Node,
    /// Nothing.
    ByHand,
}

/// In the order in which steps are done: first what makes records readable, then what gives, then what takes.
pub const ALL: &[&[Remedy]] = &[
    handles::UNREADABLE,
    blocks::ALL,
    addresses::GIVING,
    endpoints::GIVING,
    nodes::ALL,
    kernel::GIVING,
    crossings::GIVING,
    pods::ALL,
    shared::ALL,
    endpoints::TAKING,
    addresses::TAKING,
    handles::ALL,
    affinities::ALL,
    kernel::TAKING,
    crossings::TAKING,
    by_hand::ALL,
];

/// The remedy for a code, and its place in the order.
pub(super) fn ranked(code: &str) -> Option<(usize, &'static Remedy)> {
    ALL.iter().flat_map(|remedies| remedies.iter()).enumerate().find(|(_, remedy)| remedy.code == code)
}

/// Whether a symptom can be judged only after its cause is repaired: ways between nodes follow from the nodes' addresses, and made by
/// a wrong one they would be wrong themselves.
pub(super) fn must_wait(cause: &str, symptom: &str) -> bool {
    is_about_address(cause) && crossings::is_way(symptom)
}

/// Whether this is about the address of a node.
pub(super) fn is_about_address(code: &str) -> bool {
    nodes::is_about_address(code)
}

/// Whether the repair of this writes the addresses of all other nodes.
pub(super) fn is_made_of_addresses(code: &str) -> bool {
    code == crossings::TUNNEL_DEVICE
}

/// The remedy for a code.
pub fn find(code: &str) -> Option<&'static Remedy> {
    ranked(code).map(|(_, remedy)| remedy)
}

impl Remedy {
    /// Whether repair can do anything about it.
    pub fn is_by_hand(&self) -> bool {
        self.act.is_none()
    }

    pub(super) fn plan(&self, draft: &mut Draft<'_, '_>, target: &Target) {
        match self.act {
            Some(act) => act(draft, target),
            None => draft.leave(target, self.does, Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_code_has_one_remedy_and_every_remedy_a_code() {
        let all: Vec<&str> =
            ALL.iter().flat_map(|remedies| remedies.iter()).map(|remedy| remedy.code).collect();
        let codes: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(codes.len(), all.len(), "a code has two remedies");
        let checks: BTreeSet<&str> = crate::checks::ALL.iter().map(|check| check.code).collect();
        assert_eq!(checks.difference(&codes).collect::<Vec<_>>(), [] as [&&str; 0], "codes without a remedy");
        assert_eq!(
            codes.difference(&checks).collect::<Vec<_>>(),
            [] as [&&str; 0],
            "remedies without a check"
        );
    }

    #[test]
    fn what_repair_does_can_be_taken_back() {
        for remedy in ALL.iter().flat_map(|remedies| remedies.iter()) {
            assert!(!remedy.does.is_empty(), "{}", remedy.code);
            assert_eq!(remedy.is_by_hand(), remedy.undo.is_empty(), "{}", remedy.code);
            assert_eq!(remedy.is_by_hand(), remedy.area == Area::ByHand, "{}", remedy.code);
        }
    }
}
