//! Kubernetes' own objects, whole: those that show records, and what else Kubernetes says of nodes. For whoever compares records with
//! them; everybody else reads the records.

use std::fmt;
use std::sync::Arc;

use http::{Method, StatusCode};
use model::kube::Layout;
use model::{KeyRange, Kind};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::client::{Answer, Client, Request};
use super::config::KubeConfig;
use super::failure::refusal;
use super::object_watch::ObjectWatch;
use super::page::PageMetadata;
use super::range::escaped;
use super::read::{is_absence, unreadable};
use super::write::body;
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

/// One object of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectName<'a> {
    Pod { namespace: &'a str, name: &'a str },
    Namespace(&'a str),
    Node(&'a str),
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

impl ObjectName<'_> {
    fn path(self) -> String {
        match self {
            ObjectName::Pod { namespace, name } => {
                format!("/api/v1/namespaces/{}/pods/{}", escaped(namespace), escaped(name))
            }
            ObjectName::Namespace(name) => format!("/api/v1/namespaces/{}", escaped(name)),
            ObjectName::Node(name) => format!("/api/v1/nodes/{}", escaped(name)),
        }
    }
}

impl fmt::Display for ObjectName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectName::Pod { namespace, name } => write!(f, "pod {namespace}/{name}"),
            ObjectName::Namespace(name) => write!(f, "namespace {name}"),
            ObjectName::Node(name) => write!(f, "node {name}"),
        }
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

    /// One object; `None` if there is none of that name.
    pub async fn get(&self, name: ObjectName<'_>) -> Result<Option<Map<String, Value>>, StoreError> {
        self.fetch(name.path(), format!("reading {name}")).await
    }

    async fn fetch(&self, path: String, operation: String) -> Result<Option<Map<String, Value>>, StoreError> {
        let answer = self.client.send(&Request::get(path)).await?;
        match answer.status {
            StatusCode::OK => object(&operation, &answer).map(Some),
            StatusCode::NOT_FOUND if is_absence(&answer) => Ok(None),
            _ => Err(refusal(self.client.address(), &operation, &answer)),
        }
    }

    /// The server's version, which anybody may ask for.
    pub async fn server_version(&self) -> Result<String, StoreError> {
        let answer = self.client.send(&Request::get("/version".to_owned())).await?;
        let operation = "reading the API server's version";
        if answer.status != StatusCode::OK {
            return Err(refusal(self.client.address(), operation, &answer));
        }
        let version: Value =
            serde_json::from_slice(&answer.body).map_err(|error| unreadable(operation, error))?;
        Ok(version.get("gitVersion").and_then(Value::as_str).unwrap_or_default().to_owned())
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

    /// Every object of the collection at a path, at one moment.
    pub async fn list(&self, path: &str) -> Result<Vec<Map<String, Value>>, StoreError> {
        let operation = format!("listing {path}");
        let (mut objects, mut next) = (Vec::new(), String::new());
        loop {
            let mut page = format!("{path}?limit={PAGE}");
            if !next.is_empty() {
                page.push_str(&format!("&continue={}", escaped(&next)));
            }
            let answer = self.client.send(&Request::list(page)).await?;
            if answer.status != StatusCode::OK {
                return Err(refusal(self.client.address(), &operation, &answer));
            }
            let page: Answered =
                serde_json::from_slice(&answer.body).map_err(|error| unreadable(&operation, error))?;
            objects.extend(page.items.unwrap_or_default());
            next = page.metadata.next;
            if next.is_empty() {
                return Ok(objects);
            }
        }
    }

    /// The object at a path of the API, such as `/api/v1/namespaces/blue`; `None` if it does not exist.
    pub async fn read(&self, path: &str) -> Result<Option<Map<String, Value>>, StoreError> {
        self.fetch(path.to_owned(), format!("reading {path}")).await
    }

    /// Creates an object in the collection at a path. `None` if one of that name exists.
    pub async fn create(
        &self,
        path: &str,
        new: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, StoreError> {
        self.write(Method::POST, path, "creating an object of", new).await
    }

    /// Replaces the object at a path, if it is still at the revision that the new one states. `None` if it is not.
    pub async fn replace(
        &self,
        path: &str,
        new: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, StoreError> {
        self.write(Method::PUT, path, "replacing", new).await
    }

    /// Every change after a list.
    pub fn watch(&self, kind: ObjectKind, revision: &str) -> ObjectWatch {
        ObjectWatch::new(Arc::clone(&self.client), kind, revision)
    }

    async fn write(
        &self,
        method: Method,
        path: &str,
        verb: &str,
        new: &Map<String, Value>,
    ) -> Result<Option<Map<String, Value>>, StoreError> {
        let answer = self.client.send(&Request::write(method, path.to_owned(), body(new))).await?;
        let operation = format!("{verb} {path}");
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => object(&operation, &answer).map(Some),
            StatusCode::CONFLICT => Ok(None),
            StatusCode::NOT_FOUND if is_absence(&answer) => Ok(None),
            _ => Err(refusal(self.client.address(), &operation, &answer)),
        }
    }
}

fn object(operation: &str, answer: &Answer) -> Result<Map<String, Value>, StoreError> {
    serde_json::from_slice(&answer.body).map_err(|error| unreadable(operation, error))
}
