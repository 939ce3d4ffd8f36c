//! Chance that can be had again.

use std::hash::Hasher as _;

use fnv::FnvHasher;

/// A small generator of numbers: the same seed, the same numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A stream of its own for each purpose, so that one more roll here does not change what happens there.
    pub fn for_purpose(seed: u64, purpose: &str) -> Dice {
        let mut hasher = FnvHasher::with_key(seed ^ FnvHasher::default().finish());
        hasher.write(purpose.as_bytes());
        Dice(hasher.finish())
    }

    /// A number below `below`, which must not be 0.
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolls(mut dice: Dice) -> Vec<u64> {
        (0..20).map(|_| dice.roll(6)).collect()
    }

    #[test]
    fn the_same_seed_rolls_the_same() {
        assert_eq!(rolls(Dice::new(7)), rolls(Dice::new(7)));
        assert_ne!(rolls(Dice::for_purpose(7, "a")), rolls(Dice::for_purpose(7, "b")));
        assert!(rolls(Dice::new(7)).iter().all(|number| *number < 6));
    }
}
