//! The CustomResourceDefinitions of a cluster: which there are, adding one, and waiting until the API server serves it.

use std::time::Duration;

use http::{Method, StatusCode};
use model::Kind;
use model::kube::Layout;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::client::{Answer, Client, Request};
use super::config::KubeConfig;
use super::failure::refusal;
use super::layout;
use super::read::{is_absence, unreadable};
use crate::StoreError;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SERVED_WITHIN: Duration = Duration::from_secs(60);
const ASK_EVERY: Duration = Duration::from_millis(200);

/// The definitions that a cluster has for one of Calico's API groups.
#[derive(Debug)]
pub struct Definitions {
    client: Client,
    layout: Layout,
}

impl Definitions {
    /// Connects to the API server. Unless the configuration names an API group, it is the one that the cluster uses.
    pub async fn connect(config: &KubeConfig) -> Result<Definitions, StoreError> {
        let client = Client::connect(config).await?;
        let layout = layout::choose(&client, config.api_group.as_deref()).await?;
        let definitions = Definitions { client, layout };
        definitions.refuse_aggregated_group().await?;
        Ok(definitions)
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The definition as it is installed.
    pub async fn find(&self, name: &str) -> Result<Option<Value>, StoreError> {
        self.get(format!("{DEFINITIONS}/{name}"), &format!("reading the definition {name}")).await
    }

    /// Adds a definition. `false` if there is one of this name already.
    pub async fn create(&self, name: &str, definition: &Value) -> Result<bool, StoreError> {
        let body = definition.to_string().into_bytes();
        let answer = self.client.send(&Request::write(Method::POST, DEFINITIONS.to_owned(), body)).await?;
        match answer.status {
            StatusCode::CREATED => Ok(true),
            StatusCode::CONFLICT => Ok(false),
            _ => Err(self.refused(&format!("creating the definition {name}"), &answer)),
        }
    }

    /// Waits until records of the kind can be read, as it takes the server a moment to serve a new definition.
    pub async fn wait_until_served(&self, kind: Kind) -> Result<(), StoreError> {
        let plural = self.layout.plural(kind);
        let operation = format!("waiting until {plural}.{} are served", self.layout.group());
        let request = Request::get(format!("/apis/{}/{plural}?limit=1", self.layout.api_version()));
        let deadline = Instant::now() + SERVED_WITHIN;
        loop {
            let answer = self.client.send(&request).await?;
            match answer.status {
                StatusCode::OK => return Ok(()),
                StatusCode::NOT_FOUND if Instant::now() < deadline => sleep(ASK_EVERY).await,
                StatusCode::NOT_FOUND => {
                    let problem = format!(
                        "the API server does not serve them after {} s; `kubectl get crd {plural}.{} -o yaml` shows why",
                        SERVED_WITHIN.as_secs(),
                        self.layout.group()
                    );
                    return Err(StoreError::Other { operation, source: problem.into() });
                }
                _ => return Err(self.refused(&operation, &answer)),
            }
        }
    }

    /// Where Calico's own API server answers for the v3 group, a definition of ours would never be used.
    async fn refuse_aggregated_group(&self) -> Result<(), StoreError> {
        if self.layout == Layout::V1 {
            return Ok(());
        }
        let (group, version) = (self.layout.group(), self.layout.version());
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{version}.{group}");
        let found = self.get(path, &format!("reading who serves {group}/{version}")).await?;
        let service = found.as_ref().and_then(|found| found.pointer("/spec/service"));
        let Some(service) = service.filter(|service| service.is_object()) else { return Ok(()) };
        let part = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
        Err(StoreError::BadSetting {
            setting: format!("the API group {group}/{version}"),
            problem: format!(
                "is served by the service {}/{}, not from definitions; use {}",
                part("namespace"),
                part("name"),
                Layout::V1.api_version()
            ),
        })
    }

    async fn get(&self, path: String, operation: &str) -> Result<Option<Value>, StoreError> {
        let answer = self.client.send(&Request::get(path)).await?;
        match answer.status {
            StatusCode::OK => {
                let found = serde_json::from_slice(&answer.body);
                found.map(Some).map_err(|error| unreadable(operation, error))
            }
            StatusCode::NOT_FOUND if is_absence(&answer) => Ok(None),
            _ => Err(self.refused(operation, &answer)),
        }
    }

    fn refused(&self, operation: &str, answer: &Answer) -> StoreError {
        refusal(self.client.address(), operation, answer)
    }
}
