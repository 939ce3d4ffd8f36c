//! `plumb lab ping`: who reaches whom.

use lab::cluster::Cluster;
use lab::ping::{self, Outcome, Trip};

use super::show::{self, print_json, print_table};
use super::tell;
use crate::cli::LabOutput;
use crate::failure::Failure;

pub(super) fn run(cluster: &Cluster, output: LabOutput) -> Result<(), Failure> {
    let trips = ping::all(cluster)?;
    match output {
        LabOutput::Json => print_json(&trips)?,
        LabOutput::Text => print(&trips)?,
    }
    let lost = trips.iter().filter(|trip| trip.outcome == Outcome::Lost).count();
    if trips.iter().any(|trip| trip.outcome == Outcome::NotPromised) {
        tell(show::NO_ROUTES);
    }
    if trips.is_empty() {
        tell("nothing to ping: no pods are running; start some with plumb lab pod add");
    }
    match lost {
        0 => Ok(()),
        lost => Err(Failure::new(format!("{lost} of {} pings got no answer", trips.len()))),
    }
}

fn print(trips: &[Trip]) -> Result<(), Failure> {
    let mut rows = vec![["FROM", "TO", "ADDRESS", "RESULT"].map(str::to_owned)];
    for trip in trips {
        let outcome = match trip.outcome {
            Outcome::Answered => "answered",
            Outcome::Lost => "no answer",
            Outcome::NotPromised => "no answer (expected)",
        };
        rows.push([trip.from.clone(), trip.to.clone(), trip.address.clone(), outcome.to_owned()]);
    }
    print_table(&mut std::io::stdout().lock(), &rows)
}
