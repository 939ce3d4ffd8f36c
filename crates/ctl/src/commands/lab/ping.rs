//! `plumb lab ping`: who reaches whom.

use lab::cluster::Cluster;
use lab::ping::{self, Outcome, Trip};

use super::show::{self, print_json, print_table};
use super::{failure, tell};
use crate::cli::lab::LabOutput;
use crate::failure::{Failure, Failures};

pub(super) fn run(cluster: &Cluster, output: LabOutput) -> Result<(), Failures> {
    let trips = ping::all(cluster).map_err(failure)?;
    match output {
        LabOutput::Json => print_json(&trips)?,
        LabOutput::Text => print(&trips)?,
    }
    let lost = trips.iter().filter(|trip| trip.outcome == Outcome::Lost).count();
    if trips.iter().any(|trip| trip.outcome == Outcome::NotPromised) {
        tell(show::NO_ROUTES);
    }
    if trips.is_empty() {
        tell("there is nothing to ping: no pods run (plumb lab pod add)");
    }
    match lost {
        0 => Ok(()),
        lost => Err(Failure::new(format!("{lost} of {} got no answer", trips.len())).into()),
    }
}

fn print(trips: &[Trip]) -> Result<(), Failure> {
    let mut rows = vec![["FROM", "TO", "ADDRESS", "RESULT"].map(str::to_owned)];
    for trip in trips {
        let outcome = match trip.outcome {
            Outcome::Answered => "answered",
            Outcome::Lost => "no answer",
            Outcome::NotPromised => "no answer (not promised)",
        };
        rows.push([trip.from.clone(), trip.to.clone(), trip.address.clone(), outcome.to_owned()]);
    }
    print_table(&mut std::io::stdout().lock(), &rows)
}
