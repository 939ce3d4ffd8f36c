//! Every operation once, in memory.

use book::{Addition, Additions, Book, BookError, GivenRequest, HandleRequest, Looks, Settings};
use ipam::{AssignError, LOAD_BALANCER, PoolUse, ReleaseItem, ReleaseRule, Tunnel, Why};
use model::{AffinityOwner, HandleId, Key, Kind};
use serde_json::json;
use store::StoreError;

use crate::common::{
    address, assert_clean, assign, block, cidr, delete, holders, one, owner, put, small, wait_for, with_pools,
};

#[tokio::test]
async fn an_address_is_given_and_given_back() {
    let store = small().await;
    let book = Book::new(store.clone());
    let first = assign(&book, "node-a", "h").await;
    assert_eq!(holders(&store).await.get(&first).map(HandleId::as_str), Some("h"));
    assert_eq!(book.lookup(first).await.unwrap().unwrap().attribute.handle(), Some(&"h".into()));
    let (holding, _) = book.held(&"h".into(), Vec::new()).await.unwrap();
    assert!(holding.exists);
    assert_eq!(holding.addresses[0].address, first);
    assert_clean(&store).await;
    let given_back = book.release_handle(HandleRequest::all("h")).await.unwrap();
    assert_eq!(given_back.addresses, [first]);
    assert_eq!(book.lookup(first).await.unwrap(), None);
    let again = book.release_handle(HandleRequest::all("h")).await.unwrap();
    assert!(again.addresses.is_empty(), "twice is once");
    assert!(holders(&store).await.is_empty());
    assert_clean(&store).await;
}

#[tokio::test]
async fn both_versions_come_together_or_not_at_all() {
    let pools =
        [json!({"cidr": "10.0.0.0/30", "blockSize": 30}), json!({"cidr": "fd00::/120", "blockSize": 124})];
    let store = with_pools(&pools).await;
    let book = Book::new(store.clone());
    let dual = |handle: &str| {
        let mut request = one("node-a", handle);
        request.v6 = 1;
        request
    };
    for handle in ["a", "b", "c", "d"] {
        let versions: Vec<_> = book.assign(dual(handle)).await.unwrap().addresses;
        assert_eq!(versions.len(), 2);
    }
    let error = book.assign(dual("e")).await.unwrap_err();
    assert!(matches!(error, BookError::Assign(AssignError::Exhausted { .. })), "{error}");
    assert_eq!(holders(&store).await.len(), 8, "the IPv6 address of e was not taken alone");
    assert_clean(&store).await;
}

#[tokio::test]
async fn many_addresses_come_in_as_many_commits_as_they_need() {
    let store = with_pools(&[json!({"cidr": "10.0.0.0/22", "blockSize": 32})]).await;
    let book = Book::new(store.clone());
    let mut request = one("node-a", "h");
    (request.v4, request.accepts_fewer) = (300, true);
    put(&store, Kind::ClusterInformation, "default", json!({"datastoreReady": true})).await;
    book.change_config(|config| (config.strict_affinity, config.max_blocks_per_host) = (true, 1000))
        .await
        .unwrap();
    let grant = book.assign(request).await.unwrap();
    assert_eq!((grant.addresses.len(), grant.shortage), (300, None));
    assert_eq!(holders(&store).await.len(), 300);
    assert_clean(&store).await;
}

