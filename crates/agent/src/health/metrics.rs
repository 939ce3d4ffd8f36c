//! The agent's metrics.

use ::health::{Counter, CounterByLabel, Gauge, GaugesByLabels, Totals, registry};

registry! {
    /// All start at 0 with the process.
    Metrics:

    calls_served: Counter = "cni_calls_served_total", "CNI calls that succeeded";
    calls_failed: Counter = "cni_calls_failed_total", "CNI calls that failed";
    dels_queued: Counter = "dels_queued_total", "DELs queued by the agent";
    dels_retried: Counter = "dels_retried_total", "Failed retries of queued DELs";
    dels_waiting: Gauge = "dels_waiting", "DELs in the queue";
    store_in_sync: Gauge = "store_in_sync", "1 if the store's records are cached";
    store_away: Gauge = "store_away", "1 if the store cannot be read or written";
    runtime_answers: Gauge = "runtime_answers", "1 if the container runtime answered the last request";

    attachments: Gauge = "attachments", "Attachments in the journal";
    adopted: Counter = "adopted_total", "Attachments of other programs that the agent adopted";
    collected: Counter = "collected_total", "Sandboxes without an owner that the agent removed";
    suspects: Gauge = "suspects", "Sandboxes without an owner at the last observation";
    reconciles: Counter = "reconciles_total", "Observations of the whole node's kernel state";
    mended: Counter = "mended_total", "Differences in the kernel that the agent fixed";
    unmended: Gauge = "unmended", "Differences in the kernel that the agent could not fix at the last observation";
    rival_routes: Gauge = "rival_routes", "Routes of other programs to addresses of pods";
    policies_unenforced: Gauge = "policies_unenforced",
        "Policies and profiles in the store that would deny traffic but are not enforced";

    policies_in_force: Gauge = "policies_in_force", "Policies that select an endpoint of this node and are in the kernel";
    policy_changes: Counter = "policy_changes_total", "Transactions by which rules of network policy changed";
    policy_repairs: Counter = "policy_repairs_total",
        "Times that rules of network policy were restored after another program changed them";
    policy_denied: Totals<3> = "policy_denied_packets_total" ["policy", "direction", "rule"],
        "Packets that a rule of a policy, or the end of a tier, dropped on this node";

    routes_wanted: Gauge = "routes_wanted", "Routes to other nodes that this node should have";
    routes_failed: Gauge = "routes_failed", "Routes and tunnel entries that could not be set";
    routes_changed: Counter = "routes_changed_total", "Changes of routes and tunnel entries after changes of records";
    routes_mended: Counter = "routes_mended_total", "Changes of routes and tunnel entries that fixed the kernel";
    routes_disturbed: Counter = "routes_disturbed_total",
        "Full observations of routes and tunnels after another program's change";
    blocks_unreachable: Gauge = "blocks_unreachable",
        "Blocks and borrowed addresses that cannot be reached as the records require";
    blocks_refused: Gauge = "blocks_refused",
        "Blocks and borrowed addresses with invalid records, for which no new routes are made";
    node_addresses_shared: Gauge = "node_addresses_shared", "Addresses that several nodes have";
    node_address_doubts: Gauge = "node_address_doubts",
        "Doubts about this node's address, and addresses that were refused for it";
    nat_failed: Gauge = "nat_failed", "1 if the rules for natOutgoing could not be loaded";
    pod_guard_missing: Gauge = "pod_guard_missing",
        "1 if the rules that restrict pods to their own addresses could not be loaded";
    sessions_wanted: Gauge = "bgp_sessions_wanted", "BGP sessions that this node should have";
    sessions_established: Gauge = "bgp_sessions_established", "BGP sessions in state Established";
    bgp_records_unfit: Gauge = "bgp_records_unfit", "BGP peers, filters and settings that are skipped as invalid";
    bgp_left_out: Gauge = "bgp_left_out", "Those of plumb_bgp_records_unfit that only BIRD recognised as invalid";

    mends: CounterByLabel = "mends_total" ["code"], "Faults that the agent fixed, by the code of their finding";
    repairs: CounterByLabel = "repairs_total" ["outcome"], "Steps of plumb repair on this node, by outcome";
    findings: GaugesByLabels<2> = "findings" ["code", "severity"], "Findings of the doctor on this node";
    not_ready: GaugesByLabels<1> = "not_ready" ["condition"], "1 for each unmet condition of readiness";
}

impl Metrics {
    pub(crate) fn count_call(&self, is_success: bool) {
        if is_success { self.calls_served.increment() } else { self.calls_failed.increment() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_have_their_labels_and_a_family_without_series_is_left_out() {
        let metrics = Metrics::default();
        assert!(!metrics.page().contains("plumb_findings"), "the doctor has not run yet");
        metrics.findings.set([(["pool-overlap", "error"], 2)]);
        metrics.not_ready.set([(["kernel"], 1)]);
        metrics.repairs.count("done");
        let page = metrics.page();
        assert!(page.contains("\nplumb_findings{code=\"pool-overlap\",severity=\"error\"} 2\n"), "{page}");
        assert!(
            page.contains("# TYPE plumb_repairs_total counter\nplumb_repairs_total{outcome=\"done\"} 1\n")
        );
        assert!(
            page.ends_with("# TYPE plumb_not_ready gauge\nplumb_not_ready{condition=\"kernel\"} 1\n"),
            "{page}"
        );
    }

    #[test]
    fn every_metric_has_its_three_lines() {
        let metrics = Metrics::default();
        metrics.count_call(true);
        metrics.count_call(true);
        metrics.count_call(false);
        let page = metrics.page();
        assert!(page.contains("\nplumb_cni_calls_failed_total 1\n"), "{page}");
        assert!(
            page.contains("# TYPE plumb_cni_calls_served_total counter\nplumb_cni_calls_served_total 2\n")
        );
        assert_eq!(page.lines().filter(|line| line.starts_with("# HELP")).count() * 3, page.lines().count());
    }

    /// Dashboards and alerts depend on these.
    #[test]
    fn names_and_types_stay() {
        let metrics = Metrics::default();
        metrics.mends.count("x");
        metrics.repairs.count("x");
        metrics.findings.set([(["x", "error"], 0)]);
        metrics.not_ready.set([(["x"], 0)]);
        metrics.policy_denied.set([(["gnp/x", "ingress", "0"].map(str::to_owned), 1)].into());
        let page = metrics.page();
        let types: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE plumb_")).collect();
        let gauges: Vec<&str> = types.iter().filter_map(|line| line.strip_suffix(" gauge")).collect();
        let counters: Vec<&str> = types.iter().filter_map(|line| line.strip_suffix(" counter")).collect();
        assert_eq!((types.len(), gauges.len(), counters.len()), (40, 24, 16));
        assert!(counters.iter().all(|name| name.ends_with("_total")), "{counters:?}");
        assert!(!gauges.iter().any(|name| name.ends_with("_total")), "{gauges:?}");
    }
}
