//! Seeing to it that a node has a block with something free, before anyone wants an address.

use model::{Cidr, IpVersion, Key};

use super::choose::choose_pools;
use super::search::{How, Search, Wanted};
use super::survey::Survey;
use super::writes::Writes;
use super::{AssignError, Request, Surroundings};
use crate::{Answer, Decision, Next, Reservations, Steps};

/// Finds or claims one block for the node per IP version; which pools may serve, limits and settings are as for an
/// address. The request's wants do not matter. A node that has such a block keeps it, and nothing is written.
#[derive(Debug)]
pub struct BlockEnsurance {
    request: Request,
    surroundings: Surroundings,
    searches: Vec<Search>,
}

/// The node's blocks, once the steps have happened; one per IP version, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Ensured {
    pub blocks: Vec<Cidr>,
    pub steps: Steps,
}

impl BlockEnsurance {
    pub fn new(
        request: Request,
        versions: &[IpVersion],
        surroundings: Surroundings,
    ) -> Result<BlockEnsurance, AssignError> {
        let reserved = Reservations::new(&surroundings.reserved);
        let mut searches = Vec::new();
        for &version in versions {
            let pools = choose_pools(request.asker(), version, request.pools(version), &surroundings.pools)?;
            searches.push(Search::new(version, 1, pools, &request, &surroundings, &reserved));
        }
        Ok(BlockEnsurance { request, surroundings, searches })
    }

    fn finish(&self) -> Result<Ensured, AssignError> {
        let mut writes = Writes::new(&self.surroundings, self.request.block_owner());
        let mut blocks = Vec::new();
        for search in &self.searches {
            // A block that is another's does not become the node's by borrowing from it.
            let found = search.usable().into_iter().find(|found| found.how != How::Borrow);
            let found = found.ok_or_else(|| search.shortage())?;
            blocks.push(found.block.cidr);
            if found.how != How::Own || !self.surroundings.is_confirmed(&found.block.cidr) {
                let block = found.block.clone();
                writes.add_block(found, block);
            }
        }
        Ok(Ensured { blocks, steps: writes.steps().0 })
    }
}

impl Decision for BlockEnsurance {
    type Outcome = Ensured;
    type Error = AssignError;

    fn poll(&mut self) -> Result<Next<Ensured>, AssignError> {
        let mut keys: Vec<Key> = Vec::new();
        for search in &mut self.searches {
            match search.poll(&self.surroundings) {
                Wanted::Records(records) => keys.extend(records),
                Wanted::Survey(survey) => return Ok(Next::Survey(survey)),
            }
        }
        if keys.is_empty() { self.finish().map(Next::Done) } else { Ok(Next::Look(keys)) }
    }

    fn show(&mut self, key: &Key, answer: Answer) {
        for search in &mut self.searches {
            search.show(key, &answer, &self.surroundings);
        }
    }

    fn show_survey(&mut self, survey: Survey) {
        for search in &mut self.searches {
            search.show_survey(survey.clone(), &self.surroundings);
        }
    }
}
