//! The outages of the past, replayed: each must be survived, and a replay must notice when it is not.

use std::sync::Mutex;
use std::time::Duration;

use lab::cluster::{Mode, OwnCluster, Plan, StoreKind};
use lab::{Programs, replay};

fn up(test: &str, nodes: usize, store: StoreKind) -> Option<OwnCluster> {
    up_in(test, nodes, store, Mode::Direct)
}

fn up_in(test: &str, nodes: usize, store: StoreKind, mode: Mode) -> Option<OwnCluster> {
    if let Some(reason) = lab::missing_for_cluster(store, None) {
        testkit::skip(test, &reason);
        return None;
    }
    let plan = Plan {
        nodes,
        store,
        mode,
        grace: Duration::from_secs(2),
        ..Plan::new(&Programs::of_test().unwrap())
    };
    Some(OwnCluster::up(plan, &|_| {}).unwrap())
}

/// The story that a replay tells.
fn told(act: impl FnOnce(&dyn Fn(&str)) -> anyhow::Result<()>) -> (anyhow::Result<()>, String) {
    let story = Mutex::new(String::new());
    let outcome = act(&|line| story.lock().unwrap().push_str(&format!("{line}\n")));
    (outcome, story.into_inner().unwrap())
}

#[track_caller]
fn stale_delete(test: &str, store: StoreKind) {
    let Some(lab) = up(test, 1, store) else { return };
    let (outcome, story) = told(|tell| replay::stale_delete(&lab, tell));
    outcome.unwrap_or_else(|error| panic!("{story}{error:#}"));
    assert_eq!(story.matches(" pings answered, 0 lost").count(), 2, "{story}");
}

#[track_caller]
fn leaked_endpoints(test: &str, store: StoreKind) {
    let (nodes, leaks) = (testkit::count(2, 10), testkit::count(20, 600));
    let Some(lab) = up(test, nodes, store) else { return };
    let (outcome, story) = told(|tell| replay::leaked_endpoints(&lab, leaks, tell));
    outcome.unwrap_or_else(|error| panic!("{story}{error:#}"));
    assert!(story.contains(&format!("and {leaks} devices without an owner were removed")), "{story}");
    assert!(story.contains(" pings answered, 0 lost"), "{story}");
}

#[test]
fn the_stale_delete_is_survived_on_sqlite() {
    stale_delete("the_stale_delete_is_survived_on_sqlite", StoreKind::Sqlite);
}

#[test]
fn the_stale_delete_is_survived_on_etcd() {
    stale_delete("the_stale_delete_is_survived_on_etcd", StoreKind::Etcdv3);
}

#[test]
fn leaked_endpoints_are_put_right_on_sqlite() {
    leaked_endpoints("leaked_endpoints_are_put_right_on_sqlite", StoreKind::Sqlite);
}

#[test]
fn leaked_endpoints_are_put_right_on_etcd() {
    leaked_endpoints("leaked_endpoints_are_put_right_on_etcd", StoreKind::Etcdv3);
}

#[test]
fn a_replay_notices_a_ping_that_is_lost() {
    let Some(lab) = up("a_replay_notices_a_ping_that_is_lost", 1, StoreKind::Sqlite) else { return };
    // Somebody takes the new pod off the network for a moment while the late DELs come.
    let told = told(|tell| {
        replay::stale_delete(&lab, &|line| {
            tell(line);
            if line.contains("from the runtime: stop") {
                let rules = "table inet t { chain c { type filter hook input priority 0; icmp type echo-reply drop; }; }";
                lab.run_on("node1", &["nft", rules]).unwrap();
                std::thread::sleep(Duration::from_millis(200));
                lab.run_on("node1", &["nft", "delete table inet t"]).unwrap();
            }
        })
    });
    let error = told.0.unwrap_err().to_string();
    assert!(error.contains("pings were lost"), "{error}");
}

