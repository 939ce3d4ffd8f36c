//! Starts the agent's parts in an order in which each finds what it needs, and stops them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use book::{Book, Settings};
use store::config::Reason;
use store::{OpenMode, Store, StoreConfig};
use tracing::{info, warn};

use super::server::Server;
use super::settings::{self, NodeArguments};
use super::stop::{self, Stop};
use super::sweep;
use crate::bgp::{self, BgpOptions};

use crate::failpoint::{self, Point};
use crate::health::{Condition, Health, HealthServer};
use crate::journal::Journal;
use crate::services::{Agent, AgentSetup};
use crate::state::{self, State};
use crate::{
    between, bootstrap, collect, del_queue, enforce, findings, guard, node_status, policies, reconcile,
    recovery, store_health,
};

const STORE_RETRY_MIN: Duration = Duration::from_millis(200);
const STORE_RETRY_MAX: Duration = Duration::from_secs(5);
/// Well below the time after which the agent counts as hung.
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
    let setup = AgentSetup {
        node,
        mode: arguments.mode(),
        runtime: arguments.runtime()?,
        journal,
        state,
        state_dir: &arguments.state_dir,
        bird_socket: arguments.expected_bird_socket(),
    };
    let agent = Arc::new(Agent::new(setup, health.clone()));
    let mut stop = Stop::new()?;
    if arguments.health_address != "off" {
        let server = HealthServer::open(&arguments.health_address)
            .await
            .with_context(|| format!("cannot serve health and metrics on {}", arguments.health_address))?;
        tokio::spawn(server.serve(health.clone()));
    }
    if !arguments.observe {
        guard::start(&agent).await;
    }
    let server = Server::bind(&arguments.socket)
        .with_context(|| format!("cannot serve on {}", arguments.socket.display()))?;
    failpoint::hit(Point::StartSocketBound);
    health.set_serving(true);
    info!(socket = %arguments.socket.display(), "serving");
    tokio::spawn({
        let (agent, every) = (agent.clone(), arguments.doctor_every);
        async move { findings::watch(&agent, every).await }
    });
    let background = if arguments.observe {
        tokio::spawn(observe(agent.clone(), config))
    } else {
        keep_kernel(&agent);
        tokio::spawn(work(agent.clone(), (config, reason), arguments.grace, bgp, arguments.mtu_file()))
    };
    tokio::select! {
        () = server.run(agent, stop::requested(&mut stop)) => {}
        ended = background => {
            // It ends only on an error.
            ended.context("the agent's background work ended")??;
        }
    }
    info!("stopped; pods keep their network");
    Ok(())
}

fn keep_kernel(agent: &Arc<Agent>) {
    tokio::spawn({
        let agent = agent.clone();
        async move { reconcile::run(&agent).await }
    });
    tokio::spawn({
        let agent = agent.clone();
        async move { sweep::run(&agent).await }
    });
    tokio::spawn({
        let agent = agent.clone();
        async move { guard::keep(&agent).await }
    });
    tokio::spawn({
        let agent = agent.clone();
        async move { state::watch(&agent).await }
    });
}

/// Follows the records, and changes neither them nor the kernel.
async fn observe(agent: Arc<Agent>, config: StoreConfig) -> Result<()> {
    info!("started as an observer: changes neither records nor kernel");
    let store = open_store(&agent.health, &config, OpenMode::ReadOnly).await;
    let following = agent.endpoints.follow(&*store, &agent.node, |in_sync| {
        agent.health.set_store_in_sync(in_sync);
    });
    let store_health = store_health::watch(&agent.health, &*store);
    tokio::join!(following, store_health, stay_alive(&agent));
    Ok(())
}

/// In place of the reconciler: an observer has nothing to reconcile, so nothing is missing.
async fn stay_alive(agent: &Agent) {
    agent.health.set_reconciled(true);
    agent.health.set_routes_missing(Vec::new());
    agent.health.set_condition(Condition::Policies, Vec::new());
    loop {
        agent.health.reconciler_is_alive();
        tokio::time::sleep(ALIVE_EVERY).await;
    }
}

/// Everything besides serving calls. Calls that need records fail until the store is open.
async fn work(
    agent: Arc<Agent>,
    (config, reason): (StoreConfig, Reason),
    grace: Duration,
    bgp: Option<BgpOptions>,
    mtu_file: PathBuf,
) -> Result<()> {
    let store = open_store(&agent.health, &config, OpenMode::CreateIfMissing).await;
    failpoint::hit(Point::StartStoreOpen);
    tokio::spawn({
        let (agent, store) = (agent.clone(), store.clone());
        async move { store_health::watch(&agent.health, &*store).await }
    });
    bootstrap::run(&*store, &config, reason, &agent.node, &agent.health).await?;
    failpoint::hit(Point::StartBootstrapped);
    let is_labelled = recovery::label_affinities(&Book::new(store.clone()), &agent.node).await;
    agent.book.open(Book::following(store.clone(), Settings::default(), &agent.node));
    let following = agent.endpoints.follow(&*store, &agent.node, |in_sync| {
        agent.health.set_store_in_sync(in_sync);
        if in_sync {
            info!("cached the store's records");
            failpoint::hit(Point::StartReady);
        }
    });
    let namespaces = agent.namespaces.follow(&*store);
    let policies = policies::watch(&*store, &agent);
    let enforcement = enforce::run(&agent, &store);
    let (held, held_blocks) = tokio::sync::watch::channel(None);
    let between = between::run(&agent, &store, &mtu_file, &held);
    let bird_socket = bgp.as_ref().map(|options| options.places.socket.clone());
    let status = node_status::keep(&agent.node, &*store, bird_socket);
    let bgp = async {
        if let Some(options) = bgp {
            bgp::run(&agent, &*store, options, held_blocks).await;
        }
    };
    tokio::join!(
        following,
        namespaces,
        del_queue::work(&agent),
        collect::run(&agent, grace),
        recovery::keep(&agent, is_labelled),
        policies,
        enforcement,
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
                store_health::report(health, Some(store_health::describe(&error)));
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(STORE_RETRY_MAX);
            }
        }
    }
}
