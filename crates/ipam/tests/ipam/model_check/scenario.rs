//! What is searched: a cluster, how much may happen in it, and which fault is put in on purpose.

use ipam::{Ordered, Step, Steps};
use model::Key;

/// What the cluster is made of, and how much may happen in it.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) nodes: Vec<String>,
    pub(crate) sandboxes: Vec<SandboxSpec>,
    pub(crate) pool: &'static str,
    pub(crate) block_size: u8,
    /// With this, every sandbox wants an address of each IP version.
    pub(crate) pool_v6: Option<(&'static str, u8)>,
    /// Sandboxes that come together; the others come alone.
    pub(crate) batches: Vec<Vec<usize>>,
    /// A block that an absent node holds, empty, since long ago.
    pub(crate) old_block: Option<(usize, &'static str)>,
    pub(crate) is_atomic: bool,
    pub(crate) is_strict: bool,
    pub(crate) fault: Option<Fault>,
    pub(crate) crashes: u8,
    /// How often a DEL comes once more for a sandbox that is gone.
    pub(crate) stale_dels: u8,
    /// How often a sandbox that is gone comes back under the same handle.
    pub(crate) returns: u8,
    /// How often the ADD of a sandbox is repeated that came to nothing.
    pub(crate) repeats: u8,
    /// How often the store refuses one handle of a batch.
    pub(crate) refusals: u8,
    /// Whether the DELs of those that came together may share their writes.
    pub(crate) dels_together: bool,
    pub(crate) host_releases: Vec<usize>,
    pub(crate) collections: u8,
    /// How often recovery runs beside everything else.
    pub(crate) recoveries: u8,
    /// Whether recovery also runs when nobody is at work.
    pub(crate) recovers_at_rest: bool,
    /// Something that is allowed at first and forbidden in the middle of it all.
    pub(crate) closed: Option<Closed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    Pool,
    Borrowing,
}

#[derive(Clone, Debug)]
pub(crate) struct SandboxSpec {
    pub(crate) node: usize,
    pub(crate) handle: String,
    pub(crate) pod: String,
}

/// Faults that are put in on purpose, to see that they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    ReleaseByPodName,
    HandleAfterBlock,
    NoSequenceNumber,
    NoPoolRevision,
    NoSettingsRevision,
    NoTouch,
    NoAbsence,
    BlockNotEmptyAtFirst,
    ReleaseInAnotherOrder,
    SameHandleAgain,
    AddressKept,
}

impl Scenario {
    /// Those that come with a sandbox; none if it comes with another.
    pub(crate) fn batch_of(&self, sandbox: usize) -> Vec<usize> {
        match self.batches.iter().find(|batch| batch.contains(&sandbox)) {
            Some(batch) if batch[0] == sandbox => batch.clone(),
            Some(_) => Vec::new(),
            None => vec![sandbox],
        }
    }

    pub(crate) fn handle_key(&self, sandbox: usize) -> Key {
        Key::Handle(self.sandboxes[sandbox].handle.as_str().into())
    }

    /// Whether handles that already say what they are to say are put right first.
    pub(crate) fn mends_handles(&self) -> bool {
        !self.is_atomic && self.fault != Some(Fault::SameHandleAgain)
    }

    /// The steps as this store does them, with the fault put in.
    pub(crate) fn ordered(&self, steps: &Steps) -> Vec<Ordered> {
        let is_pool = |key: &Key| matches!(key, Key::Resource { .. });
        let mut ordered: Vec<Ordered> = if self.is_atomic {
            steps.atomic().into_iter().map(Ordered::Step).collect()
        } else {
            steps.in_order().iter().filter(|step| !step.is_courtesy()).cloned().collect()
        };
        match self.fault {
            Some(Fault::NoPoolRevision) => ordered.retain(|step| !is_pool(step.key())),
            Some(Fault::NoSettingsRevision) => ordered.retain(|step| *step.key() != Key::IpamConfig),
            Some(Fault::HandleAfterBlock) => {
                let is_handle = |step: &Ordered| matches!(step.key(), Key::Handle(_));
                let (handles, mut others): (Vec<_>, Vec<_>) = ordered.into_iter().partition(is_handle);
                others.extend(handles);
                ordered = others;
            }
            Some(Fault::NoTouch) => {
                for step in &mut ordered {
                    if let Ordered::Touch { key, revision, .. } = step {
                        *step = Ordered::Step(Step::Require { key: key.clone(), revision: revision.clone() });
                    }
                }
            }
            Some(Fault::NoAbsence) => {
                ordered.retain(|step| !matches!(step, Ordered::Step(Step::RequireAbsent { .. })));
            }
            Some(Fault::ReleaseInAnotherOrder) => ordered = with_blocks_reversed(ordered),
            Some(Fault::BlockNotEmptyAtFirst) if !self.is_atomic => ordered = with_full_first_block(ordered),
            _ => {}
        }
        ordered
    }
}

/// Where blocks come before the handle, as in a release, the last block comes first.
fn with_blocks_reversed(mut ordered: Vec<Ordered>) -> Vec<Ordered> {
    let blocks = ordered.iter().take_while(|step| matches!(step.key(), Key::Block(_))).count();
    ordered[..blocks].reverse();
    ordered
}

/// A new block is written once, with its addresses, after the handle.
fn with_full_first_block(mut ordered: Vec<Ordered>) -> Vec<Ordered> {
    let is_creation = |step: &Ordered| matches!(step, Ordered::Step(Step::Create { key: Key::Block(_), .. }));
    if let Some(place) = ordered.iter().position(is_creation) {
        let created = ordered.remove(place);
        for step in &mut ordered {
            if let Ordered::Again { key, value } = step
                && key == created.key()
            {
                *step = Ordered::Step(Step::Create { key: key.clone(), value: value.clone() });
            }
        }
    }
    ordered
}
