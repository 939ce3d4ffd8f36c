//! The records that policy depends on, followed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::{Key, KeyRange, Kind};
use store::{ListRequest, Store, StoreError};
use tracing::{info, warn};

use super::Enforcement;
use super::kubernetes::{self, Object};
use crate::follow::{Update, follow};
use crate::services::Agent;

/// How often a kind is asked for again that the store does not have, or does not show.
const ASK_AGAIN: Duration = Duration::from_secs(60);
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Part of the store, with a list and a watch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Records(Kind),
    Objects(Object),
}

/// In the order in which they are cached: pods would be followed by policies that select them anyway.
const KINDS: [Kind; 13] = [
    Kind::FelixConfiguration,
    Kind::Tier,
    Kind::GlobalNetworkPolicy,
    Kind::NetworkPolicy,
    Kind::StagedGlobalNetworkPolicy,
    Kind::StagedNetworkPolicy,
    Kind::StagedKubernetesNetworkPolicy,
    Kind::Profile,
    Kind::GlobalNetworkSet,
    Kind::NetworkSet,
    Kind::HostEndpoint,
    Kind::Node,
    Kind::WorkloadEndpoint,
];

impl Part {
    pub(super) fn all(has_objects: bool) -> BTreeSet<Part> {
        let objects = Object::ALL.into_iter().filter(|_| has_objects).map(Part::Objects);
        KINDS.into_iter().map(Part::Records).chain(objects).collect()
    }

    pub(super) fn what(self) -> String {
        match self {
            Part::Records(kind) => kind.plural().to_owned(),
            Part::Objects(object) => object.kind().plural().to_owned(),
        }
    }
}

/// Never ends.
pub(super) async fn follow_all(agent: &Arc<Agent>, store: &Arc<dyn Store>) {
    let objects = store.objects();
    agent.enforcement.engine().expect(Part::all(objects.is_some()), objects.is_some());
    for part in Part::all(objects.is_some()) {
        let (agent, store, objects) = (agent.clone(), store.clone(), objects.clone());
        tokio::spawn(async move {
            match (part, objects) {
                (Part::Records(kind), _) => follow_kind(&agent.enforcement, &*store, kind).await,
                (Part::Objects(object), Some(objects)) => {
                    kubernetes::follow(&agent.enforcement, &objects, object).await;
                }
                (Part::Objects(_), None) => {}
            }
        });
    }
}

/// A kind that the store does not have has no records; one that it does not show is reported.
async fn follow_kind(enforcement: &Enforcement, store: &dyn Store, kind: Kind) {
    let part = Part::Records(kind);
    let mut rounds = enforcement.rounds.subscribe();
    loop {
        rounds.mark_unchanged();
        let request = ListRequest::new(range(kind)).with_limit(1);
        match store.list(request).await {
            Ok(_) if kind == Kind::FelixConfiguration => follow_listed(enforcement, store, kind).await,
            Ok(_) => tokio::select! {
                () = follow_listed(enforcement, store, kind) => {}
                _ = rounds.changed() => {}
            },
            Err(error) if is_lasting(&error) => {
                enforcement.engine().without(part, hidden(&error));
                enforcement.changed.notify_one();
                tokio::time::sleep(ASK_AGAIN).await;
            }
            Err(error) => {
                warn!(%error, "cannot list the {}; retrying", part.what());
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }
}

fn range(kind: Kind) -> KeyRange {
    // Of nodes the addresses are enough, and they change less often than the rest.
    if kind == Kind::Node { KeyRange::NodesInBrief } else { KeyRange::Kind(kind) }
}

/// It will be the same in a second.
pub(super) fn is_lasting(error: &StoreError) -> bool {
    matches!(error, StoreError::Unsupported { .. } | StoreError::AccessDenied { .. })
}

/// Why records that may exist are not seen.
pub(super) fn hidden(error: &StoreError) -> Option<String> {
    matches!(error, StoreError::AccessDenied { .. }).then(|| model::text::on_one_line(error))
}

async fn follow_listed(enforcement: &Enforcement, store: &dyn Store, kind: Kind) {
    let part = Part::Records(kind);
    let mut listed: BTreeSet<Key> = BTreeSet::new();
    let round = enforcement.engine().round();
    let on_update = |update| {
        let mut engine = enforcement.engine();
        // It has started over, and so will this list. The settings themselves are not listed again.
        if engine.round() != round && kind != Kind::FelixConfiguration {
            return;
        }
        match update {
            Update::ListBegins => {
                listed.clear();
                return;
            }
            Update::Listed(record) => {
                listed.insert(record.key.clone());
                engine.put(kind, &record);
            }
            Update::ListEnds => {
                engine.keep_only(kind, &std::mem::take(&mut listed));
                if engine.is_listed(part) {
                    info!("cached all records that policy depends on");
                }
            }
            Update::Put(record) => engine.put(kind, &record),
            Update::Deleted(key) => engine.remove(kind, &key),
            // What is cached stays in force.
            Update::OutOfSync => return,
        }
        enforcement.tell(engine);
    };
    follow(store, range(kind), kind.plural(), on_update).await;
}
