//! BGP: a record that BIRD would refuse, so that nodes leave it out.

use std::collections::BTreeMap;

use model::Kind;
use model::validate::unfit_for_bird;

use crate::checks::words::listed;
use crate::{Case, Certainty, Check, FindingCode, Look, Need, Subject};

pub(in crate::checks) const CHECK: Check = Check {
    title: "BIRD rejects a BGP record",
    explanation: "A BGPPeer, BGPFilter, BGPConfiguration or Node record contains a value that Calico stores \
                  but BIRD rejects. Examples are a timer outside BGP's range, a filter whose minimum exceeds \
                  its maximum, or an address with which no session is possible. BIRD accepts a configuration \
                  only as a whole. Plumbline's agents skip such a peer or setting, make such a filter rule \
                  reject everything, and apply the rest. Calico nodes keep their old configuration until the \
                  record is corrected.",
    remedy: "correct the field named in the finding with plumb apply",
    needs: &[&[Need::Record(Kind::BgpPeer)]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::BgpRecordUnfit, look)
};

const KINDS: [Kind; 4] = [Kind::BgpPeer, Kind::BgpFilter, Kind::BgpConfiguration, Kind::Node];

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    for record in KINDS.into_iter().flat_map(|kind| case.evidence.records.all(kind)) {
        let unfit = unfit_for_bird(&record.seen);
        let Some(first) = unfit.first() else { continue };
        let key = record.seen.key();
        let finding = look.found(key.clone(), format!("{key}: {first}"));
        finding.known_by("unfit for BIRD").seen(record.exhibit(first.to_string()));
        for other in unfit.iter().skip(1) {
            finding.because(format!("also: {other}"));
        }
    }
    refused_by_bird(case, look);
}

/// What no rule foresaw, and agents found out by trying.
fn refused_by_bird(case: &Case<'_>, look: &mut Look<'_>) {
    let mut refused: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for node in case.all_nodes() {
        for words in node.setup.not_followed.iter().flatten() {
            if words.seen.starts_with("BGP: BIRD refuses") {
                refused.entry(&words.seen).or_default().push((node.name.as_str(), words));
            }
        }
    }
    for (words, nodes) in refused {
        let names = listed(nodes.iter().map(|(name, _)| *name));
        let Some((first, _)) = nodes.first() else { continue };
        look.found(Subject::node(*first), format!("{}, on {names}", words.trim_start_matches("BGP: ")))
            .known_by(words.to_owned())
            .seen_all(nodes.iter().map(|(_, sighted)| sighted.exhibit(words.to_owned())));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::sample::{record, small};
    use evidence::{Origin, Sighted};

    #[test]
    fn fires_for_a_time_that_bgp_has_no_room_for() {
        let mut evidence = small();
        silent(&CHECK, &evidence);
        let spec = json!({"peerIP": "172.16.250.1", "asNumber": 65000, "keepaliveTime": "24h"});
        evidence.records.add(record(Kind::BgpPeer, "router", spec));
        assert_eq!(
            only(&CHECK, &evidence).summary,
            "BGPPeer(router): spec.keepaliveTime: 24h: must be between 1 and 65535 seconds"
        );
    }

    #[test]
    fn fires_for_what_an_agent_left_out() {
        let mut evidence = small();
        let words = "BGP: BIRD refuses the configuration of Global_x, so this session is left out".to_owned();
        let sighted = Sighted::new(words, Origin::probe("worker-0000", "records"));
        evidence.node_mut("worker-0000").setup.not_followed = Some(vec![sighted]);
        let finding = only(&CHECK, &evidence);
        assert!(
            finding.summary.ends_with("so this session is left out, on worker-0000"),
            "{}",
            finding.summary
        );
    }
}
