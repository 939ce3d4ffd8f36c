//! Probes and metrics of a controller.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use health::{Counter, CounterByLabel, Gauge, GaugesByLabels, Pages, registry};

use crate::election::{Spectator, Taken};

registry! {
    /// All start at 0 with the process.
    Metrics:

    leads: Gauge = "controller_leads", "1 if this replica leads";
    passes: Counter = "controller_passes_total", "Observations of the whole cluster";
    passes_failed: Counter = "controller_passes_failed_total", "Observations of the whole cluster that failed";
    requests: Counter = "controller_requests_total", "Requests to the store, except the pages of pods, nodes and leases";
    candidates: GaugesByLabels<1> = "controller_candidates" ["code"],
        "Faults that would be removed and are not confirmed or not removed yet, by the code of their finding";
    collected: CounterByLabel = "controller_collected_total" ["code"],
        "Faults that the controller removed, by the code of their finding";
    surprises: Counter = "controller_surprises_total",
        "Steps that were not applied because the record had changed";
    left: GaugesByLabels<1> = "controller_left" ["code"],
        "Faults that the controller may not remove, by the code of their finding";
    projected: CounterByLabel = "controller_projected_total" ["kind"],
        "Records written or removed after objects of Kubernetes, by the kind of the record";
}

/// What a controller says of itself.
#[derive(Debug, Default)]
pub(crate) struct Status {
    pub(crate) metrics: Arc<Metrics>,
    /// Why it takes no part in the election, or could not when it tried last.
    election: Mutex<Option<String>>,
    /// Why the last observation failed.
    pass: Mutex<Option<String>>,
    /// Another controller's, beside which it does not act.
    rival: Mutex<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Status {
    pub(crate) fn set_pass_problem(&self, problem: Option<String>) {
        *locked(&self.pass) = problem;
    }

    pub(crate) fn set_rival(&self, rival: Option<String>) {
        *locked(&self.rival) = rival;
    }
}

impl Spectator for Status {
    fn leads(&self, who: Result<&Taken, &str>) {
        self.metrics.leads.set((who == Ok(&Taken::Ours)).into());
        *locked(&self.election) = who.err().map(|why| format!("cannot take part in the election: {why}"));
    }
}

impl Pages for Status {
    /// It waits for whatever is away, and starting it again would change nothing.
    fn not_alive(&self) -> Option<String> {
        None
    }

    /// A replica that stands by is ready, too.
    fn not_ready(&self) -> Vec<String> {
        let rival = locked(&self.rival).clone();
        let rival = rival.map(|rival| format!("does not act beside {rival}; see --take-over"));
        let pass = locked(&self.pass).clone();
        let pass = pass.map(|why| format!("the last observation failed: {why}"));
        locked(&self.election).clone().into_iter().chain(rival).chain(pass).collect()
    }

    fn metrics_page(&self) -> String {
        self.metrics.page()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_is_ready_and_one_that_cannot_ask_is_not() {
        let status = Status::default();
        status.leads(Ok(&Taken::Anothers("two".to_owned())));
        assert_eq!(status.not_ready(), [] as [&str; 0]);
        assert!(status.metrics_page().contains("\nplumb_controller_leads 0\n"));
        status.leads(Err("no answer"));
        assert_eq!(status.not_ready(), ["cannot take part in the election: no answer"]);
        status.leads(Ok(&Taken::Ours));
        assert!(status.metrics_page().contains("\nplumb_controller_leads 1\n"));
        status.set_rival(Some("x".to_owned()));
        status.set_pass_problem(Some("y".to_owned()));
        assert_eq!(status.not_ready().len(), 2);
    }
}
