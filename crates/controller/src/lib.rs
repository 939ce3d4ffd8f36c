//! `plumbd controller`: what is to be done once in a cluster, by one replica of any number.
//!
//! ```text
//!  election ─▶ reign ─┬─▶ paced store: changes only while it lasts, so many requests per second
//!                     └─▶ collect: observe ─▶ doctor ─▶ repair ─▶ agreed by two observations ─▶ mend
//! ```
//!
//! An edge crate. What has no owner, what may be removed and why, is decided by `doctor` and `repair`; this crate decides when there were
//! enough observations ([`collect`](self), `rule.rs`) and acts.

// What others wrote is read here: nothing may be cut at a place that need not be there.
#![cfg_attr(not(test), deny(clippy::string_slice, clippy::indexing_slicing))]

mod collect;
mod configured;
pub mod election;
mod paced;
mod pages;
mod project;
mod rival;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use health::HealthServer;
use model::KeyRange;
use model::kube::Layout;
use model::kube::access::CONTROLLER_LEASE;
use model::text::on_one_line;
use store::config::{Overrides, Reason, Sources};
use store::etcd::EtcdStore;
use store::kube::{KubeConfig, KubeObjects, KubeStore};
use store::{Event, OpenMode, Store, StoreConfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use collect::Collecting;
use configured::Configured;
use election::{EtcdSeat, FileSeat, KubeSeat, Reign, Seat, campaign};
use paced::PacedStore;
use pages::Status;
use project::Projecting;
pub use settings::ControllerArguments;

/// Outside of Calico's keys.
const ETCD_KEY: &str = "/plumbline/controller/leader";
/// Where a pod finds its own namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// How often it is checked whether Calico's controller runs.
const RIVAL_EVERY: Duration = Duration::from_secs(30);
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long leaving the lead may take when the process stops: otherwise it ends by itself.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// Runs a controller until a signal stops it.
pub async fn run(arguments: ControllerArguments) -> Result<()> {
    let pace = arguments.pace();
    if let Some(problem) = pace.problem() {
        bail!("{problem}");
    }
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let config = store_config()?;
    info!(store = %config, "starts");
    let status = Arc::new(Status::default());
    if arguments.health_address != "off" {
        let server = HealthServer::open(&arguments.health_address)
            .await
            .with_context(|| format!("cannot serve health and metrics on {}", arguments.health_address))?;
        tokio::spawn(server.serve(status.clone()));
    }
    let work = async {
        let opened = open(&config, &arguments).await;
        lead(opened, &arguments, status.clone(), async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await
    };
    work.await;
    info!("stopped");
    Ok(())
}

/// What a controller works with.
struct Opened {
    store: Arc<dyn Store>,
    seat: Box<dyn Seat>,
    /// The cluster beside another store.
    beside: Option<Beside>,
}

/// A cluster that does not keep the records.
#[derive(Clone)]
struct Beside {
    objects: KubeObjects,
    /// Its objects as the records that they show.
    views: Arc<dyn Store>,
}

/// The store and the seat, as soon as they can be reached.
async fn open(config: &StoreConfig, arguments: &ControllerArguments) -> Opened {
    loop {
        match try_open(config, arguments).await {
            Ok(opened) => return opened,
            Err(error) => {
                warn!("cannot open the store: {error:#}");
                sleep(RETRY_AFTER).await;
            }
        }
    }
}

async fn try_open(config: &StoreConfig, arguments: &ControllerArguments) -> Result<Opened> {
    let name = arguments.name.clone().unwrap_or_else(own_name);
    let lasts = arguments.lease_duration;
    let beside = match &arguments.kubeconfig {
        Some(_) if matches!(config, StoreConfig::Kubernetes(_)) => {
            bail!("--kubeconfig is for other stores; this one is Kubernetes, which is asked anyway")
        }
        Some(path) => {
            // Only its own objects are read, which are the same in both of Calico's groups.
            let api_group = Some(Layout::V1.api_version());
            let config = KubeConfig { kubeconfig: Some(path.clone()), api_group, ..KubeConfig::default() };
            let views = Arc::new(KubeStore::connect(config).await?);
            Some(Beside { objects: views.objects().context("a store in Kubernetes has objects")?, views })
        }
        None => None,
    };
    let (store, seat): (Arc<dyn Store>, Box<dyn Seat>) = match config {
        StoreConfig::Etcd(etcd) => {
            let store = EtcdStore::connect(etcd.clone()).await?;
            let seat = EtcdSeat(store.held_key(ETCD_KEY, &name, lasts));
            (Arc::new(store), Box::new(seat))
        }
        StoreConfig::Sqlite { path } => {
            (store::open(config, OpenMode::Existing).await?, Box::new(FileSeat::beside(path)))
        }
        StoreConfig::Kubernetes(_) => {
            let store = store::open(config, OpenMode::Existing).await?;
            let objects = store.objects().context("a store in Kubernetes has objects")?;
            let namespace = arguments.lease_namespace.clone().unwrap_or_else(own_namespace);
            let seat = KubeSeat::new(objects, &namespace, CONTROLLER_LEASE, &name, lasts);
            (store, Box::new(seat))
        }
    };
    Ok(Opened { store, seat, beside })
}

/// Campaigns, and works while it leads, until it is to stop. Then it leaves the lead to another replica.
async fn lead(
    opened: Opened,
    arguments: &ControllerArguments,
    status: Arc<Status>,
    stop: impl Future<Output = ()>,
) {
    let Opened { store, mut seat, beside } = opened;
    let reign = Arc::new(Reign::default());
    let kubernetes = beside.as_ref().map(|beside| beside.objects.clone()).or_else(|| store.objects());
    let paced: Arc<dyn Store> =
        Arc::new(PacedStore::new(store.clone(), reign.clone(), status.metrics.clone(), arguments.rate));
    let configured = watch::Sender::new(Configured::of(None));
    let projecting = beside.as_ref().map(|beside| Projecting {
        store: paced.clone(),
        views: beside.views.clone(),
        objects: beside.objects.clone(),
        status: status.clone(),
        grace: arguments.grace,
        configured: configured.subscribe(),
    });
    let wake = Arc::new(Notify::new());
    let collecting = Collecting {
        store: paced,
        kubernetes: beside.map(|beside| beside.objects),
        status: status.clone(),
        grace: arguments.grace,
        rate: arguments.rate,
        history: arguments.history.clone(),
        configured,
        environment: environment(),
        wake: wake.clone(),
    };
    let work = async {
        loop {
            reign.begun().await;
            tokio::select! {
                () = reign.ended() => {}
                () = collecting.run() => {}
                () = project(projecting.as_ref()) => {}
                () = wake_for_nodes(&*store, &wake) => {}
            }
        }
    };
    let candidacy = async {
        loop {
            wait_for_rival(kubernetes.as_ref(), arguments.take_over, &status).await;
            tokio::select! {
                () = campaign(&mut *seat, arguments.pace(), &reign, &*status) => {}
                () = rival_comes(kubernetes.as_ref(), arguments.take_over) => reign.end(),
            }
            leave(&mut *seat).await;
        }
    };
    tokio::select! {
        () = stop => {}
        () = work => {}
        () = candidacy => {}
    }
    let led = reign.left().is_some();
    reign.end();
    if led {
        leave(&mut *seat).await;
    }
}

/// Where Kubernetes keeps the records, there is nothing to project.
async fn project(projecting: Option<&Projecting>) {
    match projecting {
        Some(projecting) => projecting.run().await,
        None => std::future::pending().await,
    }
}

async fn leave(seat: &mut dyn Seat) {
    match timeout(LEAVE_WITHIN, seat.leave()).await {
        Ok(Ok(())) => info!("left the lead to another replica"),
        Ok(Err(error)) => warn!(error = %on_one_line(&error), "cannot leave the lead; it ends by itself"),
        Err(_) => warn!("cannot leave the lead in time; it ends by itself"),
    }
}

/// Returns when Calico's controller does not run, or when it does not matter. Where that cannot be found out, nothing is done.
async fn wait_for_rival(kubernetes: Option<&KubeObjects>, takes_over: bool, status: &Status) {
    let Some(objects) = kubernetes.filter(|_| !takes_over) else { return };
    let mut known = None;
    loop {
        let rival = match rival::find(objects).await {
            Ok(None) => break,
            Ok(Some(rival)) => rival,
            Err(error) => format!("calico-kube-controllers, if it runs: {}", on_one_line(&error)),
        };
        if known.as_ref() != Some(&rival) {
            warn!(%rival, "does not act: scale it to 0, or start with --take-over");
            status.set_rival(Some(rival.clone()));
            known = Some(rival);
        }
        sleep(RIVAL_EVERY.min(RETRY_AFTER)).await;
    }
    status.set_rival(None);
}

/// Returns when Calico's controller runs. An answer that does not come says nothing.
async fn rival_comes(kubernetes: Option<&KubeObjects>, takes_over: bool) {
    let Some(objects) = kubernetes.filter(|_| !takes_over) else { return std::future::pending().await };
    loop {
        sleep(RIVAL_EVERY).await;
        if matches!(rival::find(objects).await, Ok(Some(_))) {
            return;
        }
    }
}

/// A node that is deleted is worth an observation. Never ends.
async fn wake_for_nodes(store: &dyn Store, wake: &Notify) {
    loop {
        if let Err(error) = follow_nodes(store, wake).await {
            warn!(error = %on_one_line(&error), "cannot follow the nodes; they are observed in turn");
        }
        sleep(RETRY_AFTER).await;
    }
}

async fn follow_nodes(store: &dyn Store, wake: &Notify) -> Result<(), store::StoreError> {
    let range = KeyRange::NodesInBrief;
    let (_, revision) = store.list_all(range.clone()).await?;
    let mut watch = store.watch(range, revision).await?;
    while let Some(event) = watch.next().await.transpose()? {
        match event {
            Event::Deleted { .. } => wake.notify_one(),
            Event::Put(_) => {}
            Event::HistoryGone => return Ok(()),
        }
    }
    Ok(())
}

/// The store that the environment selects.
fn store_config() -> Result<StoreConfig> {
    let environment = |name: &str| std::env::var_os(name);
    let sources = Sources {
        overrides: Overrides::default(),
        config_file: None,
        // The operator's file does not configure a controller.
        default_config_file: std::path::PathBuf::new(),
        environment: &environment,
        agent_settings: None,
    };
    let selected = StoreConfig::from_sources(&sources)?;
    let is_in_kubernetes = environment("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty());
    if is_in_kubernetes && selected.reason == Reason::Fallback {
        bail!(
            "no store is configured, and a SQLite file cannot serve a Kubernetes cluster; set DATASTORE_TYPE"
        );
    }
    Ok(selected.config)
}

/// The settings that the environment gives, as Calico's controller shows its own.
fn environment() -> std::collections::BTreeMap<String, String> {
    let shown = ["DATASTORE_TYPE", "PLUMB_CONTROLLER_RATE", "PLUMB_CONTROLLER_TAKE_OVER", "PLUMB_GRACE"];
    let set = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    shown.into_iter().filter_map(set).collect()
}

/// Another one each time: a process that was killed may still be in the record.
fn own_name() -> String {
    let machine = host::Host::machine_name().unwrap_or_else(|_| "controller".to_owned());
    format!("{machine}_{}", uuid::Uuid::new_v4())
}

fn own_namespace() -> String {
    let text = std::fs::read_to_string(NAMESPACE_FILE).unwrap_or_default();
    match text.trim() {
        "" => model::kube::access::NAMESPACE.to_owned(),
        namespace => namespace.to_owned(),
    }
}
