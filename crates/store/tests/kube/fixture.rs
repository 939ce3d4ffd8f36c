//! An API server that serves Calico's kinds.

use std::path::PathBuf;

use model::Kind;
use model::kube::{Layout, definitions, is_custom_resource};
use store::kube::{KubeConfig, KubeStore};
use store::{Event, Watch};
use testkit::kube::{Api, KubeApiServer, Setup, start_or_skip};

/// A server with the definitions of one layout. `None` if the test is skipped.
pub(crate) fn start(test: &str, setup: Setup, layout: Layout) -> Option<KubeApiServer> {
    let server = start_or_skip(test, setup)?;
    install(&server.api(), layout);
    Some(server)
}

/// Makes the server serve Calico's kinds, and waits until it does.
pub(crate) fn install(api: &Api, layout: Layout) {
    api.define(&definitions(layout)).unwrap();
}

pub(crate) fn kept() -> impl Iterator<Item = Kind> {
    Kind::all().filter(|kind| is_custom_resource(*kind))
}

pub(crate) fn collection(layout: Layout, kind: Kind) -> String {
    format!("/apis/{}/{}", layout.api_version(), layout.plural(kind))
}

pub(crate) async fn connect(kubeconfig: PathBuf) -> KubeStore {
    let config = KubeConfig { kubeconfig: Some(kubeconfig), ..KubeConfig::default() };
    KubeStore::connect(config).await.expect("the API server is there")
}

/// The next event of a watch that is well.
pub(crate) async fn next(watch: &mut Watch) -> Event {
    let event = tokio::time::timeout(testkit::PATIENCE, watch.next()).await.expect("an event arrives");
    event.expect("the watch goes on").expect("the watch is well")
}
