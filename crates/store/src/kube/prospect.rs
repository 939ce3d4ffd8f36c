//! What somebody asks a cluster before installing in it: which version it is, what he may do, what runs there.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::client::{Client, Effect, Request};
use super::config::KubeConfig;
use super::failure::refusal;
use super::read::unreadable;
use crate::StoreError;

#[derive(Debug)]
pub struct Prospect {
    client: Client,
}

impl Prospect {
    pub async fn connect(config: &KubeConfig) -> Result<Prospect, StoreError> {
        Ok(Prospect { client: Client::connect(config).await? })
    }

    /// `v1.35.4`.
    pub async fn version(&self) -> Result<String, StoreError> {
        let answer =
            self.ask(Request::get("/version".to_owned()), "reading the version of Kubernetes").await?;
        Ok(answer["gitVersion"].as_str().unwrap_or_default().to_owned())
    }

    /// Whether this credential may do something with every object of a kind.
    pub async fn may(&self, verb: &str, group: &str, resource: &str) -> Result<bool, StoreError> {
        let attributes = json!({ "verb": verb, "group": group, "resource": resource });
        let review = json!({ "spec": { "resourceAttributes": attributes } });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned();
        // It is a question, although it is asked by creating something, and may be asked twice.
        let request = Request {
            effect: Effect::Reads,
            ..Request::write(Method::POST, path, review.to_string().into())
        };
        let answer = self.ask(request, "asking what this credential may do").await?;
        Ok(answer["status"]["allowed"].as_bool().unwrap_or_default())
    }

    /// The first objects of a collection, as they are: enough for a look.
    pub async fn list(&self, collection: &str) -> Result<Vec<Value>, StoreError> {
        let request = Request::list(format!("{collection}?limit=500"));
        let mut answer = self.ask(request, &format!("listing {collection}")).await?;
        match answer["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    async fn ask(&self, request: Request, operation: &str) -> Result<Value, StoreError> {
        let answer = self.client.send(&request).await?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => {
                serde_json::from_slice(&answer.body).map_err(|error| unreadable(operation, error))
            }
            _ => Err(refusal(self.client.address(), operation, &answer)),
        }
    }
}
