//! Starts the agent's parts in an order in which each finds what it needs, and stops them.

use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use book::{Book, Settings};
use store::config::Reason;
use store::{OpenMode, Store, StoreConfig};
use tokio::sync::Notify;
use tracing::{info, warn};

use super::server::Server;
use super::settings::{self, NodeArguments};
use super::stop::{self, Stop};
use super::sweep;
use crate::bgp::{self, BgpOptions};
use crate::cni::{Agent, Records, Services};
use crate::endpoints::Endpoints;
use crate::failpoint::{self, Point};
use crate::health::{Health, Pages};
use crate::journal::Journal;
use crate::state::{self, State};
use crate::{
    between, bootstrap, collect, findings, guard, node_status, policies, queue, reconcile, store_health,
};

const STORE_RETRY_MIN: Duration = Duration::from_millis(200);
const STORE_RETRY_MAX: Duration = Duration::from_secs(5);
/// Well below what counts as hanging.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

pub(super) async fn run(arguments: NodeArguments) -> Result<()> {
    failpoint::hit(Point::StartBegin);
    let node = arguments.name()?;
    let (config, reason) = settings::store_config()?;
    let bgp = arguments.bgp()?;
    info!(node, store = %config, version = env!("CARGO_PKG_VERSION"), "starting");
    if let Some(warning) = config.warning() {
        warn!("{warning}");
    }
    let state = State::open(&arguments.state_dir)?;
    failpoint::hit(Point::StartLocked);
    let journal = Journal::open(&arguments.state_dir)
        .with_context(|| format!("cannot read the journal in {}", arguments.state_dir.display()))?;
    info!(attachments = journal.len(), "read the journal");
    failpoint::hit(Point::StartJournalRead);
    let health = Arc::new(Health::new());
    let agent = Agent {
        node,
        mode: arguments.mode(),
        book: Records::default(),
        runtime: arguments.runtime()?,
        endpoints: Endpoints::default(),
        sweep: Notify::new(),
        rules_touched: Notify::new(),
        journal,
        state,
        protected: RwLock::default(),
        bird_socket: arguments.expected_bird_socket(),
    };
    let services = Arc::new(Services::of_agent(agent, &arguments.state_dir, health.clone()));
    services.count_attachments();
    let mut stop = Stop::new()?;
    if arguments.health_address != "off" {
        let pages = Pages::open(&arguments.health_address)
            .await
            .with_context(|| format!("cannot serve health pages on {}", arguments.health_address))?;
        tokio::spawn(pages.serve(health.clone()));
    }
    if !arguments.observe {
        guard::start(&services).await;
    }
    let server = Server::bind(&arguments.socket)
        .with_context(|| format!("cannot serve on {}", arguments.socket.display()))?;
    failpoint::hit(Point::StartSocketBound);
    health.set_serving(true);
    info!(socket = %arguments.socket.display(), "serving");
    tokio::spawn({
        let (services, every) = (services.clone(), arguments.doctor_every);
        async move { findings::watch(&services, every).await }
    });
    let background = if arguments.observe {
        tokio::spawn(observe(services.clone(), config))
    } else {
        keep_kernel(&services);
        tokio::spawn(work(services.clone(), (config, reason), arguments.grace, bgp, arguments.mtu_file()))
    };
    tokio::select! {
        () = server.run(services, stop::asked(&mut stop)) => {}
        ended = background => {
            // It ends only when it cannot go on.
            ended.context("the agent's work ended")??;
        }
    }
    info!("stopped; pods keep their network");
    Ok(())
}

fn keep_kernel(services: &Arc<Services>) {
    tokio::spawn({
        let services = services.clone();
        async move { reconcile::run(&services).await }
    });
    tokio::spawn({
        let services = services.clone();
        async move { sweep::run(&services).await }
    });
    tokio::spawn({
        let services = services.clone();
        async move { guard::keep(&services).await }
    });
    tokio::spawn({
        let services = services.clone();
        async move { state::watch(&services).await }
    });
}

/// Follows the records, and changes neither them nor the kernel.
async fn observe(services: Arc<Services>, config: StoreConfig) -> Result<()> {
    info!("only observing");
    let store = open_store(services.health(), &config, OpenMode::ReadOnly).await;
    let agent = services.agent().expect("these are the agent's services");
    let following = agent.endpoints.follow(&*store, &agent.node, |in_sync| {
        services.health().set_store_in_sync(in_sync);
    });
    let store_health = store_health::watch(services.health(), &*store);
    tokio::join!(following, store_health, stay_alive(&services));
    Ok(())
}

/// In the place of the loop that keeps the kernel: there is nothing to keep, so nothing is amiss.
async fn stay_alive(services: &Services) {
    services.health().set_reconciled(true);
    services.health().set_routes_missing(Vec::new());
    loop {
        services.health().heard_of_reconcile();
        tokio::time::sleep(ALIVE_EVERY).await;
    }
}

/// Everything besides answering calls. Calls that need records fail until the store is there.
async fn work(
    services: Arc<Services>,
    (config, reason): (StoreConfig, Reason),
    grace: Duration,
    bgp: Option<BgpOptions>,
    mtu_file: PathBuf,
) -> Result<()> {
    let store = open_store(services.health(), &config, OpenMode::CreateIfMissing).await;
    failpoint::hit(Point::StartStoreOpen);
    tokio::spawn({
        let (services, store) = (services.clone(), store.clone());
        async move { store_health::watch(services.health(), &*store).await }
    });
    let agent = services.agent().expect("these are the agent's services");
    bootstrap::run(&*store, &config, reason, &agent.node).await?;
    failpoint::hit(Point::StartBootstrapped);
    agent.book.open(Book::following(store.clone(), Settings::default(), &agent.node));
    let following = agent.endpoints.follow(&*store, &agent.node, |in_sync| {
        services.health().set_store_in_sync(in_sync);
        if in_sync {
            info!("the store's records are known");
            failpoint::hit(Point::StartReady);
        }
    });
    let policies = policies::watch(&*store, &agent.node, services.metrics());
    let (held, held_blocks) = tokio::sync::watch::channel(None);
    let between = between::run(&services, &store, &mtu_file, &held);
    let bird_socket = bgp.as_ref().map(|options| options.places.socket.clone());
    let status = node_status::keep(&agent.node, &*store, bird_socket);
    let bgp = async {
        if let Some(options) = bgp {
            bgp::run(&services, &*store, options, held_blocks).await;
        }
    };
    tokio::join!(
        following,
        queue::work(&services),
        collect::run(&services, grace),
        policies,
        between,
        bgp,
        status
    );
    Ok(())
}

async fn open_store(health: &Health, config: &StoreConfig, mode: OpenMode) -> Arc<dyn Store> {
    let mut delay = STORE_RETRY_MIN;
    loop {
        match store::open(config, mode).await {
            Ok(store) => {
                store_health::report(health, None);
                return store;
            }
            Err(error) => {
                store_health::report(health, Some(store_health::words(&error)));
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(STORE_RETRY_MAX);
            }
        }
    }
}
