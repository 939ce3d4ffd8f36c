//! A cluster on a real store, with a clock that can be put forward.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use book::{AssignRequest, Book, BookError, GivenRequest, HandleRequest, Looks, Settings};
use ipam::{AssignError, Grant, PoolUse, ReleaseItem, ReleaseRule};
use jiff::{SignedDuration, Timestamp};
use model::ipam::{Affinity, AffinityState, Block};
use model::{AffinityOwner, Cidr, Key, KeyRange, Kind};
use serde_json::Value;
use store::Store;

use crate::common::{self, assert_clean, one, owner, put_pools, put_record};
use crate::places::Place;

pub(crate) const EMPTY_ONLY: ReleaseRule = ReleaseRule { must_be_empty: true, sequence_number: None };

pub(crate) struct World {
    place: Place,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) book: Book,
    seconds_ahead: Arc<AtomicI64>,
}

pub(crate) fn host(name: &str) -> AffinityOwner {
    AffinityOwner::Host(name.to_owned())
}

/// So many IPv4 addresses, or fewer.
pub(crate) fn many(node: &str, handle: &str, count: usize) -> AssignRequest {
    AssignRequest { v4: count, accepts_fewer: true, ..one(node, handle) }
}

pub(crate) fn item(address: IpAddr) -> ReleaseItem {
    ReleaseItem { address, handle: None, sequence_number: None }
}

impl World {
    /// Pools are called `pool-0`, `pool-1` …
    pub(crate) async fn start(place: Place, pools: &[Value]) -> World {
        let store = place.open().await;
        put_pools(&store, pools).await;
        let seconds_ahead = Arc::new(AtomicI64::new(0));
        let book = Book::with_settings(store.clone(), settings(&seconds_ahead));
        World { place, store, book, seconds_ahead }
    }

    pub(crate) fn is_atomic(&self) -> bool {
        self.store.capabilities().atomic_commits
    }

    /// What those who lost a race in the middle leave to recovery: something only where records are written one by one.
    pub(crate) async fn finish_what_was_begun(&self) {
        let recovery = self.book.recover(Looks::Once).await.unwrap();
        assert_eq!(recovery.left, []);
        assert!(recovery.repaired.is_empty() || !self.is_atomic(), "{:?}", recovery.repaired);
    }

    /// The book of another process.
    pub(crate) async fn another(&self) -> Book {
        Book::with_settings(self.place.open().await, settings(&self.seconds_ahead))
    }

    /// A book on another store around this one.
    pub(crate) fn book_on(&self, store: Arc<dyn Store>) -> Book {
        Book::with_settings(store, settings(&self.seconds_ahead))
    }

    /// One that gives up at once when it loses a race.
    pub(crate) fn hasty(&self, store: Arc<dyn Store>) -> Book {
        let settings = Settings { patience: Duration::ZERO, ..settings(&self.seconds_ahead) };
        Book::with_settings(store, settings)
    }

    pub(crate) fn put_clock_forward(&self, seconds: i64) {
        self.seconds_ahead.fetch_add(seconds, Ordering::SeqCst);
    }

    pub(crate) async fn put_pool(&self, name: &str, spec: Value) {
        common::put(&self.store, Kind::IpPool, name, spec).await;
    }

    pub(crate) async fn delete_pool(&self, name: &str) {
        common::delete(&self.store, Key::cluster(Kind::IpPool, name)).await;
    }

    pub(crate) async fn put_node(&self, name: &str, labels: &[(&str, &str)]) {
        self.place.put_node(&self.store, name, labels).await;
    }

    pub(crate) async fn assign(&self, node: &str, handle: &str) -> Result<IpAddr, AssignError> {
        Ok(single(self.book.assign(one(node, handle)).await)?.addresses[0].address)
    }

    /// As many as there are, and why there are not more.
    pub(crate) async fn assign_many(
        &self,
        node: &str,
        handle: &str,
        count: usize,
    ) -> (Vec<IpAddr>, Option<AssignError>) {
        self.assign_as(many(node, handle, count)).await
    }

