//! A Lease of Kubernetes as the record of who leads, in the form that client-go's leader election reads and writes.
//!
//! Decisions only: the lease that was read and times go in, what to write comes out. A follower measures by its own clock for how long the
//! record has not changed and never compares clocks, so one that is wrong takes the lead from nobody.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A lease that states no usable duration counts for this long.
const LASTS_BY_DEFAULT: Duration = Duration::from_secs(15);

/// What to do about the lease.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    Create(Map<String, Value>),
    /// Replace it; the object states the revision that was read.
    Replace(Map<String, Value>),
    /// Another replica leads, or none is known to have stopped.
    Follow {
        leader: String,
    },
}

/// One candidate, and what it knows of the lease.
#[derive(Debug)]
pub(crate) struct Candidate {
    name: String,
    /// The lease's own, when it was seen changing last.
    seen: Option<(Value, Duration)>,
    lasts: Duration,
}

impl Candidate {
    /// No other candidate may have the same name.
    pub(crate) fn new(name: &str, lasts: Duration) -> Candidate {
        Candidate { name: name.to_owned(), seen: None, lasts }
    }

    /// `since_start` is of a clock that does not go back, `now` is what the lease will show.
    pub(crate) fn decide(
        &mut self,
        found: Option<&Map<String, Value>>,
        since_start: Duration,
        now: Timestamp,
    ) -> Decision {
        let Some(lease) = found else {
            return Decision::Create(self.lease(Map::new(), &Map::new(), now));
        };
        let none = Map::new();
        let spec = lease.get("spec").and_then(Value::as_object).unwrap_or(&none);
        let leader = text(spec, "holderIdentity");
        if leader.is_empty() || leader == self.name {
            return Decision::Replace(self.lease(lease.clone(), spec, now));
        }
        let shown =
            json!([leader, spec.get("renewTime"), spec.get("acquireTime"), spec.get("leaseTransitions")]);
        let since = match &self.seen {
            Some((before, since)) if *before == shown => *since,
            _ => {
                self.seen = Some((shown, since_start));
                since_start
            }
        };
        if since_start.saturating_sub(since) < lasts(spec) {
            return Decision::Follow { leader: leader.to_owned() };
        }
        Decision::Replace(self.lease(lease.clone(), spec, now))
    }

    /// What the lease shows after it was left: any candidate may take it at once.
    pub(crate) fn release(&self, mut lease: Map<String, Value>) -> Option<Map<String, Value>> {
        let spec = lease.get_mut("spec").and_then(Value::as_object_mut)?;
        if text(spec, "holderIdentity") != self.name {
            return None;
        }
        spec.insert("holderIdentity".to_owned(), "".into());
        spec.insert("leaseDurationSeconds".to_owned(), 1.into());
        Some(lease)
    }

    /// The lease with us as its holder. Fields that are not ours stay.
    fn lease(
        &self,
        mut lease: Map<String, Value>,
        old: &Map<String, Value>,
        now: Timestamp,
    ) -> Map<String, Value> {
        let mut spec = old.clone();
        let is_ours = text(old, "holderIdentity") == self.name;
        let now = Value::from(micro_time(now));
        if !is_ours || text(old, "acquireTime").is_empty() {
            spec.insert("acquireTime".to_owned(), now.clone());
        }
        let transitions = old.get("leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
        let has_changed_hands = !is_ours && !old.is_empty();
        spec.insert(
            "leaseTransitions".to_owned(),
            transitions.saturating_add(i64::from(has_changed_hands)).into(),
        );
        spec.insert("holderIdentity".to_owned(), self.name.as_str().into());
        spec.insert("leaseDurationSeconds".to_owned(), self.lasts.as_secs().max(1).into());
        spec.insert("renewTime".to_owned(), now);
        lease.insert("spec".to_owned(), Value::Object(spec));
        lease
    }
}

fn lasts(spec: &Map<String, Value>) -> Duration {
    let stated = spec.get("leaseDurationSeconds").and_then(Value::as_u64).filter(|seconds| *seconds > 0);
    stated.map_or(LASTS_BY_DEFAULT, Duration::from_secs)
}

fn text<'m>(spec: &'m Map<String, Value>, field: &str) -> &'m str {
    spec.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Kubernetes' MicroTime: always six digits, always UTC.
fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(15);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn wall(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn noon() -> Timestamp {
        wall("2026-01-01T12:00:00Z")
    }

    #[track_caller]
    fn written(decision: Decision) -> Map<String, Value> {
        match decision {
            Decision::Create(lease) | Decision::Replace(lease) => lease,
            Decision::Follow { leader } => panic!("follows {leader}"),
        }
    }

    #[test]
    fn the_first_one_leads_and_renews() {
        let mut one = Candidate::new("one", LASTS);
        let made = one.decide(None, at(0), noon());
        assert!(matches!(made, Decision::Create(_)));
        let made = written(made);
        assert_eq!(
            Value::Object(made.clone()),
            json!({ "spec": { "holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                "acquireTime": "2026-01-01T12:00:00.000000Z", "renewTime": "2026-01-01T12:00:00.000000Z" } })
        );
        let renewed = written(one.decide(Some(&made), at(2), wall("2026-01-01T12:00:02.5Z")));
        assert_eq!(renewed["spec"]["acquireTime"], made["spec"]["acquireTime"]);
        assert_eq!(renewed["spec"]["renewTime"], "2026-01-01T12:00:02.500000Z");
        assert_eq!(renewed["spec"]["leaseTransitions"], 0);
    }

    /// By the follower's own clock, whatever the lease says and whatever the clocks show.
    #[test]
    fn another_takes_over_when_the_lease_has_not_changed_for_as_long_as_it_lasts() {
        let (mut one, mut two) = (Candidate::new("one", LASTS), Candidate::new("two", LASTS));
        let mut lease = written(one.decide(None, at(0), noon()));
        lease.insert("metadata".to_owned(), json!({ "resourceVersion": "7", "labels": { "a": "b" } }));
        let hours_ahead = wall("2026-01-01T19:00:00Z");
        let follow = Decision::Follow { leader: "one".to_owned() };
        assert_eq!(two.decide(Some(&lease), at(100), hours_ahead), follow);
        assert_eq!(two.decide(Some(&lease), at(114), hours_ahead), follow);
        let renewed = written(one.decide(Some(&lease), at(14), wall("2026-01-01T12:00:14Z")));
        assert_eq!(two.decide(Some(&renewed), at(115), hours_ahead), follow, "it was renewed just in time");
        assert_eq!(two.decide(Some(&renewed), at(129), hours_ahead), follow);
        let taken = written(two.decide(Some(&renewed), at(130), hours_ahead));
        assert_eq!(taken["spec"]["holderIdentity"], "two");
        assert_eq!((&taken["spec"]["leaseTransitions"], &taken["metadata"]), (&json!(1), &lease["metadata"]));
        let back = one.decide(Some(&taken), at(30), noon());
        assert_eq!(back, Decision::Follow { leader: "two".to_owned() }, "the old leader follows");
    }

    #[test]
    fn a_lease_that_was_released_is_taken_at_once() {
        let (mut one, mut two) = (Candidate::new("one", LASTS), Candidate::new("two", LASTS));
        let lease = written(one.decide(None, at(0), noon()));
        assert_eq!(two.release(lease.clone()), None, "it is not its own");
        let released = one.release(lease).unwrap();
        assert_eq!(written(two.decide(Some(&released), at(1), noon()))["spec"]["holderIdentity"], "two");
    }

    #[test]
    fn what_others_wrote_into_it_is_survived() {
        for spec in [
            json!({}),
            json!(null),
            json!({ "holderIdentity": 7, "leaseDurationSeconds": "x", "leaseTransitions": i64::MAX }),
            json!({ "holderIdentity": "x", "leaseDurationSeconds": -3, "renewTime": [] }),
            json!({ "holderIdentity": "x", "leaseDurationSeconds": u64::MAX }),
        ] {
            let lease = json!({ "spec": spec }).as_object().unwrap().clone();
            let mut one = Candidate::new("one", LASTS);
            for seconds in [0, 20] {
                one.decide(Some(&lease), at(seconds), noon());
            }
        }
    }
}
