//! When what was observed may be reported: the one place of the rule that two observations must agree.
//!
//! A state machine without a clock. Whoever drives it asks [`Examination::poll`] what to do, does it, and hands what an observation
//! found to [`Examination::observe`]:
//!
//! ```text
//!           ┌──────────── Wait(time) ◀───────────┐
//!           ▼                                    │ something may be churn, and is too new
//!  start ─▶ Collect ─▶ observe(at, found) ─▶ poll ┤
//!           ▲                                    │ nothing is left that another observation could confirm
//!           └── next_round(at) ◀─── Report ◀─────┘
//! ```
//!
//! `plumb doctor`, `--watch`, `plumb repair` and the agent all drive it, each with its own sort of key.

use std::collections::BTreeMap;
use std::time::Duration;

/// How often, and how far apart, something must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The first and the last observation that find it are at least this far apart.
    pub settle: Duration,
    /// So many observations in a row must find it.
    pub sightings: u32,
    /// After so many observations a round is reported, whatever is still unconfirmed.
    pub observations: u32,
}

/// How sure an observation is of what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It cannot come from churn.
    Certain,
    /// Something that is being created or deleted looks the same for a moment.
    MayBeChurn,
    /// It is younger than the grace: it is not judged, however often it is found.
    Young,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask again after this time.
    Wait(Duration),
    /// Observe now.
    Collect,
    /// Report what is confirmed. It stays so until [`Examination::next_round`].
    Report,
}

/// Observations so far. Times are those of any clock that does not go back, since any moment.
#[derive(Clone, Debug)]
pub struct Examination<K> {
    rule: Rule,
    /// What the last observation found.
    found: BTreeMap<K, Sighting>,
    /// Observations of this round.
    observations: u32,
    /// When the round begins.
    due: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Sighting {
    certainty: Certainty,
    /// When it was found first, and found in every observation since.
    first: Duration,
    last: Duration,
    count: u32,
}

impl Rule {
    /// Two observations this far apart.
    pub fn twice(settle: Duration) -> Rule {
        Rule { settle, sightings: 2, observations: 2 }
    }

    /// The same where every observation is reported: what it found for the first time is reported with the next one.
    pub fn rolling(settle: Duration) -> Rule {
        Rule { observations: 1, ..Rule::twice(settle) }
    }
}

impl<K: Ord> Examination<K> {
    pub fn new(rule: Rule) -> Examination<K> {
        Examination { rule, found: BTreeMap::new(), observations: 0, due: Duration::ZERO }
    }

    /// Takes in everything that an observation found. What it did not find is forgotten, and starts over if it returns.
    pub fn observe(&mut self, at: Duration, found: impl IntoIterator<Item = (K, Certainty)>) {
        let before = std::mem::take(&mut self.found);
        for (key, certainty) in found {
            let sighting = match before.get(&key) {
                // While it was young it was not judged: its time begins now.
                Some(before) if before.certainty != Certainty::Young => {
                    Sighting { certainty, last: at, count: before.count.saturating_add(1), ..*before }
                }
                _ => Sighting { certainty, first: at, last: at, count: 1 },
            };
            self.found.insert(key, sighting);
        }
        self.observations = self.observations.saturating_add(1);
    }

    pub fn poll(&self, now: Duration) -> Next {
        let at = match self.observations {
            0 => Some(self.due),
            _ => self.next_at(),
        };
        match at.map(|at| at.saturating_sub(now)) {
            None => Next::Report,
            Some(Duration::ZERO) => Next::Collect,
            Some(left) => Next::Wait(left),
        }
    }

    /// Begins another round at this moment, by this rule. What was found so far counts.
    pub fn next_round(&mut self, at: Duration, rule: Rule) {
        (self.observations, self.due, self.rule) = (0, at, rule);
    }

    /// Whether the last observation found it, and it may be reported.
    pub fn is_confirmed(&self, key: &K) -> bool {
        self.found.get(key).is_some_and(|sighting| self.confirms(sighting))
    }

    /// Everything that may be reported.
    pub fn confirmed(&self) -> impl Iterator<Item = &K> {
        self.found.iter().filter(|(_, sighting)| self.confirms(sighting)).map(|(key, _)| key)
    }

    /// What the last observation found, confirmed or not.
    pub fn found(&self) -> impl Iterator<Item = &K> {
        self.found.keys()
    }

    fn confirms(&self, sighting: &Sighting) -> bool {
        match sighting.certainty {
            Certainty::Certain => true,
            Certainty::MayBeChurn => {
                sighting.count >= self.rule.sightings
                    && sighting.last.saturating_sub(sighting.first) >= self.rule.settle
            }
            Certainty::Young => false,
        }
    }