    pub(crate) async fn assign_as(&self, request: AssignRequest) -> (Vec<IpAddr>, Option<AssignError>) {
        match single(self.book.assign(request).await) {
            Ok(grant) => (grant.addresses.iter().map(|granted| granted.address).collect(), grant.shortage),
            Err(error) => (Vec::new(), Some(error)),
        }
    }

    /// Exactly this address.
    pub(crate) async fn give(
        &self,
        node: &str,
        handle: &str,
        address: &str,
        purpose: Option<PoolUse>,
    ) -> Result<(), AssignError> {
        let addresses = vec![address.parse().unwrap()];
        let request = GivenRequest { purpose, ..GivenRequest::new(node, owner(handle), addresses) };
        single(self.book.assign_addresses(request).await).map(|_| ())
    }

    pub(crate) async fn release(&self, handle: &str) -> Vec<IpAddr> {
        self.book.release_handle(HandleRequest::all(handle)).await.unwrap().addresses
    }

    /// The addresses of a handle, as the handle and its blocks say.
    pub(crate) async fn held(&self, handle: &str) -> Vec<IpAddr> {
        let (holding, _) = self.book.held(&handle.into(), Vec::new()).await.unwrap();
        holding.addresses.iter().map(|held| held.address).collect()
    }

    pub(crate) async fn block(&self, cidr: Cidr) -> Option<Block> {
        common::block(&self.store, cidr).await
    }

    pub(crate) async fn blocks(&self) -> Vec<Cidr> {
        let mut blocks = Vec::new();
        for version in [model::IpVersion::V4, model::IpVersion::V6] {
            for record in self.store.list_all(KeyRange::Blocks(version)).await.unwrap().0 {
                if let Key::Block(cidr) = record.key {
                    blocks.push(cidr);
                }
            }
        }
        blocks
    }

    /// Every node's affinities, with their states.
    pub(crate) async fn affinities(&self) -> Vec<(AffinityOwner, Cidr, AffinityState)> {
        let mut affinities = Vec::new();
        for record in self.store.list_all(KeyRange::HostAffinities).await.unwrap().0 {
            let Key::Affinity { owner, block } = &record.key else { continue };
            let affinity = Affinity::decode(owner, block, &record.value).unwrap();
            affinities.push((owner.clone(), *block, affinity.state));
        }
        affinities
    }

    pub(crate) async fn affinities_of(&self, node: &str) -> Vec<Cidr> {
        let all = self.affinities().await.into_iter();
        all.filter(|(owner, ..)| *owner == host(node)).map(|(_, block, _)| block).collect()
    }

    pub(crate) async fn put_affinity(&self, node: &str, block: Cidr, state: AffinityState) {
        let key = Key::Affinity { owner: host(node), block };
        put_record(&self.store, key, Affinity::new(state).encode()).await;
    }

    /// The number of an allocation.
    pub(crate) async fn number_of(&self, address: IpAddr) -> u64 {
        self.book.lookup(address).await.unwrap().expect("allocated").sequence_number
    }

    pub(crate) async fn assert_clean(&self) {
        assert_clean(&self.store).await;
    }
}

fn single(result: Result<Grant, BookError>) -> Result<Grant, AssignError> {
    match result {
        Ok(grant) => Ok(grant),
        Err(BookError::Assign(error)) => Err(error),
        Err(error) => panic!("{error:?}"),
    }
}

fn settings(seconds_ahead: &Arc<AtomicI64>) -> Settings {
    let ahead = Arc::clone(seconds_ahead);
    let clock = move || {
        Timestamp::now().checked_add(SignedDuration::from_secs(ahead.load(Ordering::SeqCst))).unwrap()
    };
    Settings { clock: Arc::new(clock), patience: Duration::from_secs(120), ..Settings::default() }
}