#[tokio::test]
async fn what_there_is_is_better_than_nothing_for_those_who_say_so() {
    let store = with_pools(&[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    let book = Book::new(store.clone());
    let mut request = one("node-a", "h");
    (request.v4, request.accepts_fewer) = (5, true);
    let grant = book.assign(request).await.unwrap();
    assert_eq!(grant.addresses.len(), 4);
    assert!(matches!(grant.shortage, Some(AssignError::Exhausted { .. })), "{:?}", grant.shortage);
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_handle_gets_more_unless_it_was_to_be_new() {
    let store = small().await;
    let book = Book::new(store.clone());
    assign(&book, "node-a", "h").await;
    assign(&book, "node-a", "h").await;
    let mut request = one("node-a", "h");
    request.handle_may_exist = false;
    let error = book.assign(request).await.unwrap_err();
    assert!(matches!(error, BookError::HandleExists { .. }), "{error}");
    let mut request = one("node-a", "h");
    request.handle_max = Some(2);
    assert_eq!(book.assign(request).await.unwrap().addresses.len(), 2, "it has what it may have");
    assert_eq!(holders(&store).await.len(), 2);
    assert_clean(&store).await;
}

#[tokio::test]
async fn what_the_caller_adds_happens_with_the_addresses_or_not_at_all() {
    let store = small().await;
    let book = Book::new(store.clone());
    let key = Key::namespaced(Kind::WorkloadEndpoint, "shop", "node--a-k8s-web-eth0");
    let with_endpoint = |handle: &str| {
        let mut request = one("node-a", handle);
        let key = key.clone();
        request.additions = Additions::new(1, move |granted| {
            Ok(vec![Addition::create(key.clone(), format!("\"{}\"", granted[0].address))])
        });
        request
    };
    let grant = book.assign(with_endpoint("a")).await.unwrap();
    let endpoint = store.get(&key).await.unwrap().unwrap();
    assert_eq!(endpoint.value, format!("\"{}\"", grant.addresses[0].address));
    let error = book.assign(with_endpoint("b")).await.unwrap_err();
    assert!(matches!(&error, BookError::Addition { key: refused, .. } if *refused == key), "{error}");
    assert_eq!(holders(&store).await.len(), 1, "b has no address without its endpoint");

    let release = HandleRequest::all("a").with(vec![Addition::delete(&endpoint)]);
    book.release_handle(release).await.unwrap();
    assert_eq!(store.get(&key).await.unwrap(), None);
    assert!(holders(&store).await.is_empty());
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_caller_may_not_add_what_the_book_changes_itself() {
    let store = small().await;
    let book = Book::new(store.clone());
    let mut request = one("node-a", "a");
    request.additions = Additions::new(1, |_| Ok(vec![Addition::create(Key::Handle("a".into()), "{}")]));
    let error = book.assign(request).await.unwrap_err();
    assert!(matches!(error, BookError::AdditionNotAllowed { .. }), "{error}");
    let mut request = one("node-a", "a");
    request.additions = Additions::new(0, |_| {
        Ok(vec![Addition::create(Key::namespaced(Kind::WorkloadEndpoint, "a", "b"), "{}")])
    });
    let error = book.assign(request).await.unwrap_err();
    assert!(matches!(error, BookError::AdditionsMiscounted { said: 0, given: 1 }), "{error}");
    let error = book.assign(one("node-a", "")).await.unwrap_err();
    assert!(
        matches!(&error, BookError::Store(source) if matches!(**source, StoreError::Invalid { .. })),
        "{error}"
    );
    assert!(holders(&store).await.is_empty());
}

#[tokio::test]
async fn given_addresses_are_given_once() {
    let store = small().await;
    let book = Book::new(store.clone());
    let wanted = vec![address("10.0.0.5"), address("10.0.0.9")];
    let given = |handle: &str| GivenRequest::new("node-a", owner(handle), wanted.clone());
    let grant = book.assign_addresses(given("a")).await.unwrap();
    assert_eq!(grant.addresses.iter().map(|granted| granted.address).collect::<Vec<_>>(), wanted);
    book.assign_addresses(given("a")).await.unwrap();
    let error = book.assign_addresses(given("b")).await.unwrap_err();
    assert!(matches!(error, BookError::Assign(AssignError::Taken { .. })), "{error}");
    assert_eq!(holders(&store).await.len(), 2);
    assert_clean(&store).await;
}

#[tokio::test]
async fn addresses_are_released_under_their_conditions() {
    let store = small().await;
    let book = Book::new(store.clone());
    let (a, b) = (assign(&book, "node-a", "a").await, assign(&book, "node-a", "b").await);
    let number = book.lookup(a).await.unwrap().unwrap().sequence_number;
    let item = |address, handle: &str, sequence_number| ReleaseItem {
        address,
        handle: Some(handle.into()),
        sequence_number,
    };
    let items = [item(a, "a", Some(number)), item(b, "a", None), item(address("10.0.0.250"), "a", None)];
    let released = book.release_addresses(items).await.unwrap();
    assert_eq!(released.addresses, [a]);
    let why: Vec<_> = released.unreleased.iter().map(|unreleased| unreleased.why.clone()).collect();
    assert_eq!(why, [Why::OtherHandle(Some("b".into())), Why::NotAllocated]);
    assert_eq!(holders(&store).await.len(), 1);
    assert_clean(&store).await;
}

#[tokio::test]
async fn more_addresses_than_fit_into_one_commit_are_released() {
    let store = with_pools(&[json!({"cidr": "10.0.0.0/22", "blockSize": 26})]).await;
    let book = Book::new(store.clone());
    let mut items = Vec::new();
    for number in 0..200 {
        let address = assign(&book, "node-a", &format!("h{number}")).await;
        items.push(ReleaseItem { address, handle: None, sequence_number: None });
    }
    let released = book.release_addresses(items).await.unwrap();
    assert_eq!(released.addresses.len(), 200);
    assert!(holders(&store).await.is_empty());
    assert_clean(&store).await;
}

#[tokio::test]
async fn blocks_are_claimed_and_given_up() {
    let store = small().await;
    let book = Book::new(store.clone());
    let owner = |name: &str| AffinityOwner::Host(name.to_owned());
    let claims = book.claim_blocks(cidr("10.0.0.0/28"), owner("node-a")).await.unwrap();
    assert_eq!(claims.claimed.len(), 4);
    let claims = book.claim_blocks(cidr("10.0.0.0/27"), owner("node-b")).await.unwrap();
    assert_eq!((claims.claimed.len(), claims.taken.len()), (4, 4));
    let used = assign(&book, "node-a", "a").await;
    let rule = ReleaseRule { must_be_empty: true, sequence_number: None };
    let given_up = book.release_host("node-a", rule).await.unwrap();
    assert_eq!(given_up.iter().filter(|given_up| given_up.result.is_err()).count(), 1);
    assert!(holders(&store).await.contains_key(&used));
    let given_up = book.release_network(cidr("10.0.0.16/28"), owner("node-b"), rule).await.unwrap();
    assert_eq!(given_up.len(), 4);
    assert!(given_up.iter().all(|given_up| given_up.result == Ok(true)));
    assert_eq!(block(&store, cidr("10.0.0.16/30")).await, None);
    assert_eq!(book.release_host("nobody", rule).await.unwrap(), []);
    let given_up = book.release_pool(cidr("10.0.0.0/24"), ReleaseRule::default()).await.unwrap();
    assert_eq!(given_up.len(), 1);
    book.release_handle(HandleRequest::all("a")).await.unwrap();
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_node_spares_what_is_empty_but_never_its_last_block() {
    let store = small().await;
    let book = Book::new(store.clone());
    let owner = AffinityOwner::Host("node-a".to_owned());
    book.claim_blocks(cidr("10.0.0.0/28"), owner.clone()).await.unwrap();
    assert_eq!(book.release_spare("node-a", Looks::Once).await.unwrap().len(), 3);
    assert_eq!(book.release_spare("node-a", Looks::Once).await.unwrap(), []);
    assert_clean(&store).await;
}

#[tokio::test]
async fn empty_blocks_of_pools_that_deselect_the_node_go() {
    let store = with_pools(&[
        json!({"cidr": "10.0.0.0/24", "blockSize": 30, "nodeSelector": "!has(away)"}),
        json!({"cidr": "10.1.0.0/24", "blockSize": 30}),
    ])
    .await;
    let book = Book::new(store.clone());
    let first = assign(&book, "node-a", "a").await;
    let away = br#"{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"node-a","labels":{"away":""}}}"#;
    crate::common::put_record(&store, Key::cluster(Kind::Node, "node-a"), away.to_vec()).await;
    assert_eq!(book.release_deselected("node-a").await.unwrap()[0].result.clone().ok(), None, "it is in use");
    let second = assign(&book, "node-a", "b").await;
    assert!(cidr("10.1.0.0/24").contains(second), "{second}");
    book.release_handle(HandleRequest::all("a")).await.unwrap();
    let of_first = model::Cidr::containing(first, 30).unwrap();
    assert_eq!(block(&store, of_first).await, None, "it went with its last address");
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_locked_store_gives_nothing_and_takes_nothing_back() {
    let store = small().await;
    let book = Book::new(store.clone());
    assign(&book, "node-a", "a").await;
    put(&store, Kind::ClusterInformation, "default", json!({"datastoreReady": false})).await;
    assert!(matches!(book.assign(one("node-a", "b")).await, Err(BookError::Locked)));
    assert!(matches!(book.release_handle(HandleRequest::all("a")).await, Err(BookError::Locked)));
    let item = || ReleaseItem { address: address("10.0.0.1"), handle: None, sequence_number: None };
    assert!(matches!(book.release_addresses([item()]).await, Err(BookError::Locked)));
    let tool = Book::with_settings(store.clone(), Settings { heeds_lock: false, ..Settings::default() });
    tool.release_handle(HandleRequest::all("a")).await.unwrap();
    assert!(holders(&store).await.is_empty());
    assert_clean(&store).await;
}

#[tokio::test]
async fn a_tunnel_has_an_address_while_a_pool_wants_it() {
    let store = with_pools(&[json!({"cidr": "10.0.0.0/24", "blockSize": 30, "vxlanMode": "Always"})]).await;
    let book = Book::new(store.clone());
    let error = book.ensure_tunnel_address("node-a", Tunnel::Vxlan).await.unwrap_err();
    assert_eq!(error.to_string(), "node node-a has no Node record");
    put(&store, Kind::Node, "node-a", json!({"bgp": {"ipv4Address": "192.0.2.1/24"}})).await;
    let first = book.ensure_tunnel_address("node-a", Tunnel::Vxlan).await.unwrap().unwrap();
    assert_eq!(book.ensure_tunnel_address("node-a", Tunnel::Vxlan).await.unwrap(), Some(first));
    assert_eq!(book.ensure_tunnel_address("node-a", Tunnel::Ipip).await.unwrap(), None);
    let node = store.get(&Key::cluster(Kind::Node, "node-a")).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&node.value).contains(&format!("\"ipv4VXLANTunnelAddr\":\"{first}\"")));
    put(&store, Kind::IpPool, "pool-0", json!({"cidr": "10.0.0.0/24", "blockSize": 30})).await;
    assert_eq!(book.ensure_tunnel_address("node-a", Tunnel::Vxlan).await.unwrap(), None);
    assert!(holders(&store).await.is_empty());
    let node = store.get(&Key::cluster(Kind::Node, "node-a")).await.unwrap().unwrap();
    assert!(!String::from_utf8_lossy(&node.value).contains("ipv4VXLANTunnelAddr"));
    assert_clean(&store).await;
}

/// What cannot be understood changes nothing: the pool may be the one that wants the tunnel.
#[tokio::test]
async fn a_pool_that_cannot_be_understood_takes_no_tunnel_its_address() {
    let pool = |selector: &str| json!({"cidr": "10.0.0.0/24", "blockSize": 30, "vxlanMode": "Always", "nodeSelector": selector});
    let store = with_pools(&[pool("all()")]).await;
    let book = Book::new(store.clone());
    put(&store, Kind::Node, "node-a", json!({"bgp": {"ipv4Address": "192.0.2.1/24"}})).await;
    let first = book.ensure_tunnel_address("node-a", Tunnel::Vxlan).await.unwrap();
    put(&store, Kind::IpPool, "pool-0", pool("al()")).await;
    let node = Key::cluster(Kind::Node, "node-a");
    let before = (store.get(&node).await.unwrap(), holders(&store).await);
    let error = book.ensure_tunnel_address("node-a", Tunnel::Vxlan).await.unwrap_err();
    assert!(matches!(error, BookError::Pool(_)), "{error}");
    assert_eq!((store.get(&node).await.unwrap(), holders(&store).await), before);
    put(&store, Kind::IpPool, "pool-0", pool("all()")).await;
    assert_eq!(book.ensure_tunnel_address("node-a", Tunnel::Vxlan).await.unwrap(), first);
}

#[tokio::test]
async fn services_have_blocks_of_no_node() {
    let store =
        with_pools(&[json!({"cidr": "10.0.0.0/24", "blockSize": 30, "allowedUses": ["LoadBalancer"]})]).await;
    let book = Book::new(store.clone());
    let mut request = one(LOAD_BALANCER, "service");
    request.purpose = PoolUse::LoadBalancer;
    let granted = book.assign(request).await.unwrap().addresses[0];
    let owner = block(&store, granted.block).await.unwrap().owner();
    assert_eq!(owner, Some(AffinityOwner::Virtual(LOAD_BALANCER.to_owned())));
    book.release_handle(HandleRequest::all("service")).await.unwrap();
    assert_eq!(block(&store, granted.block).await, None, "it goes with its last address");
    assert_clean(&store).await;
}

#[tokio::test]
async fn released_addresses_cool_down_if_the_settings_say_so() {
    let store = with_pools(&[json!({"cidr": "10.0.0.0/30", "blockSize": 30})]).await;
    let book = Book::new(store.clone());
    book.change_config(|config| config.ip_cooldown_seconds = 3600).await.unwrap();
    for handle in ["a", "b", "c", "d"] {
        assign(&book, "node-a", handle).await;
        book.release_handle(HandleRequest::all(handle)).await.unwrap();
    }
    assert!(book.assign(one("node-a", "e")).await.is_err(), "all four cool down");
    assert_eq!(book.settle_cooldown().await.unwrap(), 0);
    book.change_config(|config| config.ip_cooldown_seconds = 0).await.unwrap();
    assert_eq!(book.config().await.unwrap().ip_cooldown_seconds, 0);
    assert_eq!(book.settle_cooldown().await.unwrap(), 1);
    assign(&book, "node-a", "e").await;
}

#[tokio::test]
async fn usage_counts_what_is_taken() {
    let store = small().await;
    let book = Book::new(store.clone());
    put(&store, Kind::IpReservation, "r", json!({"reservedCIDRs": ["10.0.0.128/25"]})).await;
    assign(&book, "node-a", "a").await;
    let usage = book.usage().await.unwrap();
    assert_eq!((usage[0].total.capacity, usage[0].total.in_use, usage[0].total.reserved), (256, 1, 128));
}

#[tokio::test]
async fn recovery_finds_nothing_where_nothing_is_wrong_and_mends_what_is() {
    let store = small().await;
    let book = Book::new(store.clone());
    assign(&book, "node-a", "a").await;
    assert_eq!(book.recover(Looks::Once).await.unwrap(), book::Recovery::default());
    delete(&store, Key::Handle("a".into())).await;
    let twice = Looks::Twice { apart: std::time::Duration::from_millis(1) };
    assert_eq!(book.recover(twice).await.unwrap().repaired.len(), 1);
    assert_clean(&store).await;
    assert_eq!(holders(&store).await.len(), 1);
}

/// A collector finds such addresses by their blocks.
#[tokio::test]
async fn an_address_whose_handle_is_missing_is_released_by_its_number() {
    let store = small().await;
    let book = Book::new(store.clone());
    let address = assign(&book, "node-a", "a").await;
    delete(&store, Key::Handle("a".into())).await;
    assert!(book.release_handle(HandleRequest::all("a")).await.unwrap().addresses.is_empty());
    let sequence_number = Some(book.lookup(address).await.unwrap().unwrap().sequence_number);
    let item = ReleaseItem { address, handle: Some("a".into()), sequence_number };
    assert_eq!(book.release_addresses([item]).await.unwrap().addresses, [address]);
    assert!(holders(&store).await.is_empty());
    assert_clean(&store).await;
}

#[tokio::test]
async fn unasked_recovery_reads_no_long_list() {
    let store = small().await;
    let book = Book::new(store.clone());
    for handle in ["a", "b", "c"] {
        assign(&book, "node-a", handle).await;
    }
    delete(&store, Key::Handle("a".into())).await;
    assert_eq!(book.recover_if_few(Looks::Once, 1).await.unwrap(), None);
    assert_eq!(book.recover_if_few(Looks::Once, 2).await.unwrap().unwrap().repaired.len(), 1);
    assert_eq!(book.recover_if_few(Looks::Once, 2).await.unwrap(), None, "there are three handles now");
    assert_clean(&store).await;
}

/// What only the second look finds may be someone's work in the middle.
#[tokio::test]
async fn recovery_leaves_alone_what_only_its_second_look_finds() {
    let store = small().await;
    let counting = std::sync::Arc::new(store::wrap::CountingStore::new(store.clone()));
    let book = Book::new(counting.clone());
    let addresses = [assign(&book, "node-a", "early").await, assign(&book, "node-a", "late").await];
    let before = counting.counts();
    book.recover(Looks::Once).await.unwrap();
    let one_look = (counting.counts() - before).round_trips();
    delete(&store, Key::Handle("early".into())).await;
    let before = counting.counts();
    let recovery = tokio::spawn({
        let book = book.clone();
        async move { book.recover(Looks::Twice { apart: std::time::Duration::from_millis(500) }).await }
    });
    let has_looked = || async { (counting.counts() - before).round_trips() >= one_look };
    wait_for("the first look", has_looked).await;
    delete(&store, Key::Handle("late".into())).await;
    assert_eq!(recovery.await.unwrap().unwrap().repaired.len(), 1);
    assert!(store.get(&Key::Handle("early".into())).await.unwrap().is_some());
    assert_eq!(store.get(&Key::Handle("late".into())).await.unwrap(), None);
    assert_eq!(holders(&store).await.len(), addresses.len());
}

/// The store is asked as seldom as it can be: what surrounds the decision, the blocks, the commit.
#[tokio::test]
async fn without_a_cache_an_assignment_takes_three_round_trips() {
    let store = small().await;
    let book = Book::new(store.clone());
    assign(&book, "node-a", "a").await;
    let counting = std::sync::Arc::new(store::wrap::CountingStore::new(store.clone()));
    let one_shot = Book::new(counting.clone());
    assign(&one_shot, "node-a", "b").await;
    assert_eq!(counting.counts().round_trips(), 3);
    one_shot.release_handle(HandleRequest::all("b")).await.unwrap();
    assert_eq!(counting.counts().round_trips(), 6);
}
