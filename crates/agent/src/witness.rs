//! When something has no owner any more: two witnesses say that it is gone, none that it lives, and that in two looks
//! some time apart. A witness that cannot be asked says nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

pub(crate) use doctor::repair::witness::{Word, say_gone};

/// What seemed to be gone at earlier looks, and since when.
#[derive(Debug)]
pub(crate) struct Suspects<T>(BTreeMap<T, Instant>);

impl<T> Default for Suspects<T> {
    fn default() -> Suspects<T> {
        Suspects(BTreeMap::new())
    }
}

impl<T: Ord + Clone> Suspects<T> {
    /// Takes in a look: everything that seems to be gone now. Gives what has seemed so for the whole grace.
    ///
    /// Whoever was seen alive in between, or could not be judged, starts over.
    pub(crate) fn look(
        &mut self,
        gone: impl IntoIterator<Item = T>,
        now: Instant,
        grace: Duration,
    ) -> Vec<T> {
        let known = std::mem::take(&mut self.0);
        let mut condemned = Vec::new();
        for suspect in gone {
            let since = known.get(&suspect).copied().unwrap_or(now);
            if known.contains_key(&suspect) && now.duration_since(since) >= grace {
                condemned.push(suspect.clone());
            }
            self.0.insert(suspect, since);
        }
        condemned
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use model::Sandbox;
    use proptest::prelude::*;

    use super::*;

    fn sandbox(container: &str) -> Sandbox {
        Sandbox::new("net", container, "eth0").unwrap()
    }

    #[test]
    fn one_look_is_never_enough_and_two_must_be_apart() {
        let (mut suspects, grace) = (Suspects::default(), Duration::from_secs(60));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(suspects.look([sandbox("a")], at(0), Duration::ZERO), []);
        assert_eq!(suspects.look([sandbox("a"), sandbox("b")], at(59), grace), []);
        assert_eq!(suspects.look([sandbox("a"), sandbox("b")], at(60), grace), [sandbox("a")]);
        // Seen alive in between: it starts over.
        assert_eq!(suspects.look([sandbox("a")], at(70), grace), [sandbox("a")]);
        assert_eq!(suspects.look([sandbox("b")], at(120), grace), []);
        assert_eq!(suspects.look([sandbox("b")], at(179), grace), []);
        assert_eq!(suspects.look([sandbox("b")], at(180), grace), [sandbox("b")]);
        assert_eq!(suspects.len(), 1);
    }

    proptest! {
        /// Whatever the looks show: nobody is condemned who was not seen gone in every look of the last grace.
        #[test]
        fn nobody_is_condemned_early(looks in proptest::collection::vec((0u64..40, 0u8..8), 1..20)) {
            let (mut suspects, grace) = (Suspects::default(), Duration::from_secs(60));
            let (mut now, mut history) = (Instant::now(), Vec::new());
            for (pause, seen) in looks {
                now += Duration::from_secs(pause);
                let gone: Vec<Sandbox> =
                    ["a", "b", "c"].iter().enumerate().filter(|(bit, _)| seen >> bit & 1 == 1).map(|(_, name)| sandbox(name)).collect();
                history.push((now, gone.clone()));
                for condemned in suspects.look(gone, now, grace) {
                    let first = history.iter().rev().take_while(|(_, gone)| gone.contains(&condemned)).last().unwrap().0;
                    prop_assert!(now - first >= grace);
                }
            }
        }
    }
}
