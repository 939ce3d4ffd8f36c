//! Asks other nodes from the addresses that this node could go by.

use std::time::Duration;

use host::probe::{Echo, echo};
use plan::address::Probe;
use tracing::debug;

/// Networks of nodes are fast; one that does not answer within this time is no better than one that does not answer.
const PATIENCE: Duration = Duration::from_millis(700);

/// The same with the answers in them; nothing if nobody can be asked. Blocks.
pub(super) fn ask(mut questions: Vec<Probe>) -> Vec<Probe> {
    let asked: Vec<Echo> = questions
        .iter()
        .flat_map(|probe| probe.asked.iter().map(|to| Echo { from: probe.from, to: *to }))
        .collect();
    if asked.is_empty() {
        return Vec::new();
    }
    match echo(&asked, PATIENCE) {
        Ok(answered) => {
            for probe in &mut questions {
                let own = answered.iter().filter(|echo| echo.from == probe.from);
                probe.answered = own.map(|echo| echo.to).collect();
            }
            questions
        }
        Err(error) => {
            debug!("other nodes cannot be asked whether they reach this one: {error}");
            Vec::new()
        }
    }
}
