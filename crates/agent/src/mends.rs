//! What the agent put right by itself: each one a line in the log, a number in the metrics, and an entry in a list of the last ones that
//! goes with the node's evidence. All under the code of the finding that it would have been.
//!
//! Not yet an Event of Kubernetes: there is no store for that API so far.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use doctor::evidence::node::Mend;
use doctor::mended::Mended;
use jiff::Timestamp;
use tracing::info;

use crate::health::Metrics;

/// How many are remembered. A node that is put right more often than this between two looks has one cause, and that is among them.
const KEPT_MAX: usize = 256;

/// The last ones, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Mends(Mutex<VecDeque<Mend>>);

impl Mends {
    /// To be called when it is done. `words` say what was wrong.
    pub(crate) fn note(&self, mended: &Mended, words: &str, metrics: &Metrics) {
        let Mended { code, subject } = mended;
        info!("put right [{code}] {subject}: {words}");
        metrics.mends.count(code);
        let mend = Mend {
            at: Timestamp::now(),
            code: (*code).to_owned(),
            subject: subject.to_string(),
            words: words.to_owned(),
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(mend);
    }

    pub(crate) fn all(&self) -> Vec<Mend> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use doctor::Subject;

    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_all_are_counted() {
        let (mends, metrics) = (Mends::default(), Metrics::default());
        for number in 0..KEPT_MAX + 2 {
            let mended =
                Mended { code: "device-down", subject: Subject::device("a", format!("cali{number}")) };
            mends.note(&mended, "it was down", &metrics);
        }
        let kept = mends.all();
        assert_eq!(kept.len(), KEPT_MAX);
        assert_eq!(kept[0].subject, "device cali2 on a");
        assert!(metrics.text().contains("plumb_mends_total{code=\"device-down\"} 258\n"));
    }
}
