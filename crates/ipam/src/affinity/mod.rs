//! Which block belongs to whom: claiming, confirming and giving up.

mod claim;
mod release;

use model::Key;
use model::ipam::{Affinity, AffinityState};

pub(crate) use claim::confirm;
pub use claim::{BlockClaim, BlockClaimed, ClaimError, blocks_in};
pub(crate) use release::give_up;
pub use release::{AffinityRelease, BlockReleased, Refusal, ReleaseRule, deselected_blocks, spare_blocks};

use crate::{Step, Steps, Stored};

/// The record in another state, with everything else in it.
pub(crate) fn affinity_value(affinity: &Affinity, state: AffinityState) -> Vec<u8> {
    Affinity { state, ..affinity.clone() }.encode()
}

/// Says that a claim has started, if the record does not say so yet.
pub(crate) fn begin_claim(key: Key, known: Option<&Stored<Affinity>>, steps: &mut Steps) {
    match known {
        None => steps.put(key, Affinity::new(AffinityState::Pending).encode(), None),
        // It says so, or has come as far as it can: then it is relied on below.
        Some(known) if matches!(known.value.state, AffinityState::Pending | AffinityState::Confirmed) => {}
        Some(known) => {
            let value = affinity_value(&known.value, AffinityState::Pending);
            steps.put(key, value, Some(known.revision.clone()));
        }
    }
}

/// Says that the block is the owner's. A confirmed affinity is only relied on, and only where the block `is_new`: a
/// block that was there guards itself, one that is made must not outlive the affinity.
pub(crate) fn finish_claim(key: Key, known: Option<&Stored<Affinity>>, is_new: bool, steps: &mut Steps) {
    match known {
        None => steps.again(key, Affinity::new(AffinityState::Confirmed).encode()),
        Some(known) => {
            let (value, revision) =
                (affinity_value(&known.value, AffinityState::Confirmed), known.revision.clone());
            match known.value.state {
                AffinityState::Confirmed if is_new => steps.push(Step::Require { key, revision }),
                AffinityState::Confirmed => {}
                AffinityState::Pending => steps.put(key, value, Some(revision)),
                AffinityState::PendingDeletion | AffinityState::Other(_) => steps.again(key, value),
            }
        }
    }
}
