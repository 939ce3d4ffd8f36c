//! What is remembered about blocks of others in a crowded pool, so that a search need not read them again before they are written.
//!
//! It is a help for the next survey and nothing else: the survey lists all blocks with their revisions, and what was found out about a
//! block counts only at the revision at which it was found out.

use std::collections::BTreeMap;

use ipam::{Prospect, Reservations, Survey};
use model::{Cidr, IpVersion};
use store::Revision;

use super::Warm;

/// Of one IP version.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// What prospects depend on besides blocks.
    reserved: Reservations,
    prospects: BTreeMap<Cidr, (Revision, Prospect)>,
}

/// What was found out about blocks, each at a revision.
pub(crate) type Prospects = BTreeMap<Cidr, (Revision, Prospect)>;

impl Warm {
    /// What earlier surveys have found out with these reservations.
    pub(crate) fn prospects(&self, version: IpVersion, reserved: &Reservations) -> Prospects {
        let state = self.memory.lock();
        let crowd = state.crowds.get(&version).filter(|crowd| crowd.reserved == *reserved);
        crowd.map(|crowd| crowd.prospects.clone()).unwrap_or_default()
    }

    /// Takes in what a survey has found out about all blocks that exist.
    pub(crate) fn learn_prospects(&self, version: IpVersion, reserved: &Reservations, prospects: Prospects) {
        let mut state = self.memory.lock();
        state.crowds.insert(version, Crowd { reserved: reserved.clone(), prospects });
        state.is_crowded = true;
    }

    /// Takes in what a look at one block has found out.
    pub(crate) fn learn_prospect(
        &self,
        survey: &Survey,
        block: Cidr,
        revision: Revision,
        prospect: Prospect,
    ) {
        let mut state = self.memory.lock();
        let crowd =
            state.crowds.get_mut(&survey.version()).filter(|crowd| crowd.reserved == *survey.reserved());
        if let Some(crowd) = crowd {
            crowd.prospects.insert(block, (revision, prospect));
        }
    }

    /// Whether the last search for a block had to ask for all of them, and the node has claimed none since.
    pub(crate) fn is_crowded(&self) -> bool {
        self.memory.lock().is_crowded
    }
}
