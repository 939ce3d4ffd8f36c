//! Looking for blocks that nobody has, before one is needed.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipam::{Request, Surroundings, claim_candidates};
use model::{Cidr, IpVersion, Key};
use tracing::debug;

use super::Warm;
use crate::batch::group_request;
use crate::book::Inner;
use crate::look::read_records;
use crate::request::AssignRequest;
use crate::scene::Scene;

/// How far to look ahead.
#[derive(Clone, Copy, Debug)]
struct Foresight {
    /// So many unclaimed blocks of each IP version at least are known.
    known_min: usize,
    /// Blocks that are looked at together.
    look: usize,
}

/// Enough for two full commits in a row; a look is one round trip.
const FAR: Foresight = Foresight { known_min: 4, look: 16 };
/// For stores in which each block that is looked at costs a request.
const NEAR: Foresight = Foresight { known_min: 1, look: 1 };
/// In a pool with next to nothing left it is not worth looking further for what may never be needed.
const LOOKS_MAX: usize = 4;

/// What was seen on the way.
#[derive(Debug, Default)]
pub(super) struct Scouted {
    /// Not there when they were looked at, in the order in which they were met.
    unclaimed: Vec<Cidr>,
    /// Where to go on.
    last: BTreeMap<IpVersion, Cidr>,
}

impl Scouted {
    /// A record that we have written.
    pub(super) fn remember(&mut self, key: &Key) {
        if let Key::Block(cidr) = key {
            self.unclaimed.retain(|unclaimed| unclaimed != cidr);
        }
    }

    /// A record that is not as expected. Where one block was taken by someone, others may have been, too.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Key::Block(cidr) = key
            && self.unclaimed.contains(cidr)
        {
            self.unclaimed.clear();
        }
    }

    fn has_enough(&self, version: IpVersion, known_min: usize) -> bool {
        self.unclaimed.iter().filter(|block| block.version() == version).count() >= known_min
    }

    fn take_in(&mut self, version: IpVersion, looked_at: &[Cidr], absent: Vec<Cidr>, look: usize) {
        match looked_at.last() {
            Some(last) if looked_at.len() == look => drop(self.last.insert(version, *last)),
            // Round once: what was given back since may be met next time.
            _ => drop(self.last.remove(&version)),
        }
        for block in absent {
            if !self.unclaimed.contains(&block) {
                self.unclaimed.push(block);
            }
        }
    }
}

impl Warm {
    /// Blocks that were not there when they were looked at. It may be otherwise by now.
    pub(crate) fn unclaimed(&self) -> Vec<Cidr> {
        self.memory.lock().scouted.unclaimed.clone()
    }

    /// Waits until nobody looks ahead.
    pub(crate) async fn at_rest(&self) {
        let mut is_scouting = self.memory.is_scouting.subscribe();
        // The sender is in `memory`: it cannot be gone.
        let _ = is_scouting.wait_for(|is_scouting| !is_scouting).await;
    }
}

/// Looks ahead for a request that has just claimed a block, without anyone waiting for it.
pub(crate) fn look_ahead(inner: &Arc<Inner>, request: &AssignRequest, scene: &Scene) {
    let Some(warm) = inner.warm.as_ref().filter(|warm| warm.host == request.host) else { return };
    if warm.memory.is_scouting.send_replace(true) {
        return;
    }
    let is_own = |block: &Cidr| scene.affinities.iter().any(|(own, _)| own == block);
    warm.memory.lock().scouted.unclaimed.retain(|block| !is_own(block));
    let request = group_request(inner, request, Vec::new(), scene, 0);
    let (inner, surroundings) = (Arc::clone(inner), scene.surroundings(inner.now()));
    tokio::spawn(async move {
        let Some(warm) = &inner.warm else { return };
        for version in [IpVersion::V4, IpVersion::V6] {
            for _ in 0..LOOKS_MAX {
                if !look(&inner, warm, &request, &surroundings, version).await {
                    break;
                }
            }
        }
        warm.memory.is_scouting.send_replace(false);
    });
}

/// Looks at the next blocks. Whether it is worth going on.
async fn look(
    inner: &Inner,
    warm: &Warm,
    request: &Request,
    surroundings: &Surroundings,
    version: IpVersion,
) -> bool {
    let Foresight { known_min, look } = if inner.is_atomic() { FAR } else { NEAR };
    let after = {
        let scouted = &warm.memory.lock().scouted;
        if scouted.has_enough(version, known_min) {
            return false;
        }
        scouted.last.get(&version).copied()
    };
    let blocks = claim_candidates(request, surroundings, version, after, look);
    let records = match read_records(&inner.store, blocks.iter().copied().map(Key::Block).collect()).await {
        Ok(records) => records,
        Err(error) => {
            // Whoever needs a block will look, and say so.
            debug!("no look ahead: {error}");
            return false;
        }
    };
    let is_absent = |block: &Cidr| matches!(records.get(&Key::Block(*block)), Some(None));
    let absent = blocks.iter().copied().filter(is_absent).collect();
    warm.memory.lock().scouted.take_in(version, &blocks, absent, look);
    blocks.len() == look
}
