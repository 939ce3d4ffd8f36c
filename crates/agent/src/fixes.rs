//! What the agent fixed automatically: each fix is a line in the log, a count in the metrics, and an entry in a list that is part of the node's
//! evidence, all under the code that the fault would have as a finding.
//!
//! Not yet a Kubernetes Event.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use doctor::mended::Mended;
use evidence::node::Mend;
use jiff::Timestamp;
use tracing::info;

use crate::health::Metrics;

/// How many are kept. More fixes than this between two readers have one cause, which is among them.
const KEPT_MAX: usize = 256;

/// The last fixes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Fixes(Mutex<VecDeque<Mend>>);

impl Fixes {
    /// To be called after the fix. `words` say what was wrong or what was done.
    pub(crate) fn record(&self, mended: &Mended, words: &str, metrics: &Metrics) {
        let Mended { code, subject } = mended;
        info!("fixed [{code}] {subject}: {words}");
        metrics.mends.count(code.as_str());
        let fix =
            Mend { at: Timestamp::now(), code: *code, subject: subject.to_string(), words: words.to_owned() };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(fix);
    }

    pub(crate) fn all(&self) -> Vec<Mend> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use doctor::Subject;
    use model::FindingCode;

    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_all_are_counted() {
        let (fixes, metrics) = (Fixes::default(), Metrics::default());
        for number in 0..KEPT_MAX + 2 {
            let mended = Mended {
                code: FindingCode::DeviceDown,
                subject: Subject::device("a", format!("cali{number}")),
            };
            fixes.record(&mended, "it was down", &metrics);
        }
        let kept = fixes.all();
        assert_eq!(kept.len(), KEPT_MAX);
        assert_eq!(kept[0].subject, "device cali2 on a");
        assert!(metrics.page().contains("plumb_mends_total{code=\"device-down\"} 258\n"));
    }
}
