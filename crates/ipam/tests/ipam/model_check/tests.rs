//! The clusters that are searched, and the faults that must be found.

use super::scenario::{Closed, Fault, SandboxSpec, Scenario};
use super::search::{Counted, explore};

fn sandbox(node: usize, number: usize, pod: &str) -> SandboxSpec {
    SandboxSpec { node, handle: format!("net.{number}"), pod: pod.to_owned() }
}

/// Two nodes, a pool of two blocks of two addresses.
fn base(is_atomic: bool) -> Scenario {
    Scenario {
        nodes: vec!["node-a".to_owned(), "node-b".to_owned(), "node-c".to_owned()],
        sandboxes: Vec::new(),
        pool: "10.0.0.0/30",
        block_size: 31,
        pool_v6: None,
        batches: Vec::new(),
        old_block: None,
        is_atomic,
        is_strict: false,
        fault: None,
        crashes: 1,
        stale_dels: 0,
        returns: 0,
        repeats: 0,
        refusals: 0,
        dels_together: false,
        host_releases: Vec::new(),
        collections: 0,
        recoveries: 0,
        recovers_at_rest: true,
        closed: None,
    }
}

fn search(name: &str, scenario: &Scenario) -> Counted {
    let store = if scenario.is_atomic { "with transactions" } else { "record by record" };
    match explore(scenario) {
        Ok(counted) => {
            report(&format!("{name}, {store}: {counted:?}"));
            assert!(counted.ends > 0 && counted.states > 100, "{counted:?}");
            counted
        }
        Err((broken, way)) => panic!("{name}, {store}: {}\n{}", broken.0, way.join("\n")),
    }
}

#[expect(clippy::disallowed_macros, reason = "the number of states is part of what is shown")]
fn report(line: &str) {
    eprintln!("model check: {line}");
}

fn find(scenario: &Scenario, expected: &str) {
    let (broken, way) = explore(scenario).expect_err("the fault is found");
    assert!(broken.0.contains(expected), "{}\n{}", broken.0, way.join("\n"));
}

/// The larger cluster of two: what the quick run leaves out where records are written one by one.
fn is_full() -> bool {
    testkit::count(0, 1) == 1
}

/// Sandboxes of one pod after each other, a borrower, stale DELs, a controller that gives up blocks.
fn namesakes(is_atomic: bool) -> Scenario {
    let mut sandboxes = vec![sandbox(0, 0, "web"), sandbox(0, 1, "web")];
    if is_full() {
        sandboxes.push(sandbox(1, 2, "api"));
    }
    Scenario { sandboxes, stale_dels: 1, host_releases: vec![0; usize::from(is_atomic)], ..base(is_atomic) }
}

/// Strict affinity, and the block that is missing belongs to a node that is gone.
fn take_over(is_atomic: bool) -> Scenario {
    Scenario {
        sandboxes: vec![sandbox(0, 0, "web"), sandbox(1, 1, "api")],
        old_block: Some((2, "10.0.0.0/31")),
        is_strict: true,
        stale_dels: u8::from(is_atomic),
        host_releases: if is_atomic || is_full() { vec![2] } else { Vec::new() },
        ..base(is_atomic)
    }
}

/// One block for two nodes, that a controller would like to give up.
fn borrowing(is_atomic: bool) -> Scenario {
    Scenario {
        sandboxes: vec![sandbox(0, 0, "web"), sandbox(1, 1, "api")],
        pool: "10.0.0.0/31",
        host_releases: match (is_atomic, is_full()) {
            (true, _) => vec![0, 1],
            (false, true) => vec![0],
            (false, false) => Vec::new(),
        },
        crashes: 1 + u8::from(is_atomic),
        ..base(is_atomic)
    }
}

/// Recovery beside an operation of each kind.
fn recovering() -> Scenario {
    let mut sandboxes = vec![sandbox(0, 0, "web")];
    if is_full() {
        sandboxes.push(sandbox(1, 1, "api"));
    }
    Scenario {
        sandboxes,
        pool: "10.0.0.0/31",
        recoveries: 2 - u8::from(is_full()),
        stale_dels: u8::from(!is_full()),
        ..base(false)
    }
}

/// Sandboxes that come back under their handle while a collector is after what they left.
fn collecting(is_atomic: bool) -> Scenario {
    let mut sandboxes = vec![sandbox(0, 0, "web")];
    if is_atomic || is_full() {
        sandboxes.push(sandbox(1, 1, "api"));
    }
    Scenario {
        sandboxes,
        pool: "10.0.0.0/31",
        block_size: 32,
        crashes: 2,
        returns: 1,
        collections: 1,
        ..base(is_atomic)
    }
}

