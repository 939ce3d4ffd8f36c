//! Which test shows which line of the checklist of Calico's own IPAM tests, and which weak point of its design is shown
//! to be designed out. What needs a store, several processes or a driver is shown in `crates/book/tests`; what is about
//! Kubernetes' own records (labels, UIDs, `UpgradeHost`) and about the garbage collector has no place here.

/// A line of the checklist, and the tests that show it.
type Line = (&'static str, &'static [&'static str]);

const RACES: &[Line] = &[
    ("32 hosts race for a 16-block pool", &["model_check/tests::blocks_that_are_borrowed_from_and_given_up"]),
    (
        "4 concurrent requests on one host",
        &[
            "model_check/tests::namesakes_borrowers_and_stale_dels",
            "model_check/tests::sandboxes_that_share_their_writes",
        ],
    ),
    ("4 concurrent ClaimAffinity of the same /22", &["affinity::claims_of_networks"]),
    ("affinity turned pendingDeletion meanwhile", &["affinity::a_claim_that_was_overtaken_does_not_confirm"]),
    ("block re-created during a release", &["affinity::a_release_that_was_overtaken_deletes_nothing"]),
    ("host B steals the block", &["affinity::a_node_whose_block_was_taken_borrows_and_tidies_up"]),
    ("reclaim: in use, young, old", &["affinity::empty_blocks_of_others_are_taken_over_when_they_are_old"]),
    (
        "reclaim failing on delete",
        &[
            "affinity::a_take_over_loses_against_an_assignment",
            "model_check/tests::blocks_that_are_taken_over",
        ],
    ),
    (
        "allocated between pendingDeletion and delete",
        &["affinity::a_release_that_was_overtaken_deletes_nothing"],
    ),
    (
        "host and virtual affinities of one name",
        &[
            "affinity::hosts_and_other_owners_of_one_name_do_not_interfere",
            "assignment::a_node_of_the_same_name_as_another_owner_does_not_share_its_blocks",
        ],
    ),
    ("host-reserved addresses in a new /30", &["windows::of_a_small_block_what_is_left_is_given"]),
];

const RELEASES: &[Line] = &[
    (
        "old and new sequence number, ten rounds, block gone in between",
        &["release::an_old_number_does_not_free_a_new_allocation"],
    ),
    ("FIFO reuse", &["one_block::addresses_are_reused_in_the_order_of_their_release"]),
    (
        "no assignment from a deleted pool",
        &[
            "pools::nodes_move_to_a_new_pool",
            "assignment::every_assignment_relies_on_its_pool_and_no_release_does",
        ],
    ),
    (
        "100 addresses over 4 nodes in one call",
        &["release::many_addresses_of_many_nodes_are_released_at_once"],
    ),
    ("duplicates in one request", &["release::each_entry_stands_for_itself"]),
    ("table of sequence numbers and handles", &["release::handle_and_number_must_match_if_they_are_given"]),
    ("table of what is not allocated; 66 over 2 blocks", &["release::what_is_not_allocated_is_reported"]),
    ("RemoveIPAMHost of an unknown host", &["affinity::a_host_gives_up_what_it_can"]),
];

const USES: &[Line] = &[
    ("attribute query", &["release::whose_an_address_is_does_not_depend_on_its_pool"]),
    (
        "AssignIP use check",
        &["pools::given_addresses", "pools::a_given_address_may_be_for_any_use_that_the_pool_allows"],
    ),
    (
        "64, 58 with reservations, 55 with Windows",
        &["pools::reservations", "windows::the_reserve_adds_to_reservations"],
    ),
    ("utilisation with reservations", &["usage::pools_and_their_blocks"]),
    (
        "reserved_test.go, addr_filter_test.go",
        &[
            "usage::blocks_in_no_pool_are_shown_in_both_versions",
            "src/reserved::several_reservations_cover_a_network_together",
            "src/reserved::huge_networks_saturate",
            "src/reserved::bare_addresses_count_and_malformed_entries_do_not",
        ],
    ),
];

const AFFINITIES: &[Line] = &[
    ("release requiring empty", &["affinity::blocks_in_use_are_given_up_only_when_that_is_wanted"]),
    ("old affinity without type", &["affinity::affinities_of_old_are_known"]),
    ("three blocks, one in use", &["affinity::a_host_gives_up_what_it_can"]),
    (
        "pool deleted",
        &[
            "affinity::a_host_gives_up_what_it_can",
            "affinity::blocks_in_use_are_given_up_only_when_that_is_wanted",
        ],
    ),
];

const POOLS: &[Line] = &[
    ("second address from the same block; new pool", &["pools::nodes_move_to_a_new_pool"]),
    ("requested pools", &["pools::requested_pools"]),
    ("node selector; selector moved", &["pools::node_selectors"]),
    (
        "selector change then release; deselecting pool",
        &["affinity::blocks_of_pools_that_do_not_select_the_node_any_more"],
    ),
    (
        "disabled, wrong-family, unknown pools; determinePools; namespaces; uses",
        &["determine_pools::determine_pools"],
    ),
];

const LIMITS: &[Line] = &[
    ("strict affinity toggled", &["pools::strict_affinity"]),
    ("borrowed addresses released by handle", &["release::a_handle_gives_back_everything_it_has_everywhere"]),
    ("MaxBlocksPerHost", &["pools::the_block_limit"]),
    ("AutoAssign table; texts of partial results", &["pools::auto_assign_table", "pools::requested_pools"]),
    ("long host names", &["pools::long_host_names"]),
    ("random block generator", &["src/walk::every_block_comes_once"]),
    (
        "Windows suite",
        &[
            "windows::such_a_node_does_not_borrow",
            "windows::nothing_is_borrowed_from_windows",
            "windows::a_pool_with_too_small_blocks_is_none",
        ],
    ),
];

const HANDLES: &[Line] = &[
    ("query and release by handle", &["release::a_handle_gives_back_everything_it_has_everywhere"]),
    (
        "per-handle maximum",
        &[
            "per_handle::what_a_handle_has_is_granted_again",
            "per_handle::given_addresses_keep_to_the_maximum",
        ],
    ),
    (
        "SetOwnerAttributes",
        &[
            "owner_change::owners_are_set_replaced_and_cleared",
            "owner_change::preconditions_hold",
            "owner_change::only_the_holders_address_is_changed",
            "owner_change::a_machine_moves",
        ],
    ),
    (
        "EnsureBlock",
        &[
            "ensure::a_node_gets_a_block_of_each_version_once",
            "ensure::a_new_block_has_the_nodes_reserve",
            "ensure::what_keeps_an_address_away_keeps_a_block_away",
        ],
    ),
    (
        "findOrClaimBlock",
        &[
            "ensure::the_first_block_with_something_free_is_taken",
            "ensure::what_keeps_an_address_away_keeps_a_block_away",
        ],
    ),
    ("AssignIP table", &["pools::given_addresses"]),
    ("ClaimAffinity table", &["affinity::claims_of_networks"]),
];

const BLOCKS: &[Line] = &[
    (
        "empty, in use, counts, lookup by handle",
        &[
            "one_block::counts_and_lookups",
            "one_block::addresses_that_windows_keeps_do_not_make_a_block_used",
        ],
    ),
    (
        "release of shared attributes",
        &[
            "one_block::attributes_go_with_their_last_address",
            "release::handle_and_number_must_match_if_they_are_given",
        ],
    ),
    ("release by handle", &["release::a_release_by_handle_can_mean_some_of_its_addresses"]),
    (
        "normalisation",
        &[
            "one_block::a_released_address_cools_down_before_it_is_given_again",
            "one_block::the_delay_is_written_down_only_when_it_is_due",
            "assignment::what_does_no_harm_is_put_right_on_the_way",
        ],
    ),
];

/// The weak points of Calico's design that are ours to avoid, by their number in the reference.
const WEAK_POINTS: &[Line] = &[
    (
        "1: handle and block are two writes",
        &[
            "recovery::every_crash_point_is_harmless_and_put_right",
            "model_check/tests::a_handle_that_is_written_after_its_block_is_found",
        ],
    ),
    ("2: handles grow by what was asked for", &["pools::auto_assign_table"]),
    ("3: retries add to the handle", &["random::the_books_are_those_of_the_naive_allocator"]),
    (
        "4: a lost claim is an error",
        &["assignment::a_commit_is_refused_when_anything_it_relied_on_has_changed"],
    ),
    (
        "5: several addresses take one from the handle",
        &["release::a_release_puts_the_handle_right", "release::each_entry_stands_for_itself"],
    ),
    ("6: parallel releases share a handle", &["release::many_addresses_of_many_nodes_are_released_at_once"]),
    (
        "7: a release between two writes",
        &[
            "release::a_release_stops_an_assignment_that_is_halfway",
            "model_check/tests::recovery_beside_everything_else",
        ],
    ),
    (
        "8: pending affinities without block",
        &[
            "affinity::affinities_without_their_block_are_given_up_too",
            "recovery::each_kind_of_damage_is_repaired",
        ],
    ),
    ("9: no borrowing at the block limit", &["pools::at_the_block_limit_a_node_borrows"]),
    (
        "10: lists of everything",
        &[
            "assignment::blocks_are_looked_at_in_growing_batches",
            "assignment::an_address_from_an_own_block_costs_one_look_however_many_blocks_there_are",
            "assignment::a_batch_shares_the_write_of_a_block",
        ],
    ),
    ("11: misleading errors", &["assignment::nothing_is_taken_from_a_block_that_contradicts_itself"]),
    ("12: one stale entry fails the batch", &["release::each_entry_stands_for_itself"]),
    (
        "13: tombstones",
        &["recovery::tombstones_are_buried", "assignment::a_tombstone_is_neither_used_nor_replaced"],
    ),
    ("15: IPv6 tunnels unknown", &["check::a_cluster_in_order_has_no_problems"]),
    ("16: release by bare address", &["release::handle_and_number_must_match_if_they_are_given"]),
    ("17: pools deleted under an assignment", &["model_check/tests::a_pool_that_is_closed_meanwhile"]),
    (
        "20: empty blocks of no node",
        &["assignment::services_have_blocks_of_their_own_that_go_with_their_last_address"],
    ),
    ("21: addresses in disabled pools", &["release::whose_an_address_is_does_not_depend_on_its_pool"]),
    ("22: clocks and cool-down", &["one_block::a_clock_that_jumps_backwards_starts_the_delay_anew"]),
    ("23: a given address ignores rules", &["pools::given_addresses"]),
];

/// The sources, by the name that the lines give them.
const SOURCES: &[(&str, &str)] = &[
    ("affinity", include_str!("affinity.rs")),
    ("assignment", include_str!("assignment.rs")),
    ("check", include_str!("check.rs")),
    ("determine_pools", include_str!("determine_pools.rs")),
    ("ensure", include_str!("ensure.rs")),
    ("model_check/tests", include_str!("model_check/tests.rs")),
    ("one_block", include_str!("one_block.rs")),
    ("owner_change", include_str!("owner_change.rs")),
    ("per_handle", include_str!("per_handle.rs")),
    ("pools", include_str!("pools.rs")),
    ("random", include_str!("random.rs")),
    ("recovery", include_str!("recovery.rs")),
    ("release", include_str!("release.rs")),
    ("src/reserved", include_str!("../../src/reserved.rs")),
    ("src/walk", include_str!("../../src/walk.rs")),
    ("usage", include_str!("usage.rs")),
    ("windows", include_str!("windows.rs")),
];

/// A test that is renamed or removed takes its line with it.
#[test]
fn every_line_has_its_tests() {
    let all = [RACES, RELEASES, USES, AFFINITIES, POOLS, LIMITS, HANDLES, BLOCKS, WEAK_POINTS];
    for (line, tests) in all.into_iter().flatten() {
        assert!(!tests.is_empty(), "{line}");
        for test in *tests {
            let (module, name) = test.split_once("::").unwrap();
            let source = SOURCES.iter().find(|(known, _)| *known == module);
            let (_, text) = source.unwrap_or_else(|| panic!("{line}: there is no module {module}"));
            assert!(text.contains(&format!("fn {name}(")), "{line}: there is no test {test}");
        }
    }
}