#[track_caller]
fn the_wrong_card(test: &str, store: StoreKind) {
    if !testkit::process::on_path("bird") {
        return testkit::skip(test, "there is no bird here");
    }
    let Some(lab) = up_in(test, 3, store, Mode::Bgp) else { return };
    let (outcome, story) = told(|tell| replay::wrong_nic(&lab, tell));
    outcome.unwrap_or_else(|error| panic!("{story}{error:#}"));
    assert_eq!(story.matches(" pings answered, 0 lost").count(), 2, "{story}");
    assert!(story.contains("plumb doctor, after "), "{story}");
}

#[test]
fn the_wrong_card_is_not_taken_and_when_forced_everybody_says_so() {
    let test = "the_wrong_card_is_not_taken_and_when_forced_everybody_says_so";
    the_wrong_card(test, StoreKind::Sqlite);
}

#[test]
fn the_wrong_card_is_not_taken_on_kubernetes() {
    the_wrong_card("the_wrong_card_is_not_taken_on_kubernetes", StoreKind::Kubernetes);
}

#[track_caller]
fn repaired(test: &str, nodes: usize, store: StoreKind, play: replay::Play) {
    let Some(lab) = up(test, nodes, store) else { return };
    let (outcome, story) = told(|tell| play(&lab, tell));
    outcome.unwrap_or_else(|error| panic!("{story}{error:#}"));
    assert!(story.contains(" pings answered, 0 lost"), "{story}");
    assert!(story.contains("audit is clean"), "{story}");
}

#[test]
fn the_drifted_address_book_is_rebuilt_on_sqlite() {
    repaired("the_drifted_address_book_is_rebuilt_on_sqlite", 3, StoreKind::Sqlite, replay::ipam_drift);
}

#[test]
fn the_drifted_address_book_is_rebuilt_on_etcd() {
    repaired("the_drifted_address_book_is_rebuilt_on_etcd", 3, StoreKind::Etcdv3, replay::ipam_drift);
}

#[test]
fn the_shared_address_goes_to_its_rightful_owner_on_sqlite() {
    repaired(
        "the_shared_address_goes_to_its_rightful_owner_on_sqlite",
        1,
        StoreKind::Sqlite,
        replay::shared_address,
    );
}

#[test]
fn the_shared_address_goes_to_its_rightful_owner_on_etcd() {
    repaired(
        "the_shared_address_goes_to_its_rightful_owner_on_etcd",
        1,
        StoreKind::Etcdv3,
        replay::shared_address,
    );
}

#[test]
fn outages_under_calico_are_repaired_taken_back_and_repaired_again_on_sqlite() {
    let test = "outages_under_calico_are_repaired_taken_back_and_repaired_again_on_sqlite";
    repaired(test, 2, StoreKind::Sqlite, replay::under_calico);
}

#[test]
fn outages_under_calico_are_repaired_taken_back_and_repaired_again_on_etcd() {
    let test = "outages_under_calico_are_repaired_taken_back_and_repaired_again_on_etcd";
    repaired(test, 2, StoreKind::Etcdv3, replay::under_calico);
}

#[test]
fn the_stale_delete_is_survived_on_kubernetes() {
    stale_delete("the_stale_delete_is_survived_on_kubernetes", StoreKind::Kubernetes);
}

#[test]
fn leaked_endpoints_are_put_right_on_kubernetes() {
    leaked_endpoints("leaked_endpoints_are_put_right_on_kubernetes", StoreKind::Kubernetes);
}

#[test]
fn the_drifted_address_book_is_rebuilt_on_kubernetes() {
    repaired(
        "the_drifted_address_book_is_rebuilt_on_kubernetes",
        3,
        StoreKind::Kubernetes,
        replay::ipam_drift,
    );
}

#[test]
fn the_shared_address_goes_to_its_rightful_owner_on_kubernetes() {
    let test = "the_shared_address_goes_to_its_rightful_owner_on_kubernetes";
    repaired(test, 1, StoreKind::Kubernetes, replay::shared_address);
}
