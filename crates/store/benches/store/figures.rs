//! Figures: how they are gained from runs, and how they are shown.

use std::time::Duration;

use serde_json::{Value, json};

/// One line of the result.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) peer: Option<Peer>,
    /// At most this is wanted.
    pub(crate) target: Option<f64>,
}

/// What stands beside a figure.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    /// The figure divided by the peer, in the median of runs; none where the peer is nothing.
    pub(crate) ratio: Option<f64>,
}

impl Figure {
    /// A figure of times, from runs that took turns with the peer's.
    pub(crate) fn of_runs(name: &'static str, runs: &[Run], quantile: f64) -> Figure {
        let values = runs.iter().map(|run| run.at(quantile)).collect();
        Figure { name, value: median(values), unit: "ms", peer: None, target: None }
    }

    #[must_use]
    pub(crate) fn beside(mut self, name: &'static str, own: &[Run], peer: &[Run], quantile: f64) -> Figure {
        let values = peer.iter().map(|run| run.at(quantile)).collect();
        let ratios = own.iter().zip(peer).map(|(own, peer)| own.at(quantile) / peer.at(quantile)).collect();
        self.peer = Some(Peer { name, value: median(values), ratio: Some(median(ratios)) });
        self
    }

    #[must_use]
    pub(crate) fn at_most(mut self, target: f64) -> Figure {
        self.target = Some(target);
        self
    }

    fn met(&self) -> Option<bool> {
        self.target.map(|target| self.value <= target)
    }

    fn json(&self) -> Value {
        let rounded = |number: f64| (number * 10_000.0).round() / 10_000.0;
        json!({
            "name": self.name,
            "value": rounded(self.value),
            "unit": self.unit,
            "peer": self.peer.as_ref().map(|peer| format!("{} {}", peer.name, rounded(peer.value))),
            "ratio": self.peer.as_ref().and_then(|peer| peer.ratio).map(rounded),
            "target": self.target,
            "met": self.met(),
        })
    }
}

/// The times of one run, in milliseconds, shortest first.
pub(crate) struct Run(Vec<f64>);

impl Run {
    pub(crate) fn new(times: impl IntoIterator<Item = Duration>) -> Run {
        let mut times: Vec<f64> = times.into_iter().map(|time| time.as_secs_f64() * 1000.0).collect();
        times.sort_by(f64::total_cmp);
        Run(times)
    }

    /// The time that this part of all stays within.
    fn at(&self, quantile: f64) -> f64 {
        let rank = (self.0.len() as f64 * quantile).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

pub(crate) fn json(figures: &[Figure]) -> Value {
    json!({ "bench": "store", "figures": figures.iter().map(Figure::json).collect::<Vec<_>>() })
}

pub(crate) fn table(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for figure in figures {
        text.push_str(&format!("{:<width$}  {:>9.3} {:<11}", figure.name, figure.value, figure.unit));
        if let Some(peer) = &figure.peer {
            text.push_str(&format!("  {} {:.3}", peer.name, peer.value));
        }
        if let Some(ratio) = figure.peer.as_ref().and_then(|peer| peer.ratio) {
            text.push_str(&format!(" (x{ratio:.2})"));
        }
        if let (Some(target), Some(met)) = (figure.target, figure.met()) {
            text.push_str(&format!("  target <= {target}: {}", if met { "met" } else { "MISSED" }));
        }
        text.push('\n');
    }
    text
}
