//! Probes other nodes from the addresses that this node could have.

use std::time::Duration;

use host::probe::{Echo, echo};
use plan::address::Probe;
use tracing::debug;

/// Networks of nodes are fast, so a later answer counts as none.
const TIMEOUT: Duration = Duration::from_millis(700);

/// The same with the answers in them; empty if there is nothing to probe. Blocks.
pub(super) fn probe(mut questions: Vec<Probe>) -> Vec<Probe> {
    let asked: Vec<Echo> = questions
        .iter()
        .flat_map(|probe| probe.asked.iter().map(|to| Echo { from: probe.from, to: *to }))
        .collect();
    if asked.is_empty() {
        return Vec::new();
    }
    match echo(&asked, TIMEOUT) {
        Ok(answered) => {
            for probe in &mut questions {
                let own = answered.iter().filter(|echo| echo.from == probe.from);
                probe.answered = own.map(|echo| echo.to).collect();
            }
            questions
        }
        Err(error) => {
            debug!(%error, "cannot probe other nodes");
            Vec::new()
        }
    }
}
