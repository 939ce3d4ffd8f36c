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
use plan::bgp::{Bird, SecretKey};
use store::Store;
use tracing::{info, warn};

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
pub(crate) async fn run(services: &Arc<Services>, store: &dyn Store, options: BgpOptions) {
    let agent = services.agent().expect("only the agent speaks BGP");
    let known = Known::new(&agent.node);
    services.health().set_sessions_missing(vec!["BGP: the records are not known yet".to_owned()]);
    tokio::join!(known.follow(store), keep(services, &known, options));
}

async fn keep(services: &Arc<Services>, known: &Known, options: BgpOptions) {
    let mut daemon = Some(Daemon::new(options.places.clone()));
    let mut reasons = Vec::new();
    loop {
        if let Some(bird) = decided(services, known, &options) {
            let mut now: Vec<String> = Vec::new();
            match bird {
                None => now.push("BGP: this node has no address to speak from".to_owned()),
                Some(bird) => {
                    let config = bird.config.clone();
                    let mut at_work = daemon.take().expect("it is put back below");
                    // It starts programs, and waits for them.
                    let ensured =
                        tokio::task::spawn_blocking(move || (at_work.ensure(&config), at_work)).await;
                    let (outcome, back) = ensured.expect("it does not panic");
                    daemon = Some(back);
                    now.extend(outcome.err().map(|error| format!("BGP: {}", with_source(&error))));
                    now.extend(bird.troubles.iter().map(|trouble| format!("BGP: {trouble}")));
                    now.extend(look(services, &bird, &options.places.socket).await);
                }
            }
            tell(&mut reasons, now);
            services.health().set_sessions_missing(reasons.clone());
        }
        tokio::select! {
            () = known.changed.notified() => tokio::time::sleep(BUNCH).await,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// `None` while not everything is known; `Some(None)` if this node has no address.
fn decided(services: &Services, known: &Known, options: &BgpOptions) -> Option<Option<Bird>> {
    let mut view = known.view()?;
    view.router_id = options.router_id;
    view.log_file = Some(options.places.config.with_extension("log").display().to_string());
    view.secrets = secrets(&view, &options.secrets);
    view.borrowed = borrowed(services.agent()?, &view.blocks);
    Some(view.decide())
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
fn secrets(view: &plan::bgp::BgpView, folder: &Path) -> BTreeMap<SecretKey, String> {
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
