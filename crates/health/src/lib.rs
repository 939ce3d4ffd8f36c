//! Probes and metrics over HTTP, as the programs that run for long serve them: `/liveness`, `/readiness`, `/metrics`.

mod http;
mod registry;

pub use http::HealthServer;
pub use registry::{Counter, CounterByLabel, Declared, Gauge, GaugesByLabels, Metric, Totals};

/// What a program says of itself on its pages.
pub trait Pages: Send + Sync + 'static {
    /// Why the program should be restarted; `None` if it lives.
    fn not_alive(&self) -> Option<String>;

    /// Why it is not ready; none if it is.
    fn not_ready(&self) -> Vec<String>;

    /// Invalid records, which it skips. They do not make it unready.
    fn invalid_records(&self) -> Vec<String> {
        Vec::new()
    }

    /// All metrics in the text format of Prometheus.
    fn metrics_page(&self) -> String;
}
