//! Records that BIRD would refuse: what is known is set aside, what is not is found by trying.

use std::collections::BTreeSet;

use plan::bgp::{BgpTrouble, find_refused};
use proptest::prelude::*;
use serde_json::json;

use crate::views::{configuration, decided, filter, peer, three};

#[test]
fn a_rule_that_cannot_be_understood_rejects_and_is_named() {
    let mut view = three();
    filter(
        &mut view,
        "f",
        json!({"importV4": [
            {"action": "Accept"},
            {"cidr": "10.0.0.0/8", "matchOperator": "In", "action": "Accept", "prefixLength": {"min": 24, "max": 16}},
        ]}),
    );
    peer(&mut view, "tor", json!({"peerIP": "192.0.2.1", "asNumber": 65000, "filters": ["f"]}));
    let bird = decided(&view);
    let (filter, rule) = ("f".to_owned(), "spec.importV4[1]".to_owned());
    assert_eq!(bird.troubles, [BgpTrouble::FilterRuleUnfit { filter, rule }]);
    assert!(bird.config.contains("{ reject; }"), "{}", bird.config);
}

proptest! {
    /// BIRD refuses whatever has certain words in it; nobody knows which.
    #[test]
    fn what_is_refused_is_found_and_nothing_else_is_left_out(
        bad_peers in proptest::collection::btree_set(0..12usize, 0..4),
        bad_filters in proptest::collection::btree_set(0..6usize, 0..3),
        refuses_settings in any::<bool>(),
    ) {
        let mut view = three();
        configuration(&mut view, json!({"serviceClusterIPs": [{"cidr": "10.96.0.0/12"}]}));
        for number in 0..6 {
            let community = format!("65000:{number}");
            filter(&mut view, &format!("f{number}"), json!({"importV4": [{"action": "Reject", "communities": {"values": [community]}}]}));
        }
        for number in 0..12 {
            let filters = [format!("f{}", number % 6), format!("f{}", (number + 1) % 6)];
            peer(&mut view, &format!("p{number}"), json!({"peerIP": format!("192.0.2.{number}"), "asNumber": 65000, "filters": filters}));
        }
        let mut asked = 0;
        let accepts = |text: &str| {
            asked += 1;
            let has_bad_peer = bad_peers.iter().any(|number| text.contains(&format!("neighbor 192.0.2.{number} ")));
            let has_bad_filter = bad_filters.iter().any(|number| text.contains(&format!("(65000,{number})")));
            let has_bad_setting = refuses_settings && text.contains("10.96.0.0/12");
            Ok::<bool, ()>(!has_bad_peer && !has_bad_filter && !has_bad_setting)
        };
        let left_out = find_refused(&view, accepts).unwrap().unwrap();
        let sessions: BTreeSet<String> = bad_peers.iter().map(|number| format!("Global_192_0_2_{number}")).collect();
        prop_assert_eq!(&left_out.sessions, &sessions);
        // A filter that only left out peers name is in no text: nobody can tell.
        let is_tried = |number: &usize| (0..12usize).any(|peer| !bad_peers.contains(&peer) && (peer % 6 == *number || (peer + 1) % 6 == *number));
        let filters: BTreeSet<String> = bad_filters.iter().filter(|number| is_tried(number)).map(|number| format!("f{number}")).collect();
        prop_assert_eq!(&left_out.filters, &filters);
        prop_assert_eq!(left_out.settings, refuses_settings);
        prop_assert!(asked <= 2 + 2 * 12 + 2 * 6, "{} questions", asked);
        view.left_out = left_out;
        let bird = decided(&view);
        let refused = bird.troubles.iter().filter(|trouble| trouble.is_refusal()).count();
        prop_assert_eq!(refused, sessions.len() + filters.len() + usize::from(refuses_settings));
        prop_assert!(bird.sessions.iter().filter(|session| session.is_made()).count() == 16 - sessions.len());
    }
}

#[test]
fn nothing_can_be_done_where_bird_refuses_everything() {
    assert_eq!(find_refused(&three(), |_| Ok::<bool, ()>(false)), Ok(None));
}
