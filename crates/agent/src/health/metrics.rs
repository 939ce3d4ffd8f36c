//! What the agent counts, and its text for Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Numbers that only grow, and numbers of the moment. All start at nought with the process.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) calls_served: AtomicU64,
    pub(crate) calls_failed: AtomicU64,
    pub(crate) dels_queued: AtomicU64,
    pub(crate) dels_waiting: AtomicI64,
    pub(crate) dels_retried: AtomicU64,
    pub(crate) attachments: AtomicI64,
    pub(crate) collected: AtomicU64,
    pub(crate) suspects: AtomicI64,
    pub(crate) reconciles: AtomicU64,
    pub(crate) mended: AtomicU64,
    pub(crate) unmended: AtomicI64,
    pub(crate) store_in_sync: AtomicI64,
    pub(crate) runtime_answers: AtomicI64,
    pub(crate) policies_unenforced: AtomicI64,
}

enum Sort {
    Counter,
    Gauge,
}

impl Metrics {
    pub(crate) fn count_call(&self, success: bool) {
        let counter = if success { &self.calls_served } else { &self.calls_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// In the text format of Prometheus, version 0.0.4.
    pub(crate) fn text(&self) -> String {
        use Sort::{Counter, Gauge};
        let grown = |number: &AtomicU64| i128::from(number.load(Ordering::Relaxed));
        let now = |number: &AtomicI64| i128::from(number.load(Ordering::Relaxed));
        let rows = [
            ("cni_calls_served_total", Counter, "CNI calls that succeeded", grown(&self.calls_served)),
            (
                "cni_calls_failed_total",
                Counter,
                "CNI calls that were answered with an error",
                grown(&self.calls_failed),
            ),
            (
                "dels_queued_total",
                Counter,
                "DELs that had to be queued by the agent",
                grown(&self.dels_queued),
            ),
            (
                "dels_retried_total",
                Counter,
                "Attempts at a queued DEL that failed",
                grown(&self.dels_retried),
            ),
            ("dels_waiting", Gauge, "DELs in the queue now", now(&self.dels_waiting)),
            ("attachments", Gauge, "Attachments in the journal", now(&self.attachments)),
            (
                "collected_total",
                Counter,
                "Attachments without an owner that were removed",
                grown(&self.collected),
            ),
            (
                "suspects",
                Gauge,
                "Attachments that seemed to have no owner at the last look",
                now(&self.suspects),
            ),
            ("reconciles_total", Counter, "Looks at the kernel's state", grown(&self.reconciles)),
            ("mended_total", Counter, "Differences in the kernel that were put right", grown(&self.mended)),
            ("unmended", Gauge, "Differences that the last look could not put right", now(&self.unmended)),
            ("store_in_sync", Gauge, "1 if the store's records are known", now(&self.store_in_sync)),
            (
                "runtime_answers",
                Gauge,
                "1 if the container runtime answered the last time",
                now(&self.runtime_answers),
            ),
            (
                "policies_unenforced",
                Gauge,
                "Policies and profiles in the store that would deny something and are not enforced",
                now(&self.policies_unenforced),
            ),
        ];
        let mut text = String::new();
        for (name, sort, help, value) in rows {
            let sort = match sort {
                Counter => "counter",
                Gauge => "gauge",
            };
            writeln!(text, "# HELP plumb_{name} {help}\n# TYPE plumb_{name} {sort}\nplumb_{name} {value}")
                .expect("a string takes any text");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_its_three_lines() {
        let metrics = Metrics::default();
        metrics.count_call(true);
        metrics.count_call(true);
        metrics.count_call(false);
        let text = metrics.text();
        assert!(text.contains("\nplumb_cni_calls_failed_total 1\n"), "{text}");
        assert!(
            text.contains("# TYPE plumb_cni_calls_served_total counter\nplumb_cni_calls_served_total 2\n")
        );
        assert_eq!(text.lines().filter(|line| line.starts_with("# HELP")).count() * 3, text.lines().count());
    }
}
