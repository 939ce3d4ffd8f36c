//! BGP on this node: the records become BIRD's configuration, and BIRD's sessions become readiness and metrics.
//!
//! ```text
//!   store: nodes, pools, peers, filters, settings, own blocks ─▶ Cache ─▶ plan::bgp ─▶ Daemon ─▶ BIRD
//!   journal (borrowed addresses), files (passwords) ──────────────┘                      sessions ─▶ readiness, metrics
//! ```
//!
//! While the store is unreachable, BIRD keeps its last configuration; so it does when the agent stops.

mod cache;
mod daemon;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evidence::node::BgpSession;
use model::Cidr;
use plan::bgp::{BgpTrouble, BgpView, Bird, SecretKey};
use store::Store;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::between::{HeldBlocks, Rulings};
use crate::services::Agent;
use cache::Cache;
pub(crate) use daemon::BirdPlaces;
use daemon::Daemon;

/// Nothing announces that a session goes up or down, or that a pod borrowed an address.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// Records come in bursts.
const BURST: Duration = Duration::from_millis(20);

/// The settings of BGP on this node.
#[derive(Clone, Debug)]
pub(crate) struct BgpOptions {
    pub(crate) places: BirdPlaces,
    /// The file `NAME/KEY` in this directory is the password that records name by a secret's name and key.
    pub(crate) secrets: PathBuf,
    pub(crate) router_id: Option<std::net::Ipv4Addr>,
}

/// Never ends.
pub(crate) async fn run(
    agent: &Arc<Agent>,
    store: &dyn Store,
    options: BgpOptions,
    held: watch::Receiver<HeldBlocks>,
) {
    let cache = Cache::new(&agent.node);
    agent.health.set_sessions_missing(vec!["BGP: the store's records are not cached yet".to_owned()]);
    tokio::join!(cache.follow(store), keep(agent, &cache, options, held));
}

async fn keep(agent: &Arc<Agent>, cache: &Cache, options: BgpOptions, mut held: watch::Receiver<HeldBlocks>) {
    let mut daemon = Some(Daemon::new(options.places.clone()));
    let (mut reasons, mut invalid) = (Vec::new(), Vec::new());
    loop {
        let is_held = held.borrow_and_update().clone();
        if let Some(view) = desired(agent, cache, &options, is_held.as_ref()) {
            let mut now: Vec<String> = Vec::new();
            match view {
                None => now.push("BGP: this node has no address".to_owned()),
                Some(view) => {
                    let mut moved = daemon.take().expect("it is put back below");
                    // It starts programs and waits for them.
                    let ensured = tokio::task::spawn_blocking(move || (moved.ensure(&view), moved)).await;
                    let ((bird, outcome), back) = ensured.expect("it does not panic");
                    daemon = Some(back);
                    now.extend(outcome.err().map(|error| format!("BGP: {}", with_source(&error))));
                    now.extend(in_words(bird.troubles.iter().filter(|trouble| !trouble.is_of_record())));
                    now.extend(missing_sessions(agent, &bird, &options.places.socket).await);
                    report_invalid_records(agent, &bird, &mut invalid);
                }
            }
            log_changes(&mut reasons, now);
            agent.health.set_sessions_missing(reasons.clone());
        }
        tokio::select! {
            () = cache.changed.notified() => tokio::time::sleep(BURST).await,
            Ok(()) = held.changed() => {}
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
    }
}

fn in_words<'t>(troubles: impl Iterator<Item = &'t BgpTrouble>) -> impl Iterator<Item = String> {
    troubles.map(|trouble| format!("BGP: {trouble}"))
}

/// Reports records that BIRD refuses, and that are skipped. They do not make the node unready: one record would stop every node.
fn report_invalid_records(agent: &Agent, bird: &Bird, before: &mut Vec<String>) {
    let invalid: Vec<String> =
        in_words(bird.troubles.iter().filter(|trouble| trouble.is_of_record())).collect();
    let left_out = bird.troubles.iter().filter(|trouble| trouble.is_refusal()).count();
    agent.metrics().bgp_records_unfit.set(invalid.len());
    agent.metrics().bgp_left_out.set(left_out);
    for reason in invalid.iter().filter(|reason| !before.contains(reason)) {
        warn!("{reason}");
    }
    agent.health.set_invalid_bgp_records(invalid.clone());
    *before = invalid;
}