/// Two addresses each, of both IP versions, with fewer of one than of the other: some get both, some get none.
fn dual_stack(is_atomic: bool) -> Scenario {
    let is_large = is_atomic || is_full();
    Scenario {
        sandboxes: vec![sandbox(0, 0, "web"), sandbox(usize::from(is_large), 1, "api")],
        pool: if is_large { "10.0.0.0/31" } else { "10.0.0.0/32" },
        block_size: if is_large { 31 } else { 32 },
        pool_v6: Some(if is_atomic { ("fd00::/127", 128) } else { ("fd00::/128", 128) }),
        host_releases: vec![0; usize::from(is_atomic)],
        stale_dels: u8::from(is_atomic),
        ..base(is_atomic)
    }
}

/// Two sandboxes share a write, and compete with a third for a block that is too small for all.
fn batches(is_atomic: bool) -> Scenario {
    let third = sandbox(usize::from(is_atomic || is_full()), 2, "db");
    Scenario {
        sandboxes: vec![sandbox(0, 0, "web"), sandbox(0, 1, "api"), third],
        batches: vec![vec![0, 1]],
        pool: "10.0.0.0/31",
        stale_dels: u8::from(is_atomic),
        host_releases: vec![0; usize::from(is_atomic)],
        ..base(is_atomic)
    }
}

#[test]
fn sandboxes_with_both_ip_versions() {
    for is_atomic in [true, false] {
        search("dual stack", &dual_stack(is_atomic));
    }
}

#[test]
fn sandboxes_that_share_their_writes() {
    for is_atomic in [true, false] {
        search("batches", &batches(is_atomic));
    }
}

/// Handles are written beside each other, and the store refuses one of them. The others do not suffer for it.
fn refusing() -> Scenario {
    let mut sandboxes = vec![sandbox(0, 0, "web"), sandbox(0, 1, "api")];
    if is_full() {
        sandboxes.push(sandbox(0, 2, "db"));
    }
    Scenario { batches: vec![(0..sandboxes.len()).collect()], sandboxes, refusals: 1, ..base(false) }
}

#[test]
fn one_of_a_batch_is_refused() {
    search("refusing", &refusing());
    let mut beside_recovery = Scenario { recoveries: 1, pool: "10.0.0.0/31", ..refusing() };
    beside_recovery.sandboxes.truncate(2);
    beside_recovery.batches = vec![vec![0, 1]];
    search("refusing beside recovery", &beside_recovery);
}

/// A batch over two blocks, with a competitor for both: some have their address when the others lose theirs.
#[test]
fn a_batch_that_gets_half_way() {
    let mut sandboxes = vec![sandbox(0, 0, "web"), sandbox(0, 1, "api"), sandbox(1, 2, "db")];
    sandboxes.truncate(if is_full() { 3 } else { 2 });
    let scenario = Scenario {
        batches: vec![vec![0, 1]],
        sandboxes,
        pool: "10.0.0.0/31",
        block_size: 32,
        recoveries: u8::from(!is_full()),
        crashes: u8::from(is_full()),
        ..base(false)
    };
    search("half way", &scenario);
}

#[test]
fn dels_that_share_their_writes() {
    let scenario = Scenario {
        sandboxes: vec![sandbox(0, 0, "web"), sandbox(0, 1, "api")],
        batches: vec![vec![0, 1]],
        pool: "10.0.0.0/31",
        dels_together: true,
        recoveries: 1,
        stale_dels: u8::from(is_full()),
        ..base(false)
    };
    search("DELs together", &scenario);
}

/// An ADD died between handle and block, and is repeated under the same handle beside recovery.
fn repeating() -> Scenario {
    Scenario {
        sandboxes: vec![sandbox(0, 0, "web")],
        pool: "10.0.0.0/32",
        block_size: 32,
        repeats: 1,
        recoveries: 1,
        ..base(false)
    }
}

#[test]
fn adds_that_are_repeated_under_their_handle() {
    search("repeating", &repeating());
}

/// Why a handle that already says what it is to say is put right first: Kubernetes takes the write for none, and recovery
/// removes the handle all the same.
#[test]
fn a_handle_that_is_written_as_it_is_is_found() {
    find(&Scenario { fault: Some(Fault::SameHandleAgain), ..repeating() }, "which is Some(Gone)");
}

#[test]
fn an_address_of_one_that_dropped_out_is_found() {
    find(&Scenario { fault: Some(Fault::AddressKept), crashes: 0, ..refusing() }, "which is Some(Gone)");
}

/// Both IP versions and a shared write at once, next to recovery.
#[test]
fn a_batch_with_both_ip_versions_beside_recovery() {
    let sandboxes = vec![sandbox(0, 0, "web"), sandbox(0, 1, "api")];
    let batch = Scenario {
        sandboxes,
        batches: vec![vec![0, 1]],
        pool_v6: Some(("fd00::/127", 127)),
        pool: "10.0.0.0/31",
        recoveries: u8::from(is_full()),
        ..base(false)
    };
    search("dual-stack batch", &batch);
}

