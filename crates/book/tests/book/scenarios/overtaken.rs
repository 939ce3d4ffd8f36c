//! Race and claim tests: one who is overtaken between its look and its write.

use std::sync::Arc;

use book::{Addition, Additions, AssignRequest, BookError, HandleRequest};
use ipam::{AssignError, Refusal};
use model::ipam::AffinityState;
use model::{Key, Kind};
use serde_json::json;

use super::world::{EMPTY_ONLY, World, host};
use crate::common::{cidr, holders, one, put, wait_for};
use crate::places::{Place, on_every_store};
use crate::stores::Gate;

on_every_store! {
    an_affinity_that_is_marked_meanwhile_is_not_confirmed
    a_block_that_is_confirmed_anew_is_not_released
    a_block_that_is_stolen_is_borrowed_from
    an_empty_block_is_taken_over_when_it_is_old
    a_take_over_that_comes_too_late
    a_call_that_is_cancelled_leaves_nothing
    a_call_that_is_cancelled_takes_nothing_that_was_there
    an_address_that_is_taken_during_a_release_keeps_the_block
    a_lock_that_comes_in_between_holds
}

/// Starts something whose commit is held back, and waits until it has come so far.
macro_rules! held_back {
    ($world:expr, |$book:ident| $work:expr) => {{
        let gate = Gate::closed($world.store.clone());
        let $book = $world.hasty(gate.clone());
        let task = tokio::spawn(async move { $work });
        let arrived = gate.clone();
        wait_for("a commit", || async { arrived.arrived() > 0 }).await;
        (gate, task)
    }};
}

/// Affinity turned pendingDeletion while another process creates the block: the claim gets an update conflict and does
/// not confirm.
async fn an_affinity_that_is_marked_meanwhile_is_not_confirmed(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 26})]).await;
    let block = cidr("10.0.0.0/26");
    world.put_affinity("node-a", block, AffinityState::Pending).await;
    let (gate, claim) = held_back!(world, |book| book.claim_blocks(block, host("node-a")).await);
    world.put_affinity("node-a", block, AffinityState::PendingDeletion).await;
    gate.open(1_000);
    let error = claim.await.unwrap().unwrap_err();
    assert!(matches!(error, BookError::Contended { .. }), "{error}");
    assert_eq!(world.affinities().await, [(host("node-a"), block, AffinityState::PendingDeletion)]);
    // Record by record, the block comes before the confirmation.
    assert_eq!(world.blocks().await.is_empty(), world.is_atomic());
    // One with patience looks again, and claims it after all.
    assert_eq!(world.book.claim_blocks(block, host("node-a")).await.unwrap().claimed, [block]);
    world.assert_clean().await;
}

/// Block re-created and affinity set pending during a release: the release gets an update conflict.
async fn a_block_that_is_confirmed_anew_is_not_released(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 26})]).await;
    let block = cidr("10.0.0.0/26");
    world.book.claim_blocks(block, host("node-a")).await.unwrap();
    let (gate, release) = held_back!(world, |book| book.release_host("node-a", EMPTY_ONLY).await);
    world.book.release_host("node-a", EMPTY_ONLY).await.unwrap();
    world.book.claim_blocks(block, host("node-a")).await.unwrap();
    world.put_affinity("node-a", block, AffinityState::Pending).await;
    gate.open(1_000);
    let error = release.await.unwrap().unwrap_err();
    assert!(matches!(error, BookError::Contended { .. }), "{error}");
    assert_eq!(world.affinities().await, [(host("node-a"), block, AffinityState::Pending)]);
    assert_eq!(world.blocks().await, [block]);
}

/// Host B steals the block while A's affinity delete fails: A still gets an address (borrowed), A's pending affinity is
/// removed on A's next request.
async fn a_block_that_is_stolen_is_borrowed_from(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    world.assign("node-b", "b.0").await.unwrap();
    let block = world.blocks().await[0];
    world.put_affinity("node-a", block, AffinityState::Pending).await;
    let grant = world.book.assign(one("node-a", "a.0")).await.unwrap();
    assert!(grant.addresses[0].is_borrowed);
    assert_eq!(world.affinities_of("node-a").await, []);
    world.assert_clean().await;
}

/// Reclaim: strict mode, other host's block refused while in use, refused when empty but younger than 1 min, taken when
/// older.
async fn an_empty_block_is_taken_over_when_it_is_old(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    world.book.change_config(|config| config.strict_affinity = true).await.unwrap();
    world.assign("node-a", "a.0").await.unwrap();
    let refused = async || matches!(world.assign("node-b", "b.0").await, Err(AssignError::Exhausted { .. }));
    assert!(refused().await, "in use");
    world.release("a.0").await;
    assert!(refused().await, "claimed just now");
    world.put_clock_forward(61);
    world.assign("node-b", "b.0").await.unwrap();
    assert_eq!(
        (world.affinities_of("node-a").await.len(), world.affinities_of("node-b").await.len()),
        (0, 1)
    );
    world.assert_clean().await;
}

