//! One of many processes that assign and release on the same store, until they are done or killed.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use book::{Addition, Additions, AssignRequest, Book, BookError, HandleRequest, Settings};
use ipam::{Granted, Owner};
use model::{IpVersion, Key, Kind, Resource, is_detached};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::Store;
use store::wrap::CountingStore;
use testkit::Dice;
use testkit::kube::Api;

use super::ledger::{Event, Ledger};
use crate::common::one_by_one;
use crate::kubernetes::{self, Pod};
use crate::places;

/// What a process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) store: String,
    /// Commits are done one change at a time.
    pub(crate) is_stepwise: bool,
    pub(crate) ledger: PathBuf,
    /// Unlike any other process's, dead ones included.
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) seed: u64,
    pub(crate) assignments: usize,
    pub(crate) held_max: usize,
    pub(crate) has_ipv6: bool,
    /// Handles of a predecessor that was killed, to be released first, as a runtime does.
    pub(crate) left_over: Vec<String>,
}

struct Worker {
    orders: Orders,
    book: Book,
    counting: Arc<CountingStore>,
    ledger: Ledger,
    dice: Dice,
    held: Vec<String>,
    /// Where endpoints are pods.
    api: Option<Api>,
}

pub(crate) async fn work(orders: Orders) {
    let mut store = places::open(&orders.store).await;
    if orders.is_stepwise {
        store = one_by_one(store);
    }
    let counting = Arc::new(CountingStore::new(store));
    let book = Book::with_settings(counting.clone(), settings());
    let ledger = Ledger::open(&orders.ledger);
    let dice = Dice::for_purpose(orders.seed, &orders.name);
    let api = kubernetes::api_at(&orders.store);
    let mut worker = Worker { orders, book, counting, ledger, dice, held: Vec::new(), api };
    worker.run().await;
}

/// Sixteen processes on two slow cores lose many races; that must not end their patience.
pub(crate) fn settings() -> Settings {
    Settings { patience: Duration::from_secs(300), ..Settings::default() }
}

impl Worker {
    async fn run(&mut self) {
        for handle in std::mem::take(&mut self.orders.left_over) {
            self.release(&handle).await;
        }
        let mut number = 0;
        while number < self.orders.assignments {
            let is_room = self.held.len() < self.orders.held_max;
            if self.held.is_empty() || (is_room && self.dice.roll(3) > 0) {
                self.assign(format!("net.{}-{number}", self.orders.name)).await;
                number += 1;
            } else {
                let position = self.dice.roll(self.held.len() as u64) as usize;
                let handle = self.held.swap_remove(position);
                self.release(&handle).await;
            }
            self.ledger.write(&self.orders.name, &Event::Commits(self.counting.counts().commits));
        }
        for handle in std::mem::take(&mut self.held) {
            self.release(&handle).await;
        }
        self.ledger.write(&self.orders.name, &Event::Commits(self.counting.counts().commits));
    }

    async fn assign(&mut self, handle: String) {
        let versions: &[IpVersion] = match self.orders.has_ipv6 && self.dice.roll(3) == 0 {
            true => &[IpVersion::V4, IpVersion::V6],
            false => &[IpVersion::V4],
        };
        let owner = Owner::on_node(&handle, &self.orders.node, jiff::Timestamp::now());
        let mut request = AssignRequest::new(&self.orders.node, owner, versions);
        request.additions = self.additions(handle.clone());
        self.ledger.write(&handle, &Event::Try);
        match self.book.assign(request).await {
            Ok(grant) => {
                let addresses = grant.addresses.iter().map(|granted| granted.address).collect();
                self.ledger.write(&handle, &Event::Got(addresses));
                self.held.push(handle);
            }
            Err(BookError::Assign(error)) => self.ledger.write(&handle, &Event::Refused(error.to_string())),
            Err(error) => panic!("{handle} gets no address: {error:?}"),
        }
    }

    fn additions(&self, handle: String) -> Additions {
        if let Some(api) = &self.api {
            let pod = tokio::task::block_in_place(|| Pod::create(api, &self.orders.node, &handle));
            return Additions::new(1, move |granted| Ok(vec![pod.attach(&handle, granted)]));
        }
        Additions::new(1, move |granted| {
            let addresses: Vec<IpAddr> = granted.iter().map(|granted: &Granted| granted.address).collect();
            Ok(vec![Addition::create(endpoint_key(&handle), endpoint(&handle, &addresses))])
        })
    }

    async fn release(&mut self, handle: &str) {
        self.ledger.write(handle, &Event::Drop);
        let endpoint = match &self.api {
            Some(_) => Pod::key(&self.orders.node, handle),
            None => endpoint_key(handle),
        };
        release(&self.book, &endpoint, handle).await;
        self.ledger.write(handle, &Event::Gone);
    }
}

/// The addresses of a handle and its endpoint, whatever there is of them.
pub(crate) async fn release(book: &Book, endpoint: &Key, handle: &str) {
    let store: &dyn Store = &**book.store();
    let endpoint = store.get(endpoint).await.unwrap();
    let endpoint = endpoint.filter(|record| !is_detached(&record.value));
    let additions = endpoint.iter().map(Addition::delete).collect();
    book.release_handle(HandleRequest::all(handle).with(additions)).await.expect("a release always ends");
}

pub(crate) fn endpoint_key(handle: &str) -> Key {
    Key::namespaced(Kind::WorkloadEndpoint, "default", handle)
}

fn endpoint(handle: &str, addresses: &[IpAddr]) -> Vec<u8> {
    let mut resource = Resource::new(Kind::WorkloadEndpoint, handle);
    resource.metadata.namespace = Some("default".to_owned());
    let networks: Vec<String> = addresses
        .iter()
        .map(|address| format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 }))
        .collect();
    resource.body.insert("spec".to_owned(), json!({"ipNetworks": networks}));
    resource.encode()
}