/// The desired state. `None` while not all records are cached; `Some(None)` if this node has no address. `rulings`: what becomes of blocks with
/// invalid records.
fn desired(
    agent: &Agent,
    cache: &Cache,
    options: &BgpOptions,
    rulings: Option<&Rulings>,
) -> Option<Option<BgpView>> {
    let rulings = rulings?;
    let mut view = cache.view(&rulings.held)?;
    view.blocks.retain(|block| !rulings.refused.contains(block));
    view.refused = rulings.refused.iter().copied().collect();
    view.router_id = options.router_id;
    view.log_file = Some(options.places.config.with_extension("log").display().to_string());
    view.secrets = secrets(&view, &options.secrets);
    view.borrowed = borrowed(agent, &view.blocks);
    // A block that was released while pods have its addresses is withdrawn after these are announced, not before.
    let is_in_use = |block: &Cidr| view.borrowed.iter().any(|address| block.contains(*address));
    let fading = cache.fading_blocks().into_iter().filter(|block| !view.blocks.contains(block));
    let fading = fading.filter(|block| !rulings.refused.contains(block));
    let fading: Vec<Cidr> = fading.filter(is_in_use).collect();
    view.blocks.extend(fading);
    Some(view.decide().is_some().then_some(view))
}

/// Addresses of this node's pods outside of its blocks, sorted.
fn borrowed(agent: &Agent, blocks: &[Cidr]) -> Vec<IpAddr> {
    let entries = agent.journal.all();
    let addresses = entries.iter().flat_map(|entry| entry.attachment.addresses.iter().copied());
    let mut borrowed: Vec<IpAddr> =
        addresses.filter(|address| !blocks.iter().any(|block| block.contains(*address))).collect();
    borrowed.sort_unstable();
    borrowed.dedup();
    borrowed
}

/// The named secrets that exist.
fn secrets(view: &BgpView, directory: &Path) -> BTreeMap<SecretKey, String> {
    let named = view
        .peers
        .values()
        .filter_map(|peer| peer.password.clone())
        .chain(view.settings.mesh_password.clone());
    let read = |secret: SecretKey| {
        // Not a path: a record must not name other files.
        let is_plain = |text: &str| !text.is_empty() && !text.contains('/') && text != "." && text != "..";
        if !is_plain(&secret.name) || !is_plain(&secret.key) {
            return None;
        }
        let text = std::fs::read_to_string(directory.join(&secret.name).join(&secret.key)).ok()?;
        Some((secret, text.trim_end_matches(['\r', '\n']).to_owned()))
    };
    named.filter_map(read).collect()
}

/// Which of the desired sessions are not established.
async fn missing_sessions(agent: &Agent, bird: &Bird, socket: &Path) -> Vec<String> {
    let node = agent.node.clone();
    let sockets = [socket.to_owned()];
    let asked = tokio::task::spawn_blocking(move || gather::bird_sessions(&node.into(), &sockets)).await;
    let sessions = asked.ok().and_then(|(bgp, _)| bgp).map(|bgp| bgp.sessions).unwrap_or_default();
    let mut missing = Vec::new();
    let mut established = 0;
    for wanted in bird.sessions.iter().filter(|session| session.is_made()) {
        match sessions.iter().find(|session| session.seen.peer == wanted.peer) {
            Some(session) if session.seen.is_established() => established += 1,
            Some(session) => {
                let BgpSession { state, info, .. } = &session.seen;
                missing
                    .push(format!("BGP: {wanted} is not established: {state} {info}").trim_end().to_owned());
            }
            None => missing.push(format!("BGP: {wanted} is missing in BIRD")),
        }
    }
    agent.metrics().sessions_established.set(established);
    agent.metrics().sessions_wanted.set(bird.sessions.len());
    missing
}

/// Logs each new reason once.
fn log_changes(before: &mut Vec<String>, now: Vec<String>) {
    for reason in now.iter().filter(|reason| !before.contains(reason)) {
        warn!("{reason}");
    }
    if now.is_empty() && !before.is_empty() {
        info!("BGP: every session is established");
    }
    *before = now;
}

fn with_source(error: &daemon::DaemonError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
