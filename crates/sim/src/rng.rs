//! Random numbers from a seed. Not for secrets.
//!
//! Each process and the scheduler draw from a stream of their own, so that one more draw in one of them does not
//! reshuffle all the others.

/// SplitMix64: small, and the same everywhere and forever, which a random-number crate does not promise.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of this seed that belongs to `purpose`.
    pub(crate) fn stream(seed: u64, purpose: &str) -> Rng {
        let mut state = mixed(seed);
        for byte in purpose.bytes() {
            state = mixed(state ^ u64::from(byte));
        }
        Rng { state }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.state)
    }

    /// A number from 0 up to, not including, `end`. The bias of the remainder is far too small to matter here.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        assert!(end > 0, "there is no number below 0");
        (self.next() % end as u64) as usize
    }

    /// True this often in a thousand.
    pub(crate) fn per_mille(&mut self, chance: u64) -> bool {
        self.next() % 1000 < chance
    }
}

fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(seed: u64, purpose: &str) -> Vec<u64> {
        let mut rng = Rng::stream(seed, purpose);
        (0..8).map(|_| rng.next()).collect()
    }

    #[test]
    fn streams_repeat_and_differ() {
        assert_eq!(draws(7, "writer-1"), draws(7, "writer-1"));
        assert_ne!(draws(7, "writer-1"), draws(8, "writer-1"));
        assert_ne!(draws(7, "writer-1"), draws(7, "writer-2"));
        assert_ne!(draws(0, ""), draws(1, ""));
    }

    #[test]
    fn every_number_below_the_end_is_drawn() {
        let mut rng = Rng::stream(1, "test");
        let mut seen = [0; 10];
        for _ in 0..1000 {
            seen[rng.below(10)] += 1;
        }
        assert!(seen.iter().all(|count| (50..200).contains(count)), "{seen:?}");
        assert!((0..1000).filter(|_| rng.per_mille(100)).count().abs_diff(100) < 50);
    }
}
