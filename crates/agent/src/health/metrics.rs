//! What the agent counts, and its text for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::findings::Counts;

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
    pub(crate) rival_routes: AtomicI64,
    pub(crate) adopted: AtomicU64,
    pub(crate) store_away: AtomicI64,
    pub(crate) store_in_sync: AtomicI64,
    pub(crate) runtime_answers: AtomicI64,
    pub(crate) policies_unenforced: AtomicI64,
    pub(crate) routes_wanted: AtomicI64,
    pub(crate) routes_failed: AtomicI64,
    pub(crate) routes_changed: AtomicU64,
    pub(crate) routes_mended: AtomicU64,
    pub(crate) routes_disturbed: AtomicU64,
    pub(crate) blocks_unreachable: AtomicI64,
    pub(crate) blocks_refused: AtomicI64,
    pub(crate) node_addresses_shared: AtomicI64,
    pub(crate) nat_failed: AtomicI64,
    pub(crate) pod_guard_missing: AtomicI64,
    pub(crate) node_address_doubts: AtomicI64,
    sessions_wanted: AtomicI64,
    sessions_established: AtomicI64,
    bgp_records_unfit: AtomicI64,
    bgp_left_out: AtomicI64,
    /// Empty before the first look.
    findings: Mutex<Counts>,
    /// What the agent put right by itself, by code.
    pub(crate) mends: Labelled,
    /// What a repair asked for, by its outcome.
    pub(crate) repairs: Labelled,
}

