//! Choices for random cases, from one number that proptest gives.

#[allow(dead_code, reason = "not each test program needs worlds")]
pub(crate) mod world;

/// The same number makes the same choices.
#[derive(Debug)]
pub(crate) struct Dice(u64);

#[allow(dead_code, reason = "not each test program needs each kind of choice")]
impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(crate) fn number(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % below.max(1) as u64).expect("less than a usize")
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.number(times) == 0
    }

    pub(crate) fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.number(items.len())]
    }

    /// Each of them with a chance of one half.
    pub(crate) fn some_of<T: Clone>(&mut self, items: &[T]) -> Vec<T> {
        items.iter().filter(|_| self.once_in(2)).cloned().collect()
    }
}
