//! The figures of a bench: how they are gained from runs, and how they are shown, as a table or as JSON.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

/// One line of the result.
#[derive(Debug)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    pub peer: Option<Peer>,
    pub goal: Option<Goal>,
}

/// What is wanted of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    ValueAtMost(f64),
    ValueAtLeast(f64),
    /// Of the figure to its peer.
    RatioAtMost(f64),
    RatioAtLeast(f64),
}

/// What stands beside a figure.
#[derive(Debug)]
pub struct Peer {
    pub name: &'static str,
    pub value: f64,
    /// The figure divided by the peer, in the median of runs; none where the peer is nothing.
    pub ratio: Option<f64>,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Figure {
        Figure { name: name.into(), value, unit, peer: None, goal: None }
    }

    /// A figure of times, from runs that took turns with the peer's.
    pub fn of_runs(name: impl Into<String>, runs: &[Run], quantile: f64) -> Figure {
        Figure::new(name, median(runs.iter().map(|run| run.at(quantile)).collect()), "ms")
    }

    /// Puts the runs of a peer beside it, which took turns with the figure's own.
    #[must_use]
    pub fn beside(self, name: &'static str, own: &[Run], peer: &[Run], quantile: f64) -> Figure {
        let values = peer.iter().map(|run| run.at(quantile)).collect();
        let ratios = own.iter().zip(peer).map(|(own, peer)| own.at(quantile) / peer.at(quantile)).collect();
        self.with_peer(Peer { name, value: median(values), ratio: Some(median(ratios)) })
    }

    #[must_use]
    pub fn with_peer(mut self, peer: Peer) -> Figure {
        self.peer = Some(peer);
        self
    }

    #[must_use]
    pub fn wanted(mut self, goal: Goal) -> Figure {
        self.goal = Some(goal);
        self
    }

    fn ratio(&self) -> Option<f64> {
        self.peer.as_ref().and_then(|peer| peer.ratio)
    }

    /// Whether the goal is met; none if there is none. A ratio that could not be taken meets nothing.
    pub fn met(&self) -> Option<bool> {
        self.goal.map(|goal| match goal {
            Goal::ValueAtMost(most) => self.value <= most,
            Goal::ValueAtLeast(least) => self.value >= least,
            Goal::RatioAtMost(most) => self.ratio().is_some_and(|ratio| ratio <= most),
            Goal::RatioAtLeast(least) => self.ratio().is_some_and(|ratio| ratio >= least),
        })
    }

    fn json(&self) -> Value {
        let rounded = |number: f64| (number * 10_000.0).round() / 10_000.0;
        json!({
            "name": self.name,
            "value": rounded(self.value),
            "unit": self.unit,
            "peer": self.peer.as_ref().map(|peer| format!("{} {}", peer.name, rounded(peer.value))),
            "ratio": self.ratio().map(rounded),
            "target": self.goal.map(|goal| goal.to_string()),
            "met": self.met(),
        })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::ValueAtMost(most) => write!(f, "≤ {most}"),
            Goal::ValueAtLeast(least) => write!(f, "≥ {least}"),
            Goal::RatioAtMost(most) => write!(f, "ratio ≤ {most}"),
            Goal::RatioAtLeast(least) => write!(f, "ratio ≥ {least}"),
        }
    }
}

/// The times of one run, in milliseconds, shortest first.
#[derive(Debug)]
pub struct Run(Vec<f64>);

impl Run {
    pub fn new(times: impl IntoIterator<Item = Duration>) -> Run {
        let mut times: Vec<f64> = times.into_iter().map(|time| time.as_secs_f64() * 1000.0).collect();
        times.sort_by(f64::total_cmp);
        Run(times)
    }

    /// The time that this part of all stays within.
    pub fn at(&self, quantile: f64) -> f64 {
        let rank = (self.0.len() as f64 * quantile).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// How many nodes a large cluster has: `usual`, unless `PLUMB_BENCH_NODES` asks for another number, for a trial.
pub fn nodes(usual: usize) -> anyhow::Result<usize> {
    match std::env::var("PLUMB_BENCH_NODES") {
        Ok(text) => text.parse().with_context(|| format!("PLUMB_BENCH_NODES is {text:?}, not a number")),
        Err(_) => Ok(usual),
    }
}

/// Prints the figures of a bench as its caller wants them: one JSON object after `-o json`, else a table.
pub fn print(bench: &str, figures: &[Figure]) {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.windows(2).any(|pair| pair == ["-o", "json"]) {
        println!("{}", json(bench, figures));
    } else {
        print!("{}", table(figures));
    }
}

fn json(bench: &str, figures: &[Figure]) -> Value {
    json!({ "bench": bench, "figures": figures.iter().map(Figure::json).collect::<Vec<_>>() })
}

fn table(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for figure in figures {
        text.push_str(&format!("{:<width$}  {:>9.3} {:<11}", figure.name, figure.value, figure.unit));
        if let Some(peer) = &figure.peer {
            text.push_str(&format!("  {} {:.3}", peer.name, peer.value));
        }
        if let Some(ratio) = figure.ratio() {
            text.push_str(&format!(" (x{ratio:.2})"));
        }
        if let (Some(goal), Some(met)) = (figure.goal, figure.met()) {
            text.push_str(&format!("  target {goal}: {}", if met { "met" } else { "MISSED" }));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_medians_of_runs_that_took_turns() {
        let runs = |times: [u64; 3]| times.map(|ms| Run::new([Duration::from_millis(ms)]));
        let (own, peer) = (runs([10, 30, 90]), runs([10, 10, 10]));
        let figure = Figure::of_runs("x", &own, 0.5).beside("y", &own, &peer, 0.5);
        assert_eq!((figure.value, figure.ratio()), (30.0, Some(3.0)));
        let figure = figure.wanted(Goal::RatioAtMost(2.0));
        assert_eq!(figure.met(), Some(false));
        assert_eq!(figure.wanted(Goal::RatioAtLeast(2.0)).met(), Some(true));
    }

    #[test]
    fn a_goal_is_met_by_the_value_or_by_the_ratio_it_speaks_of() {
        let figure = |goal| Figure::new("x", 5.0, "ms").wanted(goal);
        assert_eq!(figure(Goal::ValueAtMost(5.0)).met(), Some(true));
        assert_eq!(figure(Goal::ValueAtMost(4.9)).met(), Some(false));
        assert_eq!(figure(Goal::ValueAtLeast(5.0)).met(), Some(true));
        assert_eq!(figure(Goal::ValueAtLeast(5.1)).met(), Some(false));
        assert_eq!(figure(Goal::RatioAtMost(9.0)).met(), Some(false));
        assert_eq!(Figure::new("x", 5.0, "ms").met(), None);
        let shown = json("store", &[figure(Goal::ValueAtMost(4.5))]);
        assert_eq!(shown["figures"][0]["target"], "≤ 4.5");
        assert_eq!(shown["figures"][0]["met"], false);
    }
}