/// Reclaim failing on delete → no address.
async fn a_take_over_that_comes_too_late(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    world.book.change_config(|config| config.strict_affinity = true).await.unwrap();
    world.assign("node-a", "a.0").await.unwrap();
    world.release("a.0").await;
    world.put_clock_forward(61);
    let gate = Gate::closed(world.store.clone());
    let patient = world.book_on(gate.clone());
    let late = tokio::spawn(async move { patient.assign(one("node-b", "b.0")).await });
    wait_for("a commit", || async { gate.arrived() > 0 }).await;
    let first = world.assign("node-a", "a.1").await.unwrap();
    gate.open(1_000);
    let error = late.await.unwrap().unwrap_err();
    assert!(matches!(error, BookError::Assign(AssignError::Exhausted { .. })), "{error}");
    assert_eq!(world.held("a.1").await, [first]);
    world.finish_what_was_begun().await;
    assert_eq!(world.affinities_of("node-b").await, []);
    world.assert_clean().await;
}

/// An operator locks the store after an assignment and a release were decided, and before they are written. Without transactions
/// that comes too late for those two, and holds for the next.
async fn a_lock_that_comes_in_between_holds(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 26})]).await;
    put(&world.store, Kind::ClusterInformation, "default", json!({"datastoreReady": true})).await;
    world.assign("node-a", "held").await.unwrap();
    let (gate, assignment) = held_back!(world, |book| book.assign(one("node-a", "late")).await);
    let (other_gate, release) =
        held_back!(world, |book| book.release_handle(HandleRequest::all("held")).await);
    put(&world.store, Kind::ClusterInformation, "default", json!({"datastoreReady": false})).await;
    gate.open(1_000);
    other_gate.open(1_000);
    if !world.is_atomic() {
        // Both want the same block, so one of them is through at least.
        let outcomes = [assignment.await.unwrap().map(drop), release.await.unwrap().map(drop)];
        let is_late =
            |outcome: &Result<(), BookError>| matches!(outcome, Ok(()) | Err(BookError::Contended { .. }));
        assert!(outcomes.iter().all(is_late) && outcomes.iter().any(Result::is_ok), "{outcomes:?}");
        let refused = world.book.assign(one("node-a", "later")).await.map(drop);
        assert!(matches!(refused, Err(BookError::Locked)), "{refused:?}");
        let refused = world.book.release_handle(HandleRequest::all("held")).await.map(drop);
        return assert!(matches!(refused, Err(BookError::Locked)), "{refused:?}");
    }
    let error = assignment.await.unwrap().unwrap_err();
    assert!(matches!(error, BookError::Locked | BookError::Contended { .. }), "{error}");
    let error = release.await.unwrap().unwrap_err();
    assert!(matches!(error, BookError::Locked | BookError::Contended { .. }), "{error}");
    assert!(holders(&world.store).await.into_values().eq(["held".to_owned()]));
}

/// Cancelled: whoever stops waiting holds nothing in the end, whether the commit happens or not.
async fn a_call_that_is_cancelled_leaves_nothing(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    let gate = Gate::closed(world.store.clone());
    let book = world.book_on(gate.clone());
    let caller = {
        let book = book.clone();
        tokio::spawn(async move { book.assign(one("node-a", "h")).await })
    };
    wait_for("a commit", || async { gate.arrived() > 0 }).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    gate.open(1_000);
    // Whoever comes next finds everything free.
    book.assign(one("node-a", "next")).await.unwrap();
    let held = Arc::clone(&world.store);
    wait_for("the address to be given back", || {
        let store = Arc::clone(&held);
        async move { holders(&store).await.into_values().eq(["next".to_owned()]) }
    })
    .await;
    world.assert_clean().await;
}

/// Cancelled: what the handle had before, and was only granted again, stays.
async fn a_call_that_is_cancelled_takes_nothing_that_was_there(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    let limited = || AssignRequest { handle_max: Some(1), ..one("node-a", "vm") };
    let first = world.assign_as(limited()).await.0;
    let gate = Gate::closed(world.store.clone());
    let book = world.book_on(gate.clone());
    let note = Key::cluster(Kind::GlobalNetworkSet, "note");
    let mut request = limited();
    request.additions = Additions::new(1, {
        let note = note.clone();
        move |_| Ok(vec![Addition::create(note.clone(), b"{}".to_vec())])
    });
    let caller = tokio::spawn(async move { book.assign(request).await });
    wait_for("a commit", || async { gate.arrived() > 0 }).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    gate.open(1_000);
    wait_for("the commit and its end", || async {
        gate.arrived() > 1 && world.store.get(&note).await.unwrap().is_none()
    })
    .await;
    assert_eq!(world.held("vm").await, first);
    world.assert_clean().await;
}

/// Address allocated between "mark pendingDeletion" and block delete: the block survives.
async fn an_address_that_is_taken_during_a_release_keeps_the_block(place: Place) {
    let world = World::start(place, &[json!({"cidr": "10.0.0.0/24", "blockSize": 26})]).await;
    world.assign("node-a", "a.0").await.unwrap();
    world.release("a.0").await;
    let block = world.blocks().await[0];
    let gate = Gate::closed(world.store.clone());
    let patient = world.book_on(gate.clone());
    let release = tokio::spawn(async move { patient.release_host("node-a", EMPTY_ONLY).await });
    wait_for("a commit", || async { gate.arrived() > 0 }).await;
    world.assign("node-a", "a.1").await.unwrap();
    gate.open(1_000);
    let released = release.await.unwrap().unwrap();
    assert_eq!(released[0].result, Err(Refusal::InUse(block)));
    assert_eq!((world.blocks().await, world.held("a.1").await.len()), (vec![block], 1));
    world.finish_what_was_begun().await;
    world.assert_clean().await;
}