/// A counter for each value of a label. Values that were never counted are not there.
#[derive(Debug, Default)]
pub(crate) struct Labelled(Mutex<BTreeMap<&'static str, u64>>);

impl Labelled {
    pub(crate) fn count(&self, value: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(value).or_default() += 1;
    }

    fn write(&self, text: &mut String, name: &str, label: &str, help: &str) {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.is_empty() {
            return;
        }
        writeln!(text, "# HELP plumb_{name} {help}\n# TYPE plumb_{name} counter")
            .expect("a string takes any text");
        for (value, number) in counts.iter() {
            writeln!(text, "plumb_{name}{{{label}=\"{value}\"}} {number}").expect("a string takes any text");
        }
    }
}

impl Metrics {
    pub(crate) fn count_call(&self, success: bool) {
        let counter = if success { &self.calls_served } else { &self.calls_failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_findings(&self, findings: Counts) {
        *self.findings.lock().unwrap_or_else(PoisonError::into_inner) = findings;
    }

    pub(crate) fn set_sessions(&self, established: usize, wanted: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.sessions_established.store(number(established), Ordering::Relaxed);
        self.sessions_wanted.store(number(wanted), Ordering::Relaxed);
    }

    /// Records that BIRD would refuse, and how many of them only BIRD knew of.
    pub(crate) fn set_bgp_records(&self, unfit: usize, left_out: usize) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.bgp_records_unfit.store(number(unfit), Ordering::Relaxed);
        self.bgp_left_out.store(number(left_out), Ordering::Relaxed);
    }

    /// In the text format of Prometheus, version 0.0.4.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for Row(name, sort, help, value) in
            self.of_calls().into_iter().chain(self.of_node()).chain(self.between())
        {
            writeln!(text, "# HELP plumb_{name} {help}\n# TYPE plumb_{name} {sort}\nplumb_{name} {value}")
                .expect("a string takes any text");
        }
        let help = "Differences that the agent put right by itself, by the code of their finding";
        self.mends.write(&mut text, "mends_total", "code", help);
        let help = "Steps of repairs that were asked for on this node, by what became of them";
        self.repairs.write(&mut text, "repairs_total", "outcome", help);
        self.write_findings(&mut text);
        text
    }

    fn write_findings(&self, text: &mut String) {
        let findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        if findings.is_empty() {
            return;
        }
        text.push_str(
            "# HELP plumb_findings What the doctor finds on this node\n# TYPE plumb_findings gauge\n",
        );
        for ((code, severity), number) in findings.iter() {
            writeln!(text, "plumb_findings{{code=\"{code}\",severity=\"{}\"}} {number}", severity.as_str())
                .expect("a string takes any text");
        }
    }

    fn of_calls(&self) -> [Row; 8] {
        [
            counter("cni_calls_served_total", "CNI calls that succeeded", &self.calls_served),
            counter(
                "cni_calls_failed_total",
                "CNI calls that were answered with an error",
                &self.calls_failed,
            ),
            counter("dels_queued_total", "DELs that had to be queued by the agent", &self.dels_queued),
            counter("dels_retried_total", "Attempts at a queued DEL that failed", &self.dels_retried),
            gauge("dels_waiting", "DELs in the queue now", &self.dels_waiting),
            gauge("store_in_sync", "1 if the store's records are known", &self.store_in_sync),
            gauge("store_away", "1 if the store cannot be read or written", &self.store_away),
            gauge(
                "runtime_answers",
                "1 if the container runtime answered the last time",
                &self.runtime_answers,
            ),
        ]
    }

    fn of_node(&self) -> [Row; 9] {
        [
            gauge("attachments", "Attachments in the journal", &self.attachments),
            counter("adopted_total", "Attachments made by others that were taken over", &self.adopted),
            counter("collected_total", "Attachments without an owner that were removed", &self.collected),
            gauge("suspects", "Attachments that seemed to have no owner at the last look", &self.suspects),
            counter("reconciles_total", "Looks at the kernel's state", &self.reconciles),
            counter("mended_total", "Differences in the kernel that were put right", &self.mended),
            gauge("unmended", "Differences that the last look could not put right", &self.unmended),
            gauge("rival_routes", "Strangers' routes to addresses of pods", &self.rival_routes),
            gauge(
                "policies_unenforced",
                "Policies and profiles in the store that would deny something and are not enforced",
                &self.policies_unenforced,
            ),
        ]
    }

    fn between(&self) -> [Row; 15] {
        [
            gauge("routes_wanted", "Routes to other nodes that this node should have", &self.routes_wanted),
            gauge("routes_failed", "Routes and tunnel ends that could not be set", &self.routes_failed),
            counter("routes_changed_total", "Changes because records changed", &self.routes_changed),
            counter(
                "routes_mended_total",
                "Changes because the kernel held something else",
                &self.routes_mended,
            ),
            counter(
                "routes_disturbed_total",
                "Times that the kernel announced somebody else's change of routes or tunnels, and all of them were looked at",
                &self.routes_disturbed,
            ),
            gauge(
                "blocks_unreachable",
                "Blocks and borrowed addresses that cannot be reached as the records want it",
                &self.blocks_unreachable,
            ),
            gauge(
                "blocks_refused",
                "Blocks and borrowed addresses whose records are wrong, and which are not newly routed",
                &self.blocks_refused,
            ),
            gauge("node_addresses_shared", "Addresses that several nodes claim", &self.node_addresses_shared),
            gauge(
                "node_address_doubts",
                "What speaks against this node's address, and addresses that were refused",
                &self.node_address_doubts,
            ),
            gauge("nat_failed", "1 if the rules for natOutgoing could not be loaded", &self.nat_failed),
            gauge(
                "pod_guard_missing",
                "1 if the rules that restrict pods to their own addresses could not be loaded",
                &self.pod_guard_missing,
            ),
            gauge("bgp_sessions_wanted", "Sessions of BGP that there should be", &self.sessions_wanted),
            gauge("bgp_sessions_established", "Those that are up", &self.sessions_established),
            gauge(
                "bgp_records_unfit",
                "Peers, filters and settings of BGP that are set aside because BIRD refuses them",
                &self.bgp_records_unfit,
            ),
            gauge("bgp_left_out", "Those of them that were found only by trying", &self.bgp_left_out),
        ]
    }
}

/// Name, sort, meaning, value.
struct Row(&'static str, &'static str, &'static str, i128);

fn counter(name: &'static str, help: &'static str, number: &AtomicU64) -> Row {
    Row(name, "counter", help, number.load(Ordering::Relaxed).into())
}

fn gauge(name: &'static str, help: &'static str, number: &AtomicI64) -> Row {
    Row(name, "gauge", help, number.load(Ordering::Relaxed).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_have_their_code_and_severity() {
        let metrics = Metrics::default();
        assert!(!metrics.text().contains("plumb_findings"), "nobody has looked yet");
        metrics.set_findings([(("pool-overlap", doctor::Severity::Error), 2)].into());
        let text = metrics.text();
        assert!(text.ends_with("plumb_findings{code=\"pool-overlap\",severity=\"error\"} 2\n"), "{text}");
    }

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