#[test]
fn namesakes_borrowers_and_stale_dels() {
    for is_atomic in [true, false] {
        search("namesakes", &namesakes(is_atomic));
    }
}

#[test]
fn blocks_that_are_taken_over() {
    for is_atomic in [true, false] {
        search("take-over", &take_over(is_atomic));
    }
}

#[test]
fn blocks_that_are_borrowed_from_and_given_up() {
    for is_atomic in [true, false] {
        search("borrowing", &borrowing(is_atomic));
    }
}

#[test]
fn recovery_beside_everything_else() {
    search("recovering", &recovering());
}

#[test]
fn sandboxes_that_come_back_while_leaks_are_collected() {
    for is_atomic in [true, false] {
        search("collecting", &collecting(is_atomic));
    }
}

#[test]
fn a_pool_that_is_closed_meanwhile() {
    search("pool closed", &Scenario { closed: Some(Closed::Pool), ..borrowing(true) });
}

#[test]
fn borrowing_that_is_forbidden_meanwhile() {
    search("borrowing forbidden", &Scenario { closed: Some(Closed::Borrowing), ..borrowing(true) });
}

#[test]
fn a_release_by_pod_name_is_found() {
    for is_atomic in [true, false] {
        find(&Scenario { fault: Some(Fault::ReleaseByPodName), ..namesakes(is_atomic) }, "of live sandbox");
    }
}

#[test]
fn a_handle_that_is_written_after_its_block_is_found() {
    let faulty = Scenario { fault: Some(Fault::HandleAfterBlock), ..recovering() };
    find(&Scenario { recovers_at_rest: false, recoveries: 0, ..faulty.clone() }, "the books do not agree");
    // Recovery alone would not help: the DEL of a sandbox that died in between does not find its address.
    find(&Scenario { sandboxes: vec![sandbox(0, 0, "web")], ..faulty }, "which is Some(Gone)");
}

#[test]
fn a_store_without_recovery_is_found() {
    find(&Scenario { recovers_at_rest: false, recoveries: 0, ..recovering() }, "the books do not agree");
}

/// The faults are found with both IP versions and with shared writes, too.
#[test]
fn faults_are_found_in_batches_and_in_both_ip_versions() {
    let by_name = |scenario| Scenario { fault: Some(Fault::ReleaseByPodName), ..scenario };
    for is_atomic in [true, false] {
        let mut namesakes = dual_stack(is_atomic);
        namesakes.pool_v6 = Some(("fd00::/127", 127));
        namesakes.sandboxes[1] = sandbox(1, 1, "web");
        find(&by_name(namesakes), "of live sandbox");
        let mut namesakes = batches(is_atomic);
        namesakes.sandboxes[1] = sandbox(0, 1, "web");
        find(&by_name(namesakes), "of live sandbox");
    }
    let faulty = Scenario { fault: Some(Fault::HandleAfterBlock), recovers_at_rest: false, ..batches(false) };
    find(&faulty, "the books do not agree");
}

/// Why everyone writes blocks in the same order: an ADD that goes one way and a DEL that goes the other defeat each
/// other for ever.
#[test]
fn a_release_that_writes_blocks_in_another_order_is_found() {
    let faulty = Scenario { fault: Some(Fault::ReleaseInAnotherOrder), ..dual_stack(false) };
    find(&faulty, "no end in sight");
}

#[test]
fn a_collector_that_ignores_the_sequence_number_is_found() {
    for is_atomic in [true, false] {
        find(&Scenario { fault: Some(Fault::NoSequenceNumber), ..collecting(is_atomic) }, "of live sandbox");
    }
}

#[test]
fn an_assignment_that_ignores_its_pools_revision_is_found() {
    let faulty =
        Scenario { fault: Some(Fault::NoPoolRevision), closed: Some(Closed::Pool), ..borrowing(true) };
    find(&faulty, "in a way that was closed");
}

#[test]
fn an_assignment_that_ignores_the_settings_revision_is_found() {
    let closed = Some(Closed::Borrowing);
    let faulty = Scenario { fault: Some(Fault::NoSettingsRevision), closed, ..borrowing(true) };
    find(&faulty, "in a way that was closed");
}

/// Why recovery writes a block anew before it takes a count from a handle.
#[test]
fn a_recovery_that_does_not_touch_the_block_is_found() {
    find(&Scenario { fault: Some(Fault::NoTouch), ..recovering() }, "which is Some(Gone)");
}

/// Why recovery makes sure that a block is still not there before it takes a count from a handle.
#[test]
fn a_recovery_that_trusts_an_old_list_is_found() {
    find(&Scenario { fault: Some(Fault::NoAbsence), ..recovering() }, "which is Some(Gone)");
}

/// Why a new block is empty before any handle speaks of it.
#[test]
fn a_block_that_is_made_after_its_handle_is_found() {
    find(&Scenario { fault: Some(Fault::BlockNotEmptyAtFirst), ..recovering() }, "which is Some(Gone)");
}