    /// When another observation of this round may confirm something.
    fn next_at(&self) -> Option<Duration> {
        let left = self.rule.observations.saturating_sub(self.observations);
        let may_be_confirmed = |sighting: &&Sighting| {
            sighting.certainty == Certainty::MayBeChurn
                && !self.confirms(sighting)
                && left > 0
                && sighting.count.saturating_add(left) >= self.rule.sightings
        };
        let waiting = self.found.values().filter(may_be_confirmed);
        waiting.map(|sighting| sighting.first.saturating_add(self.rule.settle)).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::Certainty::{Certain, MayBeChurn, Young};
    use super::Next::{Collect, Report, Wait};
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn confirmed(examination: &Examination<char>) -> String {
        examination.confirmed().collect()
    }

    #[test]
    fn what_is_certain_is_reported_at_once() {
        let mut examination = Examination::new(Rule::twice(at(2)));
        assert_eq!(examination.poll(at(5)), Collect);
        examination.observe(at(5), [('a', Certain), ('y', Young)]);
        assert_eq!((examination.poll(at(5)), confirmed(&examination)), (Report, "a".to_owned()));
    }

    #[test]
    fn what_may_be_churn_must_be_found_twice_some_time_apart() {
        let mut examination = Examination::new(Rule::twice(at(2)));
        examination.observe(at(5), [('a', MayBeChurn), ('b', MayBeChurn), ('c', Certain)]);
        assert_eq!((examination.poll(at(6)), confirmed(&examination)), (Wait(at(1)), "c".to_owned()));
        assert_eq!(examination.poll(at(7)), Collect);
        examination.observe(at(8), [('a', MayBeChurn), ('d', MayBeChurn)]);
        assert_eq!((examination.poll(at(8)), confirmed(&examination)), (Report, "a".to_owned()));
        assert!(!examination.is_confirmed(&'d') && examination.found().eq(&['a', 'd']));
    }

    #[test]
    fn no_time_apart_is_still_two_observations() {
        let mut examination = Examination::new(Rule::twice(Duration::ZERO));
        examination.observe(at(5), [('a', MayBeChurn)]);
        assert_eq!((examination.poll(at(5)), confirmed(&examination)), (Collect, String::new()));
        examination.observe(at(5), [('a', MayBeChurn)]);
        assert_eq!((examination.poll(at(5)), confirmed(&examination)), (Report, "a".to_owned()));
    }

    #[test]
    fn a_round_continues_where_the_last_one_ended() {
        let rule = Rule::rolling(at(10));
        let mut examination = Examination::new(rule);
        examination.next_round(at(10), rule);
        assert_eq!((examination.poll(at(4)), examination.poll(at(10))), (Wait(at(6)), Collect));
        examination.observe(at(11), [('a', MayBeChurn)]);
        assert_eq!((examination.poll(at(11)), confirmed(&examination)), (Report, String::new()));
        examination.next_round(at(21), rule);
        examination.observe(at(22), [('a', MayBeChurn), ('b', MayBeChurn)]);
        assert_eq!((examination.poll(at(22)), confirmed(&examination)), (Report, "a".to_owned()));
    }

    #[test]
    fn what_can_no_longer_be_confirmed_is_not_waited_for() {
        let rule = Rule { settle: at(2), sightings: 3, observations: 3 };
        let mut examination = Examination::new(rule);
        examination.observe(at(0), [('a', MayBeChurn)]);
        assert_eq!(examination.poll(at(0)), Wait(at(2)));
        examination.observe(at(2), [('b', MayBeChurn)]);
        assert_eq!(examination.poll(at(2)), Report, "only one observation is left for it");
        examination.next_round(at(9), rule);
        examination.observe(at(9), [('b', MayBeChurn)]);
        assert_eq!(examination.poll(at(9)), Collect, "it has settled and lacks one sighting");
    }

    fn rules() -> impl Strategy<Value = Rule> {
        (0u64..20, 1u32..4, 1u32..5).prop_map(|(settle, sightings, observations)| Rule {
            settle: at(settle),
            sightings,
            observations,
        })
    }

    fn certainty(number: u8) -> Certainty {
        [Certain, MayBeChurn, Young][usize::from(number % 3)]
    }

    proptest! {
        /// Whatever observations show, and whenever: what is reported was found by each of the last observations, often and long enough.
        #[test]
        fn only_what_lasted_is_confirmed(rule in rules(), observations in vec((0u64..12, vec((0u8..6, 0u8..3), 0..8)), 1..20)) {
            let mut examination = Examination::new(rule);
            let (mut now, mut history) = (Duration::ZERO, Vec::new());
            for (pause, found) in observations {
                now += at(pause);
                let found: BTreeMap<u8, Certainty> = found.into_iter().map(|(key, how)| (key, certainty(how))).collect();
                examination.observe(now, found.clone());
                history.push((now, found.clone()));
                for key in 0..6 {
                    let run = history.iter().rev().take_while(|(_, found)| found.get(&key).is_some_and(|how| *how != Young));
                    let times: Vec<Duration> = run.map(|(at, _)| *at).collect();
                    let lasted = times.len() >= rule.sightings as usize
                        && times.first().zip(times.last()).is_some_and(|(last, first)| *last - *first >= rule.settle);
                    let expected = match found.get(&key) {
                        Some(Certain) => true,
                        Some(MayBeChurn) => lasted,
                        Some(Young) | None => false,
                    };
                    prop_assert_eq!(examination.is_confirmed(&key), expected);
                }
                let confirmed: Vec<u8> = examination.confirmed().copied().collect();
                prop_assert!(confirmed.iter().all(|key| examination.is_confirmed(key)));
            }
        }

        /// Whoever does what it is told gets a report after a bounded number of observations and a bounded time of waiting.
        #[test]
        fn a_round_always_ends(rule in rules(), found in vec(vec((0u8..6, 0u8..3), 0..8), 8), slowness in 0u64..5) {
            let mut examination = Examination::new(rule);
            let (mut now, mut waited, mut observed) = (at(3), Duration::ZERO, 0u32);
            loop {
                match examination.poll(now) {
                    Report => break,
                    Wait(time) => {
                        prop_assert!(!time.is_zero());
                        (now, waited) = (now + time, waited + time);
                        prop_assert_eq!(examination.poll(now), Collect, "having waited is enough");
                    }
                    Collect => {
                        prop_assert!(observed < rule.observations);
                        now += at(slowness);
                        let found = found[observed as usize].iter().map(|(key, how)| (*key, certainty(*how)));
                        examination.observe(now, found.collect::<BTreeMap<_, _>>());
                        observed += 1;
                    }
                }
            }
            prop_assert!(waited <= rule.settle * rule.observations);
        }
    }
}
