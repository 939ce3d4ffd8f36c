//! Kubernetes' own objects, whole: those that show records, and what else Kubernetes says of nodes. For whoever compares records with
//! them; everybody else reads the records.

use std::sync::Arc;

use http::StatusCode;
use model::kube::Layout;
use model::{KeyRange, Kind};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::client::{Client, Request};
use super::config::KubeConfig;
use super::failure::refusal;
use super::object_watch::ObjectWatch;
use super::page::PageMetadata;
use super::range::escaped;
use super::read::unreadable;
use crate::StoreError;

/// As many objects are asked for at once. A pod has ten kilobytes.
const PAGE: usize = 500;

/// A kind of objects that is read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Pod,
    Node,
    /// Of nodes: their kubelets renew them.
    Lease,
    /// Kubernetes' own kind of that name.
    NetworkPolicy,
    ClusterNetworkPolicy,
    AdminNetworkPolicy,
    BaselineAdminNetworkPolicy,
    EndpointSlice,
}

/// Part of a list. All parts show one moment.
#[derive(Clone, Debug)]
pub struct ObjectPage {
    pub objects: Vec<Map<String, Value>>,
    /// Of the moment that it shows.
    pub revision: String,
    /// Where the next part begins, if there is one.
    pub next: Option<String>,
}

/// A part as the API server gives it.
#[derive(Debug, Deserialize)]
struct Answered {
    metadata: PageMetadata,
    #[serde(default)]
    items: Option<Vec<Map<String, Value>>>,
}

/// The objects of one cluster. Clones share the connection.
#[derive(Clone, Debug)]
pub struct KubeObjects {
    client: Arc<Client>,
    /// Which of Calico's API groups keeps the records, where that was found out and not configured.
    found: Option<Layout>,
}

/// Kinds of which every cluster has records.
const USUAL: [Kind; 3] = [Kind::ClusterInformation, Kind::IpPool, Kind::IpamBlock];
const SERVICE_OF_V3: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v3.projectcalico.org";

impl ObjectKind {
    pub(super) fn path(self) -> &'static str {
        match self {
            ObjectKind::Pod => "/api/v1/pods",
            ObjectKind::Node => "/api/v1/nodes",
            ObjectKind::Lease => "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            ObjectKind::NetworkPolicy => "/apis/networking.k8s.io/v1/networkpolicies",
            ObjectKind::ClusterNetworkPolicy => {
                "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
            }
            ObjectKind::AdminNetworkPolicy => "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies",
            ObjectKind::BaselineAdminNetworkPolicy => {
                "/apis/policy.networking.k8s.io/v1alpha1/baselineadminnetworkpolicies"
            }
            ObjectKind::EndpointSlice => "/apis/discovery.k8s.io/v1/endpointslices",
        }
    }

    pub fn plural(self) -> &'static str {
        self.path().rsplit('/').next().unwrap_or_default()
    }

    /// The records that such objects show, belong to, or are like.
    fn range(self) -> KeyRange {
        KeyRange::Kind(match self {
            ObjectKind::Pod => Kind::WorkloadEndpoint,
            ObjectKind::Node | ObjectKind::Lease => Kind::Node,
            ObjectKind::NetworkPolicy | ObjectKind::EndpointSlice => Kind::NetworkPolicy,
            ObjectKind::ClusterNetworkPolicy
            | ObjectKind::AdminNetworkPolicy
            | ObjectKind::BaselineAdminNetworkPolicy => Kind::GlobalNetworkPolicy,
        })
    }
}

impl KubeObjects {
    /// Of a cluster that need not keep the records. Prepares connections; the first list makes one.
    pub async fn connect(config: &KubeConfig) -> Result<KubeObjects, StoreError> {
        Ok(KubeObjects { client: Arc::new(Client::connect(config).await?), found: None })
    }

    pub(super) fn of(client: &Arc<Client>, found: Option<Layout>) -> KubeObjects {
        KubeObjects { client: Arc::clone(client), found }
    }

    /// The API group that keeps the records and the other one, if that has records of its own, too: a migration is under way, and which of
    /// them count is for an operator to say. `None` also where the rights are missing to find out.
    pub async fn divided_groups(&self) -> Result<Option<(Layout, Layout)>, StoreError> {
        // Where v3 keeps the records, v1 is not even served.
        let (Some(Layout::V1), other) = (self.found, Layout::V3) else { return Ok(None) };
        let mut has_records = false;
        for kind in USUAL {
            let path = format!("/apis/{}/{}?limit=1", other.api_version(), other.plural(kind));
            let answer = self.client.send(&Request::list(path)).await?;
            let page: Option<Answered> = serde_json::from_slice(&answer.body).ok();
            let items = page.filter(|_| answer.status == StatusCode::OK).and_then(|page| page.items);
            has_records |= items.is_some_and(|items| !items.is_empty());
        }
        if !has_records {
            return Ok(None);
        }
        // Calico's own API server shows the records of v1 under v3.
        let answer = self.client.send(&Request::get(SERVICE_OF_V3.to_owned())).await?;
        let service: Option<Value> = serde_json::from_slice(&answer.body).ok();
        let is_shown =
            service.is_none_or(|service| service.pointer("/spec/service").is_some_and(Value::is_object));
        Ok((answer.status == StatusCode::OK && !is_shown).then_some((Layout::V1, other)))
    }

    /// A part of the list: the first, or the one that begins where another ended. Fails with [`StoreError::HistoryGone`] if the server
    /// has forgotten the moment of the first.
    pub async fn page(&self, kind: ObjectKind, next: Option<&str>) -> Result<ObjectPage, StoreError> {
        let mut path = format!("{}?limit={PAGE}", kind.path());
        if let Some(next) = next {
            path.push_str(&format!("&continue={}", escaped(next)));
        }
        let operation = format!("listing {}", kind.plural());
        let answer = self.client.send(&Request::list(path)).await?;
        match answer.status {
            StatusCode::OK => {
                let page: Answered =
                    serde_json::from_slice(&answer.body).map_err(|error| unreadable(&operation, error))?;
                let next = Some(page.metadata.next).filter(|next| !next.is_empty());
                let revision = page.metadata.resource_version;
                Ok(ObjectPage { objects: page.items.unwrap_or_default(), revision, next })
            }
            StatusCode::GONE => Err(StoreError::HistoryGone { range: kind.range() }),
            _ => Err(refusal(self.client.address(), &operation, &answer)),
        }
    }

    /// Every change after a list.
    pub fn watch(&self, kind: ObjectKind, revision: &str) -> ObjectWatch {
        ObjectWatch::new(Arc::clone(&self.client), kind, revision)
    }
}
