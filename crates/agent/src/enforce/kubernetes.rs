//! Objects of Kubernetes that say something about policy and show no records of Calico's.

use std::collections::BTreeSet;

use policy::calculation::KubernetesKind;
use serde_json::{Map, Value};
use store::StoreError;
use store::kube::{KubeObjects, ObjectEvent, ObjectKind};
use tracing::{info, warn};

use super::Enforcement;
use super::records::{Part, hidden, is_lasting};

const RETRY_DELAY: std::time::Duration = std::time::Duration::from_secs(1);
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    NetworkPolicy,
    ClusterNetworkPolicy,
    AdminNetworkPolicy,
    BaselineAdminNetworkPolicy,
    EndpointSlice,
}

/// Namespace and name.
type Named = (Option<String>, String);

impl Object {
    pub(super) const ALL: [Object; 5] = [
        Object::NetworkPolicy,
        Object::ClusterNetworkPolicy,
        Object::AdminNetworkPolicy,
        Object::BaselineAdminNetworkPolicy,
        Object::EndpointSlice,
    ];

    pub(super) fn kind(self) -> ObjectKind {
        match self {
            Object::NetworkPolicy => ObjectKind::NetworkPolicy,
            Object::ClusterNetworkPolicy => ObjectKind::ClusterNetworkPolicy,
            Object::AdminNetworkPolicy => ObjectKind::AdminNetworkPolicy,
            Object::BaselineAdminNetworkPolicy => ObjectKind::BaselineAdminNetworkPolicy,
            Object::EndpointSlice => ObjectKind::EndpointSlice,
        }
    }

    fn for_policy(self) -> KubernetesKind {
        match self {
            Object::NetworkPolicy => KubernetesKind::NetworkPolicy,
            Object::ClusterNetworkPolicy => KubernetesKind::ClusterNetworkPolicy,
            Object::AdminNetworkPolicy => KubernetesKind::AdminNetworkPolicy,
            Object::BaselineAdminNetworkPolicy => KubernetesKind::BaselineAdminNetworkPolicy,
            Object::EndpointSlice => KubernetesKind::EndpointSlice,
        }
    }
}

/// Never ends.
pub(super) async fn follow(enforcement: &Enforcement, objects: &KubeObjects, object: Object) {
    let part = Part::Objects(object);
    let mut rounds = enforcement.rounds.subscribe();
    let mut cached = BTreeSet::new();
    loop {
        rounds.mark_unchanged();
        let outcome = tokio::select! {
            outcome = list_and_watch(enforcement, objects, object, &mut cached) => outcome,
            _ = rounds.changed() => {
                cached.clear();
                continue;
            }
        };
        let pause = match outcome {
            Ok(()) => RETRY_DELAY,
            Err(error) if is_lasting(&error) => {
                enforcement.engine().without(part, hidden(&error));
                enforcement.changed.notify_one();
                ASK_AGAIN
            }
            Err(error) => {
                warn!(%error, "cannot follow the {}; retrying", part.what());
                RETRY_DELAY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Ends well when the server has forgotten where the watch was.
async fn list_and_watch(
    enforcement: &Enforcement,
    objects: &KubeObjects,
    object: Object,
    cached: &mut BTreeSet<Named>,
) -> Result<(), StoreError> {
    let kind = object.kind();
    let (mut listed, mut next) = (BTreeSet::new(), None);
    let round = enforcement.engine().round();
    let revision = loop {
        let page = objects.page(kind, next.as_deref()).await?;
        let mut engine = enforcement.engine();
        if engine.round() != round {
            return Ok(());
        }
        for found in page.objects {
            listed.extend(named(&found));
            engine.put_object(object.for_policy(), &Value::Object(found));
        }
        match page.next {
            Some(following) => next = Some(following),
            None => break page.revision,
        }
    };
    for gone in cached.difference(&listed) {
        enforcement.engine().remove_object(object.for_policy(), gone.0.as_deref(), &gone.1);
    }
    *cached = listed;
    enforcement.object_listed(object, round);
    let mut watch = objects.watch(kind, &revision);
    while let Some(event) = watch.next().await? {
        match event {
            ObjectEvent::Put(found) => {
                cached.extend(named(&found));
                enforcement.engine().put_object(object.for_policy(), &Value::Object(found));
            }
            ObjectEvent::Deleted(gone) => {
                let Some(gone) = named(&gone) else { continue };
                enforcement.engine().remove_object(object.for_policy(), gone.0.as_deref(), &gone.1);
                cached.remove(&gone);
            }
        }
        enforcement.changed.notify_one();
    }
    Ok(())
}

impl Enforcement {
    fn object_listed(&self, object: Object, round: u64) {
        let mut engine = self.engine();
        if engine.round() == round && engine.is_listed(Part::Objects(object)) {
            info!("cached all records that policy depends on");
        }
        self.tell(engine);
    }
}

fn named(object: &Map<String, Value>) -> Option<Named> {
    let metadata = object.get("metadata")?;
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).map(str::to_owned);
    Some((text("namespace"), text("name")?))
}
