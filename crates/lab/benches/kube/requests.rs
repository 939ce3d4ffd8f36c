//! Requests, as the API server counts them in its metrics.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use model::kube::Layout;
use testkit::kube::Api;

/// What follows a call, and what the server counts a moment after it has answered, is counted with the call.
const SETTLE: Duration = Duration::from_secs(2);
/// Objects of Kubernetes' own that an agent may ask for.
const RESOURCES: [&str; 5] = ["pods", "nodes", "namespaces", "serviceaccounts", "events"];

/// By verb and resource.
type Counts = BTreeMap<(String, String), f64>;

/// Requests about records and about what is behind them. Others than the agent send none while they are counted: the bench makes its pods
/// before and removes them after, and what the server asks itself is about other resources.
///
/// Watches are not among them. They are started once and stay. What the agent asks now and then, whether there are pods or not, is
/// measured beforehand and taken off.
pub(crate) struct Requests<'a> {
    api: &'a Api,
    /// Of an agent without work.
    pub(crate) idle_per_second: f64,
}

impl Requests<'_> {
    /// The agent has no work now.
    pub(crate) fn new(api: &Api, idle: Duration) -> Result<Requests<'_>> {
        let requests = Requests { api, idle_per_second: 0.0 };
        let (started, before) = (Instant::now(), requests.counts()?);
        sleep(idle);
        let count = difference(&requests.counts()?, &before).values().sum::<f64>();
        Ok(Requests { idle_per_second: count / started.elapsed().as_secs_f64(), ..requests })
    }

    /// How many requests some work costs, and which.
    pub(crate) fn of(&self, work: impl FnOnce() -> Result<()>) -> Result<(f64, String)> {
        let (started, before) = (Instant::now(), self.counts()?);
        work()?;
        let counts = difference(&self.settled()?, &before);
        let idle = self.idle_per_second * started.elapsed().as_secs_f64();
        let words: Vec<String> =
            counts.iter().map(|((verb, resource), count)| format!("{count} {verb} {resource}")).collect();
        Ok(((counts.values().sum::<f64>() - idle).max(0.0), words.join(", ")))
    }

    /// The counts once nothing more comes: on a busy machine an agent may still be at a DEL that it has answered.
    fn settled(&self) -> Result<Counts> {
        let mut counts = self.counts()?;
        loop {
            sleep(SETTLE);
            let later = self.counts()?;
            if later == counts {
                return Ok(counts);
            }
            counts = later;
        }
    }

    fn counts(&self) -> Result<Counts> {
        let mut counts = Counts::new();
        let metrics = self.api.get("/metrics")?.text;
        for line in metrics.lines().filter_map(|line| line.strip_prefix("apiserver_request_total{")) {
            let (labels, count) = line.rsplit_once("} ").context("labels and a count")?;
            let label = |name: &str| {
                let mut labels = labels.split(',').filter_map(|label| label.split_once('='));
                let value =
                    labels.find(|(found, _)| *found == name).map(|(_, value)| value.trim_matches('"'));
                value.unwrap_or_default().to_owned()
            };
            let (verb, resource) = (label("verb"), label("resource"));
            let is_ours = label("group") == Layout::V1.group() || RESOURCES.contains(&resource.as_str());
            if is_ours && verb != "WATCH" {
                *counts.entry((verb, resource)).or_default() += count.parse::<f64>()?;
            }
        }
        Ok(counts)
    }
}

fn difference(after: &Counts, before: &Counts) -> Counts {
    let mut counts = after.clone();
    counts.retain(|what, count| {
        *count -= before.get(what).copied().unwrap_or_default();
        *count > 0.0
    });
    counts
}
