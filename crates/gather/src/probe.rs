//! Packets to see whether they arrive. Only for whoever asked for it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use evidence::probe::{Echo, TARGETS_MAX};
use evidence::{Evidence, NodeGap, Origin, Sighted, Unseen};
use host::probe::{Outcome, Pace, Way};

/// Sends packets to these addresses from the node that this process runs on, no more than are allowed in one look.
pub async fn of_node(name: &str, addresses: &[IpAddr]) -> Evidence {
    let mut evidence = Evidence::default();
    let ways: Vec<Way> = addresses.iter().take(TARGETS_MAX).map(|address| Way::to(*address)).collect();
    let asked = ways.clone();
    let sent = tokio::task::spawn_blocking(move || host::probe::send(&asked, &Pace::default())).await;
    match sent {
        Ok(Ok(outcomes)) => {
            let origin = Origin::probe(name, "echo requests");
            let echoes = ways.iter().zip(outcomes).map(|(way, outcome)| {
                let echo = echo(outcome);
                (way.target, Sighted::new(echo, origin.clone()))
            });
            evidence.node_mut(name).setup.probed = Some(echoes.collect::<BTreeMap<_, _>>());
        }
        Ok(Err(error)) => evidence.unseen.push(no_packets(name, &error)),
        Err(error) => evidence.unseen.push(no_packets(name, &error)),
    }
    evidence
}

fn no_packets(node: &str, error: &dyn std::error::Error) -> Unseen {
    Unseen::node(node, NodeGap::Packets { why: error.to_string() })
}

fn echo(outcome: Outcome) -> Echo {
    match outcome {
        Outcome::Answered { .. } => Echo::Answered,
        Outcome::Silent { .. } => Echo::Silent,
        Outcome::Unreachable { said_by } => Echo::Unreachable { said_by },
        Outcome::NotSent { problem } => Echo::NotSent { problem },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_answers_itself() {
        let (own, nobody) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let evidence = of_node("node-a", &[own, nobody]).await;
        if let Some(unseen) = evidence.unseen.first() {
            // As an ordinary user, where that may not ping.
            assert!(matches!(unseen, Unseen::Node { gap: NodeGap::Packets { .. }, .. }), "{evidence:?}");
            return;
        }
        let probed = evidence.node(&"node-a".into()).unwrap().setup.probed.as_ref().unwrap();
        assert_eq!((&probed[&own].seen, probed.len()), (&Echo::Answered, 2));
    }

    #[test]
    fn every_outcome_has_words() {
        let by = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(echo(Outcome::Silent { tries: 3 }), Echo::Silent);
        assert_eq!(echo(Outcome::Unreachable { said_by: by }), Echo::Unreachable { said_by: by });
        let problem = "no route".to_owned();
        assert_eq!(echo(Outcome::NotSent { problem: problem.clone() }), Echo::NotSent { problem });
    }
}
