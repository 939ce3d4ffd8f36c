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

use model::FindingCode;

use doctor::Subject;

use super::draft::{Draft, Ground, Target};

/// How findings of one code are repaired.
#[derive(Debug)]
pub struct Remedy {
    pub code: FindingCode,
    pub area: Area,
    /// What repair does, and under which condition; or why it does nothing.
    pub does: &'static str,
    /// How that is taken back.
    pub undo: &'static str,
    /// `None`: left to people.
    pub(super) act: Option<Act>,
}

type Act = fn(&mut Draft<'_, '_>, &Target);

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

/// Where the remedy for each code stands in the order. A code without a remedy, or with two, does not compile.
const PLACES: [(usize, &Remedy); FindingCode::ALL.len()] = {
    let mut places: [Option<(usize, &Remedy)>; FindingCode::ALL.len()] = [None; FindingCode::ALL.len()];
    let (mut list, mut rank) = (0, 0);
    while list < ALL.len() {
        let mut row = 0;
        while row < ALL[list].len() {
            let remedy = &ALL[list][row];
            assert!(places[remedy.code as usize].is_none(), "a code has two remedies");
            places[remedy.code as usize] = Some((rank, remedy));
            (row, rank) = (row + 1, rank + 1);
        }
        list += 1;
    }
    let mut found = [(0, &ALL[0][0]); FindingCode::ALL.len()];
    let mut code = 0;
    while code < found.len() {
        found[code] = places[code].expect("every code has a remedy");
        code += 1;
    }
    found
};

/// The remedy for a code, and its place in the order.
pub(super) fn ranked(code: FindingCode) -> (usize, &'static Remedy) {
    PLACES[code as usize]
}

/// Whether a symptom can be judged only after its cause is repaired: ways between nodes follow from the nodes' addresses, and made by
/// a wrong one they would be wrong themselves.
pub(super) fn must_wait(cause: FindingCode, symptom: FindingCode) -> bool {
    is_about_address(cause) && crossings::is_way(symptom)
}

/// Whether a symptom is that nothing leads to an address which only a wrong record of an endpoint has: once the record is right, nothing
/// must. What is made for such an address would be left over.
pub(super) fn follows_from_record(ground: &Ground<'_>, cause: FindingCode, symptom: &Target) -> bool {
    let is_of_record = matches!(cause, FindingCode::EndpointAddressDiffers | FindingCode::AddressShared);
    let is_only_recorded = || match symptom.subject {
        Subject::Address(address) => {
            !ground.case.endpoints_at(address).is_empty() && !ground.case.is_inside_a_pod(address)
        }
        _ => false,
    };
    is_of_record
        && match symptom.code {
            FindingCode::RouteMissing | FindingCode::NeighbourMissing | FindingCode::PodAddressMissing => {
                true
            }
            FindingCode::AddressUsedButFree => is_only_recorded(),
            _ => false,
        }
}

/// Whether this is about the address of a node.
pub(super) fn is_about_address(code: FindingCode) -> bool {
    nodes::is_about_address(code)
}

/// Whether the repair of this writes the addresses of all other nodes.
pub(super) fn is_made_of_addresses(code: FindingCode) -> bool {
    code == crossings::TUNNEL_DEVICE
}

/// The remedy for a code.
pub fn find(code: FindingCode) -> &'static Remedy {
    ranked(code).1
}

impl Remedy {
    /// One that acts. It adds what it does, and how that is taken back.
    const fn of(code: FindingCode, area: Area, act: Act) -> Remedy {
        Remedy { code, area, does: "", undo: "", act: Some(act) }
    }

    /// Whether repair can do anything about it.
    pub fn is_by_hand(&self) -> bool {
        self.act.is_none()
    }

    pub(super) fn plan(&self, draft: &mut Draft<'_, '_>, target: &Target) {
        match self.act {
            Some(act) => act(draft, target),
            None => draft.leave(target, self.does),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_found_by_their_code() {
        for code in FindingCode::ALL {
            assert_eq!(find(*code).code, *code);
        }
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
