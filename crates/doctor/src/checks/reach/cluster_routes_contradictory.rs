//! Reachable: who writes the routes between nodes.

use model::{Kind, Resource};
use plan::between::{BetweenSettings, Writer};

use crate::{Case, Certainty, Check, FindingCode, Look, Need};
use evidence::Sighted;

pub(in crate::checks) const CHECK: Check = Check {
    title: "Felix and BIRD both write the same routes, or neither does",
    explanation: "programClusterRoutes in FelixConfiguration and in BGPConfiguration decides which program \
                  writes the routes to other nodes' blocks that need no tunnel. If both are enabled, two \
                  programs overwrite each other's routes. If neither is, nodes have no such routes. Calico \
                  does not detect either case.",
    remedy: "set one of the two to Enabled and the other to Disabled, or leave both unset",
    needs: &[&[Need::Record(Kind::FelixConfiguration), Need::Record(Kind::BgpConfiguration)]],
    certainty: Certainty::Certain,
    ..Check::error(FindingCode::ClusterRoutesContradictory, look)
};

const DEFAULT: &str = "default";

fn look(case: &Case<'_>, look: &mut Look<'_>) {
    let records = &case.evidence.records;
    let Some(bgp) = records.find(Kind::BgpConfiguration, DEFAULT) else { return };
    let felix = records.all(Kind::FelixConfiguration);
    // Where a node says nothing of its own, the default is the one to name.
    let says = |record: &&Sighted<Resource>| record.seen.spec("programClusterRoutes").is_some();
    for record in felix.iter().filter(says) {
        let settings = BetweenSettings::read(Some(&record.seen), None, Some(&bgp.seen));
        if !settings.is_contradictory() {
            continue;
        }
        let said = |record: &Sighted<Resource>| {
            let value = record.seen.spec("programClusterRoutes").and_then(|value| value.as_str());
            format!("programClusterRoutes: {}", value.unwrap_or_default())
        };
        let who = match settings.writer() {
            Writer::Agent => "both the agent and BIRD are configured to write routes between nodes",
            Writer::Bird => "neither the agent nor BIRD is configured to write routes between nodes",
        };
        look.found(record.seen.key(), who).seen(record.exhibit(said(record))).seen(bgp.exhibit(said(bgp)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::testing::{only, silent};
    use evidence::Evidence;
    use evidence::sample::record;

    fn with(felix: Option<&str>, bgp: Option<&str>) -> Evidence {
        let mut evidence = Evidence::default();
        let spec = |said: Option<&str>| said.map_or(json!({}), |said| json!({"programClusterRoutes": said}));
        evidence.records.add(record(Kind::FelixConfiguration, "default", spec(felix)));
        evidence.records.add(record(Kind::BgpConfiguration, "default", spec(bgp)));
        evidence
    }

    #[test]
    fn fires_if_both_or_neither_write() {
        let both = only(&CHECK, &with(Some("Enabled"), Some("EnabledNoEncapOnly")));
        assert!(both.summary.starts_with("both"), "{}", both.summary);
        let neither = only(&CHECK, &with(Some("Disabled"), Some("EnabledIPIPOnly")));
        assert!(neither.summary.starts_with("neither"), "{}", neither.summary);
    }

    #[test]
    fn silent_if_one_does_or_one_says_nothing() {
        for (felix, bgp) in [
            (None, None),
            (Some("Enabled"), None),
            (None, Some("Enabled")),
            (Some("Enabled"), Some("Disabled")),
            (Some("Disabled"), Some("Enabled")),
        ] {
            silent(&CHECK, &with(felix, bgp));
        }
    }

    #[test]
    fn a_nodes_own_setting_counts_too() {
        let mut evidence = with(None, Some("Enabled"));
        let own = json!({"programClusterRoutes": "Enabled"});
        evidence.records.add(record(Kind::FelixConfiguration, "node.a", own));
        assert_eq!(only(&CHECK, &evidence).subject.to_string(), "FelixConfiguration(node.a)");
    }
}
