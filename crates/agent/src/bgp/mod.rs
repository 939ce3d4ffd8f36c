//! BGP on this node: what the records ask for becomes BIRD's configuration, and what BIRD says becomes readiness and metrics.
//!
//! ```text
//!   store: nodes, pools, peers, filters, settings, own blocks ─▶ Known ─▶ plan::bgp ─▶ Daemon ─▶ BIRD
//!   journal (borrowed addresses), files (passwords) ──────────────┘                      sessions ─▶ readiness, metrics
//! ```
//!
//! While the store is away, BIRD goes on with what it was told last; so it does when the agent stops.

mod daemon;
mod known;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use doctor::evidence::node::BgpSession;
use model::Cidr;
use plan::bgp::{BgpTrouble, BgpView, Bird, SecretKey};
use store::Store;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::between::{HeldBlocks, Rulings};
use crate::cni::{Agent, Services};
pub(crate) use daemon::BirdPlaces;
use daemon::Daemon;
use known::Known;

/// Sessions come up and go down without a word, and a pod with a borrowed address is not worth a message.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Records come in bunches.
const BUNCH: Duration = Duration::from_millis(20);

/// How this node speaks BGP.
#[derive(Clone, Debug)]
pub(crate) struct BgpOptions {
    pub(crate) places: BirdPlaces,
    /// `FOLDER/NAME/KEY` holds the password that records name by a secret's name and key.
    pub(crate) secrets: PathBuf,
    pub(crate) router_id: Option<std::net::Ipv4Addr>,
}

/// Never ends.
pub(crate) async fn run(
    services: &Arc<Services>,
    store: &dyn Store,
    options: BgpOptions,
    held: watch::Receiver<HeldBlocks>,
) {
    let agent = services.agent().expect("only the agent speaks BGP");
    let known = Known::new(&agent.node);
    services.health().set_sessions_missing(vec!["BGP: the records are not known yet".to_owned()]);
    tokio::join!(known.follow(store), keep(services, &known, options, held));
}

async fn keep(
    services: &Arc<Services>,
    known: &Known,
    options: BgpOptions,
    mut held: watch::Receiver<HeldBlocks>,
) {
    let mut daemon = Some(Daemon::new(options.places.clone()));
    let (mut reasons, mut wrong) = (Vec::new(), Vec::new());
    loop {
        let is_held = held.borrow_and_update().clone();
        if let Some(view) = decided(services, known, &options, is_held.as_ref()) {
            let mut now: Vec<String> = Vec::new();
            match view {
                None => now.push("BGP: this node has no address to speak from".to_owned()),
                Some(view) => {
                    let mut at_work = daemon.take().expect("it is put back below");
                    // It starts programs, and waits for them.
                    let ensured = tokio::task::spawn_blocking(move || (at_work.ensure(&view), at_work)).await;
                    let ((bird, outcome), back) = ensured.expect("it does not panic");
                    daemon = Some(back);
                    now.extend(outcome.err().map(|error| format!("BGP: {}", with_source(&error))));
                    now.extend(told(bird.troubles.iter().filter(|trouble| !trouble.is_of_record())));
                    now.extend(look(services, &bird, &options.places.socket).await);
                    set_aside(services, &bird, &mut wrong);
                }
            }
            tell(&mut reasons, now);
            services.health().set_sessions_missing(reasons.clone());
        }
        tokio::select! {
            () = known.changed.notified() => tokio::time::sleep(BUNCH).await,
            Ok(()) = held.changed() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

fn told<'t>(troubles: impl Iterator<Item = &'t BgpTrouble>) -> impl Iterator<Item = String> {
    troubles.map(|trouble| format!("BGP: {trouble}"))
}

/// Names records that BIRD would refuse, and that are left out. They are no reason to refuse pods: one record would stop every node.
fn set_aside(services: &Services, bird: &Bird, before: &mut Vec<String>) {
    let wrong: Vec<String> = told(bird.troubles.iter().filter(|trouble| trouble.is_of_record())).collect();
    let left_out = bird.troubles.iter().filter(|trouble| trouble.is_refusal()).count();
    services.metrics().set_bgp_records(wrong.len(), left_out);
    for reason in wrong.iter().filter(|reason| !before.contains(reason)) {
        warn!("{reason}");
    }
    services.health().set_bgp_records_wrong(wrong.clone());
    *before = wrong;
}

/// `None` while not everything is known; `Some(None)` if this node has no address. `rulings`: what becomes of blocks whose records are not in order.
fn decided(
    services: &Services,
    known: &Known,
    options: &BgpOptions,
    rulings: Option<&Rulings>,
) -> Option<Option<BgpView>> {
    let rulings = rulings?;
    let mut view = known.view(&rulings.held)?;
    view.blocks.retain(|block| !rulings.refused.contains(block));
    view.refused = rulings.refused.iter().copied().collect();
    view.router_id = options.router_id;
    view.log_file = Some(options.places.config.with_extension("log").display().to_string());
    view.secrets = secrets(&view, &options.secrets);
    view.borrowed = borrowed(services.agent()?, &view.blocks);
    // A block that was given up while pods have its addresses goes after these are announced, not before.
    let is_in_use = |block: &Cidr| view.borrowed.iter().any(|address| block.contains(*address));
    let fading = known.fading_blocks().into_iter().filter(|block| !view.blocks.contains(block));
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

/// Those of the named secrets that are there.
fn secrets(view: &BgpView, folder: &Path) -> BTreeMap<SecretKey, String> {
    let named = view
        .peers
        .values()
        .filter_map(|peer| peer.password.clone())
        .chain(view.settings.mesh_password.clone());
    let read = |secret: SecretKey| {
        // A name is a name, not a path.
        let is_plain = |text: &str| !text.is_empty() && !text.contains('/') && text != "." && text != "..";
        if !is_plain(&secret.name) || !is_plain(&secret.key) {
            return None;
        }
        let text = std::fs::read_to_string(folder.join(&secret.name).join(&secret.key)).ok()?;
        Some((secret, text.trim_end_matches(['\r', '\n']).to_owned()))
    };
    named.filter_map(read).collect()
}

/// Which of the wanted sessions are not up.
async fn look(services: &Services, bird: &Bird, socket: &Path) -> Vec<String> {
    let node = services.agent().map(|agent| agent.node.clone()).unwrap_or_default();
    let sockets = [socket.to_owned()];
    let asked = tokio::task::spawn_blocking(move || gather::bird_sessions(&node, &sockets)).await;
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
            None => missing.push(format!("BGP: {wanted} is not known to BIRD")),
        }
    }
    services.metrics().set_sessions(established, bird.sessions.len());
    missing
}

/// Says what is new, once.
fn tell(before: &mut Vec<String>, now: Vec<String>) {
    for reason in now.iter().filter(|reason| !before.contains(reason)) {
        warn!("{reason}");
    }
    if now.is_empty() && !before.is_empty() {
        info!("BGP: every session is up");
    }
    *before = now;
}

fn with_source(error: &daemon::DaemonError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
