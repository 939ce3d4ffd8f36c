//! The steps of a list in the parts that matter to a store that writes record by record.

use std::net::IpAddr;

use model::Key;
use model::ipam::Block;

use crate::block::give_back;
use crate::{Ordered, Step, Steps};

/// What is done one after the other, and what beside each other. [`mod@crate::step`] says why each prefix is harmless; that the
/// handles come in any order changes nothing: each is one owner's, and no two speak of the same address.
///
/// Courtesies ([`Ordered::is_courtesy`]) are left out: here they would cost a request each and promise nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// One after the other. If one fails, no owner has got anything.
    pub before: Vec<Ordered>,
    /// Beside each other. An owner whose handle cannot be written drops out ([`Parts::leave_free`]), the others go on.
    pub handles: Vec<Ordered>,
    /// One after the other. An owner has its addresses as soon as those blocks are written in which they are.
    pub blocks: Vec<Ordered>,
    /// Housekeeping that recovery would finish as well.
    pub rest: Vec<Ordered>,
}

impl Parts {
    /// The addresses of owners that have dropped out stay free. Only for blocks that are not written yet.
    pub fn leave_free(&mut self, addresses: &[IpAddr]) {
        self.blocks.iter_mut().for_each(|ordered| leave_free(ordered, addresses));
    }
}

impl Steps {
    pub fn parts(&self) -> Parts {
        let steps = || self.in_order().iter().filter(|ordered| !ordered.is_courtesy()).cloned();
        let is_handle = |ordered: &Ordered| matches!(ordered.key(), Key::Handle(_));
        let before: Vec<Ordered> = steps().take_while(|ordered| !is_handle(ordered)).collect();
        let handles: Vec<Ordered> = steps().skip(before.len()).take_while(is_handle).collect();
        let mut blocks: Vec<Ordered> = steps().skip(before.len() + handles.len()).collect();
        let decided = blocks.iter().rposition(Ordered::is_decisive).map_or(0, |last| last + 1);
        let rest = blocks.split_off(decided);
        Parts { before, handles, blocks, rest }
    }
}

/// One write of a block, with these addresses free.
pub fn leave_free(ordered: &mut Ordered, addresses: &[IpAddr]) {
    let (Ordered::Step(Step::Create { key, value } | Step::Update { key, value, .. })
    | Ordered::Again { key, value }) = ordered
    else {
        return;
    };
    let Key::Block(cidr) = key else { return };
    // We have encoded it ourselves.
    let Ok(mut block) = Block::decode(cidr, value) else { return };
    let is_taken = |ordinal: &usize| block.attribute(*ordinal).is_some();
    let ordinals: Vec<usize> =
        addresses.iter().filter_map(|address| block.ordinal(*address)).filter(is_taken).collect();
    if !ordinals.is_empty() {
        give_back(&mut block, &ordinals, None);
        *value = block.encode();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::Kind;

    use super::*;
    use crate::{Owner, Reservations, take};

    fn handle(id: &str) -> Step {
        Step::Create { key: Key::Handle(id.into()), value: b"{}".to_vec() }
    }

    fn block() -> Block {
        Block::new("10.0.0.0/30".parse().unwrap(), None, 7)
    }

    fn owner(handle: &str) -> Owner {
        Owner { handle: handle.into(), attributes: BTreeMap::new() }
    }

    #[test]
    fn handles_are_beside_each_other_and_courtesies_are_left_out() {
        let mut steps = Steps::default();
        steps.push(Step::RequireAbsent { key: Key::IpamConfig });
        steps.push(Step::Require { key: Key::cluster(Kind::IpPool, "p"), revision: "1".to_owned() });
        steps.put(block().key(), block().encode(), None);
        steps.push(handle("a"));
        steps.push(handle("b"));
        steps.again(block().key(), block().encode());
        let affinity = Key::Affinity {
            owner: model::AffinityOwner::Host("n".to_owned()),
            block: "10.0.0.0/30".parse().unwrap(),
        };
        steps.put(affinity, b"{}".to_vec(), None);
        let parts = steps.parts();
        let counts = (parts.before.len(), parts.handles.len(), parts.blocks.len(), parts.rest.len());
        assert_eq!(counts, (1, 2, 1, 1), "{parts:?}");
    }

    #[test]
    fn a_release_ends_with_its_handles() {
        let mut steps = Steps::default();
        steps.put(block().key(), block().encode(), Some("1".to_owned()));
        steps.push(handle("a"));
        let parts = steps.parts();
        assert_eq!((parts.before.len(), parts.handles.len()), (1, 1));
        assert_eq!((parts.blocks.len(), parts.rest.len()), (0, 0));
    }

    #[test]
    fn who_drops_out_leaves_its_address_free_and_the_others_theirs() {
        let mut taken = block();
        let (first, second) = ("a", "b");
        let dropped = take(&mut taken, &owner(first), 1, &Reservations::default());
        let kept = take(&mut taken, &owner(second), 1, &Reservations::default());
        let mut parts = Parts::default();
        parts.blocks.push(Ordered::Again { key: taken.key(), value: taken.encode() });
        parts.leave_free(&dropped);
        let Ordered::Again { value, .. } = &parts.blocks[0] else { panic!("{parts:?}") };
        let block = Block::decode(&taken.cidr, value).unwrap();
        assert_eq!(block.contradictions(), [] as [String; 0]);
        let holder = |address: IpAddr| {
            let attribute = block.attribute(block.ordinal(address).unwrap());
            attribute.and_then(|attribute| attribute.handle()).cloned()
        };
        assert_eq!((holder(dropped[0]), holder(kept[0])), (None, Some("b".into())));
        assert_eq!(block.sequence_number, taken.sequence_number, "it is still one write");
    }
}
